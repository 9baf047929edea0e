"""ASTRA-sim's communicator groups (JSON): the NPUs of each, by name; ASTRA-sim takes numbers above zero."""

from pathlib import Path

from topologies.checks import WeftError, checked, integer
from topologies.text.plain_data import read_json_object
from workloads.formats.chakra_json import Groups
from workloads.formats.chakra_nodes import EVERYONE


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
    where = f"communicator groups {path}"
    found: dict[str, tuple[int, ...]] = {}
    for name, npus in read_json_object(path, "communicator groups").items():
        plain = name.lstrip("0") or "0" if name.isdecimal() else name
        if plain in found:
            raise WeftError(f"{where}: group {plain} is given twice")
        if not isinstance(npus, list) or not npus:
            raise WeftError(f"{where}: group {plain}: a list of NPUs is expected")
        for npu in npus:
            integer(npu, f"{where}: group {name}: NPU", 0, n_npus - 1)
        if len(set(npus)) < len(npus):
            raise WeftError(f"{where}: group {name} names an NPU twice")
        if plain in EVERYONE and len(npus) < n_npus:
            raise WeftError(f"{where}: group {name!r} has {len(npus)} NPUs: it means all {n_npus}; call it otherwise")
        found[plain] = tuple(npus)
    return found
