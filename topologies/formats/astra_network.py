"""ASTRA-sim's network files (YAML of its analytical backends): one block per dimension, dimension 0 first.

`bandwidth` is per direction of a link in "GB/s", which ASTRA-sim multiplies by 2^30: 50 is 53.687 GB/s; the name of the
topology says so. `latency` is per link in ns; switches and routers add no time of their own.

The JSON of ASTRA-sim 1.0 gives links of an NPU instead of one: a ring has half of them each way, fully connected NPUs
share them among their neighbors, a switch has all. Its latencies of NICs and routers are added to those of links, so
that a message between neighbors takes what it took there. Memory (`hbm-...`) is left out.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from topologies.checks import WeftError
from topologies.core.topology import Topology
from topologies.products import multidim
from topologies.text.schema import tell_over
from topologies.text.strict_yaml import Entry, parse_yaml, read_yaml
from topologies.units import bytes_per_s

BYTES_PER_GB = 2**30

BLOCKS = {"Ring": "RI", "FullyConnected": "FC", "Switch": "SW"}
"""ASTRA-sim's block names, and those of a network spec."""

KEYS = ("topology", "npus_count", "bandwidth", "latency")
OLDER = ("topologies-per-dim", "units-count", "links-count", "link-bandwidth", "link-latency")
_OLDER_TIMES = ("nic-latency", "router-latency")
_OLDER_NAMES = ("topology-name", "dimensions-count", "dimension-type", "use-fast-version")
_OLDER_BLOCKS = {**BLOCKS, "AllToAll": "FC"}

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
    return bool(re.search(r'^(?:npus_count|topology)\s*:|"topologies-per-dim"\s*:', text, re.MULTILINE))


def read_astra_network(path: str | Path) -> AstraNetwork:
    """Read a network file.

    WeftError: names the file, line and key: a missing key, lists of unequal length, or a value out of range.
    """
    return _network(read_yaml(path, "network"))


def parse_astra_network(text: str, name: str) -> AstraNetwork:
    """The network described by a text; `name` is the file name, for messages. Raises like `read_astra_network`."""
    return _network(parse_yaml(text, f"network {name}"))


def _network(entry: Entry) -> AstraNetwork:
    older = OLDER[0] in entry.mapping()
    keys = OLDER if older else KEYS
    entries = entry.mapping(required=keys)
    known = (*KEYS, *OLDER, *_OLDER_TIMES, *_OLDER_NAMES)
    tell_over(entry.where, [key for key in entries if key not in known], "the analytical backend")
    named = entries[keys[0]].items(alone=not older)  # a single block, as files of 2022 had it
    blocks = [item.choice(_OLDER_BLOCKS if older else BLOCKS, "block") for item in named]
    if not blocks:
        raise entries[keys[0]].refuse("is empty: give one block per dimension")
    numbers = {key: entries[key].items() for key in (*keys[1:], *_OLDER_TIMES * older) if key in entries}
    for key, items in numbers.items():
        if len(items) != len(blocks):
            raise entries[key].refuse(f"has {len(items)} entries; {keys[0]} has {len(blocks)} and needs one each")
    extents = [item.integer(2, MOST_NPUS) for item in numbers[keys[1]]]
    rates = [item.number(1e-9, 1e9) for item in numbers[keys[-2]]]
    latencies = [item.number(0, 1e12) for item in numbers[keys[-1]]]
    if (total := math.prod(extents)) > MOST_NPUS:
        raise entries[keys[1]].refuse(f"{total} NPUs in all; at most {MOST_NPUS:,}")
    dimensions = tuple(map(AstraDimension, blocks, extents, rates, latencies))
    return AstraNetwork(_of_older(entries, numbers, dimensions) if older else dimensions)


def _of_older(
    entries: Mapping[str, Entry], numbers: Mapping[str, Sequence[Entry]], dimensions: Sequence[AstraDimension]
) -> tuple[AstraDimension, ...]:
    """Dimensions with one link to each neighbor, from those with `links-count` of them."""
    if "topology-name" in entries and (name := entries["topology-name"].text()) != "Hierarchical":
        raise entries["topology-name"].refuse(f"{name!r} is not read: only Hierarchical is")
    zeros = [0.0] * len(dimensions)
    nics, routers = (
        [item.number(0, 1e12) for item in numbers[key]] if key in numbers else zeros for key in _OLDER_TIMES)
    found = []
    for at, one in enumerate(dimensions):
        links = numbers["links-count"][at].integer(1, MOST_NPUS)
        kind = "FullyConnected" if one.kind == "AllToAll" else one.kind
        share = {"Ring": max(links // 2, one.npus == 2), "FullyConnected": links // (one.npus - 1),
                 "Switch": links}[kind]
        if not share:
            raise entries["links-count"].refuse(f"{links} links of an NPU are too few for {one.kind} of {one.npus}")
        more = nics[at] + routers[at] / 2 if kind == "Switch" else 2 * nics[at]
        found.append(AstraDimension(kind, one.npus, one.bandwidth * share, one.latency_ns + more))
    return tuple(found)
