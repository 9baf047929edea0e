"""Schedule files in place of an algorithm name: MSCCL XML and ForestColl tree XML, proved when read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import PurePath

from collectives.core.by_wiring import by_wiring
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.formats.forestcoll_xml import all_gather_pattern, parse_forestcoll
from collectives.formats.msccl import msccl_pattern
from collectives.formats.msccl_order import Cut, cut_of
from collectives.formats.msccl_program import RUNTIMES, Algo, not_run, parse_msccl, told_limits
from topologies import Topology, WeftError
from topologies.checks import choice
from topologies.text.input_text import read_input, stamp_of
from topologies.units import Quantity, parse_size

SUFFIX = ".xml"
"""An algorithm name with this suffix is a file."""

def called(name: str) -> str:
    """What results call an algorithm: a file by its name without folders."""
    return PurePath(name).name if name.endswith(SUFFIX) else name


_FORESTCOLL = re.compile(r"<tree[\s>]")


def functions_of(path: str) -> Mapping[str, Callable[..., Schedule]]:
    """What a file implements, as in the registry: a function (topology, size, *, element_bytes) for each collective.

    WeftError: a file that cannot be read or is neither format.
    """
    text = _text(path)
    if _FORESTCOLL.search(text):
        return {"all-gather": partial(_build_forestcoll, path)}
    return {_parsed(text, path).kind: partial(_build_msccl, path)}


def _build_forestcoll(
    path: str, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    return schedule(_forestcoll(topology, path, _text(path)), size, element_bytes)


def _build_msccl(
    path: str, topology: Topology, size: Quantity, *, runtime: str = "", element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """The schedule of a program; of a runtime that is named, all limits hold, and others are noted."""
    text, size_bytes = _text(path), parse_size(size, "size")
    algo = _parsed(text, path)
    if runtime and (why := not_run(algo, choice(runtime, RUNTIMES, "runtime"), size_bytes)):
        raise WeftError(f"{runtime} does not run {path}: {why}")
    note = "" if runtime else told_limits(algo, size_bytes)
    return schedule(_msccl(topology, path, text, cut_of(algo, size_bytes), note), size, element_bytes)


def file_digest(path: str) -> str:
    """A digest of the content of a schedule file.

    WeftError: it cannot be read.
    """
    return _read(path, stamp_of(path))[1]


def _text(path: str) -> str:
    return _read(path, stamp_of(path))[0]


@lru_cache(maxsize=64)
def _read(path: str, stamp: tuple[int | bytes, ...]) -> tuple[str, str]:
    """The text and its digest; read again if the file has changed."""
    text = read_input(path, "schedule file")
    return text, hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=8)
def _parsed(text: str, path: str) -> Algo:
    return parse_msccl(text, path)


@by_wiring
def _forestcoll(topology: Topology, path: str, text: str) -> Pattern:
    return all_gather_pattern(parse_forestcoll(text, topology, path), called(path))


@by_wiring
def _msccl(topology: Topology, path: str, text: str, cut: Cut, note: str) -> Pattern:
    return msccl_pattern(_parsed(text, path), topology, cut, note, called(path))
