"""Inputs of ASTRA-sim for tests: files of one collective, and where the published ones are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.places import SHARED
from workloads.formats.chakra import Trace, write_trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_schema import COLLECTIVES, Node

DATA = SHARED / "astra-sim"
"""Files of ASTRA-sim's own repository, where they are at hand."""

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
    "collective-optimization": "localBWAware", "local-mem-bw": 1600,
}


def network_text(*dims: tuple[str, int], bandwidth: float = 50.0, latency: float = 500.0) -> str:
    """A network file."""
    lists = {
        "topology": [kind for kind, _ in dims], "npus_count": [extent for _, extent in dims],
        "bandwidth": [bandwidth] * len(dims), "latency": [latency] * len(dims),
    }
    return "".join(f"{key}: [ {', '.join(map(str, values))} ]\n" for key, values in lists.items())


def collective_node(
    kind: str, size: int, number: int = 0, *, after: Sequence[int] = (), group: str | None = None
) -> Node:
    """A collective of a trace."""
    attributes = [
        Attribute("is_cpu_op", False, "bool"), Attribute("comm_type", COLLECTIVES.index(kind), "int64"),
        Attribute("comm_size", size, "int64"),
    ]
    if group is not None:
        attributes.append(Attribute("pg_name", group, "string"))
    return Node(number, f"{kind} {number}", "collective", data_after=tuple(after), attributes=tuple(attributes))


def compute_node(duration_us: int, number: int, *, after: Sequence[int] = (), cpu: bool = False) -> Node:
    """A computation of a trace."""
    return Node(number, f"compute {number}", "compute", data_after=tuple(after), duration_us=duration_us,
                attributes=(Attribute("is_cpu_op", cpu, "bool"),))


def message_node(kind: str, peer: int, size: int, number: int, *, after: Sequence[int] = (), tag: int = 0) -> Node:
    """A send or a receive of a trace."""
    return Node(
        number, f"{kind} {number}", kind, data_after=tuple(after),
        attributes=(
            Attribute("comm_size", size, "int64"),
            Attribute("comm_dst" if kind == "send" else "comm_src", peer, "int32"),
            Attribute("comm_tag", tag, "int32"),
        ),
    )


def write_ranks(folder: Path, ranks: Sequence[Sequence[Node]], name: str = "trace") -> Path:
    """Write the traces of all ranks; returns the prefix."""
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(write_trace(Trace("0.0.4", (), tuple(nodes))))
    return folder / name


def write_inputs(
    folder: Path, dims: Sequence[tuple[str, int]], ranks: Sequence[Sequence[Node]], *, bandwidth: float = 50.0,
    latency: float = 500.0, **system: Any,
) -> dict[str, Any]:
    """Write workload, system and network; keyword arguments change the system file, None leaves a key out."""
    settings = {key: value for key, value in (SYSTEM | system).items() if value is not None}
    (folder / "system.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "network.yml").write_text(network_text(*dims, bandwidth=bandwidth, latency=latency), encoding="utf-8")
    return {
        "workload": write_ranks(folder, ranks), "system": folder / "system.json", "network": folder / "network.yml",
    }
