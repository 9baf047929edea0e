"""Whether routes are paths: what a router gives, and the links that transfers name."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError, told
from topologies.core._walk import leads
from topologies.core.paths import Ints, Paths

FEW_ROUTES = 2**14
"""Routes that are looked at together: the hops of millions would take much memory."""

MANY_HOPS = 2**20
"""Hops that compiled code, which has to be loaded, follows first; what it does not show is looked at here."""


class Wired(Protocol):
    """Of a topology, what is read here."""

    @property
    def name(self) -> str:
        """What messages call it."""
    @property
    def src(self) -> npt.NDArray[np.int32]:
        """Source of each link, (n_links,)."""
    @property
    def dst(self) -> npt.NDArray[np.int32]:
        """Destination of each link, (n_links,)."""
    @property
    def router(self) -> object:
        """What chooses paths."""
    def node_name(self, node: int) -> str:
        """What messages call a node."""


def check_paths(paths: Paths, topology: Wired, src: Ints, dst: Ints, tie: str) -> Paths:
    """What a router gave for these pairs, with the columns as wide as declared.

    WeftError: no `Paths`, or not one path from the source of every pair to its destination; it names the pair.
    """
    where = named_router(topology)
    if not isinstance(paths, Paths):
        raise WeftError(f"{where} gave {told(paths)}: give Paths")
    ptr, links, pair = map(_integers, paths, Paths._fields, [where] * 3)
    if ptr.size != pair.size + 1 or ptr[0] != 0 or ptr[-1] != links.size or np.any(ptr[1:] < ptr[:-1]):
        raise WeftError(f"{where} gave {pair.size} routes whose ptr is no {pair.size + 1} numbers that rise from 0 to "
                        f"the number of links, {links.size}")
    if not np.array_equal(pair, np.arange(src.size)):
        _check_pairs(pair, topology, src, dst, 1 + (tie == "split"), where)
    fault = _unfit(topology, ptr, links, src[pair], dst[pair])
    if fault is not None:
        route, why = fault
        shown = brief_links(links[ptr[route] : ptr[route + 1]])
        raise WeftError(f"{where} gave the links {shown} from {_ends(topology, src, dst, int(pair[route]))}: {why}")
    columns = zip((ptr, links, pair), (np.int64, np.int32, np.int64), strict=True)
    return Paths(*(column.astype(width, copy=False) for column, width in columns))


def named_router(topology: Wired) -> str:
    """What messages call the router of a topology."""
    return f"topology {topology.name}: {type(topology.router).__name__}, its router,"


def _check_pairs(pair: Ints, topology: Wired, src: Ints, dst: Ints, most: int, where: str) -> None:
    """Reject routes that are not one, or up to `most`, for each pair in the order of the pairs."""
    strange = (pair < 0) | (pair >= src.size)
    if np.any(strange):
        raise WeftError(f"{where} gave a route to pair {pair[strange][0]}: {src.size} pairs were asked for")
    given = np.bincount(pair, minlength=src.size)
    wrong = (given < 1) | (given > most)
    if np.any(wrong):
        at = int(np.argmax(wrong))
        raise WeftError(f"{where} gave {given[at]} routes from {_ends(topology, src, dst, at)}: give "
                        f"{'one, or two at a tie' if most > 1 else 'one'}")
    if np.any(pair[1:] < pair[:-1]):
        at = int(pair[1:][np.argmax(pair[1:] < pair[:-1])])
        raise WeftError(f"{where} gave the route from {_ends(topology, src, dst, at)} after that of a later pair")


def _integers(column: Any, name: str, where: str) -> npt.NDArray[Any]:
    if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind not in "iu":
        raise WeftError(f"{where} gave Paths whose {name} is {told(column)}: give an array of integers, (n,)")
    return column


def _ends(topology: Wired, src: Ints, dst: Ints, pair: int) -> str:
    return f"{topology.node_name(int(src[pair]))} to {topology.node_name(int(dst[pair]))}"


def _unfit(topology: Wired, ptr: Ints, links: Ints, src: Ints, dst: Ints) -> tuple[int, str] | None:
    """A route that is none between its ends (those of one node have none), and why."""
    lacks = (ptr[1:] == ptr[:-1]) != (src == dst)
    if np.any(lacks):
        at = int(np.argmax(lacks))
        return at, "a node has no route to itself" if src[at] == dst[at] else "they are none"
    return broken_path(topology, ptr, links, src, dst)


def broken_path(
    topology: Wired, ptr: Ints, links: npt.NDArray[np.integer], src: npt.NDArray[np.integer],
    dst: npt.NDArray[np.integer],
) -> tuple[int, str] | None:
    """One of some routes whose links do not lead from its source to its destination, and why; or None.

    `ptr`, `links`: as in `Paths`; a route without links is not looked at.
    `src`, `dst` (n_routes,): ends.
    """
    if links.size and not (links.min() >= 0 and links.max() < topology.src.size):
        at = int(np.argmax((links < 0) | (links >= topology.src.size)))
        return _route_at(ptr, at), f"link {links[at]} is not one of 0 to {topology.src.size - 1}"
    if links.size > MANY_HOPS and leads(topology.src, topology.dst, ptr, links, src, dst):
        return None
    for begin in range(0, src.size, FEW_ROUTES):
        some = slice(begin, begin + FEW_ROUTES)
        ends = ptr[begin : begin + FEW_ROUTES + 1]
        fault = _broken(topology, ends - ends[0], links[ends[0] : ends[-1]], src[some], dst[some])
        if fault is not None:
            return begin + fault[0], fault[1]
    return None


def _broken(
    topology: Wired, ptr: Ints, links: npt.NDArray[np.integer], src: npt.NDArray[np.integer],
    dst: npt.NDArray[np.integer],
) -> tuple[int, str] | None:
    there = np.flatnonzero(ptr[1:] > ptr[:-1])
    first, last = ptr[:-1][there], ptr[1:][there] - 1
    ends = topology.dst[links]
    begins = np.empty_like(ends)
    begins[1:] = ends[:-1]
    begins[first] = src[there]
    apart = topology.src[links] != begins
    if apart.any():
        at = int(np.argmax(apart))
        return _route_at(ptr, at), f"link {links[at]} does not begin at {topology.node_name(int(begins[at]))}"
    elsewhere = ends[last] != dst[there]
    if elsewhere.any():
        at = int(np.argmax(elsewhere))
        return int(there[at]), f"they end at {topology.node_name(int(ends[last[at]]))}"
    return None


def _route_at(ptr: Ints, at: int) -> int:
    return int(np.searchsorted(ptr, at, side="right")) - 1


def brief_links(links: npt.NDArray[np.integer]) -> str:
    """Links for messages: "[3, 5]"; of many the first eight."""
    return f"[{', '.join(map(str, links[:8].tolist()))}{', ...' if links.size > 8 else ''}]"
