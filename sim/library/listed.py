"""Machines by the names under which drivers list their GPUs, as headers of tests have them: "NVIDIA A100-SXM4-80GB"."""

from __future__ import annotations

import re

from sim.library.described import machine_of
from topologies.checks import WeftError
from topologies.machines.profile import Machine, machine, profiles

PCIE = "rtx-pcie"
"""Profile of cards behind PCIe."""

OF_CARDS = (PCIE, "h100-pcie")

_CARD = r"PCIe|NVL|Active|RTX|GeForce|Quadro|Titan|[ATL]\d{1,2}[GMS]?"
"""Words of cards for slots, whatever chip they have; "NVL" has bridges at most."""

_GRACE = "gh200"
_NAMES = (
    (_CARD, PCIE), ("GH200", _GRACE), ("MI250X?", "mi250x"), ("MI300X|MI308X|MI325X", "mi300x"),
    ("MI350X|MI355X", "mi350x"),
    *((name.upper(), name) for name in ("gb300", "gb200", "gb10", "b300", "b200", "h200", "h800", "h100", "h20",
                                        "a800", "a100", "v100")),
)


def listed_gpu(device: str) -> str:
    """Profile of the GPU that a driver lists, by whole words of its name; `PCIE` for a card.

    WeftError: no profile is of this GPU.

    Examples
    --------
    >>> listed_gpu("NVIDIA A100-SXM4-80GB"), listed_gpu("NVIDIA A100 80GB PCIe")
    ('a100', 'rtx-pcie')
    """
    for words, name in _NAMES:
        if re.search(rf"\b(?:{words})\b", device, re.IGNORECASE):
            return "h100" if name == _GRACE else name
    raise WeftError(f"no profile is of the GPU {device!r}: give --machine, a name or a file, as in mine.toml:1")


def listed_machine(device: str, each: int) -> Machine:
    """A box that is known with this GPU and room for `each`; or else one made of them.

    Raises
    ------
    WeftError
        No profile is of this GPU, or nobody builds a box of so many.
    """
    gpu = listed_gpu(device)
    if gpu == PCIE:
        return machine_of(device, "L40S", each, "", "")
    if re.search(_GRACE, device, re.IGNORECASE):
        if each not in (1, 4):
            raise WeftError(f"{each} x {device} a host are no machine that is known (1 is, and 4 linked each to each): "
                            "give --machine")
        return machine_of(device, "H100 of GH200", each, "links a pair", "")
    for name, box in profiles("boxes").items():
        if box["gpu"] == gpu and box["gpus"] >= each:
            return machine(name)
    return machine_of(device, gpu.upper(), each, "", "")
