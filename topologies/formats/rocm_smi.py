"""The tables of `rocm-smi --showtopo` and `amd-smi topology`, as text or JSON: what XGMI joins, how far others are.

The tables are found by their titles. A weight of 15 is one hop of XGMI; more are ways over other GPUs, and no link.
Hops are 1 for all XGMI, and 2 and 3 for ways over PCIe within a socket and between two. Rates are those of the table of
bandwidths (`--shownodesbw`), which has them of direct links alone, or the caller gives them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from topologies.checks import WeftError, integer
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, Cable, wired
from topologies.core.topology import Topology
from topologies.formats.slots import NAMES, listed, plain_lines, reached, tree
from topologies.text.plain_data import parse_json
from topologies.text.schema import note
from topologies.units import Quantities, Quantity, parse_bandwidth, parse_time

XGMI, PCIE = 0, 1
"""Tiers of the links."""

MOST_GPUS = 256
_HOP_WEIGHT = 15
_TITLES = {
    "weight": re.compile(r"\bweights?\b", re.IGNORECASE), "hops": re.compile(r"\bhops\b", re.IGNORECASE),
    "type": re.compile(r"\blink type\b", re.IGNORECASE),
    "bandwidth": re.compile(r"\bbandwidth between\b|\bNUMA BW\b", re.IGNORECASE),
    "other": re.compile(r"\bTABLE\b|^=+ .* =+$|\bbetween two\b"),
}
_NAME = re.compile(r"^(?:GPU ?\[?\d+\]?|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)$")
_NUMA = re.compile(r"^GPU ?\[?(\d+)\]?\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)")
_RANGE = re.compile(r"^(\d+)-(\d+)$")
_PAIR = re.compile(r"^\(Topology\) (\S.*) between DRM devices (\d+) and (\d+)$")
_KEYS = {"Weight": "weight", "Hops": "hops", "Link type": "type",
         "weight": "weight", "num_hops": "hops", "link_type": "type", "bandwidth": "bandwidth"}
"""Of the JSON of rocm-smi, and of that of amd-smi."""

Rows = list[list[str]]


def looks_like_rocm_smi(text: str) -> bool:
    """Whether a text has such tables."""
    words = ("between two GPUs", "LINK TYPE TABLE", "ROCm System Management", "between DRM devices")
    return any(word in text for word in words) or ('"link_type"' in text and '"num_hops"' in text)


def parse_rocm_smi(
    text: str, name: str, *, bandwidth: Quantities | None = None, latency: Quantity = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """The network that the tables describe.

    `name`: name of the file, for messages and tables.
    `bandwidth`: per direction of the XGMI between two GPUs, or of PCIe if no XGMI is there, or of both.
    `latency`, `hop_latency`: of every link, and of every switch; the tables have neither.
    WeftError: no table of link types, one that is cut off or not symmetric, or no rate.
    """
    gpus, tables, numa = _of_json(text, name) if text.lstrip()[:1] in ("{", "[") else _tables(text, name)
    types = tables["type"]
    n, npus = len(gpus), [f"gpu{at}" for at in range(len(gpus))]
    if not any(_RANGE.match(cell) for row in tables.get("bandwidth", ()) for cell in row):
        tables.pop("bandwidth", None)  # "N/A" everywhere
    for what, rows in tables.items():
        _check_symmetric(rows, what, gpus, name)
    direct = [[a != b and types[a][b].upper() == "XGMI" and _is_direct(tables, a, b) for b in range(n)]
              for a in range(n)]
    joined = all(types[0][other].upper() == "XGMI" for other in range(1, n))
    if joined and len(reached(direct)) < n:
        raise WeftError(f"{name}: XGMI joins all GPUs by link type, but by weight no direct links join them")
    latency_ps, hop_ps = parse_time(latency, "latency"), parse_time(hop_latency, "hop latency")
    link, pcie = _rates(any(map(any, direct)), n > 1 and not joined, "bandwidth" in tables, bandwidth, name)
    cables = [Cable((npus[a], npus[b]), _Bps(tables, a, b, link), latency_ps, XGMI)
              for a in range(n) for b in range(a) if direct[a][b]]
    switches: list[str] = []
    if pcie:
        switches, slots = tree(npus, lambda a, b: _level(tables, numa, a, b), pcie, latency_ps, PCIE)
        cables += slots
    return wired(name, npus, switches, cables, hop_ps)


def _tables(text: str, name: str) -> tuple[list[str], dict[str, Rows], dict[int, str]]:
    """The GPUs, the tables by what they say, and the NUMA nodes of GPUs."""
    gpus: list[str] = []
    tables: dict[str, Rows] = {}
    numa: dict[int, str] = {}
    what, at_row = "other", 0
    for number, line in enumerate(plain_lines(text), start=1):
        if node := _NUMA.match(line.strip()):
            numa[int(node[1])] = node[2]
            continue
        words = re.sub(r"GPU[ [](\d+)\]?", r"GPU\1", line).split()
        if words and all(map(_NAME.match, words)):
            if gpus and words != gpus:
                raise WeftError(f"{name}, line {number}: columns {' '.join(words)}, those above are {' '.join(gpus)}")
            gpus, at_row = gpus or words, 0
            if len(gpus) > MOST_GPUS or len(set(gpus)) < len(gpus):
                raise WeftError(f"{name}, line {number}: at most {MOST_GPUS} GPUs, of different names")
            if what != "other" and what not in tables:
                tables[what] = []
        elif words and words[0] in gpus and what in tables and at_row < len(gpus):
            if words[0] != gpus[at_row] or len(words) != len(gpus) + 1:
                raise WeftError(f"{name}, line {number}: expected the row of {gpus[at_row]} with {len(gpus)} cells")
            tables[what].append(words[1:])
            at_row += 1
        else:
            what = next((one for one, title in _TITLES.items() if title.search(line)), what)
    for title, rows in tables.items():
        if len(rows) < len(gpus):
            raise WeftError(f"{name}: the table of {title} has {len(rows)} of {len(gpus)} rows: is the file cut off?")
    return gpus, _with_types(tables, name), numa


def _with_types(tables: dict[str, Rows], name: str) -> dict[str, Rows]:
    if "type" not in tables:
        raise WeftError(f"{name} has no table of link types: give the output of rocm-smi --showtopo")
    return tables


def _of_json(text: str, name: str) -> tuple[list[str], dict[str, Rows], dict[int, str]]:
    """The same of the JSON of either tool; rocm-smi has every pair once."""
    data = parse_json(text, name)
    found: dict[str, dict[tuple[int, int], str]] = {}
    for what, a, b, value in _of_pairs(data, name):
        cells = found.setdefault(_KEYS.get(what, "other"), {})
        if what in _KEYS and (a, b) in cells:
            raise WeftError(f"{name} has the {what} of GPU {a} and GPU {b} twice")
        cells[a, b] = str(value)
    found.pop("other", None)
    n = 1 + max((max(pair) for cells in found.values() for pair in cells), default=-1)
    if n > MOST_GPUS:
        raise WeftError(f"{name}: at most {MOST_GPUS} GPUs")
    tables: dict[str, Rows] = {}
    for what, cells in found.items():
        for a in range(n):
            for b in range(n):
                if a != b and (a, b) not in cells and (b, a) not in cells:
                    raise WeftError(f"{name} lacks the {what} of GPU {a} and GPU {b}")
        tables[what] = [[cells.get((a, b), cells.get((b, a), "0")) for b in range(n)] for a in range(n)]
    cards = data.items() if isinstance(data, Mapping) else ()
    numa = {int(card[4:]): str(one["(Topology) Numa Node"]) for card, one in cards
            if re.fullmatch(r"card\d{1,4}", card) and isinstance(one, Mapping) and "(Topology) Numa Node" in one}
    return [f"GPU{at}" for at in range(n)], _with_types(tables, name), numa


def _of_pairs(data: Any, name: str) -> Iterator[tuple[str, int, int, Any]]:
    """What is said of which pair of GPUs, and its value."""
    system = data.get("system") if isinstance(data, Mapping) else None
    for key, value in system.items() if isinstance(system, Mapping) else ():
        if (said := _PAIR.match(key)) and len(said[2] + said[3]) < 9:
            yield said[1], int(said[2]), int(said[3]), value
    rows = data if isinstance(data, list) else []
    def of(row: Mapping[str, Any], at: int) -> int:
        return integer(row.get("gpu", at), f"{name}: gpu", 0, MOST_GPUS - 1)

    for a, row in enumerate(rows):
        links = row.get("links") if isinstance(row, Mapping) else None
        for b, link in enumerate(links if isinstance(links, list) else ()):
            for what, value in link.items() if isinstance(link, Mapping) else ():
                yield what, of(row, a), of(link, b), value


def _check_symmetric(rows: Rows, what: str, gpus: Sequence[str], name: str) -> None:
    if any(len(row) != len(rows) for row in rows):
        raise WeftError(f"{name}: the table of {what} is not square: is the blank line behind it missing?")
    for a, row in enumerate(rows):
        for b, cell in enumerate(row):
            if a != b and cell != rows[b][a]:
                raise WeftError(f"{name}: {what} of {gpus[a]} to {gpus[b]} is {cell}, but the reverse is {rows[b][a]}")
            if what == "type" and a != b and cell.upper() not in ("XGMI", "PCIE"):
                raise WeftError(f"{name}: {gpus[a]} to {gpus[b]} is {cell!r}: known are XGMI and PCIE")


def _is_direct(tables: dict[str, Rows], a: int, b: int) -> bool:
    """Whether XGMI between two GPUs crosses no other."""
    if "bandwidth" in tables and (found := _RANGE.match(tables["bandwidth"][a][b])):
        return int(found[2]) > 0
    for what, least in (("weight", _HOP_WEIGHT), ("hops", 1)):
        if what in tables and re.fullmatch(r"\d{1,9}", tables[what][a][b]):
            return int(tables[what][a][b]) <= least
    return True


def _Bps(tables: dict[str, Rows], a: int, b: int, given: float) -> float:
    """Rate of a direct link: the most of its range, in MB/s, or the one that is given."""
    found = _RANGE.match(tables["bandwidth"][a][b]) if "bandwidth" in tables else None
    return given or (float(found[2]) * 1e6 if found else 0.0)


def _level(tables: dict[str, Rows], numa: dict[int, str], a: int, b: int) -> int:
    """Where two GPUs meet over PCIe: in a NUMA node, or above."""
    if a in numa and b in numa:
        return NAMES.index("numa") if numa[a] == numa[b] else len(NAMES)
    hops = tables["hops"][a][b] if "hops" in tables else "3"
    return NAMES.index("numa") if hops in ("1", "2") else len(NAMES)


def _rates(xgmi: bool, pcie: bool, has_own: bool, bandwidth: Quantities | None, name: str) -> tuple[float, float]:
    """Of XGMI, 0 for that of the table, and of PCIe, 0 if it does not count."""
    given = listed(bandwidth)
    wanted = ["XGMI"] * (xgmi and not has_own) + ["PCIe"] * pcie
    if len(given) != len(wanted):
        if not wanted:
            why = "has the rates of its links" if has_own else "has one GPU, and no links"
            raise WeftError(f"{name} {why}: omit the bandwidth")
        such = {"XGMI": "48GB/s for MI300X, 36GB/s for a link of MI250X",
                "PCIe": "24GB/s for generation 4, 48GB/s for 5",
                "XGMI and PCIe": "36GB/s,24GB/s"}[" and ".join(wanted)]
        raise WeftError(f"{name} has no rates of {' and '.join(wanted)}: give --link-bandwidth, such as {such}")
    rates = {what: parse_bandwidth(rate, f"{what} bandwidth") for what, rate in zip(wanted, given, strict=True)}
    if "XGMI" in rates:
        note(f"{name} does not say how many links join two GPUs: one rate for all pairs")
    return rates.get("XGMI", 0.0), rates.get("PCIe", 0.0)
