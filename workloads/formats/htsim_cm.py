"""The connection matrix (`.cm`) of htsim, read: flows that start at a time, or when others have ended.

A flow is a message. It has ended at both ends when its last byte has arrived, so that acknowledgements take no time;
the transport, its windows and its priorities are htsim's own.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from topologies import Topology, WeftError
from topologies.text.input_text import read_input
from topologies.units import counted
from workloads.formats.waits import smallest_first
from workloads.group_collectives import Named
from workloads.job import Job

HEADER = r"(?:\s*#[^\n]*\n|\s*\n)*\s*Nodes\s+\d+\s*\n"
"""Of a file."""

MOST_FLOWS = 1_000_000

_MESSAGE = re.compile(r"\smsg(?:\s+\d+)?(?=\s|$)")
"""Of flows that are messages on one connection, which here have no connection."""
_KEYS = {"id", "start", "size", "trigger", "send_done_trigger", "recv_done_trigger", "prio"}


@dataclass
class _Flow:
    src: int
    dst: int
    said: Mapping[str, int]
    after: list[int] = field(default_factory=list)  # flows


def open_matrix(name: str, topology: Topology, algorithms: Named = ()) -> tuple[Job, list[str]]:
    """The job of a file, and notes; WeftError: names the line, and what is not read."""
    if algorithms:
        raise WeftError("a connection matrix has flows, and no collectives whose algorithm could be named")
    flows, notes = _flows(name, topology.n_npus)
    job = Job(topology)
    clocks = _clocks(job, flows)
    number: dict[int, int] = {}
    try:
        order = smallest_first({at: flow.after for at, flow in enumerate(flows)}, "flow {}".format)
    except WeftError:
        raise WeftError(f"{name}: flows wait for each other in a cycle of triggers") from None
    for at in order:
        flow = flows[at]
        start = flow.said.get("start", 0)
        waits = [number[other] for other in flow.after] + ([clocks[flow.src, start]] if start else [])
        label = f"flow {flow.said.get('id', at + 1)}"
        number[at] = job.send(label, flow.said["size"], [flow.src], [flow.dst], kind="flow", after=waits)
    return job, notes


def _clocks(job: Job, flows: Sequence[_Flow]) -> dict[tuple[int, int], int]:
    """Operations that end at the starts of flows, one after the other on a stream of their source."""
    starts: dict[int, set[int]] = defaultdict(set)
    for flow in flows:
        if flow.said.get("start"):
            starts[flow.src].add(flow.said["start"])
    found: dict[tuple[int, int], int] = {}
    for src, times in starts.items():
        before = 0
        for time in sorted(times):
            after = [found[src, before]] if before else []
            found[src, time] = job.compute(f"start at {time} ps", time - before, kind="start", stream="starts of flows",
                                           npus=[src], after=after)
            before = time
    return found


def _flows(name: str, n_npus: int) -> tuple[list[_Flow], list[str]]:
    flows: list[_Flow] = []
    kinds: dict[int, tuple[str, int]] = {}
    said, text = {"Nodes": n_npus}, read_input(name, "connection matrix")
    for number, line in enumerate(text.splitlines(), start=1):
        where, words = f"{name}, line {number}", _MESSAGE.sub("", line.partition("#")[0]).split()
        if not words:
            continue
        if words[0] in ("Nodes", "Connections", "Triggers", "Failures"):
            said[words[0]] = _whole(words[1:2], words[0], where)
        elif "->" in words[0]:
            flows.append(_flow(words, n_npus, where))
        elif words[0] == "trigger":
            kind = [word for word in words if word in ("oneshot", "multishot", "barrier")]
            keys = dict(pairwise(words))
            if len(kind) != 1:
                raise WeftError(f"{where}: a trigger is one of oneshot, multishot and barrier")
            count = _whole([keys.get("count", "")], "count", where) if kind[0] == "barrier" else 1
            kinds[_whole([keys.get("id", "")], "id", where)] = kind[0], count
        elif words[0] == "failure":
            raise WeftError(f"{where}: a failure of a switch: give --faults FILE, and leave it out here")
        else:
            raise WeftError(f"{where}: {words[0]!r} is neither a flow SRC->DST nor a trigger")
        if len(flows) > MOST_FLOWS:
            raise WeftError(f"{where}: more than {MOST_FLOWS:,} flows")
    if said["Nodes"] > n_npus:
        raise WeftError(f"{name} has {counted(said['Nodes'], 'node')}, and the network only {counted(n_npus, 'NPU')}")
    if said.get("Connections", len(flows)) != len(flows) or not flows:
        raise WeftError(f"{name} says {said.get('Connections', 0)} connections, and has {len(flows)}")
    _wait(flows, kinds, name)
    over = ["prio"] * any("prio" in flow.said for flow in flows) + ["msg"] * (_MESSAGE.search(text) is not None)
    return flows, [f"{' and '.join(over)} of flows is passed over: it is of htsim's transports"] if over else []


def _flow(words: Sequence[str], n_npus: int, where: str) -> _Flow:
    ends = re.fullmatch(r"(\d{1,9})->(\d{1,9})", words[0])
    if ends is None or not max(map(int, ends.groups())) < n_npus or ends[1] == ends[2]:
        raise WeftError(f"{where}: {words[0]!r} is no flow between two of the {n_npus} NPUs")
    if len(words) % 2 == 0 or not _KEYS.issuperset(words[1::2]):
        wrong = next((word for word in words[1::2] if word not in _KEYS), words[-1])
        raise WeftError(f"{where}: {wrong!r} is not read: accepted are {', '.join(sorted(_KEYS))}, each with a number")
    said = {key: _whole([value], key, where) for key, value in zip(words[1::2], words[2::2], strict=True)}
    if ("start" in said) == ("trigger" in said) or "size" not in said:
        raise WeftError(f"{where}: a flow has a size, and either a start or a trigger")
    if not said["size"]:
        raise WeftError(f"{where}: a flow of size 0 has no end in htsim: give it a size")
    return _Flow(int(ends[1]), int(ends[2]), said)


def _wait(flows: Sequence[_Flow], kinds: Mapping[int, tuple[str, int]], name: str) -> None:
    """What flows wait for: those that fire their trigger."""
    firing: dict[int, list[int]] = defaultdict(list)
    for at, flow in enumerate(flows):
        for end in ("send_done_trigger", "recv_done_trigger"):
            if flow.said.get(end):
                firing[flow.said[end]].append(at)
    started = Counter(flow.said["trigger"] for flow in flows if "trigger" in flow.said)
    for flow in flows:
        if "trigger" in flow.said:
            trigger = flow.said["trigger"]
            kind, count = kinds.get(trigger, ("", 0))
            if kind == "multishot" and started[trigger] > 1:
                raise WeftError(f"{name}: trigger {trigger} (multishot) starts one of {started[trigger]} flows at a "
                                "time: which, depends on the run")
            if not kind or len(firing[trigger]) != count:
                raise WeftError(f"{name}: trigger {trigger} ({kind or 'not defined'}) is fired by "
                                f"{len(firing[trigger])} flows: {count if kind else 'some'} are expected")
            flow.after = firing[trigger]


def _whole(words: Sequence[str], what: str, where: str) -> int:
    word = words[0] if words else ""
    if re.fullmatch(r"\d{1,18}(\.0*)?", word) is None:
        raise WeftError(f"{where}: {what} is {word!r}: an integer is expected")
    return int(word.partition(".")[0])
