"""The table of `nvidia-smi topo -m`: which GPUs are connected by how many NVLinks, and how far apart the others are.

The table has no rates: the NVLink generation gives the rate of one link and the number of links per GPU. If the bundles
of a GPU sum to more links than it has, they go through an NVSwitch and the largest bundle is its cable to the switch;
otherwise they are direct cables. PCIe counts where NVLink does not join all GPUs, at a rate that the caller gives; GPUs
with NVLinks between them are taken to be on one host bridge if their CPU affinity is the same. NICs are omitted.
"""

import re
from typing import NamedTuple

from topologies.accelerators import Generation, generation
from topologies.checks import WeftError
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, Cable, wired
from topologies.core.topology import Topology
from topologies.formats.slots import NAMES, listed, plain_lines, reached, tree
from topologies.text.schema import note
from topologies.units import Quantities, Quantity, parse_bandwidth, parse_time

NVLINK, PCIE = 0, 1
"""Tiers of the links."""

_SPACED = re.compile(r"\bGPU[ [](\d+)\]?(?=\s|$)")
_GPU = re.compile(r"^GPU[0-9]+$")
_BUNDLE = re.compile(r"^NV([1-9][0-9]?)$")
_GLUED = re.compile(r"(NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)(?=NV\d|PIX|PXB|PHB|NODE|SYS|SOC)")
"""Cells without a space where a terminal broke the line."""

_LEVELS = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SYS": 4, "SOC": 4}
_SELF = "X"
_P2P = ("OK", "GNS", "CNS", "TNS", "NS", "DR", "U")
MOST_GPUS = 256


class _Table(NamedTuple):
    """Relations of each GPU to each GPU, "NV12" or "SYS", and the CPUs that each is near."""

    gpus: list[str]
    cells: list[list[str]]
    near: list[str]


def looks_like_nvidia_smi(text: str) -> bool:
    """Whether some line of a text is the header of such a table."""
    return any(map(_is_head, _lines(text)))


def parse_nvidia_smi(
    text: str, name: str, *, nvlink: str | None = None, bandwidth: Quantities | None = None,
    latency: Quantity = DEFAULT_LATENCY, hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """The network described by a table.

    `text`: output of `nvidia-smi topo -m`; a prompt before it and legends after it may stay.
    `name`: name of the file, for messages and tables.
    `nvlink`: generation: 1 P100, 2 V100, 3 A100, 4 H100, 5 B200; none if the table has no NVLink.
    `bandwidth`: per direction of one NVLink (default: NCCL's value for the generation); or of PCIe, if the table has
        no NVLink; or of both, if NVLink does not join all GPUs.
    `latency`, `hop_latency`: of every link, and of every switch; the table has neither.
    WeftError: no generation, no table, a truncated table, an unknown relation, or no rate for PCIe where it counts.
    """
    table = _table(text, name)
    _check_symmetric(table, name)
    counts = [[_links(cell) for cell in row] for row in table.cells]
    joined = len(reached(counts)) == len(counts)
    kind = _kind(counts, nvlink, joined, name)
    npus = [gpu.lower() for gpu in table.gpus]
    link_Bps, pcie_Bps = _rates(counts, joined, kind, bandwidth, name)
    latency_ps, hop_ps = parse_time(latency, "latency"), parse_time(hop_latency, "hop latency")
    switches: list[str] = []
    cables: list[Cable] = []
    if kind is not None and max(map(sum, counts)) > kind.links:
        switches.append("nvswitch")
        cables += [Cable((npu, "nvswitch"), max(row) * link_Bps, latency_ps, NVLINK)
                   for npu, row in zip(npus, counts, strict=True) if max(row)]
    else:
        cables += [Cable((npus[a], npus[b]), counts[a][b] * link_Bps, latency_ps, NVLINK)
                   for a in range(len(npus)) for b in range(a) if counts[a][b]]
    if pcie_Bps:
        of_slots, slots = tree(npus, lambda a, b: _level(table, a, b), pcie_Bps, latency_ps, PCIE)
        switches, cables = switches + of_slots, cables + slots
    return wired(name, npus, switches, cables, hop_ps)


def _kind(counts: list[list[int]], nvlink: str | None, joined: bool, name: str) -> Generation | None:
    """The generation of the NVLinks; None if there are none."""
    most = max(map(max, counts))
    if not most:
        if nvlink is not None and len(counts) > 1:
            raise WeftError(f"{name} has no NVLink: omit NVLink generation {nvlink!r}")
        return None
    if nvlink is None:
        both = "" if joined else ", and the rates of NVLink and PCIe, such as --link-bandwidth 20GB/s,24GB/s"
        raise WeftError(f"{name} has no rates: give the NVLink generation, such as --nvlink 3 for A100{both}")
    kind = generation(nvlink)
    if most > kind.links:
        raise WeftError(f"{name} has bundles of more NVLinks than the {kind.links} of generation {nvlink}")
    return kind


def _rates(
    counts: list[list[int]], joined: bool, kind: Generation | None, bandwidth: Quantities | None, name: str
) -> tuple[float, float]:
    """Of one NVLink, and of PCIe where it counts; 0 if there is none."""
    given = listed(bandwidth)
    wanted = [] if len(counts) < 2 else ["NVLink"] * (kind is not None) + ["PCIe"] * (not joined)
    if len(given) > max(1, len(wanted)):
        raise WeftError(f"{name} has links of {' and '.join(wanted) or 'none'}: {len(given)} bandwidths are given")
    if "PCIe" in wanted and len(given) < len(wanted):
        one = "rate of PCIe, such as --link-bandwidth 12GB/s for generation 3 and 16 lanes, 24GB/s for 4"
        both = "rates of both, such as --link-bandwidth 20GB/s,24GB/s"
        raise WeftError(f"{name}: {'NVLink does not join all GPUs' if kind else 'no NVLink joins the GPUs'}, and the "
                        f"table gives no rates of PCIe: give the {both if kind else one}")
    rates = {what: parse_bandwidth(rate, f"{what} bandwidth") for what, rate in zip(wanted, given, strict=False)}
    if kind and wanted == ["NVLink"] and given:
        note(f"{name}: NVLink joins all GPUs, so the rate given is that of one NVLink, {kind.link_Bps / 1e9:g} GB/s "
             "in its generation; PCIe carries nothing")
    return rates.get("NVLink", kind.link_Bps if kind else 0.0), rates.get("PCIe", 0.0)


def _lines(text: str) -> list[list[str]]:
    """The words of each line, without colors and what launchers put before them."""
    return [_GLUED.sub(r"\1 ", _SPACED.sub(r"GPU\1", line)).split() for line in plain_lines(text)]


def _is_head(words: list[str]) -> bool:
    """Whether a line names columns: GPUs, then NICs, which have numbers, and affinities."""
    named = words[1:2] in ([], ["CPU"], ["NUMA"]) or any(one.isdigit() for one in words[1])
    return bool(words) and bool(_GPU.match(words[0])) and named and not _is_relation("".join(words[1:2]))


def _is_relation(word: str) -> bool:
    return word in (_SELF, *_LEVELS, *_P2P) or _BUNDLE.match(word) is not None


def _columns(head: list[str]) -> list[str]:
    """The columns before those of affinities, whose names have spaces."""
    ends = [at for at, word in enumerate(head) if word in ("CPU", "NUMA", "GPU")]
    return head[:min(ends)] if ends else head


def _table(text: str, name: str) -> _Table:
    lines = _lines(text)
    heads = [at for at, words in enumerate(lines) if _is_head(words)]
    if not heads:
        raise WeftError(f"{name} has no line of columns GPU0 GPU1 ...: is it the output of nvidia-smi topo -m?")
    heads = [at for at in heads if not any(word in _P2P for words in lines[at + 1:at + 2] for word in words)] or heads
    found = [_table_at(lines, at, name) for at in heads]
    for at, other in zip(heads[1:], found[1:], strict=True):
        if (other.gpus, other.cells) != (found[0].gpus, found[0].cells):
            raise WeftError(f"{name}, line {at + 1}: another table, which differs from the first: give one node's")
    return found[0]


def _table_at(lines: list[list[str]], first: int, name: str) -> _Table:
    columns = _columns(lines[first])
    gpus = [column for column in columns if _GPU.match(column)]
    if len(gpus) > MOST_GPUS or columns[:len(gpus)] != gpus or len(set(gpus)) < len(gpus):
        raise WeftError(f"{name}, line {first + 1}: the first columns must be GPU0, GPU1, ... (at most {MOST_GPUS})")
    cells, near = [], []
    for at, gpu in enumerate(gpus, start=first + 1):
        row = lines[at] if at < len(lines) else []
        if row[:1] != [gpu] or len(row) < len(columns) + 1:
            raise WeftError(f"{name}, line {at + 1}: expected the row of {gpu} with {len(columns)} relations")
        for column, cell in zip(columns, row[1:], strict=False):
            if cell in _P2P:
                raise WeftError(f"{name}, line {at + 1}: {gpu} to {column} is {cell!r}, as nvidia-smi topo -p2p says "
                                "who reaches whom: give the table of nvidia-smi topo -m")
            if not _is_relation(cell):
                known = ", ".join(_LEVELS)
                raise WeftError(f"{name}, line {at + 1}: {gpu} to {column} is {cell!r}: known are NV#, X, {known}")
        cells.append(row[1:len(gpus) + 1])
        near.append("".join(row[len(columns) + 1:len(columns) + 2]))
    return _Table(gpus, cells, near)


def _links(cell: str) -> int:
    bundle = _BUNDLE.match(cell)
    return int(bundle[1]) if bundle else 0


def _level(table: _Table, a: int, b: int) -> int:
    """Where two GPUs meet over PCIe; NVLink hides it."""
    cell = table.cells[a][b]
    return _LEVELS.get(cell, NAMES.index("host") if table.near[a] == table.near[b] else len(NAMES))


def _check_symmetric(table: _Table, name: str) -> None:
    for a, gpu in enumerate(table.gpus):
        for b, other in enumerate(table.gpus):
            cell, back = table.cells[a][b], table.cells[b][a]
            if cell != back or (cell == _SELF) != (a == b):
                raise WeftError(f"{name}: {gpu} to {other} is {cell}, but the reverse is {back}")
