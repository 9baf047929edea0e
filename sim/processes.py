"""A pool of worker processes that leaves nothing behind: not after Ctrl-C, not after kill -9 of the parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

EXIT_ORPHANED = 1


@contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes for the length of a `with`; an exception inside it ends them at once.

    Parameters
    ----------
    workers : int
    """
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=begin_worker)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    pool.shutdown()


def begin_worker() -> None:
    """What a worker does first: Ctrl-C is to end it silently, for the parent speaks; so is the end of the parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # a pipe whose other end the parent holds: it also closes when the parent is killed
        os._exit(EXIT_ORPHANED)
