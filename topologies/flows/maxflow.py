"""Maximum flow in a network with integer capacities: exact whatever their magnitude."""

from typing import Any

import numpy as np
import numpy.typing as npt

from topologies.flows._maxflow import REGISTERS, augment, repair
from topologies.stages import count

LARGEST = 2**61
"""Largest sum of capacities for 64-bit arithmetic; above it Python integers are used, about 100 times slower."""

ROOM = 4
"""Places for the arcs of a node at first: a power of two."""

Bools = npt.NDArray[np.bool_]


class FlowNetwork:
    """Nodes and directed arcs; arcs can be added, and their capacities set, at any time.

    `exact`: whether capacities may exceed 64 bits.
    """

    def __init__(self, n_nodes: int, exact: bool = False) -> None:
        self._augment, self._repair = (getattr(one, "py_func", one) if exact else one for one in (augment, repair))
        self._type: Any = object if exact else np.int64
        self._begin = ROOM * np.arange(n_nodes)  # the arcs of a node have room up to the next power of two
        self._end = self._begin.copy()
        self._arcs = np.zeros(ROOM * n_nodes, np.int64)
        self._n_places = self._arcs.size
        self._head = np.zeros(64, np.int64)
        self._left = np.zeros(64, self._type)
        self._room = [np.zeros(n_nodes, np.int64) for _ in range(4)]
        self._excess = np.zeros(n_nodes, self._type)
        self._register = np.zeros(REGISTERS, np.int64)
        self._held: dict[int, npt.NDArray[Any]] = {}
        self._n_arcs = 0
        self.capacity = np.zeros(64, self._type)
        """Capacity of each arc; may be changed between flows for arcs returned by `add`. Reverse arcs have 0."""

    @property
    def n_nodes(self) -> int:
        """Nodes."""
        return int(self._begin.size)

    def add(self, tail: int, head: int, capacity: int = 0) -> int:
        """Add an arc; returns its index."""
        arc = self._n_arcs
        if arc + 2 > self._head.size:
            self._grow()
        for one, (start, end, room) in enumerate(((tail, head, capacity), (head, tail, 0))):
            self._head[arc + one] = end
            self._leave(start, arc + one)
            self.capacity[arc + one] = room
        self._n_arcs += 2
        return arc

    def _leave(self, node: int, arc: int) -> None:
        """Put an arc behind those that leave a node; all of them move if they have no room left."""
        begin, end = int(self._begin[node]), int(self._end[node])
        many = end - begin
        if many >= ROOM and many & (many - 1) == 0:
            if self._n_places + 2 * many > self._arcs.size:
                self._arcs = _wider(self._arcs, 2 * many)
            self._arcs[self._n_places : self._n_places + many] = self._arcs[begin:end]
            self._begin[node], end = self._n_places, self._n_places + many
            self._n_places += 2 * many
        self._arcs[end] = arc
        self._end[node] = end + 1

    def add_node(self) -> int:
        """Add a node; returns its index."""
        if self._n_places + ROOM > self._arcs.size:
            self._arcs = _wider(self._arcs, ROOM)
        self._begin, self._end = (np.append(one, self._n_places) for one in (self._begin, self._end))
        self._n_places += ROOM
        self._room = [np.zeros(self.n_nodes, np.int64) for _ in range(4)]
        self._excess = np.zeros(self.n_nodes, self._type)
        return self.n_nodes - 1

    def flow(self, source: int, sink: int, limit: int) -> int:
        """The maximum flow from source to sink, capped at `limit`, with the present capacities."""
        self._left[: self._n_arcs] = self.capacity[: self._n_arcs]
        return self._augmented(source, sink, limit)

    def flow_again(self, key: int, source: int, sink: int, limit: int) -> int:
        """The same as `flow`, in less time if capacities have changed little since the last flow with this key."""
        n = self._n_arcs
        held = self._held.get(key)
        if held is None or held.size < n // 2:
            before, held = held, np.zeros(self._head.size // 2, self._type)
            held[: 0 if before is None else before.size] = 0 if before is None else before
            self._held[key] = held
        level, _, queue, path = self._room
        value = int(self._repair(
            self._begin, self._end, self._arcs, self._head[:n], self.capacity[:n], held, self._left[:n], self._excess,
            source, sink, level, path, queue,
        ))
        if value < limit:
            value += self._augmented(source, sink, limit - value)
        held[: n // 2] = self._left[1:n:2]
        return min(value, limit)

    def further(self, arcs: list[int], source: int, sink: int, limit: int) -> int:
        """What more flows after the last flow, if that was within its limit and some arcs had none; at most `limit`."""
        self._left[arcs] += limit
        return self._augmented(source, sink, limit)

    def onward(self, source: int, sink: int, limit: int) -> int:
        """What flows from another source in addition to the last flow, at most `limit`."""
        return self._augmented(source, sink, limit)

    def _augmented(self, source: int, sink: int, limit: int) -> int:
        """What can still be pushed through what is left, at most `limit`."""
        n, pushed = self._n_arcs, 0
        self._register[:] = 0
        while True:
            pushed += int(self._augment(
                self._begin, self._end, self._arcs, self._head[:n], self._left[:n], source, sink, limit - pushed,
                *self._room, self._register,
            ))
            if not self._register.any():
                return pushed
            count("units of a maximum flow", pushed, limit)  # also where Ctrl-C is heard

    def source_side(self) -> Bools:
        """Nodes on the source's side of the minimum cut, (n_nodes,), after a flow that stayed below its limit."""
        return np.asarray(self._room[0] >= 0)

    def used(self, arcs: list[int]) -> npt.NDArray[Any]:
        """Flow on each arc in the last solution."""
        return np.asarray(self.capacity[arcs] - self._left[arcs])

    def _grow(self) -> None:
        for name in ("_head", "_left", "capacity"):
            setattr(self, name, _wider(getattr(self, name), 0))


def _wider(old: npt.NDArray[Any], more: int) -> npt.NDArray[Any]:
    """A copy with room for twice as many items, and `more`."""
    fresh = np.zeros(2 * old.size + more, old.dtype)
    fresh[: old.size] = old
    return fresh
