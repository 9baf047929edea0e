"""ASTRA-sim's network files (YAML of its analytical backends): one block per dimension, dimension 0 first.

`bandwidth` is per direction of a link in "GB/s", which ASTRA-sim multiplies by 2^30: 50 is 53.687 GB/s; the name of the
topology says so. `latency` is per link in ns; switches and routers add no time of their own.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from topologies.checks import WeftError
from topologies.core.topology import Topology
from topologies.products import multidim
from topologies.text.strict_yaml import Entry, parse_yaml, read_yaml
from topologies.units import bytes_per_s

BYTES_PER_GB = 2**30

BLOCKS = {"Ring": "RI", "FullyConnected": "FC", "Switch": "SW"}
"""ASTRA-sim's block names, and those of a network spec."""

KEYS = ("topology", "npus_count", "bandwidth", "latency")
MOST_NPUS = 2**20
"""Limit on the number of NPUs in an ASTRA-sim network."""


class AstraDimension(NamedTuple):
    """One dimension."""

    kind: str  # {"Ring", "FullyConnected", "Switch"}
    npus: int
    bandwidth: float  # per direction of a link, in the unit of the file: 2^30 bytes/s
    latency_ns: float  # per link

    @property
    def bytes_per_ns(self) -> float:
        """Bandwidth as ASTRA-sim computes with it."""
        return self.bandwidth * BYTES_PER_GB / 1e9


@dataclass(frozen=True)
class AstraNetwork:
    """A network as ASTRA-sim describes it; dimension 0 varies fastest in the rank."""

    dimensions: tuple[AstraDimension, ...]

    @property
    def npus(self) -> int:
        """All NPUs."""
        return math.prod(dim.npus for dim in self.dimensions)

    @property
    def spec(self) -> str:
        """As `topologies.from_spec` takes it: "RI(4)_SW(2)"."""
        return "_".join(f"{BLOCKS[dim.kind]}({dim.npus})" for dim in self.dimensions)

    def line(self, npu: int, dimension: int) -> tuple[int, ...]:
        """NPUs that differ from `npu` only in this dimension, itself included, in order."""
        stride = math.prod(dim.npus for dim in self.dimensions[:dimension])
        extent = self.dimensions[dimension].npus
        return _line(npu - npu // stride % extent * stride, stride, extent)

    def topology(self, name: str) -> Topology:
        """The network for weft's own engines.

        `name`: name of the file.
        WeftError: a latency that is not an integer number of picoseconds, or too many links.
        """
        try:
            found = multidim(
                self.spec, bandwidth=[bytes_per_s(dim.bandwidth * BYTES_PER_GB) for dim in self.dimensions],
                latency=[f"{dim.latency_ns!r}ns" for dim in self.dimensions], hop_latency=0,
            )
        except WeftError as wrong:
            raise WeftError(f"network {name}: {wrong}") from None
        return replace(found, name=f"{self.spec} ({Path(name).name}, 1 GB/s = 2^30 B/s)")


@lru_cache(maxsize=4096)
def _line(first: int, stride: int, extent: int) -> tuple[int, ...]:
    return tuple(range(first, first + stride * extent, stride))


def looks_like_astra_network(text: str) -> bool:
    """Whether a text has the top-level keys of such a file."""
    return bool(re.search(r"^(?:npus_count|topology)\s*:", text, re.MULTILINE))


def read_astra_network(path: str | Path) -> AstraNetwork:
    """Read a network file.

    WeftError: names the file, line and key: a key that the analytical backends do not read, a missing key, lists of
        unequal length, or a value out of range.
    """
    return _network(read_yaml(path, "network"))


def parse_astra_network(text: str, name: str) -> AstraNetwork:
    """The network described by a text; `name` is the file name, for messages. Raises like `read_astra_network`."""
    return _network(parse_yaml(text, f"network {name}"))


def _network(entry: Entry) -> AstraNetwork:
    entries = entry.mapping(KEYS, required=KEYS)
    blocks = [item.choice(BLOCKS, "block") for item in entries["topology"].items()]
    if not blocks:
        raise entries["topology"].refuse("is empty: give one block per dimension")
    numbers = {key: entries[key].items() for key in KEYS[1:]}
    for key, items in numbers.items():
        if len(items) != len(blocks):
            raise entries[key].refuse(f"has {len(items)} entries; topology has {len(blocks)} and needs one each")
    extents = [item.integer(2, MOST_NPUS) for item in numbers["npus_count"]]
    rates = [item.number(1e-9, 1e9) for item in numbers["bandwidth"]]
    latencies = [item.number(0, 1e12) for item in numbers["latency"]]
    if (total := math.prod(extents)) > MOST_NPUS:
        raise entries["npus_count"].refuse(f"{total} NPUs in all; at most {MOST_NPUS:,}")
    return AstraNetwork(tuple(map(AstraDimension, blocks, extents, rates, latencies)))
