"""Meaning of Chakra trace nodes: computations, collectives and messages, from their attributes.

An unused attribute is an error that names it; `NOTES`, which record the origin of a node, are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from topologies import WeftError
from workloads.formats.chakra import Node, Trace, read_trace
from workloads.formats.chakra_attributes import Attribute

COLLECTIVES = (
    "all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "all-to-all", "reduce-scatter",
    "reduce-scatter-block", "barrier",
)
"""By the number of `comm_type`."""

NOTES = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema", "kernel_backend", "kernel_file")

ACCEPTED: Mapping[str, tuple[str, ...]] = {
    "compute": ("is_cpu_op", "num_ops", "tensor_size"),
    "collective": ("is_cpu_op", "comm_type", "comm_size", "comm_priority", "pg_name", "involved_dim"),
    "send": ("is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag"),
    "receive": ("is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag"),
    "invalid": (), "metadata": (),
}

MOST_NPUS, MOST_NODES, MOST_SIZE = 2**20, 4_000_000, 2**60


class Computes(NamedTuple):
    """Work of one NPU."""

    duration_us: int
    on_cpu: bool
    operations: int
    bytes: int


class Communicates(NamedTuple):
    """A collective; `size` as ASTRA-sim counts it, of what each NPU brings."""

    kind: str
    size: int
    group: int
    dims: tuple[bool, ...] | None
    priority: int
    duration_us: int


class Exchanges(NamedTuple):
    """One end of a message."""

    sends: bool
    peer: int
    size: int
    tag: int


Meaning = Computes | Communicates | Exchanges | None


def read_ranks(prefix: str | Path, n_npus: int) -> tuple[list[Trace], list[str]]:
    """The traces `<prefix>.<rank>.et` of all ranks of a network.

    Returns the traces, and the files of ranks that the network does not have.
    WeftError: a file is missing or not a trace, or there are more nodes in all than are read.
    """
    folder, stem = Path(prefix).parent, Path(prefix).name
    if not Path(f"{prefix}.0.et").exists():
        raise WeftError(f"workload {prefix}: there is no {stem}.0.et in {folder}: give what comes before .<rank>.et")
    traces: list[Trace] = []
    n_nodes = 0
    for rank in range(n_npus):
        traces.append(read_trace(f"{prefix}.{rank}.et"))
        n_nodes += len(traces[-1].nodes)
        if n_nodes > MOST_NODES:
            raise WeftError(f"workload {prefix}: more than {MOST_NODES:,} nodes in all")
    named = (path for path in folder.iterdir() if path.name.startswith(f"{stem}.") and path.name.endswith(".et"))
    ranks = [(path.name.removeprefix(f"{stem}.").removesuffix(".et"), path) for path in named]
    return traces, sorted(str(path) for rank, path in ranks if rank.isdecimal() and int(rank) >= n_npus)


def meaning(node: Node, rank: int, n_npus: int, where: str) -> Meaning:
    """What a node asks for; None for nothing.

    `rank`, `n_npus`: whose node it is.
    `where`: "trace x.0.et", for messages.
    WeftError: names the node and the attribute: one that is unknown, missing or given twice, a value out of range, a
        node of a type that is not simulated.
    """
    where = f"{where}: node {node.id}"
    if node.kind not in ACCEPTED:
        raise WeftError(f"{where} is a {node.kind}: remote memory is not simulated")
    found: dict[str, Attribute] = {}
    for one in node.attributes:
        if one.name in found:
            raise WeftError(f"{where}: attribute {one.name!r} is given twice")
        if one.name not in ACCEPTED[node.kind] and one.name not in NOTES:
            raise WeftError(
                f"{where}: unknown or unused attribute {one.name!r} of a {node.kind}; accepted are "
                f"{', '.join((*ACCEPTED[node.kind], *NOTES))}"
            )
        found[one.name] = one
    values = _Values(found, where)
    if node.kind == "compute":
        on_cpu = values.whole("is_cpu_op", 1, 1) == 1
        return Computes(
            node.duration_us, on_cpu, values.whole("num_ops", 0, MOST_SIZE), values.whole("tensor_size", 0, MOST_SIZE)
        )
    if node.kind in ("invalid", "metadata"):
        return None
    if values.whole("is_cpu_op", 0, 1):
        raise WeftError(f"{where}: is_cpu_op of a {node.kind}: ASTRA-sim does not communicate on CPUs")
    if node.kind == "collective":
        return _collective(node, values)
    return _message(node, values, rank, n_npus)


def _collective(node: Node, values: _Values) -> Communicates:
    kind = COLLECTIVES[values.whole("comm_type", 0, len(COLLECTIVES) - 1)]
    return Communicates(
        kind, values.whole("comm_size", None if kind not in ("broadcast", "barrier") else 0, MOST_SIZE), values.group(),
        values.dims(), values.whole("comm_priority", 0, 2**31), node.duration_us,
    )


def _message(node: Node, values: _Values, rank: int, n_npus: int) -> Exchanges:
    sends = node.kind == "send"
    own, other = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
    if (said := values.whole(own, rank, n_npus - 1)) != rank:
        raise WeftError(f"{values.where}: {own} is {said}; the trace is that of NPU {rank}")
    peer = values.whole(other, None, n_npus - 1)
    if peer == rank:
        raise WeftError(f"{values.where}: {other} is {peer}, its own NPU")
    return Exchanges(sends, peer, values.whole("comm_size", None, MOST_SIZE), values.whole("comm_tag", 0, 2**31 - 1))


class _Values:
    """Attributes of a node by name."""

    def __init__(self, found: Mapping[str, Attribute], where: str) -> None:
        self.found, self.where = found, where

    def whole(self, name: str, default: int | None, most: int) -> int:
        """An integer from zero on; of a type of any width."""
        if name not in self.found:
            if default is None:
                raise WeftError(f"{self.where}: lacks the attribute {name!r}")
            return default
        value = self.found[name].value
        if not isinstance(value, int) or not 0 <= value <= most:
            raise WeftError(f"{self.where}: {name} is {value!r}: an integer from 0 to {most} is expected")
        return int(value)

    def group(self) -> int:
        """Number of the communicator group; 0 for all NPUs."""
        value = self.found["pg_name"].value if "pg_name" in self.found else ""
        text = str(value) if isinstance(value, (str, int)) else "?"
        if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise WeftError(f"{self.where}: pg_name is {value!r}: the number of a communicator group is expected")
        return int(text or 0)

    def dims(self) -> tuple[bool, ...] | None:
        """Dimensions that take part; None where the node does not say."""
        if "involved_dim" not in self.found:
            return None
        one = self.found["involved_dim"]
        if one.kind != "bool" or not isinstance(one.value, tuple):
            raise WeftError(f"{self.where}: involved_dim is {one.value!r}: a list of booleans is expected")
        return tuple(bool(value) for value in one.value)
