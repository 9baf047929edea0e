"""One NPU of the compatibility run: collectives cut into streams, streams in queues, delayed calls.

A stream goes through its phases, one dimension each. A queue of a dimension runs a few streams at once; the others
wait behind them by priority, equals in their order. Delayed calls of one NPU that fall in the same ns are one event.

A custom collective is a Chakra trace of sends, receives and computations: every stream runs the whole trace of its NPU.
Nodes are issued, by id, once their dependencies end; no endpoint delay is charged, the sizes are those of the trace,
and a computation takes its whole microseconds or 1 ns.
"""

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from sim.astra.collective import Host, Phase, PhaseSpec
from sim.astra.network import Clock, MessageNetwork
from sim.astra.system_file import System
from topologies import WeftError
from workloads.formats.astra_memory import RemoteMemory
from workloads.formats.chakra_nodes import Computes, Exchanges, Meaning, meaning, read_ranks


class CustomTrace(NamedTuple):
    """Nodes of one NPU by id, and what they wait for."""

    meanings: Mapping[int, Meaning]
    after: Mapping[int, Sequence[int]]


def read_custom(prefix: str | Path, n_npus: int) -> list[CustomTrace]:
    """The traces of a custom collective, one per NPU.

    WeftError: as for `workloads.formats.chakra_nodes`; nodes of another kind, which ASTRA-sim never ends; no nodes at
        all.
    """
    traces, unread = read_ranks(prefix, n_npus)
    if unread:
        raise WeftError(f"custom collective {prefix}: {unread[0]} belongs to an NPU that the network does not have")
    found = []
    for npu, trace in enumerate(traces):
        where = f"trace {prefix}.{npu}.et"
        meanings = {node.id: meaning(node, npu, n_npus, where) for node in trace.nodes}
        for node, what in meanings.items():
            if not isinstance(what, (Computes, Exchanges)):
                raise WeftError(f"{where}: node {node} is not a send, receive or computation: ASTRA-sim never ends it")
        if not meanings:
            raise WeftError(f"{where}: no nodes: ASTRA-sim never ends the collective")
        found.append(CustomTrace(meanings, {node.id: node.after for node in trace.nodes}))
    return found


class CustomPhase:
    """One NPU's run of its trace.

    `tag`: of the stream, to distinguish the messages of streams.
    `ended`: called once.
    """

    def __init__(self, host: Host, trace: CustomTrace, tag: int, ended: Callable[[], None]) -> None:
        self.host, self.trace, self.tag, self.ended = host, trace, tag, ended
        self._waits = TopologicalSorter(trace.after)
        self._waits.prepare()

    def begin(self) -> None:
        """Issue what waits for nothing, or for nothing any more."""
        for node in sorted(self._waits.get_ready()):
            self._issue(node)

    def _issue(self, node: int) -> None:
        what = self.trace.meanings[node]

        def done(_: Any = None) -> None:
            self._end(node)

        if isinstance(what, Computes):
            self.host.later(what.duration_ns or 1, done)
        elif isinstance(what, Exchanges):
            self.host.network.exchange(f"message of stream {self.tag}", what, self.host.npu, done)

    def _end(self, node: int) -> None:
        self._waits.done(node)
        self.begin()
        if not self._waits.is_active():
            self.ended()


MOST_STREAMS = 1_000_000
"""Of one collective, on all NPUs together."""

GROUP_DELAY_NS = 10
"""Endpoint delay inside a communicator group of fewer than all NPUs, regardless of the system file."""

_STREAMS_OF_A_GROUP = 1_000_000

Group = tuple[int, tuple[int, ...]]
"""Number and NPUs of a communicator group."""

Opened = Phase | CustomPhase


class Planned(NamedTuple):
    """A phase and the queue that it runs in; `make` takes the tag of its messages and a callback for its end."""

    queue: int
    make: Callable[[int, Callable[[], None]], Opened]


class Stream:
    """A collective, or a part of one, on its way through the queues of an NPU."""

    __slots__ = ("done", "opened", "phases", "priority", "queue", "tag")

    def __init__(self, tag: int, phases: list[Planned], priority: int, done: Callable[[], None]) -> None:
        self.tag, self.phases, self.priority, self.done = tag, phases, priority, done
        self.queue: int | None = None
        self.opened: Opened | None = None


class Memories:
    """Remote memories, each of which serves one access at a time; one for each NPU serves as many as it is asked."""

    def __init__(self, remote: RemoteMemory) -> None:
        self.remote = remote
        self._free_ns: dict[int, int] = {}

    def access(self, npu: int, size: int, now_ns: int) -> int:
        """When an access ends that is issued now."""
        number = self.remote.of(npu)
        begin_ns = now_ns if self.remote.sharing == 1 else max(now_ns, self._free_ns.get(number, 0))
        self._free_ns[number] = begin_ns + self.remote.time_ns(size)
        return self._free_ns[number]


class Endpoint:
    """One NPU.

    `custom`: what this NPU does in a custom collective, by kind.
    """

    def __init__(
        self, npu: int, system: System, network: MessageNetwork, clock: Clock, custom: Mapping[str, CustomTrace],
        memory: Memories | None = None,
    ) -> None:
        self.npu, self.system, self.network, self.clock, self.custom = npu, system, network, clock, custom
        self.memory = memory
        dims = network.description.dimensions
        self.waiting: list[list[Stream]] = [[] for _ in range(len(dims) * system.queues)]
        self.running = [0] * len(self.waiting)
        self.at_once = -(-system.active_chunks // system.queues)
        self._turn = [0] * len(dims)
        self._streams = 0
        self._group_streams: dict[int, int] = {}
        self._priority = 0
        self._calls: dict[int, list[Callable[[], None]]] = {}

    def later(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Call after a delay, in the event of that ns if there is one."""
        time_ns = self.clock.now + delay_ns
        calls = self._calls.get(time_ns)
        if calls is None:
            calls = self._calls[time_ns] = []
            self.clock.at(time_ns, self._run_calls, time_ns)
        calls.append(call)

    def _run_calls(self, time_ns: int) -> None:
        for call in self._calls[time_ns]:  # includes calls added meanwhile
            call()
        del self._calls[time_ns]

    def memory_ns(self, size: int) -> int:
        """From now to the end of an access to remote memory, behind those that others have begun."""
        assert self.memory is not None
        return self.memory.access(self.npu, size, self.clock.now) - self.clock.now

    def reduction_ns(self, size: int) -> int:
        """Two reads and a write, each in whole ns."""
        rate = self.system.memory_Bps
        return 3 * int(size / rate * 1e9) if rate else 0

    def collective(
        self, kind: str, size: int, dims: tuple[bool, ...] | None, group: Group | None, priority: int,
        done: Callable[[], None],
    ) -> None:
        """Begin a collective.

        `size`: bytes that each NPU contributes.
        `dims`: dimensions that take part; None for all.
        `group`: None for all NPUs.
        `priority`: counts where the scheduling policy is EXPLICIT.
        `done`: called when all streams have ended.
        WeftError: what ASTRA-sim would not end.
        """
        chunk, streams = split(size, kind, self.system.splits, self.network.description.npus)
        if self.system.policy != "EXPLICIT":
            priority, self._priority = self._priority, self._priority + (1 if self.system.policy == "LIFO" else -1)
        left = streams

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for _ in range(streams):
            phases = self._phases(kind, chunk, dims, group)
            if not phases:
                raise WeftError(f"{kind} on NPU {self.npu} alone: no other NPU takes part, and ASTRA-sim never ends it")
            self._proceed(Stream(self._tag(group), phases, priority, one_done))

    def _tag(self, group: Group | None) -> int:
        if group is None:
            self._streams += 1
            return self._streams - 1
        count = self._group_streams.get(group[0], 0)
        self._group_streams[group[0]] = count + 1
        return group[0] * _STREAMS_OF_A_GROUP + count

    def _phases(self, kind: str, size: int, dims: tuple[bool, ...] | None, group: Group | None) -> list[Planned]:
        whole = self.network.description
        if group is not None and len(group[1]) < whole.npus:
            name, window, _ = self.system.in_group(kind, len(whole.dimensions))
            spec = PhaseSpec(kind, name, group[1], size, 1, window, GROUP_DELAY_NS, is_local=True)
            return [self._plan(0, spec)] if len(group[1]) > 1 else []
        if kind in self.custom:
            queue, _ = self._next_queue(0)
            return [Planned(queue, partial(CustomPhase, self, self.custom[kind]))]
        implementations = self.system.implementations(kind, len(whole.dimensions))
        lines = [
            tuple(range(whole.npus)) if one.spans else whole.line(self.npu, dim)
            for dim, one in enumerate(implementations)
        ]
        active = [
            dim for dim, line in enumerate(lines)
            if len(line) > 1 and (group is not None or dims is None or (dim < len(dims) and dims[dim]))
        ]
        found: list[Planned] = []
        for phase, dim in _order(kind, active, self.system.baseline):
            name, window, _ = implementations[dim]
            spec = PhaseSpec(phase, name, lines[dim], size, 1, window, self.system.endpoint_delay_ns)
            found.append(self._plan(dim, spec))
            size = spec.final_size
        return found

    def _plan(self, dim: int, spec: PhaseSpec) -> Planned:
        queue, direction = self._next_queue(dim)
        return Planned(queue, partial(Phase, self, spec._replace(direction=direction)))

    def _next_queue(self, dim: int) -> tuple[int, int]:
        """The next queue of a dimension, and its direction: the second half of the queues runs anticlockwise."""
        turn, queues = self._turn[dim], self.system.queues
        self._turn[dim] = (turn + 1) % queues
        return dim * queues + turn, -1 if queues > 1 and turn >= queues // 2 else 1

    def _proceed(self, stream: Stream) -> None:
        """The next phase of a stream, or its end; then its old queue may open another, then the new one."""
        before = stream.queue
        if not stream.phases:
            stream.done()
        if before is not None:
            self.waiting[before].remove(stream)
        if stream.phases:
            stream.queue, stream.opened = stream.phases[0].queue, None
            insort(self.waiting[stream.queue], stream, key=_place)
        if before is not None:
            self.running[before] -= 1
            self._open(before)
        if stream.phases and stream.queue is not None:
            self._open(stream.queue)

    def _open(self, queue: int) -> None:
        line = self.waiting[queue]
        while self.running[queue] < min(self.at_once, len(line)):
            stream = line[self.running[queue]]
            self.running[queue] += 1
            stream.opened = stream.phases.pop(0).make(stream.tag, partial(self._proceed, stream))
            stream.opened.begin()


def _place(stream: Stream) -> tuple[bool, int]:
    """Order in a queue: what runs, then by priority, the largest first."""
    return (True, -stream.priority) if stream.opened is None else (False, 0)


def split(size: int, kind: str, splits: int, npus: int) -> tuple[int, int]:
    """Bytes of a stream and number of streams: the last one is as large as the others.

    WeftError: no bytes, or more streams than are simulated.
    """
    chunk = size // splits
    if kind != "all-gather" and chunk < npus and size:
        chunk, size = npus, npus * splits
    if not chunk:
        raise WeftError(f"{kind} of {size} bytes in {splits} splits: a split has no bytes, and ASTRA-sim never ends it")
    if (streams := -(-size // chunk)) * npus > MOST_STREAMS:
        raise WeftError(
            f"{kind} of {size} bytes in {splits} splits: {streams} streams on each of {npus} NPUs; at most "
            f"{MOST_STREAMS:,} in all"
        )
    return chunk, streams


def _order(kind: str, active: list[int], baseline: bool) -> list[tuple[str, int]]:
    """Phases of a collective as (kind, dimension)."""
    if kind == "all-reduce" and not baseline and active:
        *first, last = active
        before = [("reduce-scatter", dim) for dim in first]
        return [*before, (kind, last), *(("all-gather", dim) for dim in reversed(first))]
    return [(kind, dim) for dim in (reversed(active) if kind == "all-gather" else active)]
