"""ASTRA-sim's communicator groups (JSON): numbers above zero, and the NPUs of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from topologies import WeftError
from topologies.checks import checked, integer
from topologies.text.plain_data import read_json_object


@checked
def read_comm_groups(path: str | Path, n_npus: int) -> Mapping[int, tuple[int, ...]]:
    """The groups of a file: {"1": [0, 2], "2": [1, 3]}.

    Parameters
    ----------
    path : path
    n_npus : int
        Of the network, which the groups must fit.

    Raises
    ------
    WeftError
        Names file and group: one that is no number above zero (0 means all NPUs), an NPU that is not there or given
        twice.
    """
    where = f"communicator groups {path}"
    found: dict[int, tuple[int, ...]] = {}
    for name, npus in read_json_object(path, "communicator groups").items():
        if not name.isascii() or not name.isdecimal() or len(name) > 9 or int(name) < 1:
            raise WeftError(f"{where}: group {name!r}: a number above zero is expected; 0 means all NPUs")
        if int(name) in found:
            raise WeftError(f"{where}: group {int(name)} is given twice")
        if not isinstance(npus, list) or not npus:
            raise WeftError(f"{where}: group {name}: a list of NPUs is expected")
        for npu in npus:
            integer(npu, f"{where}: group {name}: NPU", 0, n_npus - 1)
        if len(set(npus)) < len(npus):
            raise WeftError(f"{where}: group {name} names an NPU twice")
        found[int(name)] = tuple(npus)
    return found
