"""Servers of a program by their numbers: links, then the NICs and ejections of NPUs, then streams."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.lower.nics import STREAMS, ends_of, injection_Bps
from sim.program import DISCIPLINES, FIFO, I8, I32, I64, ORDERS, i32
from sim.program.model import Model
from topologies import Topology

Keys = I32 | I64
"""Numbers of servers, ascending."""


def first_stream(topology: Topology, model: Model) -> int:
    """Number of the first stream, behind links and the ends of routes."""
    return topology.n_links + ends_of(model) * topology.n_npus


def bandwidths(topology: Topology, model: Model, at_once: int) -> npt.NDArray[np.float64]:
    """Of the links, and of the ends of routes; `at_once`: `links_at_once`."""
    parts = [topology.bandwidth_Bps]
    if model.nic is not None:
        parts.append(injection_Bps(topology, model, at_once))
        if model.nic.ejection_Bps is not None:
            parts.append(np.full(topology.n_npus, model.nic.ejection_Bps))
    return np.concatenate(parts)


def disciplines_of(topology: Topology, model: Model, keys: Keys, of_streams: str = "fifo") -> I8:
    """Of each server; links alone serve in turn."""
    of_links = DISCIPLINES.index(model.discipline)
    of_ends = of_links if model.discipline in ORDERS else FIFO
    kinds = [keys < topology.n_links, keys < first_stream(topology, model)]
    return np.select(kinds, [of_links, of_ends], DISCIPLINES.index(of_streams)).astype(np.int8)


def legend(
    topology: Topology, model: Model, keys: Keys, streams: Sequence[tuple[int, str]] = ()
) -> tuple[I32, I32, I32, tuple[str, ...]]:
    """Link, rank and stream of each server (-1: none), and the names of the streams.

    `streams`: rank and name of each stream, by its number.
    """
    own = list(dict.fromkeys(name for _, name in streams))
    names = (*(() if model.nic is None else STREAMS), *own)
    first = first_stream(topology, model)
    ranks = np.array([rank for rank, _ in streams], np.int64)
    numbers = np.array([len(names) - len(own) + own.index(name) for _, name in streams], np.int64)
    at = keys.astype(np.int64) - topology.n_links
    stream, rank = np.divmod(at, topology.n_npus)
    is_link, mine = at < 0, keys >= first
    rank[mine], stream[mine] = ranks[keys[mine] - first], numbers[keys[mine] - first]
    return i32(np.where(is_link, keys, -1)), i32(np.where(is_link, -1, rank)), i32(np.where(is_link, -1, stream)), names
