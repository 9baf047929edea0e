"""A run: files in, one line per NPU out, and what ASTRA-sim does not report."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sim.astra.custom import read_custom
from sim.astra.endpoint import Endpoint, Memories
from sim.astra.network import BACKENDS, Clock, MessageNetwork
from sim.astra.notes import check_collectives, notes_of
from sim.astra.system_file import System, read_system
from sim.astra.workload import NpuTrace
from topologies.checks import WeftError, choice
from topologies.formats.astra_network import AstraNetwork, read_astra_network
from topologies.stages import staged
from workloads.formats.astra_memory import read_remote_memory
from workloads.formats.chakra import Node, Trace
from workloads.formats.chakra_json import Groups, groups_of
from workloads.formats.chakra_nodes import Computes, Meaning, Remembers, meaning, passed_over, read_ranks
from workloads.formats.comm_groups import read_comm_groups

MOST_EVENTS = 200_000_000


@dataclass(frozen=True)
class AstraResult:
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
    found = []
    for npu, trace in enumerate(traces):
        where = f"trace {workload}.{npu}.et"
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
