"""Topologies of one wiring: what they share, and which of their links are alike.

Whatever is built from the wiring alone (patterns, proofs, routes) serves every topology that differs from another in
rates and latencies only. So that nothing else is shared by mistake, it is built on a topology without rates, which
raises `NeedsRates` when one is read.
"""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError
from topologies.core.topology import NeedsRates, Topology, made_of

T = TypeVar("T")

RATES = ("bandwidth_Bps", "latency_ps", "hop_latency_ps")

IDENTIFYING = ("shape", "node_names", "kind", "src", "dst", "dimension", "coords")
"""Fields that topologies of one wiring have in common, beside the name and the router."""


class Rateless(Topology):
    """A topology without rates and latencies; one object per wiring, see `wiring_of`."""

    def __getattr__(self, name: str) -> Any:
        if name in RATES:
            raise NeedsRates(name)
        raise AttributeError(name)


_INTERNED: WeakValueDictionary[tuple[bytes, object], Rateless] = WeakValueDictionary()
_KNOWN: WeakKeyDictionary[Topology, Rateless | None] = WeakKeyDictionary()
_ALIKE: WeakKeyDictionary[Topology, bytes] = WeakKeyDictionary()


def wiring_of(topology: Topology) -> Topology:
    """The wiring of a topology: one object for all topologies with the same nodes, links, names and router.

    It has no rates and no latencies; the topology itself is returned where its router chooses routes by them.
    """
    if isinstance(topology, Rateless):
        return topology
    return _found(topology) or topology


def _found(topology: Topology) -> Rateless | None:
    if topology not in _KNOWN:
        _KNOWN[topology] = _interned(topology) if (other := made_of(topology)) is None else _found(other)
    return _KNOWN[topology]


def _interned(t: Topology) -> Rateless | None:
    shape, node_names, *columns = (getattr(t, name) for name in IDENTIFYING)
    key = digest(repr((t.name, shape, node_names)), *columns), t.router
    try:
        found = _INTERNED.get(key)
    except TypeError:  # a router without a hash
        return None
    if found is not None:
        return found
    wiring: Rateless = object.__new__(Rateless)
    vars(wiring).update({name: value for name, value in vars(t).items() if name not in RATES})
    if _routes_by_rates(wiring):
        return None
    return _INTERNED.setdefault(key, wiring)


def _routes_by_rates(wiring: Rateless) -> bool:
    try:
        wiring.paths(wiring.src[:1], wiring.dst[:1], "split")
    except NeedsRates:
        return True
    except WeftError:  # a router for transfers that name their links
        return False
    return False


def alike(topology: Topology) -> bytes:
    """A digest of which links, and which nodes, are alike in rates and latencies, whatever these are.

    A permutation of the links keeps their rates on one topology if and only if it does on another of the same wiring
    and the same digest: symmetries depend on rates no further.
    """
    if topology not in _ALIKE:
        classes = [_classes(topology.bandwidth_Bps), *_classes_of_times(topology)]
        _ALIKE[topology] = digest("", *classes) if any(one.size for one in classes) else b""
    return _ALIKE[topology]


def of_times(function: Callable[[Any, Any], T]) -> Callable[[Topology], T]:
    """A function of latencies as one of a topology: what it returns is kept for those that share them, as the last."""
    known = WeakKeyDictionary[Topology, tuple[Any, Any, T]]()

    def recall(topology: Topology) -> T:
        frame, times = made_of(topology) or topology, (topology.latency_ps, topology.hop_latency_ps)
        last = known.get(frame)
        if last is None or last[0] is not times[0] or last[1] is not times[1]:
            last = known[frame] = (*times, function(*times))
        return last[2]

    return recall


@of_times
def _classes_of_times(*times: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    return [_classes(one) for one in times]


def at_alike_rates(topology: Topology, bandwidth_Bps: npt.NDArray[np.float64]) -> Topology:
    """The topology at other bandwidths, which are equal where its own are: `alike`, and not looked at once more."""
    found = topology.at_rates(bandwidth_Bps, topology.latency_ps, topology.hop_latency_ps)
    _ALIKE[found] = alike(topology)
    return found


def _classes(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Number of the class of equals of each value, as classes appear; nothing where all are equal."""
    if values.size and (values == values[0]).all():
        return np.zeros(0, np.int64)
    first, row = np.unique(values, return_index=True, return_inverse=True)[1:]
    number: npt.NDArray[np.int64] = np.argsort(np.argsort(first))[row]
    return number


def digest(text: str, *columns: npt.NDArray[Any]) -> bytes:
    """A digest of a text and of arrays with their types and shapes."""
    found = hashlib.blake2b(text.encode(), digest_size=32)
    for column in columns:
        found.update(repr((column.dtype.str, column.shape)).encode())
        found.update(np.ascontiguousarray(column).data)
    return found.digest()
