"""From the command line to the first number: CPU of processes of their own, with the engine compiled and without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from tempfile import TemporaryDirectory

HEAD = ("command", "compiled code", "user CPU s")
FIRST = "compare --topology torus:4x4 --collective all-reduce --algorithms ring -b 1M -e 1M"
LONG = "compare --topology ring:8 --collective all-reduce --algorithms ring -b 64M -e 64M --chunks 8192"
"""Has stretches that repeat, and so another kernel to compile."""


def rows() -> Iterator[Sequence[str]]:
    """Help, and results with an empty cache and a filled one."""
    yield "--help", "-", f"{user_s('--help', None):.2f}"
    for command in (FIRST, LONG):
        with TemporaryDirectory() as folder:
            yield command, "none", f"{user_s(command, folder):.2f}"
            yield command, "all that it needs", f"{user_s(command, folder):.2f}"


def user_s(command: str, cache: str | None) -> float:
    """User CPU of a command, its imports included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    kept = {"NUMBA_CACHE_DIR": cache} if cache else {}
    words = [sys.executable, "-m", "sim", *command.split()]
    subprocess.run(words, env=os.environ | kept, capture_output=True, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
