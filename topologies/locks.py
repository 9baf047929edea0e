"""One process at a time: a lock on a file, which the system releases when its process ends, however it ends."""

import contextlib
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: nobody waits
    fcntl = None  # type: ignore[assignment]  # a module elsewhere


class Turn:
    """The turn of this process at something that a file stands for; where there are no locks nobody waits.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     turn = Turn(Path(folder) / "lock")
    ...     turn.take()
    ...     turn.give_back()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> None:
        """Wait until no other process has it, unless this one has."""
        if self._file is None and fcntl is not None:
            with contextlib.suppress(OSError):
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX)

    def give_back(self) -> None:
        """Let the next process go on, if this one has the turn."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
