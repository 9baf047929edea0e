"""Files that appear whole or not at all, whatever happens while they are written."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from topologies.stages import staged
from topologies.text.input_text import is_special


@staged("output")
def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Write a file through a temporary one beside it, so that it appears whole or not at all.

    A link is followed. A device or a pipe, which nothing may replace, is written to in one go; a pipe that nobody reads
    is an error at once.

    `write`: writes the file whose name it is given; the suffix is that of `path`.
    OSError: it could not be written, and what was there is as before.
    """
    path = Path(path)
    special = is_special(path)
    if not special:
        path = path.resolve()
    temporary = None
    try:
        temporary = _new_for(Path(tempfile.gettempdir()) / path.name if special else path)
        write(temporary)
        if special:
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # or a pipe would wait for its reader for ever
            os.set_blocking(handle, True)
            with open(handle, "wb") as target:
                target.write(temporary.read_bytes())
        else:
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
    except OSError as fault:
        if fault.errno is None:
            raise
        raise OSError(fault.errno, fault.strerror, str(path)) from fault
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes_whole(path: str | Path, data: bytes) -> None:
    """Write bytes, whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_bytes(data))


def write_text_whole(path: str | Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all; lines end as they are given."""
    write_bytes_whole(path, text.encode("utf-8"))


def _new_for(path: Path) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
