"""One NPU's trace: which node is issued next, and what it waits for.

Nodes that wait for nothing are issued by id. A CPU runs one operation, a GPU one computation and one collective or
send at a time; receives occupy no resource. A node in replay, and a computation without roofline, takes the whole
microseconds of the trace, or 1 ns where it has none.
"""

from collections.abc import Callable, Mapping, Sequence
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import Any

from sim.astra.endpoint import Endpoint, Group
from topologies import WeftError
from workloads.formats.chakra_json import Groups
from workloads.formats.chakra_nodes import EVERYONE, Communicates, Computes, Exchanges, Meaning, Remembers

NS_PER_US = 1000


class NpuTrace:
    """Runs the nodes of one NPU.

    `after`: the nodes that each one waits for.
    `where`: "trace x.0.et", for messages.
    `finished`: called with the NPU when all nodes have ended.
    """

    def __init__(
        self, endpoint: Endpoint, meanings: Mapping[int, Meaning], after: Mapping[int, Sequence[int]], groups: Groups,
        where: str, finished: Callable[[int], None],
    ) -> None:
        self.endpoint, self.meanings, self.groups, self.where = endpoint, meanings, groups, where
        self._finished = finished
        self.ended_ns: int | None = None  # when all nodes had ended
        self.computing_ns = 0  # of the GPU, counted where a computation begins
        self._waits = TopologicalSorter(after)
        self._waits.prepare()
        self._ready: dict[str, list[int]] = {"": [], "CPU": [], "GPU computation": [], "GPU communication": []}
        self._busy = dict.fromkeys(self._ready, False)
        self._release()

    def issue(self) -> None:
        """Begin what can begin; detect the end."""
        ended = True
        while ended:  # a node without a meaning ends at once and may unblock others
            ended = False
            chosen = [
                (heappop(ready), place) for place, ready in self._ready.items() if not self._busy[place]
                for _ in range(1 if place and ready else len(ready))
            ]
            for node, place in sorted(chosen):
                self._busy[place] = place != ""
                ended |= self._begin(node, place)
        if not self._waits.is_active() and self.ended_ns is None:
            self.ended_ns = self.endpoint.clock.now
            self._finished(self.endpoint.npu)

    def _begin(self, node: int, place: str) -> bool:
        """Begin a node; whether it has ended already."""
        what = self.meanings[node]

        def done(_: Any = None) -> None:
            self._busy[place] = False
            self._end(node)
            self.issue()

        if isinstance(what, Computes):
            duration_ns = self._duration_ns(what)
            if duration_ns is None:
                self._busy[place] = False
                self._end(node)
                return True
            self.computing_ns += 0 if what.on_cpu else duration_ns
            self.endpoint.later(duration_ns, done)
        elif isinstance(what, Remembers):
            self._remember(what, done)
        elif isinstance(what, Communicates):
            group = self._group(node, what)
            if group is not None and len(group[1]) == 1:
                self._busy[place] = False
                self._end(node)
                return True
            self._communicate(what, group, done)
        elif isinstance(what, Exchanges):
            self.endpoint.network.exchange("message", what, self.endpoint.npu, done)
        else:
            self._end(node)
            return True
        return False

    def _remember(self, what: Remembers, done: Callable[[], None]) -> None:
        endpoint = self.endpoint
        replayed = endpoint.system.replay or endpoint.memory is None
        endpoint.later(what.duration_us * NS_PER_US or 1 if replayed else endpoint.memory_ns(what.bytes), done)

    def _group(self, node: int, what: Communicates) -> Group | None:
        """Number and NPUs of the group; None for all."""
        if what.group in EVERYONE or self.endpoint.system.replay or what.kind == "broadcast":
            return None
        if what.group not in self.groups:
            raise WeftError(f"{self.where}: node {node}: communicator group {what.group} is defined in no file")
        if not what.group.isdecimal():
            raise WeftError(f"{self.where}: node {node}: communicator group {what.group!r}: ASTRA-sim takes numbers")
        if self.endpoint.npu not in self.groups[what.group]:
            raise WeftError(f"{self.where}: node {node}: NPU {self.endpoint.npu} is not in its group {what.group}")
        return int(what.group), self.groups[what.group]

    def _communicate(self, what: Communicates, group: Group | None, done: Callable[[], None]) -> None:
        system = self.endpoint.system
        if system.replay or what.kind == "broadcast":
            self.endpoint.later(what.duration_us * NS_PER_US or 1, done)
            return
        self.endpoint.collective(what.kind, what.size, what.dims, group, what.priority, done)

    def _duration_ns(self, what: Computes) -> int | None:
        """Time of a computation; None for one that ASTRA-sim skips."""
        system = self.endpoint.system
        if system.replay or not system.roofline or what.on_cpu or what.operations is None or what.bytes is None:
            return what.duration_us * NS_PER_US or 1
        if not what.bytes:
            return None
        intensity = what.operations / what.bytes
        rate = min(system.memory_Bps * intensity, system.peak_flops)
        return int(what.operations / rate * 1e9) if rate else 0

    def _end(self, node: int) -> None:
        self._waits.done(node)
        self._release()

    def _release(self) -> None:
        for node in self._waits.get_ready():
            heappush(self._ready[_place(self.meanings[node])], node)


def _place(what: Meaning) -> str:
    """The resource that a node takes; "" for none."""
    if isinstance(what, Computes):
        return "CPU" if what.on_cpu else "GPU computation"
    if isinstance(what, (Communicates, Remembers)) or (isinstance(what, Exchanges) and what.sends):
        return "GPU communication"
    return ""
