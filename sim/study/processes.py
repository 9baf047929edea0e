"""Where points are computed elsewhere: worker processes, or a running Dask cluster by its address.

Workers leave nothing behind: not after Ctrl-C, not after kill -9 of the parent. Where anybody asks for stages, each
leaves its own in a folder when it ends, and the parent adds them up.
"""

import importlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from topologies.checks import WeftError
from topologies.stages import Profile, Stage, doing, profiled, start_profile

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")

EXIT_ORPHANED = 1

MOST_WORKERS = 1024
"""Limit on worker processes; more cores have more than one host."""

begun = False
"""Whether this process has had workers."""

_shared: ProcessPoolExecutor | None = None


class WorkerPool(ProcessPoolExecutor):
    """Worker processes that ignore Ctrl-C before `begin_worker`: until then it would be a traceback of imports."""

    def submit(
        self, fn: Callable[Arguments, Found], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Found]:
        """As of every executor; workers are started here and inherit the blocked signals."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a Ctrl-C that came meanwhile is delivered now


def check_workers(workers: int, flag: str = "--workers") -> None:
    """Reject numbers of workers that no host runs."""
    if not 1 <= workers <= MOST_WORKERS:
        raise WeftError(f"{flag} {workers} is out of range: give 1 to {MOST_WORKERS}")


@contextmanager
def processes(workers: int, share: bool = False) -> Iterator[ProcessPoolExecutor]:
    """Worker processes for the length of a `with`; an exception inside it ends them at once.

    `share`: whoever asks for processes inside it gets these, which have imported everything.
    """
    global begun, _shared
    if _shared is not None:
        yield _shared
        return
    begun = True
    others = set(multiprocessing.active_children())
    with gathered() as told:
        pool = WorkerPool(workers, multiprocessing.get_context("spawn"), initializer=begin_worker, initargs=(told,))
        try:
            with doing(f"the work of {workers} processes"):
                _shared = pool if share else None
                yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            _shared = None
        pool.shutdown()


def begin_worker(told: Path | None = None) -> None:
    """First step of a worker: Ctrl-C ends it silently, for the parent reports it; so does the end of the parent.

    `told`: folder in which it leaves its stages, if anybody asks for them.
    """
    if not sys.warnoptions:  # as in the command
        warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent blocked it, see `WorkerPool`
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    if told is not None:
        measure_worker(told)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # a pipe whose other end the parent holds: it also closes when the parent is killed
        os._exit(EXIT_ORPHANED)


OF_POINTS = "sim.study.points"
"""What the first point of a worker would import."""


@contextmanager
def gathered() -> Iterator[Path | None]:
    """The folder for the workers of a `with`, whose stages are added at its end; None where nobody asks for them."""
    if (profile := profiled()) is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="weft-stages-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            _add_up(profile, Path(folder))


def measure_worker(folder: Path) -> None:
    """Measure this process from now on, and leave its stages in a folder when it ends in order."""
    begun = folder / str(os.getpid())
    begun.touch()
    profile = start_profile()
    with profile.stage("imports"):
        importlib.import_module(OF_POINTS)
    Finalize(None, _leave, args=(profile, begun), exitpriority=0)


def _leave(profile: Profile, begun: Path) -> None:
    stages = {name: vars(one) for name, one in profile.up_to_now().items()}
    whole = begun.with_suffix(".json")
    whole.write_text(json.dumps(stages), encoding="utf-8")
    whole.replace(begun)


def _add_up(profile: Profile, folder: Path) -> None:
    """One file for each worker that has begun, empty if it was ended before it could write."""
    for begun in folder.iterdir():
        if begun.suffix:
            continue
        if text := begun.read_text(encoding="utf-8"):
            profile.add({name: Stage(**one) for name, one in json.loads(text).items()})
        else:
            profile.unmeasured += 1


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
