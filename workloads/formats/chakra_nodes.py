"""Meaning of Chakra trace nodes: computations, collectives, messages and accesses to memory, from their attributes.

`workloads.formats.chakra_schema` has the attributes that are read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from topologies.checks import WeftError, told
from workloads.formats.chakra import Trace, read_trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_json import read_json_trace
from workloads.formats.chakra_schema import COLLECTIVES, LEGACY, MEMORY, OWN, ROWS, SIZELESS, Node, Row

MOST_NPUS, MOST_NODES = 2**20, 4_000_000

ENDINGS = (".et", ".et.gz", ".json", ".eg")

NS_PER_US = 1000

STREAM = "cuda_stream"
"""Attribute that tells streams apart on which computations run at once."""

EVERYONE = ("", "0")
"""Names of the group of all NPUs."""


class Computes(NamedTuple):
    """Work of one NPU."""

    duration_ns: int
    on_cpu: bool
    operations: int | None = None  # None: the trace does not say
    bytes: int | None = None
    stream: str = ""  # of the NPU; "": its only one


class Remembers(NamedTuple):
    """A load from remote memory, or a store."""

    bytes: int
    duration_ns: int


class Communicates(NamedTuple):
    """A collective; `size` as ASTRA-sim counts it, of what each NPU brings."""

    kind: str
    size: int
    group: str  # "" for all NPUs
    dims: tuple[bool, ...] | None
    priority: int
    duration_ns: int


class Exchanges(NamedTuple):
    """One end of a message."""

    sends: bool
    peer: int
    size: int
    tag: int


Meaning = Computes | Remembers | Communicates | Exchanges | None


def read_ranks(prefix: str | Path, n_npus: int) -> tuple[list[Trace], list[str]]:
    """The traces `<prefix>.<rank>.et` of all ranks of a network, or .et.gz or .json.

    Returns the traces, and the files of ranks that the network does not have.
    WeftError: a file is missing or not a trace, or there are more nodes in all than are read.
    """
    folder, stem, ending = Path(prefix).parent, Path(prefix).name, ending_of(prefix)
    if not ending:
        raise WeftError(f"workload {prefix}: there is no {stem}.0.et in {folder}: give what comes before .<rank>.et")
    traces: list[Trace] = []
    n_nodes = 0
    for rank in range(n_npus):
        path = f"{prefix}.{rank}{ending}"
        if not Path(path).exists():
            raise WeftError(f"workload {prefix}: there is no {stem}.{rank}{ending}, and the network has {n_npus} NPUs")
        traces.append(read_json_trace(path) if ending == ".json" else read_trace(path))
        n_nodes += len(traces[-1].nodes)
        if n_nodes > MOST_NODES:
            raise WeftError(f"workload {prefix}: more than {MOST_NODES:,} nodes in all")
    named = (path for path in folder.iterdir() if path.name.startswith(f"{stem}.") and path.name.endswith(ending))
    ranks = [(path.name.removeprefix(f"{stem}.").removesuffix(ending), path) for path in named]
    return traces, sorted(str(path) for rank, path in ranks if rank.isdecimal() and int(rank) >= n_npus)


def ending_of(prefix: str | Path) -> str:
    """What follows the rank in the names of traces; "" where there are none."""
    return next((ending for ending in ENDINGS if Path(f"{prefix}.0{ending}").exists()), "")


def passed_over(traces: list[Trace]) -> list[str]:
    """Notes of the attributes that are not read, and of dependencies on nodes that are not there."""
    read = {row.name for row in ROWS} | set(LEGACY)
    names = {one.name for trace in traces for node in trace.nodes for one in node.attributes} - read
    notes = [f"attributes that are passed over, as Chakra's feeders do: {', '.join(sorted(names))}"] if names else []
    dropped = sum(trace.dropped for trace in traces)
    more = f"{dropped:,} control dependencies are left out, on nodes that are not there or against the data: V3 stops"
    return [*notes, more] if dropped else notes


def meaning(node: Node, rank: int, n_npus: int, where: str) -> Meaning:
    """What a node asks for; None for nothing.

    A collective or message of a CPU is the call of the host, and takes its duration there.

    `rank`, `n_npus`: whose node it is.
    `where`: "trace x.0.et", for messages.
    WeftError: names the node and the attribute: one that is missing or given twice, or a value out of range.
    """
    values = _Values(node, f"{where}: node {node.id}")
    if node.kind in ("invalid", "metadata"):
        return None
    on_cpu, duration_ns = values.whole("is_cpu_op") == 1, round(node.duration_us * NS_PER_US)
    if node.kind == "compute":
        work = [values.whole(name) if name in values.found else None for name in ("num_ops", "tensor_size")]
        return Computes(duration_ns, on_cpu, work[0], work[1], values.stream())
    if node.kind in MEMORY:
        return Remembers(values.whole("tensor_size"), duration_ns)
    if on_cpu:
        return Computes(duration_ns, True)
    return _collective(node, values) if node.kind == "collective" else _message(node, values, rank, n_npus)


def _collective(node: Node, values: "_Values") -> Communicates:
    kind = COLLECTIVES[values.whole("comm_type")]
    moves = kind not in SIZELESS or ("comm_size" in values.found and kind != "barrier")
    size = values.whole("comm_size") if moves else 0  # the MPI converter gives a barrier its duration for a size
    return Communicates(
        kind.removesuffix("-block"), size, values.group(), values.dims(), values.whole("comm_priority"),
        round(node.duration_us * NS_PER_US),
    )


def _message(node: Node, values: "_Values", rank: int, n_npus: int) -> Exchanges:
    sends = node.kind == "send"
    own, other = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
    if (said := values.whole(own, n_npus - 1, rank)) != rank:
        raise WeftError(f"{values.where}: {own} is {said}; the trace is that of NPU {rank}")
    peer = values.whole(other, n_npus - 1)
    if peer == rank:
        raise WeftError(f"{values.where}: {other} is {peer}, its own NPU")
    return Exchanges(sends, peer, values.whole("comm_size"), values.whole("comm_tag"))


class _Values:
    """Attributes of a node by name."""

    def __init__(self, node: Node, where: str) -> None:
        self.kind, self.where = node.kind, where
        self.found: dict[str, Attribute] = {}
        for one in node.attributes:
            if self.found.setdefault(one.name, one).value != one.value and one.name in _READ:
                raise WeftError(f"{where}: attribute {one.name!r} is given twice")
            if one.name in LEGACY:
                self.found[one.name] = one  # the MPI converter writes the root first, and then the group

    def whole(self, name: str, most: int | None = None, own: int = 0) -> int:
        """An integer from zero on, of a type of any width, or what stands for it; `own`: the rank."""
        row = _ROW_OF[name, self.kind]
        if name not in self.found:
            if row.absent is None:
                raise WeftError(f"{self.where}: lacks the attribute {name!r}")
            return own if row.absent == OWN else int(row.absent)
        value = self.found[name].value
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
            value = int(value)
        limit = row.most if most is None else most
        if not isinstance(value, int) or not 0 <= value <= limit:
            raise WeftError(f"{self.where}: {name} is {told(value)}: an integer from 0 to {limit} is expected")
        return int(value)

    def group(self) -> str:
        """Name of the communicator group; "" for all NPUs."""
        one = next((self.found[name] for name in ("pg_name", *LEGACY) if name in self.found), None)
        value = "" if one is None else one.value
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise WeftError(f"{self.where}: pg_name is {told(value)}: the name of a communicator group is expected")
        return "" if str(value) in EVERYONE else str(value)

    def stream(self) -> str:
        """Of the NPU, which a profile of PyTorch has several of."""
        return str(self.found[STREAM].value) if STREAM in self.found else ""

    def dims(self) -> tuple[bool, ...] | None:
        """Dimensions that take part; None where the node does not say."""
        if "involved_dim" not in self.found:
            return None
        one = self.found["involved_dim"]
        if one.kind not in ("bool", "") or not isinstance(one.value, tuple):
            raise WeftError(f"{self.where}: involved_dim is {told(one.value)}: a list of booleans is expected")
        return tuple(bool(value) for value in one.value)


_ROW_OF: Mapping[tuple[str, str], Row] = {(row.name, kind): row for row in ROWS for kind in row.of}

_READ = {row.name for row in ROWS}
