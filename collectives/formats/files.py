"""Schedule files in place of an algorithm name: MSCCL XML and ForestColl tree XML, proved when read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.formats.forestcoll_xml import all_gather_pattern, parse_forestcoll
from collectives.formats.msccl import msccl_pattern
from collectives.formats.msccl_order import Cut, cut_of
from collectives.formats.msccl_program import Algo, parse_msccl
from topologies import Topology, WeftError
from topologies.flows.tightest_cut import remembered
from topologies.text.input_text import read_input
from topologies.units import Quantity, parse_size

SUFFIX = ".xml"
"""An algorithm name with this suffix is a file."""

_FORESTCOLL = re.compile(r"<tree[\s>]")


def functions_of(path: str) -> Mapping[str, Callable[..., Schedule]]:
    """What a file implements, as in the registry: a function (topology, size, *, element_bytes) for each collective.

    Raises
    ------
    WeftError
        A file that cannot be read or is neither format.
    """
    text = _text(path)
    kind = "all-gather" if _FORESTCOLL.search(text) else _parsed(text, path).kind

    def build(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
        text = _text(path)
        if _FORESTCOLL.search(text):
            return schedule(_forestcoll(topology, path, text), size, element_bytes)
        cut = cut_of(_parsed(text, path), parse_size(size, "size"))
        return schedule(_msccl(topology, path, text, cut), size, element_bytes)

    return {kind: build}


def _text(path: str) -> str:
    try:
        stat = Path(path).stat()
    except OSError as error:
        raise WeftError(f"schedule file {path} cannot be read: {error.strerror}") from None
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _read(path: str, changed_ns: int, size_bytes: int) -> str:
    """The text; read again if the file has changed."""
    return read_input(path, "schedule file")


@lru_cache(maxsize=8)
def _parsed(text: str, path: str) -> Algo:
    return parse_msccl(text, path)


@remembered
def _forestcoll(topology: Topology, path: str, text: str) -> Pattern:
    return all_gather_pattern(parse_forestcoll(text, topology, path))


@remembered
def _msccl(topology: Topology, path: str, text: str, cut: Cut) -> Pattern:
    return msccl_pattern(_parsed(text, path), topology, cut)
