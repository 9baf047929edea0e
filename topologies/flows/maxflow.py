"""Maximum flow in a network with integer capacities: exact whatever their magnitude.

The compiled maximum flow: Dinic's algorithm on integers, and the repair of an older flow.

Arc a and its reverse a ^ 1 are adjacent. The arcs that leave a node are `arcs[begin[node]:end[node]]`, walked from the
last: an array, unlike a linked list, lets the processor load the next arc while it waits for this one. For capacities
beyond 64 bits the functions also run as plain Python (`augment.py_func`) on arrays of Python integers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from topologies.compiled import cached, held, part
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
        kernels = (augment, repair, least_slack)
        self._augment, self._repair, self._least = (getattr(one, "py_func", one) if exact else one for one in kernels)
        self._type: Any = object if exact else np.int64
        self._begin = ROOM * np.arange(n_nodes)  # the arcs of a node have room up to the next power of two
        self._end = self._begin.copy()
        self._arcs = np.zeros(ROOM * n_nodes, np.int64)
        self._n_places = self._arcs.size
        self._head = np.zeros(64, np.int64)
        self._left, self._kept = (np.zeros(64, self._type) for _ in range(2))
        self._room = [np.zeros(n_nodes, np.int64) for _ in range(4)]
        self._excess = np.zeros(n_nodes, self._type)
        self._register = np.zeros(REGISTERS, np.int64)
        self._ask = np.zeros(5, self._type)  # source, sink, limit, arcs, amount
        self._opened = np.zeros((2, 3), np.int64)
        self._held: dict[int, npt.NDArray[Any]] = {}
        self._calls: dict[int | None, Callable[[], Any]] = {}  # repairs by key, and the augmentation; of these arrays
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
                self._calls.clear()
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
        self._calls.clear()
        return self.n_nodes - 1

    def flow(self, source: int, sink: int, limit: int) -> int:
        """The maximum flow from source to sink, capped at `limit`, with the present capacities."""
        self._left[: self._n_arcs] = self.capacity[: self._n_arcs]
        return self._augmented(source, sink, limit)

    def flow_again(self, key: int, source: int, sink: int, limit: int) -> int:
        """The same as `flow`, in less time if capacities have changed little since the last flow with this key."""
        n = self._n_arcs
        older = self._older(key)
        if key not in self._calls:
            level, _, queue, path = self._room
            self._calls[key] = held(
                self._repair, self._begin, self._end, self._arcs, self._head, self.capacity, older, self._left,
                self._excess, self._ask, level, path, queue,
            )
        self._ask[:4] = source, sink, limit, n
        value = int(self._calls[key]())
        if value < limit:
            value += self._augmented(source, sink, limit - value)
        older[: n // 2] = self._left[1:n:2]
        return min(value, limit)

    def _older(self, key: int) -> npt.NDArray[Any]:
        """The last flow with a key, with room for all arcs; `_grow` has cleared the calls that hold a shorter one."""
        older = self._held.get(key)
        if older is None or older.size < self._n_arcs // 2:
            before, older = older, np.zeros(self._head.size // 2, self._type)
            older[: 0 if before is None else before.size] = 0 if before is None else before
            self._held[key] = older
        return older

    def asks_of(self, opened: Sequence[Sequence[int]]) -> None:
        """What `least_slack` opens: two sets of three arcs that have no capacity."""
        self._opened[:] = opened

    def least_slack(self, key: int, source: int, sink: int, limit: int, amount: int, *, second: bool) -> int:
        """How much `flow_again` would exceed its limit by, were one set of `asks_of` open and then the other.

        It is the least of both, or of the `second` alone, and at most `amount`.
        """
        older, call = self._older(key), ~key
        if call not in self._calls:
            level, current, queue, path = self._room
            self._calls[call] = held(
                self._least, self._begin, self._end, self._arcs, self._head, self.capacity, older, self._left,
                self._excess, self._ask, level, current, queue, path, self._register, self._opened, self._kept,
            )
        self._ask[:] = source, sink, limit, self._n_arcs, -amount if second else amount
        return int(self._calls[call]())

    def further(self, arcs: list[int], source: int, sink: int, limit: int) -> int:
        """What more flows after the last flow, if that was within its limit and some arcs had none; at most `limit`."""
        self._left[arcs] += limit
        return self._augmented(source, sink, limit)

    def onward(self, source: int, sink: int, limit: int) -> int:
        """What flows from another source in addition to the last flow, at most `limit`."""
        return self._augmented(source, sink, limit)

    def _augmented(self, source: int, sink: int, limit: int) -> int:
        """What can still be pushed through what is left, at most `limit`."""
        if None not in self._calls:
            self._calls[None] = held(
                self._augment, self._begin, self._end, self._arcs, self._head, self._left, self._ask, *self._room,
                self._register,
            )
        call, pushed = self._calls[None], 0
        self._register[:] = 0
        while True:
            self._ask[:4] = source, sink, limit - pushed, self._n_arcs
            pushed += int(call())
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
        for name in ("_head", "_left", "_kept", "capacity"):
            setattr(self, name, _wider(getattr(self, name), 0))
        self._calls.clear()


def _wider(old: npt.NDArray[Any], more: int) -> npt.NDArray[Any]:
    """A copy with room for twice as many items, and `more`."""
    fresh = np.zeros(2 * old.size + more, old.dtype)
    fresh[: old.size] = old
    return fresh


PAUSED, NODE, DEPTH, REGISTERS = range(4)
"""Where an augmentation that was interrupted goes on: whether it was, the node it stood at, and the arcs behind it."""

PATIENCE = 1 << 28
"""Steps after which it is interrupted, so that somebody can be told or stop it: about half a second."""


_jit = partial(cached, nogil=True, _nrt=False)


@_jit
def augment(begin, end, arcs, head, left, ask, level, current, queue, path, register):  # type: ignore[no-untyped-def]  # jitted
    """Push at most `limit` from source to sink; returns the amount pushed.

    If `register[PAUSED]` is set on return, it is to be called again, with what is left of the limit and nothing else
    changed: it goes on where it was.

    `begin`, `end` (n_nodes,): where the arcs that leave each node stand in `arcs`.
    `head` (arcs or more,): head node of an arc.
    `left` (arcs or more,): residual capacity of each arc; updated.
    `ask` (4,): source, sink, limit, and how many arcs there are.
    `level`, `current`, `queue`, `path` (n_nodes,): scratch space. If less than `limit` was pushed, the nodes with level
        >= 0 are the source side of the minimum cut closest to the source.
    `register` (REGISTERS,): as above; zeros at first, and when it is done.
    """
    source, sink, limit = ask[0], ask[1], ask[2]
    pushed, patience = limit * 0, PATIENCE
    while pushed < limit:
        if register[PAUSED] == 0:
            for node in range(len(level)):
                level[node] = -1
            level[source] = 0
            queue[0] = source
            done, found = 0, 1
            while done < found and level[sink] < 0:
                node = queue[done]
                done += 1
                for at in range(end[node] - 1, begin[node] - 1, -1):
                    other = head[arcs[at]]
                    if left[arcs[at]] > 0 and level[other] < 0:
                        level[other] = level[node] + 1
                        queue[found] = other
                        found += 1
            if level[sink] < 0:
                break
            for node in range(len(current)):  # a copy of arrays would compile the text of its error message, for 2 s
                current[node] = end[node] - 1
            register[NODE], register[DEPTH] = source, 0
            patience -= found
        register[PAUSED] = 0
        node, depth = register[NODE], register[DEPTH]
        while True:
            patience -= 1
            if patience < 0:
                register[PAUSED], register[NODE], register[DEPTH] = 1, node, depth
                return pushed
            if node == sink:
                most = limit - pushed
                for i in range(depth):
                    most = min(most, left[path[i]])
                back = depth
                for i in range(depth - 1, -1, -1):
                    left[path[i]] -= most
                    left[path[i] ^ 1] += most
                    if left[path[i]] == 0:
                        back = i
                pushed += most
                patience -= depth
                if pushed >= limit:
                    break
                depth = back
                node = head[path[depth] ^ 1]
                continue
            at = current[node]
            while at >= begin[node] and not (left[arcs[at]] > 0 and level[head[arcs[at]]] == level[node] + 1):
                at -= 1
            current[node] = at
            if at >= begin[node]:
                path[depth] = arcs[at]
                depth += 1
                node = head[arcs[at]]
            elif depth == 0:
                break
            else:
                level[node] = -2
                depth -= 1
                node = head[path[depth] ^ 1]
                current[node] -= 1
    register[NODE], register[DEPTH] = 0, 0
    return pushed


@_jit
def repair(begin, end, arcs, head, capacity, held, left, excess, ask, level, path, queue):  # type: ignore[no-untyped-def]  # jitted
    """Make a flow of other capacities one of these; returns the amount that still arrives at the sink.

    What does not fit any more is cut off. Where a node then receives more than it sends, the rest goes on to the sink
    or to a node that lacks it, or back; what a node still lacks comes from the source, or is not sent on. Each path is
    found by a search that ends at the nearest of them, so that small changes are repaired where they are.

    `capacity` (arcs or more,): capacity of each arc, 0 for the reverse ones.
    `held` (arcs / 2 or more,): the older flow, on every arc but the reverse ones. It is one from source to sink: every
        other node sends on what it receives, so that only the ends of arcs on which it does not fit have to be looked
        at.
    `left` (arcs or more,): residual capacity of each arc; written.
    `ask` (4,): source, sink, limit, and how many arcs there are.
    `excess` (n_nodes,): scratch space.
    `level`, `path`, `queue` (n_nodes,): scratch space.
    """
    source, sink = ask[0], ask[1]
    for node in range(len(excess)):
        excess[node] = 0
    for arc in range(0, ask[3], 2):
        flow, room = held[arc >> 1], capacity[arc]
        if flow > room:
            excess[head[arc]] -= flow - room
            excess[head[arc + 1]] += flow - room
            flow = room
        left[arc], left[arc + 1] = room - flow, flow
    for node in range(len(excess)):
        while node != source and node != sink and excess[node] != 0:
            # Forward from a node with too much, backward from one with too little: one is the other with arcs reversed.
            back = 1 if excess[node] < 0 else 0
            near, far = (source, sink) if back else (sink, source)
            for other in range(len(level)):
                level[other] = -1
            level[node] = 0
            queue[0] = node
            done, seen, found = 0, 1, -1
            while done < seen and found < 0:
                here = queue[done]
                done += 1
                if here == far:
                    continue
                for at in range(end[here] - 1, begin[here] - 1, -1):
                    arc = arcs[at]
                    other = head[arc]
                    if left[arc ^ back] > 0 and level[other] < 0:
                        level[other] = 0
                        path[other] = arc
                        queue[seen] = other
                        seen += 1
                        opposed = excess[other] > 0 if back else excess[other] < 0
                        if other == near or (opposed and other != far):
                            found = other
                            break
            if found < 0:
                found = far
            most = -excess[node] if back else excess[node]
            if found != source and found != sink:
                most = min(most, excess[found] if back else -excess[found])
            here = found
            while here != node:
                most = min(most, left[path[here] ^ back])
                here = head[path[here] ^ 1]
            here = found
            while here != node:
                left[path[here] ^ back] -= most
                left[path[here] ^ back ^ 1] += most
                here = head[path[here] ^ 1]
            change = -most if back else most
            excess[node] -= change
            excess[found] += change
    arrives = excess[sink] * 0
    for at in range(begin[sink], end[sink]):
        arc = arcs[at]
        arrives += left[arc] if arc & 1 else -left[arc ^ 1]
    return arrives


_augment, _repair = (part(getattr(one, "py_func", one), nogil=True, _nrt=False) for one in (augment, repair))


@_jit
def least_slack(  # type: ignore[no-untyped-def]  # jitted
    begin, end, arcs, head, capacity, held, left, excess, ask, level, current, queue, path, register, opened, kept
):
    """How much more than the limit flows at least where some arcs are open, and then others: at most an amount.

    Other parameters as above; the older flow becomes this one.

    `ask` (5,): source, sink, limit, how many arcs there are, and the amount, negative if the second set alone counts.
    `opened` (2, 3): sets of arcs without capacity.
    `kept` (arcs or more,): scratch space.
    """
    limit, amount = ask[2], ask[4]
    first = 1 if amount < 0 else 0
    least = -amount if amount < 0 else amount
    flows = _repair(begin, end, arcs, head, capacity, held, left, excess, ask, level, path, queue)
    flows += _to_the_limit(begin, end, arcs, head, left, ask, level, current, queue, path, register, limit - flows)
    for arc in range(0, ask[3], 2):
        held[arc >> 1] = left[arc + 1]
        kept[arc], kept[arc + 1] = left[arc], left[arc + 1]
    for one in range(first, 2):
        if one > first:
            for arc in range(ask[3]):
                left[arc] = kept[arc]
        more = limit + least - flows
        for arc in opened[one]:
            left[arc] += more
        further = _to_the_limit(begin, end, arcs, head, left, ask, level, current, queue, path, register, more)
        least = min(least, flows + further - limit)
    return least


def _limited(  # type: ignore[no-untyped-def]  # jitted
    begin, end, arcs, head, left, ask, level, current, queue, path, register, limit
):
    """Push at most `limit`, without an interruption."""
    pushed = limit * 0
    while pushed < limit:
        ask[2] = limit - pushed
        pushed += _augment(begin, end, arcs, head, left, ask, level, current, queue, path, register)
        if register[PAUSED] == 0:
            break
    return pushed


_to_the_limit = part(_limited, nogil=True, _nrt=False)


@_jit
def farthest(link_ptr, dst, source, n_npus, hops, queue):  # type: ignore[no-untyped-def]  # jitted
    """Links on the longest of the shortest paths from `source` to an NPU; -1 if one cannot be reached.

    `link_ptr`, `dst` (n_nodes + 1,), (n_links,): links of each node, and where each of them leads.
    `hops`, `queue` (n_nodes,): scratch space.
    """
    hops[:] = -1
    hops[source], queue[0] = 0, source
    begin, end, npus, most = 0, 1, 0, 0
    while begin < end and npus < n_npus:
        node = queue[begin]
        begin += 1
        if node < n_npus:
            npus += 1
            most = hops[node]  # nodes come in the order of their distance
        for link in range(link_ptr[node], link_ptr[node + 1]):
            if hops[dst[link]] < 0:
                hops[dst[link]] = hops[node] + 1
                queue[end] = dst[link]
                end += 1
    return most if npus == n_npus else -1
