"""A run: files in, one line per NPU out, and what ASTRA-sim does not report.

Of each NPU's trace, nodes that wait for nothing are issued by id. A CPU runs one operation, a GPU one computation and
one collective or send at a time; receives occupy no resource. A node in replay, and a computation without roofline,
takes the whole microseconds of the trace, or 1 ns where it has none.

What ASTRA-sim does silently: inputs that never end are rejected, silent changes are reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from sim.astra.collective import KINDS
from sim.astra.endpoint import Endpoint, Group, Memories, read_custom, split
from sim.astra.network import BACKENDS, Clock, MessageNetwork
from sim.astra.system_file import Implementation, System, read_system
from topologies.checks import WeftError, choice
from topologies.formats.astra_network import AstraNetwork, read_astra_network
from topologies.stages import staged
from workloads.formats.astra_memory import read_remote_memory
from workloads.formats.chakra import Trace
from workloads.formats.chakra_json import Groups, groups_of
from workloads.formats.chakra_nodes import (
    EVERYONE,
    Communicates,
    Computes,
    Exchanges,
    Meaning,
    Remembers,
    ending_of,
    meaning,
    passed_over,
    read_ranks,
)
from workloads.formats.chakra_schema import Node
from workloads.formats.comm_groups import read_comm_groups


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

        if isinstance(what, Computes) and (duration_ns := self._duration_ns(what)) is not None:
            self.computing_ns += 0 if what.on_cpu else duration_ns
            self.endpoint.later(duration_ns, done)
        elif isinstance(what, Remembers):
            self._remember(what, done)
        elif isinstance(what, Communicates) and ((group := self._group(node, what)) is None or len(group[1]) > 1):
            self._communicate(what, group, done)
        elif isinstance(what, Exchanges):
            self.endpoint.network.exchange("message", what, self.endpoint.npu, done)
        else:
            self._busy[place] = False
            self._end(node)
            return True
        return False

    def _remember(self, what: Remembers, done: Callable[[], None]) -> None:
        endpoint = self.endpoint
        replayed = endpoint.system.replay or endpoint.memory is None
        endpoint.later(what.duration_ns or 1 if replayed else endpoint.memory_ns(what.bytes), done)

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
            self.endpoint.later(what.duration_ns or 1, done)
            return
        self.endpoint.collective(what.kind, what.size, what.dims, group, what.priority, done)

    def _duration_ns(self, what: Computes) -> int | None:
        """Time of a computation; None for one that ASTRA-sim skips."""
        system = self.endpoint.system
        if system.replay or not system.roofline or what.on_cpu or what.operations is None or what.bytes is None:
            return what.duration_ns or 1
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


MOST_EVENTS = 200_000_000


@dataclass(frozen=True)
class AstraResult:
    """What ASTRA-sim prints of a run, and what it was of."""

    network: AstraNetwork
    system: System
    backend: str  # {"aware", "unaware"}
    cycles: tuple[int, ...]  # ns of each NPU: when it finished
    exposed: tuple[int, ...]  # ns of each NPU in which its GPU was not computing
    order: tuple[int, ...]  # NPUs in the order in which they finished
    events: int
    busiest_ns: int  # time that the busiest link needs for its bytes alone: no congestion-aware run is faster
    notes: tuple[str, ...]  # what ASTRA-sim does silently

    def lines(self) -> list[str]:
        """Summary lines as ASTRA-sim prints them, in the order in which NPUs finish."""
        return [
            f"sys[{npu}] finished, {self.cycles[npu]} cycles, exposed communication {self.exposed[npu]} cycles."
            for npu in self.order
        ]


def run_astra(
    workload: str | Path, system: str | Path, network: str | Path, comm_groups: str | Path | None = None, *,
    remote_memory: str | Path | None = None, backend: str = "aware", queues: int = 1, most_events: int = MOST_EVENTS,
) -> AstraResult:
    """Simulate ASTRA-sim's inputs by ASTRA-sim's rules.

    `workload`: prefix of Chakra traces: `<workload>.<rank>.et`.
    `system`: system file (JSON).
    `network`: network file of the analytical backends (YAML).
    `comm_groups`: communicator groups (JSON).
    `remote_memory`: remote memory (JSON), for traces with memory nodes.
    `backend`: {"aware", "unaware"}; congestion-aware, in any number of dimensions, or congestion-unaware.
    `queues`: queues per dimension.
    WeftError: an input that is wrong; one that ASTRA-sim would crash on, hang on or end without a result; too many
        events.
    """
    choice(backend, BACKENDS, "backend")
    description = read_astra_network(network)
    settings = read_system(system, len(description.dimensions), queues)
    groups = read_comm_groups(comm_groups, description.npus) if comm_groups is not None else {}
    clock = Clock(most_events)
    links = MessageNetwork(description, backend, clock)
    order: list[int] = []
    remote = None if remote_memory is None else read_remote_memory(remote_memory)
    memory = None if remote is None else Memories(remote)
    read, unread = read_ranks(workload, description.npus)
    traces = _load(str(workload), read, _Shared(settings, links, clock, groups, memory, order.append))
    meanings = [trace.meanings for trace in traces]
    for trace in reversed(traces):
        groups = {**groups, **trace.groups}
    check_collectives(meanings, settings, description, groups)
    _run(traces, clock)
    for npu, trace in enumerate(traces):
        if trace.ended_ns is None:
            raise WeftError(_stuck(npu, links))
    cycles = tuple(int(trace.ended_ns or 0) for trace in traces)
    exposed = tuple(end - trace.computing_ns for end, trace in zip(cycles, traces, strict=True))
    busiest = links.busiest_ns()
    notes = notes_of(meanings, settings, description, groups, backend, max(cycles), busiest, unread)
    notes += passed_over(read)
    return AstraResult(
        description, settings, backend, cycles, exposed, tuple(order), clock.events, busiest, tuple(notes)
    )


@staged("engine")
def _run(traces: Iterable[NpuTrace], clock: Clock) -> None:
    for trace in traces:
        trace.issue()
    clock.run()


class _Shared(NamedTuple):
    """State shared by all NPUs."""

    system: System
    network: MessageNetwork
    clock: Clock
    groups: Groups
    memory: Memories | None
    finished: Callable[[int], None]


@staged("parse")
def _load(workload: str, traces: Sequence[Trace], shared: _Shared) -> list[NpuTrace]:
    system, network, clock, groups, memory, finished = shared
    n_npus = network.description.npus
    customs = {kind: read_custom(prefix, n_npus) for kind, prefix in system.custom.items()}
    found, ending = [], ending_of(workload) or ".et"
    for npu, trace in enumerate(traces):
        where = f"trace {workload}.{npu}{ending}"
        meanings = {node.id: _meaning(node, npu, shared, where) for node in trace.nodes}
        after = {node.id: node.after for node in trace.nodes}
        own = {kind: ranks[npu] for kind, ranks in customs.items()}
        endpoint = Endpoint(npu, system, network, clock, own, memory)
        found.append(NpuTrace(endpoint, meanings, after, {**groups, **groups_of(trace, n_npus)}, where, finished))
    return found


def _meaning(node: Node, npu: int, shared: _Shared, where: str) -> Meaning:
    """What a node asks for; WeftError where ASTRA-sim would stop."""
    found = meaning(node, npu, shared.network.description.npus, where)
    if isinstance(found, Computes) and node.kind != "compute" and not shared.system.replay:
        raise WeftError(f"{where}: node {node.id}: is_cpu_op of a {node.kind}: ASTRA-sim does not communicate on CPUs")
    if isinstance(found, Remembers) and shared.memory is None and not shared.system.replay:
        raise WeftError(f"{where}: node {node.id} is a {node.kind}: give the remote memory, --remote-memory FILE")
    return found


def _stuck(npu: int, links: MessageNetwork) -> str:
    """Reason why an NPU never ends."""
    key = links.waits()
    if key is None:
        return f"NPU {npu} never ends: ASTRA-sim would stop without its line"
    traffic, tag, src, dst, size = key
    return (
        f"NPU {npu} never ends: NPU {dst} waits for a {traffic} of {size} bytes from NPU {src} (tag {tag}) that is not "
        "sent; ASTRA-sim would stop without its line"
    )


MOST_NOTES = 20


def check_collectives(
    meanings: Sequence[Mapping[int, Meaning]], system: System, network: AstraNetwork, groups: Groups
) -> None:
    """Reject collectives that ASTRA-sim crashes on, never ends, or ends without a result.

    WeftError: names the collective, the key and the dimension.
    """
    for one in _collectives(meanings):
        if system.replay or one.kind == "broadcast":
            continue
        if one.kind not in KINDS:
            raise WeftError(f"a {one.kind} of the workload: ASTRA-sim runs {', '.join(KINDS)}, and replays a broadcast")
        if len(groups.get(one.group, (0, 0))) == 1:
            continue
        split(one.size, one.kind, system.splits, network.npus)
        members = len(groups[one.group]) if one.group in groups else network.npus
        if members < network.npus:
            if one.kind in system.custom:
                raise WeftError(f"a custom {one.kind} in a communicator group of {members} of {network.npus} NPUs: not "
                                "simulated; give the collective an algorithm, or a group of all")
            _check_halving(one, system.in_group(one.kind, len(network.dimensions)).name, members, 0, system)
            continue
        if one.kind in system.custom:
            continue
        for dim, chosen in enumerate(system.implementations(one.kind, len(network.dimensions))):
            _check_halving(one, chosen.name, _extent(network, dim, chosen), dim, system)


def _extent(network: AstraNetwork, dim: int, chosen: Implementation) -> int:
    return network.npus if chosen.spans else network.dimensions[dim].npus


def _check_halving(one: Communicates, algorithm: str, npus: int, dim: int, system: System) -> None:
    if algorithm != "halvingDoubling":
        return
    where = f"system file {system.source}: {one.kind}-implementation: halvingDoubling"
    if one.kind == "all-to-all":
        raise WeftError(f"{where} does no all-to-all: ASTRA-sim stops")
    if npus & (npus - 1):
        raise WeftError(
            f"{where} needs a power of two, and dimension {dim} has {npus} NPUs: ASTRA-sim prints no result, or "
            "that of messages that make up no such collective"
        )


def notes_of(
    meanings: Sequence[Mapping[int, Meaning]], system: System, network: AstraNetwork, groups: Groups, backend: str,
    cycles: int, busiest_ns: int, unread: Sequence[str],
) -> list[str]:
    """Notes on what happened unasked.

    `meanings`: of the nodes of each NPU.
    `cycles`: of the slowest NPU.
    `busiest_ns`: bytes of the busiest link, in time.
    `unread`: traces of NPUs that the network does not have.
    """
    used = list(dict.fromkeys(_collectives(meanings)))
    notes = ["1 cycle is 1 ns; 1 GB/s of the network is 2^30 B/s, 1 GB/s of local-mem-bw is 10^9 B/s"]
    if not system.replay:
        for one in used:
            notes += _size_notes(one, system, network, groups)
        if not system.memory_Bps and any(one.kind in ("all-reduce", "reduce-scatter") for one in used):
            notes.append("reductions take no time: the system file has no local-mem-bw")
        notes += _algorithm_notes(used, system, network, groups)
    if backend == "unaware":
        notes.append(
            "the congestion-unaware backend lets messages of a collective share links without waiting"
            + (f": the busiest link alone needs {busiest_ns} cycles for its bytes" if busiest_ns > cycles else "")
        )
    elif len(network.dimensions) > 1:
        notes.append("ASTRA-sim's congestion-aware backend takes one dimension only: its rules are applied to each")
    if system.passed_over:
        notes.append(f"keys of the system file that are passed over: {', '.join(system.passed_over)}")
    if unread:
        notes.append(f"{len(unread)} traces of NPUs that the network does not have are not read, such as {unread[0]}")
    notes = list(dict.fromkeys(notes))
    more = [f"and {len(notes) - MOST_NOTES} more"] if len(notes) > MOST_NOTES else []
    return notes[:MOST_NOTES] + more


def _collectives(meanings: Iterable[Mapping[int, Meaning]]) -> Iterable[Communicates]:
    return (one for nodes in meanings for one in nodes.values() if isinstance(one, Communicates))


def _size_notes(one: Communicates, system: System, network: AstraNetwork, groups: Groups) -> Iterator[str]:
    if len(groups.get(one.group, (0, 0))) == 1:
        yield "a collective of one NPU takes no time here: ASTRA-sim itself never ends it"
        return
    if one.kind not in KINDS:
        yield f"a {one.kind} is not simulated: it takes the time of the trace"
        return
    chunk, streams = split(one.size, one.kind, system.splits, network.npus)
    if one.kind in system.custom:
        yield f"a custom {one.kind} moves the bytes of its traces, {streams} times, regardless of the workload"
        return
    if chunk * streams != one.size:
        yield (
            f"{one.kind} of {one.size} bytes in {system.splits} splits runs as {streams} of {chunk} bytes: "
            f"{chunk * streams / one.size - 1:+.1%}"
        )
    members = len(groups[one.group]) if one.group else network.npus
    if one.kind != "all-gather" and chunk % members:
        yield (
            f"{one.kind} of {one.size} bytes: a split of {chunk} bytes is not divisible by {members} NPUs, and "
            f"messages are truncated to whole bytes: {chunk // members * members} of {chunk} are moved"
        )


def _algorithm_notes(
    used: Sequence[Communicates], system: System, network: AstraNetwork, groups: Groups
) -> Iterator[str]:
    for one in used:
        if one.kind not in KINDS or len(groups.get(one.group, (0, 0))) == 1:
            continue
        if one.group and len(groups[one.group]) < network.npus:
            own = len(system.algorithms.get(one.kind, ())) == 1
            runs = "the system file's algorithm" if own else "a ring, whatever the system file has,"
            yield f"a communicator group of fewer than all NPUs runs {runs} with an endpoint delay of 10 ns"
            continue
        if one.kind in system.custom:
            continue
        for dim, chosen in enumerate(system.implementations(one.kind, len(network.dimensions))):
            kind, npus = network.dimensions[dim].kind, _extent(network, dim, chosen)
            if chosen.name != "ring":
                continue
            if one.kind == "all-to-all":
                yield (
                    f"an all-to-all by ring is {npus * (npus - 1) // 2} messages one after the other; direct sends "
                    f"{npus - 1} at once"
                )
            elif kind == "Ring" and system.queues == 1 and npus > 2:
                yield "a ring collective goes clockwise only: the other direction of every ring is idle"
