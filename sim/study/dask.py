"""A Dask cluster as an executor: a running scheduler, by its address."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from topologies import WeftError

CONNECT_SECONDS = 10


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, int]]:
    """The executor of a scheduler, and how many points its workers compute at once.

    `address`: "tcp://host:8786". Its workers need weft, of the same version.
    WeftError: distributed is not installed, the scheduler does not answer, or it has no workers.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise WeftError("--dask needs distributed: pip install 'weft[dask]'") from None
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as fault:
        why = (str(fault) or type(fault).__name__).splitlines()[0]
        raise WeftError(f"--dask {address}: no scheduler answers there ({why})") from None
    try:
        threads = sum(client.nthreads().values())
        if not threads:
            raise WeftError(f"--dask {address}: the scheduler has no workers: start some with `dask worker {address}`")
        yield client.get_executor(pure=False), threads
    finally:
        client.close()
