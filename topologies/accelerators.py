"""Rates of links that a file names without one: by the generation that is named, or by the GPU that they are of.

Rates are raw, per direction, as data sheets have them: NVLink by generation, PCIe by generation and lanes, and the
links of a GPU of `topologies/machines/gpus.toml`, and C2C of Grace. Others between CPUs are NCCL's, and so are the
`GENERATIONS` of NVLink, in GB/s per direction of one link (`src/graph/topo.h` of NCCL, June 2026); their link counts
are from the data sheets: P100 4, V100 6, A100 12, H100 18, B200 18.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from topologies.checks import choice
from topologies.text.plain_data import parse_toml
from topologies.units import parse_bandwidth


class Generation(NamedTuple):
    """Rate of one link in bytes/s per direction, and links per GPU."""

    link_Bps: float
    links: int


GENERATIONS: dict[str, Generation] = {
    "1": Generation(18e9, 4), "2": Generation(20e9, 6), "3": Generation(20e9, 12), "4": Generation(20.6e9, 18),
    "5": Generation(40.1e9, 18),
}

SM_LINK_BPS: dict[int, float] = {60: 18e9, 70: 20e9, 80: 20e9, 86: 12e9, 90: 20.6e9, 100: 40.1e9}
"""Rate of one link, keyed by the lowest compute capability that has it."""


def generation(name: str) -> Generation:
    """The generation of that number; WeftError: there is none."""
    return GENERATIONS[choice(name, GENERATIONS, "NVLink generation")]


OLDER_LINK_BPS = 20e9
"""NCCL's rate for GPUs older than NVLink, and for those that do not say what they are."""


def link_of_sm(sm: int) -> float:
    """Rate of one NVLink of a GPU of compute capability `sm` (80 for 8.0), in bytes/s, as NCCL counts it."""
    known = [one for one in SM_LINK_BPS if one <= sm and (one != 86 or sm == 86)]
    return SM_LINK_BPS[max(known)] if known else OLDER_LINK_BPS


_NVLINK_BPS = {"1": 20e9, "2": 25e9, "3": 25e9, "4": 25e9, "5": 50e9}
_LANE_BPS = {"1": 0.25e9, "2": 0.5e9, "3": 8e9 / 65 * 8, "4": 16e9 / 65 * 8, "5": 32e9 / 65 * 8, "6": 7.5625e9}
"""Of PCIe: 8 GT/s and more carry 128 of 130 bits, 64 GT/s 242 of 256."""

_LANES = 16
_CPU_BPS = {"c2c": 450e9, r"\bqpi\b": 6e9, r"\bupi\b": 10e9, "infinity": 16e9}

_NVLINK = re.compile(r"nvlink[ _-]?v?(?:gen ?)?([1-5])(?![0-9a-z])", re.IGNORECASE)
_PCIE = re.compile(r"pci.{0,20}?(?:gen[ _-]?([1-6])|([1-6])\.0)", re.IGNORECASE)
_WIDTH = re.compile(r"\bx(1|2|4|8|16)\b", re.IGNORECASE)


def nvlinks_Bps(words: str) -> float | None:
    """All NVLinks of a GPU together, if a generation is named: "nvlink_4"."""
    found = _NVLINK.search(words)
    return None if found is None else _NVLINK_BPS[found[1]] * GENERATIONS[found[1]].links


def pcie_Bps(words: str) -> float | None:
    """A slot, if a generation is named: "PCIe 5.0 x8", of 16 lanes unless said otherwise."""
    found, width = _PCIE.search(words), _WIDTH.search(words)
    if found is None:
        return None
    return _LANE_BPS[found[1] or found[2]] * (int(width[1]) if width else _LANES)


def is_pcie(words: str) -> bool:
    """Whether words are of PCIe at all."""
    return "pci" in words.lower()


def of_cpu_Bps(words: str) -> float | None:
    """A link of a CPU to another, or by C2C to its GPU, if its kind is named."""
    return next((rate for pattern, rate in _CPU_BPS.items() if re.search(pattern, words, re.IGNORECASE)), None)


def gpu_links_Bps(words: str) -> float | None:
    """All links of a GPU together, if one that is known is named: "dgx_h100"."""
    named = [name for name in _links() if re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![0-9])", words.lower())]
    return _links()[max(named, key=len)] if named else None


@cache
def _links() -> dict[str, float]:
    tables = parse_toml((Path(__file__).parent / "machines" / "gpus.toml").read_text(encoding="utf-8"), "gpus.toml")
    return {name: parse_bandwidth(table["link"][0]) for name, table in tables.items() if table.get("link")}
