"""NVLink generations: rate of one link, and links per GPU.

Rates are those NCCL uses, in GB/s per direction of one link (`src/graph/topo.h` of NCCL, June 2026); link counts are
from the data sheets: P100 4, V100 6, A100 12, H100 18, B200 18.
"""

from typing import NamedTuple

from topologies.checks import choice


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
