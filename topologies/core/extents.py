"""Extents of a regular network: parsed, validated, and rejected before they exhaust memory."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path

from topologies.checks import WeftError, integer
from topologies.units import format_size

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]  # a module elsewhere

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Of the container: version 2 and version 1."""

MAX_LINKS = 2**22
"""Those of torus:1024x1024. To build more, and to look at each, takes seconds before any other limit can be seen."""

_MOST: ContextVar[tuple[int, str]] = ContextVar("_MOST", default=(MAX_LINKS, ""))

_BYTES_PER_LINK = 260  # measured: the peak of `weft compare` with Swing alone on torus:2048x2048 was 4.58 GB
_BYTES_PER_NODE = 64


def check_extents(shape: int | Sequence[int], what: str) -> tuple[int, ...]:
    """Extents as a tuple of Python ints.

    `shape`: one positive integer per dimension.
    `what`: name of the item, for error messages.
    WeftError: no extents, or one that is not a positive integer.
    """
    extents = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else (shape,)
    if not extents:
        raise WeftError(f"{what} has no extents: give at least one positive integer")
    return tuple(integer(extent, f"an extent of {what}", 1) for extent in extents)


def parse_extents(text: str, what: str) -> tuple[int, ...]:
    """Extents from text: "8x8" gives (8, 8).

    WeftError: a part is not a positive integer.
    """
    return tuple(parse_extent(part, what) for part in text.split("x"))


def parse_extent(text: str, what: str) -> int:
    """One extent from text.

    WeftError: not a positive integer, or one of more than 18 digits.
    """
    if not re.fullmatch("0*[1-9][0-9]{0,17}", text):
        raise WeftError(f"{what} has the extent {text!r}: extents are positive integers, such as 8 or 8x8")
    return int(text)


def format_extents(extents: Sequence[int]) -> str:
    """Text of extents: (8, 8) gives "8x8"."""
    return "x".join(map(str, extents))


@contextmanager
def links_at_most(most: int, what: str) -> Iterator[None]:
    """Reject, inside a `with`, networks of more links than `what`, for the message, is done with in minutes."""
    before = _MOST.set((min(most, MAX_LINKS), f" {what}"))
    try:
        yield
    finally:
        _MOST.reset(before)


def check_memory(name: str, n_nodes: int, n_links: int) -> None:
    """Reject a network that is too large to build in seconds or to simulate in memory, before anything is allocated.

    WeftError: more nodes than `MAX_LINKS`, more links than that or `links_at_most`, or more memory than the limit with
    the symmetry and the program of a schedule that is alike for all NPUs.
    """
    need, many = n_links * _BYTES_PER_LINK + n_nodes * _BYTES_PER_NODE, n_nodes > MAX_LINKS or n_links > _MOST.get()[0]
    if not many and need <= memory_limit():
        return
    estimate = f"{name} has {n_nodes} nodes and {n_links} links and would need about {format_size(need)} of memory"
    limit = f"the limit is {_MOST.get()[0]:,} links{_MOST.get()[1]}" if many else shown_limit()
    raise WeftError(f"{estimate}: {limit}")


@cache
def _of_machine() -> float:
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return math.inf


@lru_cache(maxsize=16)
def _limit_in(path: str) -> float:
    """The limit that a file states when it is first asked for; infinite if none: its text may be "max"."""
    with suppress(ValueError, OSError):
        return int(Path(path).read_text(encoding="ascii"))
    return math.inf


def physical_memory() -> float:
    """Memory in bytes that this process may use: of the machine, its container and `ulimit -v`; infinite if unknown."""
    found = [_of_machine(), *map(_limit_in, CGROUP_LIMITS)]
    if resource is not None and (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        found.append(limit)
    return min(found)


MEMORY_SHARE = 2 / 3
"""Of the memory of this machine, what a table, a job or a run may take: estimates leave out what else is there."""


def memory_limit() -> float:
    """Bytes that one table, job or run may take; infinite where memory is unknown."""
    return MEMORY_SHARE * physical_memory()


def shown_limit() -> str:
    """The same in words: "the limit is 16 GiB, two thirds of this machine's memory"."""
    return f"the limit is {format_size(int(memory_limit()))}, two thirds of this machine's memory"
