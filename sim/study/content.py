"""Digests of everything in a fabric, a schedule and an algorithm that decides a result, field by field.

A field is digested unless it is named below with the reason; so a new one cannot be forgotten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from collectives import Collective, Pattern, Schedule
from collectives.core.collective import COLLECTIVES
from collectives.core.routes import paths_of
from collectives.registry import Algorithm
from sim.program.model import Model
from topologies import Router, Topology
from topologies.core.rateless import IDENTIFYING, wiring_of
from topologies.flows.tightest_cut import remembered

DIGEST_LETTERS = 32
"""Of the hexadecimal SHA-256: 128 bits."""

SOURCES_AT_ONCE = 4096
"""Sources whose transfers are in memory together while a digest of them is made."""

TOPOLOGY_ELSEWHERE = {
    "name": "digested without the name of a file that it was read from",
    "router": "by value if it is weft's own; of any other, the routes that the transfers take",
    "link_ptr": "follows from src",
}
PATTERN_ELSEWHERE = {
    "topology": "as a fabric, and in the routes of the transfers",
    "kind": "by its name; of one that is not weft's own, by what it asks of every block",
    "emit": "the transfers of every source",
    "blocks_of": "for the proof: no time depends on it",
    "groups": "those computed on demand are read one by one",
}
ALGORITHM_ELSEWHERE = {
    "name": "in the key of the point",
    "help": "for people",
    "limits": "for people",
    "functions": "by the schedules that they return",
    "forms": "by the schedules of each",
    "options": "for people; the functions take them",
    "built_from_rates": "decides what may be built once, not what is built",
}

_Feed = Callable[[Any], None]


def schedule_digest(schedule: Schedule, model: Model, file: str = "") -> str:
    """A digest of a schedule: transfers, the routes that they take, the fabric, and what says how it is run.

    `file`: the topology file, whose name does not count.
    """
    digest, pattern = hashlib.sha256(), schedule.pattern
    _feed((fabric_digest(pattern.topology, file), schedule.size_bytes, schedule.element_bytes), digest.update)
    _feed_fields(pattern, PATTERN_ELSEWHERE, digest.update)
    _feed(_said_of(pattern.kind, pattern), digest.update)
    _feed([tuple(group) for group in pattern.groups], digest.update)
    n_sources = pattern.n_sources or pattern.p
    for first in range(0, n_sources, SOURCES_AT_ONCE):
        transfers = pattern.emit(np.arange(first, min(first + SOURCES_AT_ONCE, n_sources)))
        _feed(tuple(transfers), digest.update)
        if not is_own(pattern.topology.router):
            _feed(tuple(paths_of(transfers, pattern.topology, model.tie, model.seed)), digest.update)
    return digest.hexdigest()[:DIGEST_LETTERS]


def fabric_digest(topology: Topology, file: str = "") -> str:
    """A digest of a fabric; of a router that is not weft's own only its type, for what it does is in its routes.

    `file`: where the fabric was read from: its name does not count.
    """
    if topology not in _digests:
        shared = _fed_by_wiring(wiring_of(topology), file)
        own = {name: _fed((name, getattr(topology, name))) for name in _DIGESTED if name not in shared}
        digest = hashlib.sha256(b"".join((shared | own)[part] for part in ("", *_DIGESTED)))
        _digests[topology] = digest.hexdigest()[:DIGEST_LETTERS]
    return _digests[topology]


@remembered
def _fed_by_wiring(wiring: Topology, file: str) -> dict[str, bytes]:
    """What a digest is fed of the fields that topologies of one wiring share, and, under "", before all fields."""
    name = wiring.name
    for named in (file, Path(file).name, Path(file).stem) if file else ():
        name = name.replace(named, "")
    router = wiring.router if is_own(wiring.router) else type(wiring.router).__name__
    head = _fed((name, router)) + _fed([None] * len(_DIGESTED)).removesuffix(_fed(None) * len(_DIGESTED))
    return {"": head} | {name: _fed((name, getattr(wiring, name))) for name in IDENTIFYING}


_DIGESTED = tuple(one.name for one in fields(Topology) if one.name not in TOPOLOGY_ELSEWHERE)

_digests: WeakKeyDictionary[Topology, str] = WeakKeyDictionary()


def algorithm_digest(algorithm: Algorithm) -> str:
    """A digest of how the schedules of an algorithm are run; they themselves are digested one by one."""
    digest = hashlib.sha256()
    _feed_fields(algorithm, ALGORITHM_ELSEWHERE, digest.update)
    return digest.hexdigest()[:DIGEST_LETTERS]


def is_own(router: Router) -> bool:
    """Whether a router is one of weft's own, whose changes `sim.version.RESULTS_VERSION` tells."""
    return type(router).__module__.partition(".")[0] == "topologies"


def _said_of(kind: Collective, pattern: Pattern) -> Sequence[Any]:
    """What identifies a collective."""
    if COLLECTIVES.get(kind.name) is kind:
        return (kind.name,)
    p, n_blocks, root = pattern.p, pattern.n_blocks, pattern.root
    ends = [(tuple(kind.sources(block, p, root)), tuple(kind.wanted_by(block, p, root))) for block in range(n_blocks)]
    per_rank = kind.blocks_per_rank(n_blocks, p)
    return kind.name, per_rank, kind.bus_factor(p), kind.rooted, kind.group_size, ends


def _fed(value: Any) -> bytes:
    """What `_feed` feeds."""
    parts: list[Any] = []
    _feed(value, parts.append)
    return b"".join(parts)


def _feed_fields(value: Any, elsewhere: dict[str, str], feed: _Feed) -> None:
    _feed([(one.name, getattr(value, one.name)) for one in fields(value) if one.name not in elsewhere], feed)


def _feed(value: Any, feed: _Feed) -> None:
    """Feed a value and its type to a digest, whatever is nested in it.

    TypeError: it, or something in it, is not known by its value.
    """
    feed(type(value).__name__.encode())
    if isinstance(value, np.ndarray):
        feed(repr((value.dtype.str, value.shape)).encode())
        feed(np.ascontiguousarray(value).data)
    elif isinstance(value, (tuple, list)):
        feed(f"{len(value)}(".encode())
        for one in value:
            _feed(one, feed)
    elif is_dataclass(value):
        _feed_fields(value, {}, feed)
    elif value is None or isinstance(value, (str, int, float, Fraction, np.generic)):
        feed(f"{value!r};".encode())
    else:
        raise TypeError(f"{value!r} is not known by its value")
