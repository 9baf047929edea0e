"""Files of results: checked before a run, written whole or not at all."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topologies import WeftError

if TYPE_CHECKING:
    from sim.spec import Spec

FIGURES = (".png", ".pdf", ".svg")
SUFFIXES = {"plot": FIGURES, "heatmap": FIGURES, "output": (".graphml", ".json")}
FILES = ("json", "csv", "plot", "heatmap", "links", "output")
"""Flags that name a file."""

STANDARD_OUTPUT = "-"


def check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse outputs that could not be written, before anything is computed.

    Raises
    ------
    WeftError
        No such folder, a folder in place of the file, no permission, or a figure of an unknown kind.
    """
    for flag in FILES:
        name = getattr(arguments, flag, None)
        if name is None or name == STANDARD_OUTPUT:
            continue
        path = Path(name)
        if not path.parent.is_dir():
            raise WeftError(f"--{flag} {name}: there is no folder {path.parent}")
        if path.is_dir():
            raise WeftError(f"--{flag} {name} is a folder: give a file name")
        if not os.access(path.parent, os.W_OK):
            raise WeftError(f"--{flag} {name}: the folder {path.parent} is not writable")
        if flag in SUFFIXES and path.suffix not in SUFFIXES[flag]:
            raise WeftError(f"--{flag} {name} has the suffix {path.suffix!r}: write {' or '.join(SUFFIXES[flag])}")


def write_whole(path: str | Path, write: Callable[[Path], None]) -> None:
    """Write a file through a temporary one beside it, so that it appears whole or not at all.

    Parameters
    ----------
    path : path
    write : callable (path)
        Writes the file whose name it is given; the suffix is that of `path`.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: str, text: str) -> None:
    """Write text to a file, or to standard output for "-"."""
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)


def to_json(spec: Spec, rows: Sequence[Mapping[str, Any]], **more: Any) -> str:
    """The JSON of results: version, spec, resolved model, and rows; runs again with `--spec FILE`."""
    from sim.version import weft_version

    data = {"weft": weft_version(), "spec": spec.to_dict(), "model": asdict(spec.build_model()), **more}
    return json.dumps(data | {"rows": list(rows)}, indent=1) + "\n"


def say(arguments: argparse.Namespace, *lines: str) -> None:
    """Print for people: to standard output, or to standard error where a file goes there."""
    taken = any(getattr(arguments, flag, None) == STANDARD_OUTPUT for flag in FILES)
    for line in lines:
        print(line, file=sys.stderr if taken else sys.stdout)


def say_where(arguments: argparse.Namespace) -> None:
    """Tell which files were written."""
    for flag in FILES:
        name = getattr(arguments, flag, None)
        if name not in (None, STANDARD_OUTPUT) and not arguments.quiet:
            print(f"wrote {name}", file=sys.stderr)
