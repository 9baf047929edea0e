"""Custom collectives: Chakra traces of sends, receives and computations that stand for a collective.

Every stream of a collective runs the whole trace of its NPU. Nodes are issued, by id, once their dependencies end; no
endpoint delay is charged, the sizes are those of the trace, and a computation takes its whole microseconds or 1 ns.
"""

from collections.abc import Callable, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from sim.astra.collective import Host
from topologies import WeftError
from workloads.formats.chakra_nodes import Computes, Exchanges, Meaning, meaning, read_ranks

NS_PER_US = 1000


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
            self.host.later(what.duration_us * NS_PER_US or 1, done)
        elif isinstance(what, Exchanges):
            self.host.network.exchange(f"message of stream {self.tag}", what, self.host.npu, done)

    def _end(self, node: int) -> None:
        self._waits.done(node)
        self.begin()
        if not self._waits.is_active():
            self.ended()
