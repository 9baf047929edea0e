"""Finished points of sweeps in one SQLite file: each written whole in its own transaction, never changed afterwards.

While a process writes there is a write-ahead log beside it: readers need not wait. A point syncs it, unless one did a
tenth of a second before: a loss of power costs no more than that work, and kill -9 nothing. The last process to
close merges the log and leaves one plain file, which can also be read on a read-only disk. The log is for local disks:
processes share its index in memory.
"""

import errno
import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, NamedTuple

from topologies.checks import WeftError, checked, told
from topologies.text.brief import WIDTH, cut, one_line
from topologies.text.input_text import is_special
from topologies.text.plain_data import parse_json

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

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        with suppress(OSError):  # another process uses it
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _USERS)
            self.path.unlink()
        os.close(self._file)


def _offset(key: str) -> int:
    return int(key[:_OFFSET_LETTERS], 16)


APPLICATION_ID = 0x77656674
"""In the header of the file: "weft"."""

FORMAT = 1
"""Of the tables, in the header of the file."""

LOCK_SECONDS = 60.0
"""How long to wait for another process that writes."""

SYNC_SECONDS = 0.1
"""Least time between two syncs of the log: each makes all points before it durable."""

READ_SECONDS = 2.0
"""How long to wait for it where nothing but reading is asked for."""

TELL_SECONDS = 1.0
"""A longer wait is told of."""

TRY_SECONDS = 0.1
"""Of one attempt: SQLite waits in it, and hears neither signals nor the clock of a whole statement."""

RETRY_SECONDS = 0.01
"""Between two attempts where SQLite itself does not wait."""

_DISK_FAULTS = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}

_TABLE = """
CREATE TABLE point (
    key TEXT PRIMARY KEY,   -- sim.study.key
    spec TEXT NOT NULL,     -- JSON, to run the point again
    row TEXT,               -- JSON; NULL where the point cannot run
    refused TEXT,           -- why it cannot
    wall_s REAL NOT NULL,   -- of the machine that ran it: the one thing that differs from run to run
    weft TEXT NOT NULL,     -- version that computed it
    CHECK ((row IS NULL) <> (refused IS NULL))
)
"""


@one_line
class Finished(NamedTuple):
    """A finished point: it has a row, or a reason why it cannot run."""

    key: str
    spec: dict[str, Any]  # sections of the spec of this point alone
    row: dict[str, Any] | None  # without `wall_s`
    refused: str | None
    wall_s: float
    weft: str


@checked
class Store:
    """The file of finished points.

    Parameters
    ----------
    path : path
        Created if it does not exist, unless `read_only`.
    read_only : bool
        Only read; works on a read-only disk.
    tell : callable, optional
        Called once with a line if another process keeps the store locked for long.

    Raises
    ------
    WeftError
        The file cannot be opened, or is not a store.
    OSError
        Here and later: the disk is full or fails.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, tell: Callable[[str], None] | None = None) -> None:
        self.path, self._read_only, self._tell = Path(path), read_only, tell
        self._patience_s = READ_SECONDS if read_only else LOCK_SECONDS
        if is_special(path):
            raise WeftError(f"store {path} is a pipe or a device: name a file")
        if read_only and not self.path.exists():
            raise WeftError(f"store {path} does not exist: run the sweep first")
        if self.path.is_file() and self.path.stat().st_size == 1:  # which SQLite takes for an empty one
            raise WeftError(f"store {path}: file is not a database")
        with self._told():
            # rw also opens a file that cannot be written, and otherwise undoes what a killed process had begun
            name = f"{self.path.absolute().as_uri()}?mode={'rw' if read_only else 'rwc'}"
            self._database = sqlite3.connect(name, TRY_SECONDS, isolation_level=None, uri=True)
        try:
            with self._told():
                self._open()
        except BaseException:
            self._database.close()
            raise

    def __repr__(self) -> str:
        return f"<store {cut(str(self.path), WIDTH - 20)}>"

    def _open(self) -> None:
        self._execute("PRAGMA synchronous = FULL")
        self._syncs, self._synced = True, 0.0
        if not self._is_new():
            self._check_format()
        elif self._read_only:
            raise WeftError(f"store {self.path} is empty: run the sweep first")
        else:
            self._create()
        if not self._read_only:
            self._execute("PRAGMA journal_mode = WAL")  # else the rollback journal stays, which is as safe

    def _execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Execute a statement as soon as no other process keeps the file locked; patience is limited."""
        begin, is_told = monotonic(), False
        while True:
            try:
                return self._database.execute(statement, values)
            except sqlite3.OperationalError as fault:
                waited_s = monotonic() - begin
                if fault.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited_s >= self._patience_s:
                    raise
            if self._tell is not None and waited_s >= TELL_SECONDS and not is_told:
                self._tell(f"store {self.path} is locked by another process: waiting up to {self._patience_s:g} s")
                is_told = True
            sleep(RETRY_SECONDS)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._execute(begin)
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            self._database.rollback()
            raise

    def _is_new(self) -> bool:
        return bool(self._value("SELECT count(*) FROM sqlite_schema") == 0 and self._value("PRAGMA user_version") == 0)

    def _check_format(self) -> None:
        if self._value("PRAGMA application_id") != APPLICATION_ID:
            raise WeftError(f"store {self.path} is another kind of database: name another file")
        if (found := self._value("PRAGMA user_version")) != FORMAT:
            raise WeftError(f"store {self.path} has format {found}, and this weft reads {FORMAT}: name another file")

    def _create(self) -> None:
        """Create the table, unless another process already has."""
        with self._transaction("BEGIN EXCLUSIVE"):
            if self._is_new():
                self._execute(_TABLE)
                self._execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._execute(f"PRAGMA user_version = {FORMAT}")

    def add(self, *points: Finished) -> int:
        """Write points, and say how many; those that are already stored do not change.

        They outlive this process at once, and a loss of power from the next sync on.
        """
        values = [(
            point.key, json.dumps(point.spec), None if point.row is None else json.dumps(point.row), point.refused,
            point.wall_s, point.weft,
        ) for point in points]
        now = monotonic()
        syncs = now - self._synced >= SYNC_SECONDS
        with self._told():
            if syncs != self._syncs:
                self._execute(f"PRAGMA synchronous = {'FULL' if syncs else 'NORMAL'}")
                self._syncs = syncs
            with self._transaction("BEGIN IMMEDIATE"):
                insert = "INSERT OR IGNORE INTO point VALUES (?, ?, ?, ?, ?, ?)"
                written = self._database.executemany(insert, values).rowcount
        if syncs:
            self._synced = now
        return written

    def forget(self, keys: Iterable[str]) -> None:
        """Drop points, to run them again."""
        with self._told(), self._transaction("BEGIN IMMEDIATE"):
            self._database.executemany("DELETE FROM point WHERE key = ?", [(key,) for key in keys])

    def get(self, key: str) -> Finished | None:
        """A point, if it is finished."""
        with self._told():
            found = self._execute("SELECT * FROM point WHERE key = ?", (key,)).fetchone()
        return None if found is None else self._finished(found)

    def __contains__(self, key: str) -> bool:
        with self._told():
            return bool(self._execute("SELECT 1 FROM point WHERE key = ?", (key,)).fetchone())

    def __len__(self) -> int:
        with self._told():
            return int(self._value("SELECT count(*) FROM point"))

    def reasons(self, *keys: str) -> dict[str, str | None]:
        """Every key, or those of some that are stored, with the reason if the point cannot run."""
        some = f" WHERE key IN ({','.join('?' * len(keys))})" if keys else ""
        with self._told():
            return dict(self._execute(f"SELECT key, refused FROM point{some}", keys).fetchall())

    def close(self) -> None:
        """Close the file; nothing is left to write. The log is removed if no other process has the file open."""
        try:
            if not self._read_only:
                self._database.execute("PRAGMA busy_timeout = 0")
                self._database.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error:
            pass  # another process has it open, or the disk is full: the log stays and holds everything
        finally:
            self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _value(self, statement: str) -> Any:
        return self._execute(statement).fetchone()[0]

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as fault:
            number = _DISK_FAULTS.get(getattr(fault, "sqlite_errorcode", 0) & 0xFF)
            if number is not None:
                raise OSError(number, f"{fault}; finished points are stored", str(self.path)) from None
            busy = getattr(fault, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            waited = f" by another process, and {self._patience_s:g} s were not enough" if busy else ""
            raise WeftError(f"store {self.path}: {fault}{waited}") from None

    def _finished(self, found: tuple[Any, ...]) -> Finished:
        key, spec, row, refused, wall_s, weft = found
        where = f"store {self.path}: point {told(key)}"
        written = {"spec": spec} if row is None else {"spec": spec, "row": row}
        plain = {name: parse_json(text, f"{where}: its {name}") for name, text in written.items()}
        for name, value in plain.items():
            if not isinstance(value, dict):
                raise WeftError(f"{where}: its {name} is {told(value)}, not an object: name another file")
        return Finished(key, plain["spec"], plain.get("row"), refused, wall_s, weft)
