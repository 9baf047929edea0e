"""Nodes of Chakra traces; and their attributes that are read, as data: of which nodes, in which unit, absent as what.

Those of feeder V3 (`et_feeder_node_attr.h`, astra-sim/chakra bf222b2) as ASTRA-sim asks for them (`Workload.cc`,
518bd51). Whatever else a producer writes is passed over, as the feeders do, and told once.
"""

from typing import NamedTuple

from workloads.formats.chakra_attributes import Attribute

NODE_KINDS = ("invalid", "metadata", "memory load", "memory store", "compute", "send", "receive", "collective")
"""By the number of the type."""

MOST_SIZE = 2**60

COLLECTIVES = (
    "all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "all-to-all", "reduce-scatter",
    "reduce-scatter-block", "barrier",
)
"""By the number of `comm_type`."""

COMPUTE, COLLECTIVE, SEND, RECEIVE = "compute", "collective", "send", "receive"
MEMORY = ("memory load", "memory store")
MESSAGES = (SEND, RECEIVE)
ALL = (COMPUTE, COLLECTIVE, *MESSAGES, *MEMORY)

OWN, REPLAYED = "its own rank", "its duration"


class Row(NamedTuple):
    """One attribute."""

    name: str
    of: tuple[str, ...]  # kinds of nodes
    absent: int | str | None  # what stands for it; None: it must be there
    unit: str
    source: str  # of what stands for it
    most: int = MOST_SIZE

    @property
    def told(self) -> str:
        """What stands for it, in words."""
        return "an error" if self.absent is None else str(self.absent) or "all NPUs"


_FEEDER, _SYS = "feeder V3: `REGISTER_ATTR_WITH_DEFAULT`", "`Workload.cc`"

ROWS = (
    Row("is_cpu_op", ALL, 0, "0 or 1", f"{_FEEDER}(is_cpu_op, false); both older feeders", 1),
    Row("num_ops", (COMPUTE,), REPLAYED, "operations", f"{_SYS}: as without a roofline, with which feeder V3 stops"),
    Row("tensor_size", (COMPUTE,), REPLAYED, "bytes", f"{_SYS}: the same; one of 0 bytes is skipped"),
    Row("tensor_size", MEMORY, None, "bytes", f"{_SYS}: what is moved"),
    Row("comm_type", (COLLECTIVE,), None, "number of `CollectiveCommType`", f"{_SYS}: no default", 9),
    Row("comm_size", (COLLECTIVE, *MESSAGES), None, "bytes that an NPU brings", f"{_SYS}: no default"),
    Row("comm_priority", (COLLECTIVE,), 0, "", f"{_FEEDER}(comm_priority, 0u)", 2**31),
    Row("pg_name", (COLLECTIVE,), "", "name of a communicator group", f"{_SYS}: \"\" and \"0\" are all NPUs"),
    Row("involved_dim", (COLLECTIVE,), "", "a truth value for each dimension", f"{_SYS}: all dimensions"),
    Row("comm_src", (SEND,), OWN, "rank", f"{_SYS}: comm_src(sys->id)"),
    Row("comm_dst", (SEND,), None, "rank", f"{_SYS}: no default"),
    Row("comm_src", (RECEIVE,), None, "rank", f"{_SYS}: no default"),
    Row("comm_dst", (RECEIVE,), OWN, "rank", f"{_SYS}: comm_dst(sys->id)"),
    Row("comm_tag", MESSAGES, 0, "", "older feeders; V3 stops", 2**31 - 1),
)

LEGACY = {"comm_group": "pg_name"}
"""Names that ASTRA-sim of 2024 asked for, which STAGE and Chakra's MPI converter write still."""

SIZELESS = ("broadcast", "barrier")
"""Collectives that may be without `comm_size`: ASTRA-sim replays the one, and the other has no bytes."""


class TensorInfo(NamedTuple):
    """Inputs or outputs of a node, as text."""

    values: str = ""
    shapes: str = ""
    types: str = ""


class Node(NamedTuple):
    """One node of a trace."""

    id: int
    name: str
    kind: str  # one of `NODE_KINDS`
    control_after: tuple[int, ...] = ()  # nodes that it waits for
    data_after: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: float = 0  # a whole number in files of the schemas 0.0.4 to 1.0
    inputs: TensorInfo | None = None
    outputs: TensorInfo | None = None
    attributes: tuple[Attribute, ...] = ()

    @property
    def after(self) -> tuple[int, ...]:
        """All nodes it waits for, without duplicates."""
        return tuple(dict.fromkeys((*self.control_after, *self.data_after)))
