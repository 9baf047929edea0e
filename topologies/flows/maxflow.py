"""Maximum flow in a network with integer capacities: exact whatever their magnitude."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST = 2**61
"""Largest sum of capacities for 64-bit arithmetic; above it Python integers are used, about 100 times slower."""

Bools = npt.NDArray[np.bool_]


class FlowNetwork:
    """Nodes and directed arcs; arcs can be added, and their capacities set, at any time.

    `exact`: whether capacities may exceed 64 bits.
    """

    def __init__(self, n_nodes: int, exact: bool = False) -> None:
        from topologies.flows._maxflow import augment  # loads the compiler, so only when a flow is needed

        self._augment = getattr(augment, "py_func", augment) if exact else augment
        self._type: Any = object if exact else np.int64
        self._first = np.full(n_nodes, -1, np.int64)
        self._following = np.zeros(64, np.int64)
        self._head = np.zeros(64, np.int64)
        self._left = np.zeros(64, self._type)
        self._room = [np.zeros(n_nodes, np.int64) for _ in range(4)]
        self._n_arcs = 0
        self.capacity = np.zeros(64, self._type)
        """Capacity of each arc; may be changed between flows for arcs returned by `add`. Reverse arcs have 0."""

    @property
    def n_nodes(self) -> int:
        return int(self._first.size)

    def add(self, tail: int, head: int, capacity: int = 0) -> int:
        """Add an arc; returns its index."""
        arc = self._n_arcs
        if arc + 2 > self._head.size:
            self._grow()
        for one, (start, end, room) in enumerate(((tail, head, capacity), (head, tail, 0))):
            self._head[arc + one] = end
            self._following[arc + one] = self._first[start]
            self._first[start] = arc + one
            self.capacity[arc + one] = room
        self._n_arcs += 2
        return arc

    def add_node(self) -> int:
        """Add a node; returns its index."""
        self._first = np.append(self._first, -1)
        self._room = [np.zeros(self._first.size, np.int64) for _ in range(4)]
        return self.n_nodes - 1

    def flow(self, source: int, sink: int, limit: int) -> int:
        """The maximum flow from source to sink, capped at `limit`, with the present capacities."""
        n = self._n_arcs
        self._left[:n] = self.capacity[:n]
        args = (self._first, self._following[:n], self._head[:n], self._left[:n], source, sink, limit, *self._room)
        return int(self._augment(*args))

    def source_side(self) -> Bools:
        """Nodes on the source's side of the minimum cut, (n_nodes,), after a flow that stayed below its limit."""
        return np.asarray(self._room[0] >= 0)

    def used(self, arcs: list[int]) -> npt.NDArray[Any]:
        """Flow on each arc in the last solution."""
        return np.asarray(self.capacity[arcs] - self._left[arcs])

    def _grow(self) -> None:
        size = 2 * self._head.size
        for name in ("_following", "_head", "_left", "capacity"):
            old = getattr(self, name)
            fresh = np.zeros(size, old.dtype)
            fresh[: old.size] = old
            setattr(self, name, fresh)
