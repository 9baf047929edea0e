"""A pool of worker processes that leaves nothing behind: not after Ctrl-C, not after kill -9 of the parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from sim.study.worker_stages import gathered, measure_worker
from topologies.checks import WeftError
from topologies.stages import doing

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")

EXIT_ORPHANED = 1

MOST_WORKERS = 1024
"""Limit on worker processes; more cores have more than one host."""

begun = False
"""Whether this process has had workers."""


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
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes for the length of a `with`; an exception inside it ends them at once."""
    global begun
    begun = True
    others = set(multiprocessing.active_children())
    with gathered() as told:
        pool = WorkerPool(workers, multiprocessing.get_context("spawn"), initializer=begin_worker, initargs=(told,))
        try:
            with doing(f"the work of {workers} processes"):
                yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
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
