"""From the command line to the first number: CPU of processes of their own, in a checkout and after an installation."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import wheel

HEAD = ("command", "compiled code", "user CPU s")
NOTE = (
    "Imports included. The wheel has the kernels that these commands need, compiled for any processor like those of "
    "`make wheel`; it is installed into a new environment, and each command finds an empty home."
)
CHECKOUT, WARM, INSTALLED = "a checkout, none", "a checkout, all that it needs", "a wheel, just installed"

HELP = "--help"
FIRST = "compare --topology torus:4x4 --collective all-reduce --algorithms ring -b 1M -e 1M"
README = "compare --topology torus:8x8 --collective all-reduce --algorithms swing,ring,bucket -b 32 -e 512M -f 4"


def rows(quick: bool) -> Iterator[Sequence[str]]:
    """Help, and results with an empty cache, a filled one, and from a wheel."""
    weft = [sys.executable, "-m", "sim"]
    yield HELP, WARM, f"{user_s([*weft, HELP]):.2f}"
    for command in (FIRST, README):
        with TemporaryDirectory() as folder:
            for what in (CHECKOUT, WARM):
                yield command, what, f"{user_s([*weft, *command.split()], NUMBA_CACHE_DIR=folder):.2f}"
    if not quick:
        yield from installed_rows()


def installed_rows() -> Iterator[Sequence[str]]:
    """The same commands as the first after an installation."""
    with TemporaryDirectory() as name:
        scratch = Path(name)
        plain = wheel.install_alone(wheel.build(scratch / "plain"), scratch / "compiles")
        wheel.compile_into(scratch / "shipped", plain, (README,))
        programs = wheel.install_alone(wheel.build(scratch / "full", scratch / "shipped"), scratch / "installed")
        for command in (FIRST, README):
            with TemporaryDirectory() as home:
                words = [str(programs / "weft"), *command.split()]
                yield command, INSTALLED, f"{user_s(words, folder=home, HOME=home):.2f}"


def user_s(words: Sequence[str], folder: str | None = None, **more: str) -> float:
    """User CPU of a command, its imports included."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON", "XDG"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(words, env=keep | more, cwd=folder, capture_output=True, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
