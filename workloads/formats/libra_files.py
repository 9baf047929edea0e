"""Readers of LIBRA's network, communicator and cost files (YAML, 2024 release)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topologies.checks import checked
from topologies.formats.astra_network import BLOCKS
from topologies.text.brief import one_line
from topologies.text.strict_yaml import Entry, read_yaml
from topologies.units import counted
from workloads.workload import PHASES, Groups

ELEMENTS = ("Link", "Switch", "Nic", "Npu")

PHASE_OF = dict(zip(("Forward", "InputGrad", "WeightGrad"), PHASES, strict=True))


@checked
@one_line
@dataclass(frozen=True)
class NetworkFile:
    """A network as LIBRA describes it; dimension 1 (the innermost) first.

    Attributes
    ----------
    blocks : tuple of str
        "RI", "FC" or "SW".
    extents : tuple of int
    tiers : tuple of str
        Price tier of each dimension: a key of the cost file.
    """

    blocks: tuple[str, ...]
    extents: tuple[int, ...]
    tiers: tuple[str, ...]

    @property
    def spec(self) -> str:
        """As `topologies.from_spec` takes it: "RI(4)_FC(8)_SW(32)"."""
        return "_".join(f"{block}({extent})" for block, extent in zip(self.blocks, self.extents, strict=True))


@checked
@one_line
@dataclass(frozen=True)
class Prices:
    """$ per GB/s of one tier; None where the tier has no such element."""

    link: float
    switch: float | None = None
    nic: float | None = None
    npu: float | None = None


@checked
def read_network(path: str | Path) -> NetworkFile:
    """Read a network file: `Topology`, `NpusCount`, `CostDimension`.

    Raises
    ------
    WeftError
        Names the file, line and key.
    """
    keys = ("Topology", "NpusCount", "CostDimension")
    entries = read_yaml(path, "network").mapping(keys, required=keys)
    lists = {key: entries[key].items() for key in keys}
    blocks = [BLOCKS[item.choice(BLOCKS, "block")] for item in lists["Topology"]]
    extents = [item.integer(2) for item in lists["NpusCount"]]
    for key in keys:
        if not blocks or len(lists[key]) != len(blocks):
            raise entries[key].refuse(f"has {len(lists[key])} entries; Topology has {len(blocks)} and needs one")
    return NetworkFile(tuple(blocks), tuple(extents), tuple(item.text() for item in lists["CostDimension"]))


@checked
def read_communicator(path: str | Path, extents: tuple[int, ...]) -> Groups:
    """Read a communicator file: NPUs that each phase takes of each dimension, -1 for none.

    Parameters
    ----------
    path : str or Path
    extents : tuple of int
        Of the network, which the groups must fit.

    Raises
    ------
    WeftError
        Names the file, line and key.
    """
    entries = read_yaml(path, "communicator").mapping(tuple(PHASE_OF), required=tuple(PHASE_OF))
    return {phase: _group(entries[key], extents) for key, phase in PHASE_OF.items()}


def read_named_extents(path: str | Path, extents: tuple[int, ...]) -> Groups:
    """As `read_communicator`, with groups of any names."""
    return {key: _group(entry, extents) for key, entry in read_yaml(path, "communicator").mapping().items()}


def _group(entry: Entry, extents: tuple[int, ...]) -> tuple[int, ...]:
    items = entry.items()
    if len(items) != len(extents):
        raise entry.refuse(f"has {len(items)} entries; the network has {counted(len(extents), 'dimension')}")
    sizes = [item.integer() for item in items]
    for dim, (item, size, extent) in enumerate(zip(items, sizes, extents, strict=True), start=1):
        if size < -1 or size == 0 or extent % size:
            raise item.refuse(f"{size} NPUs of dimension {dim}, which has {extent}: give a divisor of {extent}, or -1")
    return tuple(max(size, 1) for size in sizes)


@checked
def read_prices(path: str | Path) -> Mapping[str, Prices]:
    """Read a cost file: $ per GB/s of each element of each tier.

    Raises
    ------
    WeftError
        Names the file, line and key.
    """
    return {tier: _prices(entry) for tier, entry in read_yaml(path, "cost").mapping().items()}


def _prices(entry: Entry) -> Prices:
    elements = entry.mapping(ELEMENTS, required=("Link",))
    return Prices(**{name.lower(): element.number(0, above=True) for name, element in elements.items()})
