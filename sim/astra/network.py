"""The network of the compatibility run: whole nanoseconds, links with a queue each, events in order of insertion.

The rules are those of astra-network-analytical. A link of bandwidth B (bytes/ns) and latency L (ns) is free again
`trunc(m / B)` ns after a message of m bytes began, and delivers it whole after `trunc(L + m / B)` ns. The
congestion-unaware backend has no links: a message takes `trunc(h L + m / B)` ns over the h hops of the first dimension
in which its ends differ.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

from topologies import WeftError
from topologies.formats.astra_network import AstraNetwork
from workloads.formats.chakra_nodes import Exchanges

BACKENDS = ("aware", "unaware")
"""Congestion-aware, with queues at links; congestion-unaware, with none."""

MOST_HOPS, MOST_MESSAGES = 20_000_000, 2_000_000
"""Limits on hops of all routes in use, and on messages in flight or not yet received, for the sake of memory."""

Key = tuple[str, int, int, int, int]
"""What a send and a receive agree on: traffic class, tag, source, destination, bytes."""


class Clock:
    """Events in order of time, in ns, then of insertion; a run of more than `most_events` is abandoned."""

    def __init__(self, most_events: int) -> None:
        self.now, self.events, self.most_events = 0, 0, most_events
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []

    def at(self, time_ns: int, call: Callable[[Any], None], argument: Any) -> None:
        """Call with an argument at a time; those of the same ns are called in insertion order."""
        heappush(self._heap, (time_ns, self.events, call, argument))
        self.events += 1

    def run(self) -> None:
        """Call until nothing is left.

        WeftError: after too many events.
        """
        heap = self._heap
        while heap:
            self.now, number, call, argument = heappop(heap)
            if number >= self.most_events:
                raise WeftError(f"more than {self.most_events:,} events: simulate less, or raise --max-events")
            call(argument)


class Link:
    """One direction of a cable."""

    __slots__ = ("bandwidth", "busy", "bytes", "latency", "waiting")

    def __init__(self, bandwidth: float, latency: float) -> None:
        self.bandwidth, self.latency, self.bytes, self.busy = bandwidth, latency, 0, False
        self.waiting: deque[Message] = deque()


class Message:
    """A message in flight; `hop` counts the links crossed."""

    __slots__ = ("hop", "key", "route", "sent")

    def __init__(self, route: tuple[Link, ...], key: Key, sent: Callable[[], None] | None) -> None:
        self.route, self.key, self.sent, self.hop = route, key, sent, 0


class _Hops(NamedTuple):
    """Hops in the first dimension that differs, and its links."""

    number: int
    bandwidth: float
    latency: float


class MessageNetwork:
    """Sends messages and hands them to receives.

    `backend`: {"aware", "unaware"}.
    """

    def __init__(self, description: AstraNetwork, backend: str, clock: Clock) -> None:
        self.description, self.clock, self.aware = description, clock, backend == "aware"
        self.links: dict[tuple[int, int, int], Link] = {}
        self._routes: dict[tuple[int, int], tuple[Link, ...]] = {}
        self._hops: dict[tuple[int, int], _Hops] = {}
        self._arrived: dict[Key, int] = {}
        self._waiting: dict[Key, deque[Callable[[Any], None]]] = {}
        self._hops_known = self._messages = 0

    def send(self, key: Key, sent: Callable[[], None] | None = None) -> None:
        """Send a message; `sent` is called when it has arrived, before the receiver is notified."""
        _, _, src, dst, size = key
        route = self._route(src, dst)
        for link in route:
            link.bytes += size
        message = Message(route, key, sent)
        self._messages += 1
        if self._messages > MOST_MESSAGES:
            raise WeftError(f"more than {MOST_MESSAGES:,} messages at once: simulate fewer NPUs, or another algorithm")
        if self.aware:
            self._enter(message)
        else:
            hops = self._hops_of(src, dst)
            delay_ns = int(hops.number * hops.latency + size / hops.bandwidth)
            self.clock.at(self.clock.now + delay_ns, self._deliver, message)

    def exchange(self, traffic: str, what: Exchanges, npu: int, done: Callable[[Any], None]) -> None:
        """Send or receive the message of a node of an NPU's trace; `done` is called with None when it has arrived."""
        if what.sends:
            self.send((traffic, what.tag, npu, what.peer, what.size), partial(done, None))
        else:
            self.receive((traffic, what.tag, what.peer, npu, what.size), done)

    def receive(self, key: Key, call: Callable[[Any], None]) -> None:
        """Call when a message of the key has arrived; if it has already, as a new event of this ns."""
        if arrived := self._arrived.get(key, 0):
            if arrived == 1:
                del self._arrived[key]
            else:
                self._arrived[key] = arrived - 1
            self._messages -= 1
            self.clock.at(self.clock.now, call, None)
        else:
            self._waiting.setdefault(key, deque()).append(call)

    def busiest_ns(self) -> int:
        """Time that the busiest link needs for the bytes that routes put on it."""
        return max((int(link.bytes / link.bandwidth) for link in self.links.values()), default=0)

    def waits(self) -> Key | None:
        """A receive whose message has not arrived, if any."""
        return next(iter(self._waiting), None)

    def _enter(self, message: Message) -> None:
        link = message.route[message.hop]
        if link.busy:
            link.waiting.append(message)
        else:
            self._start(link, message)

    def _start(self, link: Link, message: Message) -> None:
        link.busy = True
        now, serial = self.clock.now, message.key[4] / link.bandwidth
        self.clock.at(now + int(link.latency + serial), self._arrive, message)  # before the link is free
        self.clock.at(now + int(serial), self._free, link)

    def _free(self, link: Link) -> None:
        link.busy = False
        if link.waiting:
            self._start(link, link.waiting.popleft())

    def _arrive(self, message: Message) -> None:
        message.hop += 1
        if message.hop < len(message.route):
            self._enter(message)
        else:
            self._deliver(message)

    def _deliver(self, message: Message) -> None:
        if message.sent is not None:
            message.sent()
        key = message.key
        waiting = self._waiting.get(key)
        if waiting is None:
            self._arrived[key] = self._arrived.get(key, 0) + 1
            return
        self._messages -= 1
        call = waiting.popleft()
        if not waiting:
            del self._waiting[key]
        call(None)

    def _route(self, src: int, dst: int) -> tuple[Link, ...]:
        route = self._routes.get((src, dst))
        if route is None:
            route = self._routes[src, dst] = tuple(self._links(src, dst))
            self._hops_known += len(route)
            if self._hops_known > MOST_HOPS:
                raise WeftError(f"routes of more than {MOST_HOPS:,} hops: simulate fewer NPUs, or another algorithm")
        return route

    def _links(self, src: int, dst: int) -> list[Link]:
        """Dimension 0 first; the shorter direction around a ring, clockwise if both are equal."""
        found, here, stride = [], src, 1
        for number, dim in enumerate(self.description.dimensions):
            a, b = here // stride % dim.npus, dst // stride % dim.npus
            if a != b:
                nodes = [here + (place - a) * stride for place in _places(dim.kind, a, b, dim.npus)]
                if dim.kind == "Switch":
                    nodes.insert(1, -1 - (here - a * stride))  # an id for the switch of this line
                found += [self._link(number, tail, head) for tail, head in pairwise(nodes)]
                here = nodes[-1]
            stride *= dim.npus
        return found

    def _link(self, dimension: int, tail: int, head: int) -> Link:
        link = self.links.get((dimension, tail, head))
        if link is None:
            dim = self.description.dimensions[dimension]
            link = self.links[dimension, tail, head] = Link(dim.bytes_per_ns, dim.latency_ns)
        return link

    def _hops_of(self, src: int, dst: int) -> _Hops:
        if (src, dst) in self._hops:
            return self._hops[src, dst]
        stride = 1
        for dim in self.description.dimensions:
            a, b = src // stride % dim.npus, dst // stride % dim.npus
            if a != b:
                count = 2 if dim.kind == "Switch" else len(_places(dim.kind, a, b, dim.npus)) - 1
                self._hops[src, dst] = found = _Hops(count, dim.bytes_per_ns, dim.latency_ns)
                return found
            stride *= dim.npus
        raise WeftError(f"NPU {src} sends to itself, for which the backend has no delay")


def _places(kind: str, a: int, b: int, extent: int) -> list[int]:
    """Positions on the path of a message from a to b, both included."""
    if kind != "Ring":
        return [a, b]
    forward = (b - a) % extent
    step, count = (1, forward) if forward <= extent - forward else (-1, extent - forward)
    return [(a + step * hop) % extent for hop in range(count + 1)]
