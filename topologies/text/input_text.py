"""Text of foreign files: bounded size, UTF-8, and every error is one line that names the file."""

import hashlib
import stat
import time
from pathlib import Path

from topologies.checks import WeftError, told
from topologies.text.kinds import HEAD, MEASURED, refuse_other

MOST_BYTES = 64 * 2**20
"""Size limit for a foreign file; parsing this much text takes seconds."""

STANDARD_INPUT = "/dev/stdin"
"""The one pipe that is read: who asks for it writes to it."""

SETTLED_NS = 2_000_000_000
"""Coarsest time stamp of a file system: two changes of a file within it may leave the same one."""


def read_input(path: str | Path, what: str, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file.

    `what`: what the file is for, for messages: "topology file".
    `most_bytes`: larger files are rejected before being read.
    WeftError: the file cannot be read, is too large, is empty, is not UTF-8 text, or is known to be something else.
    """
    data = read_input_bytes(path, what, most_bytes)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse_other(data[:HEAD].decode("latin-1"), path, what)
        raise WeftError(f"{what} {path} is not UTF-8 text") from None
    if what != MEASURED or "\0" in text:  # whose tables may stand behind whatever else a job has written
        refuse_other(text, path, what)
    if "\0" in text:
        raise WeftError(f"{what} {path} is not text: it contains zero bytes")
    if not text.strip():
        raise WeftError(f"{what} {path} is empty")
    return text


def read_input_bytes(path: str | Path, what: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file; parameters as for `read_input`.

    WeftError: a pipe or a device, which might never end; the file cannot be read, or is too large.
    """
    if "\0" in str(path):
        raise WeftError(f"{what} {told(str(path))} cannot be read: no name of a file has a zero byte")
    try:
        if is_special(path) and str(path) != STANDARD_INPUT:
            raise WeftError(f"{what} {path} cannot be read: it is a pipe or a device, name a file")
        with Path(path).open("rb") as stream:
            data = stream.read(most_bytes + 1)  # files of /proc have no size to query
    except OSError as error:
        raise WeftError(f"{what} {path} cannot be read: {error.strerror}") from None
    if len(data) > most_bytes:
        raise WeftError(f"{what} {path} is larger than the limit of {limit_text(most_bytes)}")
    return data


def is_special(path: str | Path) -> bool:
    """Whether something is neither a file nor a folder: reading or opening it may wait for ever."""
    return Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()


def stamp_of(path: str | Path) -> tuple[int | bytes, ...]:
    """What differs once a file has been changed; empty if there is none, for its reader to report.

    A file whose time stamps are so recent that another change may not show in them is known by its content as well.
    """
    try:
        facts = Path(path).stat()
        at = facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
        settled = time.time_ns() - max(facts.st_mtime_ns, facts.st_ctime_ns) > SETTLED_NS
        if settled or not stat.S_ISREG(facts.st_mode):
            return at
        with Path(path).open("rb") as stream:
            return *at, hashlib.file_digest(stream, "sha256").digest()
    except (OSError, ValueError):
        return ()


def limit_text(n_bytes: int) -> str:
    """A limit for messages: "64 MiB"."""
    return f"{n_bytes >> 20} MiB" if n_bytes >= 2**20 else f"{n_bytes} B"
