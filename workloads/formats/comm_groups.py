"""Files of process groups, of traces and layers alike: NPUs by name as ASTRA-sim has them, or extents as LIBRA has."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collectives.core.process_groups import ProcessGroup, process_group
from topologies.checks import WeftError, checked, integer
from topologies.text.input_text import read_input
from topologies.text.plain_data import read_json_object
from topologies.units import counted
from workloads.formats.chakra_json import Groups
from workloads.formats.chakra_nodes import EVERYONE
from workloads.formats.libra_files import PHASE_OF, read_communicator, read_named_extents
from workloads.workload import Groups as Extents

Sets = Mapping[str, tuple[tuple[int, ...], ...]]
"""The groups of each name: one, or several of which each NPU is in one at most."""


@checked
def read_comm_groups(path: str | Path, n_npus: int) -> Groups:
    """The groups of a file: {"1": [0, 2], "2": [1, 3]}.

    Parameters
    ----------
    path : path
    n_npus : int
        Of the network, which the groups must fit.

    Raises
    ------
    WeftError
        Names file and group: 0 with fewer than all NPUs, which it means; an NPU that is not there or given twice.
    """
    found = {}
    for name, groups in _lists(path, n_npus).items():
        if len(groups) > 1:
            raise WeftError(f"communicator groups {path}: group {name}: a list of NPUs is expected")
        found[name] = groups[0]
    return found


def read_sets(path: str | Path, shape: tuple[int, ...]) -> Sets:
    """The groups of a file, by NPUs or by extents; a name may have several, {"tp": [[0, 1], [2, 3]]}.

    `shape`: extents of the network.
    WeftError: as `read_comm_groups` and `workloads.read_communicator`.
    """
    if not _has_lists(path):
        return {name: tiles(process_group(shape, one)) for name, one in read_named_extents(path, shape).items()}
    return _lists(path, process_group(shape).size)


def read_extents(
    path: str | Path, shape: tuple[int, ...], place: Callable[[Extents], Mapping[str, ProcessGroup]]
) -> Extents:
    """The groups of layers in a file, by extents or by NPUs.

    `place`: where groups of these extents lie (`workloads.training.process_groups`).
    WeftError: as `read_sets`; groups of NPUs that lie otherwise.
    """
    if not _has_lists(path):
        return read_communicator(path, shape)
    sets = {PHASE_OF.get(name, name): groups for name, groups in _lists(path, process_group(shape).size).items()}
    where = f"communicator groups {path}: group"
    extents = {name: _extents(groups[0], shape, f"{where} {name}") for name, groups in sets.items()}
    for name, group in place(extents).items():
        if {frozenset(one) for one in tiles(group)} != {frozenset(one) for one in sets[name]}:
            raise WeftError(f"{where} {name}: {', '.join(map(str, sets[name][:2]))} do not tile {shape} as groups of "
                            f"layers do: {', '.join(map(str, tiles(group)[:2]))}, ...")
    return extents


def tiles(group: ProcessGroup) -> tuple[tuple[int, ...], ...]:
    """Every group, by its NPUs."""
    n = process_group(group.shape).size
    return tuple(dict.fromkeys(group.members(rank) for rank in range(n)))


def of_rank(sets: Sets, rank: int) -> Groups:
    """The groups of an NPU; of a name that has none with it, the first."""
    return {name: next((one for one in groups if rank in one), groups[0]) for name, groups in sets.items()}


def _extents(group: Sequence[int], shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    grid = process_group(shape).grid
    extents = tuple(len({grid.coordinate(npu, dim) for npu in group}) for dim in range(len(shape)))
    if math.prod(extents) != len(group) or any(whole % extent for whole, extent in zip(shape, extents, strict=True)):
        raise WeftError(f"{where}: {tuple(group)} are no equal part of each dimension of {shape}")
    return extents


def _has_lists(path: str | Path) -> bool:
    return read_input(path, "communicator groups").lstrip().startswith(("{", "["))


def _lists(path: str | Path, n_npus: int) -> Sets:
    """The NPUs of each name of a JSON file."""
    where = f"communicator groups {path}"
    found: dict[str, tuple[tuple[int, ...], ...]] = {}
    for name, npus in read_json_object(path, "communicator groups").items():
        plain = name.lstrip("0") or "0" if name.isdecimal() else name
        if plain in found:
            raise WeftError(f"{where}: group {plain} is given twice")
        if not isinstance(npus, list) or not npus:
            raise WeftError(f"{where}: group {plain}: a list of NPUs is expected")
        groups = npus if all(isinstance(one, list) and one for one in npus) else [npus]
        every = [integer(npu, f"{where}: group {name}: NPU", 0, n_npus - 1) for group in groups for npu in group]
        if len(set(every)) < len(every):
            raise WeftError(f"{where}: group {name} names an NPU twice")
        if plain in EVERYONE and (len(groups) > 1 or len(every) < n_npus):
            raise WeftError(f"{where}: group {name!r} has {counted(len(groups[0]), 'NPU')}: it means all {n_npus}; "
                            "call it otherwise")
        found[plain] = tuple(map(tuple, groups))
    return found
