"""The table of `nvidia-smi topo -m`: which GPUs are connected by how many NVLinks.

The table has no rates: the NVLink generation gives the rate of one link and the number of links per GPU. If the bundles
of a GPU sum to more links than it has, they go through an NVSwitch and the largest bundle is its cable to the switch;
otherwise they are direct cables. PCIe and NICs appear without a rate and are omitted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from topologies.checks import WeftError
from topologies.core.custom import Cable, wired
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY
from topologies.core.topology import Topology
from topologies.nvlink import generation
from topologies.units import Quantity, parse_bandwidth, parse_time

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"^GPU[0-9]+$")
_BUNDLE = re.compile(r"^NV([1-9][0-9]?)$")
_OTHERS = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
MOST_GPUS = 256


class _Table(NamedTuple):
    """Relations of each GPU to each GPU: "NV12", "SYS"."""

    gpus: list[str]
    cells: list[list[str]]


def looks_like_nvidia_smi(text: str) -> bool:
    """Whether some line of a text is the header of such a table."""
    return any(line.split()[:1] == ["GPU0"] for line in _ESCAPES.sub("", text).splitlines())


def parse_nvidia_smi(
    text: str, name: str, *, nvlink: str | None = None, bandwidth: Quantity | None = None,
    latency: Quantity = DEFAULT_LATENCY, hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """The network described by a table.

    `text`: output of `nvidia-smi topo -m`; a prompt before it and legends after it may stay.
    `name`: name of the file, for messages and tables.
    `nvlink`: generation: 1 P100, 2 V100, 3 A100, 4 H100, 5 B200.
    `bandwidth`: per direction of one NVLink (default: NCCL's value for the generation).
    `latency`, `hop_latency`: of every link, and of every switch; the table has neither.
    WeftError: no generation, no table, a truncated table, an unknown relation, or GPUs that NVLink does not connect.
    """
    if nvlink is None:
        raise WeftError(f"{name} has no rates: give the NVLink generation, such as --nvlink 3 for A100")
    kind = generation(nvlink)
    rate = kind.link_Bps if bandwidth is None else parse_bandwidth(bandwidth, "NVLink bandwidth")
    table = _table(text, name)
    counts = [[_links(cell) for cell in row] for row in table.cells]
    _check_symmetric(table, name)
    latency_ps = parse_time(latency, "latency")
    hop_ps = parse_time(hop_latency, "hop latency")
    if max(map(max, counts)) > kind.links:
        raise WeftError(f"{name} has bundles of more NVLinks than the {kind.links} of generation {nvlink}")
    npus = [gpu.lower() for gpu in table.gpus]
    if max(map(sum, counts)) > kind.links:
        widths = dict(zip(npus, map(max, counts), strict=True))
        cables = [Cable((npu, "nvswitch"), links * rate, latency_ps, 0) for npu, links in widths.items()]
        _refuse_apart(table, [links > 0 for links in widths.values()], name)
        return wired(name, npus, ["nvswitch"], cables, hop_ps)
    cables = [
        Cable((npus[a], npus[b]), counts[a][b] * rate, latency_ps, 0)
        for a in range(len(npus)) for b in range(a) if counts[a][b]
    ]
    _refuse_apart(table, _reached(counts), name)
    return wired(name, npus, [], cables, hop_ps)


def _table(text: str, name: str) -> _Table:
    lines = [line.split() for line in _ESCAPES.sub("", text).splitlines()]
    first = next((at for at, words in enumerate(lines) if words[:1] == ["GPU0"] and words[1:2] != ["X"]), None)
    if first is None:
        raise WeftError(f"{name} has no line of columns GPU0 GPU1 ...: is it the output of nvidia-smi topo -m?")
    head = lines[first]
    columns = head[: head.index("CPU")] if "CPU" in head else head
    gpus = [column for column in columns if _GPU.match(column)]
    if len(gpus) > MOST_GPUS or gpus != [f"GPU{at}" for at in range(len(gpus))] or columns[: len(gpus)] != gpus:
        raise WeftError(f"{name}, line {first + 1}: the first columns must be GPU0, GPU1, ... (at most {MOST_GPUS})")
    cells = []
    for at, gpu in enumerate(gpus, start=first + 1):
        row = lines[at] if at < len(lines) else []
        if row[:1] != [gpu] or len(row) < len(columns) + 1:
            raise WeftError(f"{name}, line {at + 1}: expected the row of {gpu} with {len(columns)} relations")
        for column, cell in zip(columns, row[1:], strict=False):
            if cell not in _OTHERS and not _BUNDLE.match(cell):
                known = ", ".join(_OTHERS)
                raise WeftError(f"{name}, line {at + 1}: {gpu} to {column} is {cell!r}: known are NV#, {known}")
        cells.append(row[1 : len(gpus) + 1])
    return _Table(gpus, cells)


def _links(cell: str) -> int:
    bundle = _BUNDLE.match(cell)
    return int(bundle[1]) if bundle else 0


def _check_symmetric(table: _Table, name: str) -> None:
    for a, gpu in enumerate(table.gpus):
        for b, other in enumerate(table.gpus):
            cell, back = table.cells[a][b], table.cells[b][a]
            if cell != back or (cell == "X") != (a == b):
                raise WeftError(f"{name}: {gpu} to {other} is {cell}, but the reverse is {back}")


def _reached(counts: list[list[int]]) -> list[bool]:
    """Which GPUs NVLink connects to the first."""
    seen, open_ = {0}, [0]
    while open_:
        at = open_.pop()
        fresh = {other for other, links in enumerate(counts[at]) if links} - seen
        seen |= fresh
        open_ += fresh
    return [at in seen for at in range(len(counts))]


def _refuse_apart(table: _Table, joined: list[bool], name: str) -> None:
    if not all(joined):
        gpu = table.gpus[joined.index(False)]
        raise WeftError(f"{name}: NVLink does not connect {gpu} to the others, and the table gives no PCIe rate")
