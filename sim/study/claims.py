"""Claims on points: locks that end with their process, so that several processes share a sweep and none gets stuck."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from topologies import WeftError

_TAKEN = (errno.EACCES, errno.EAGAIN)
_OFFSET_LETTERS = 15
"""Digits of a key: a byte below 2^60 represents the point. Two points with the same byte only wait for each other."""
_USERS = 1 << 60
"""The byte that all processes share which have the file open."""


class Claims:
    """Claims on points of a store, in an empty file beside it.

    A claim is a lock on one byte of the file, which the system releases when the process ends, however it ends. The
    store is correct without claims; they keep processes from computing the same point. Locks belong to a process: use
    one `Claims` per store in each.

    The last process that uses the file removes it; one that is killed leaves it to the next.

    `store`: of the store.
    """

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + "-claims")
        try:
            self._file = self._open()
            while not self._in_place():  # removed by another process before it was locked here
                os.close(self._file)
                self._file = self._open()
        except OSError as fault:
            raise WeftError(f"claims file {self.path}: {fault.strerror}") from None

    def _open(self) -> int:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.lockf(file, fcntl.LOCK_SH, 1, _USERS)
        return file

    def _in_place(self) -> bool:
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def take(self, key: str) -> bool:
        """Claim a point; False if another process has."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(key))
        except OSError as fault:
            if fault.errno in _TAKEN:
                return False
            raise WeftError(f"claims file {self.path}: this file system has no locks ({fault.strerror})") from None
        return True

    def give_back(self, key: str) -> None:
        """Release the point to others."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _offset(key))

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        with suppress(OSError):  # another process uses it
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _USERS)
            self.path.unlink()
        os.close(self._file)


def _offset(key: str) -> int:
    return int(key[:_OFFSET_LETTERS], 16)
