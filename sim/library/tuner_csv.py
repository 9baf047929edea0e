"""The configuration of NCCL's tuner plugin: which algorithm and protocol to take for which bytes.

Rows of `collective,min,max,algorithm,protocol,channels,nodes,ranks` with bytes inclusive and -1 for any, of which the
first that fits holds; NCCL's example plugin reads the file that `NCCL_TUNER_CONFIG_FILE` names, RCCL has it built in.
Sizes are those of the array, as nccl-tests counts them.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from sim.library.expected import Expected, expected, timed
from sim.library.tuner import Setting, candidates
from topologies.checks import WeftError
from topologies.units import format_size

_NAMES = {
    "Ring": "ring", "Tree": "tree", "NVLS": "nvls", "NVLSTree": "nvls_tree", "CollNet": "collnet_direct", "PAT": "pat",
}

TUNED = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce")

SAMPLES = 16
"""Sizes of a range at which its choice is compared with the library's."""


class Range(NamedTuple):
    """Sizes, inclusive, for which one choice is the fastest; and the most of the time that it saves, as a share."""

    first: int
    last: int
    algorithm: str
    protocol: str
    saves: float


def ranges(setting: Setting, sizes_bytes: Sequence[int]) -> list[Range]:
    """The fastest choices from the smallest size to the largest; between two sizes that differ, to the byte.

    What is fastest between two sizes that have the same choice is not looked at.

    Examples
    --------
    >>> from topologies.machines.profile import machine
    >>> asked = Setting(machine=machine("dgx-a100"), nodes=2, gpus=8, collective="all-gather")
    >>> [(one.first, one.last, one.protocol) for one in ranges(asked, [1024, 2**20, 2**30])]
    [(1024, 239097, 'LL'), (239098, 142994986, 'LL128'), (142994987, 1073741824, 'Simple')]
    """
    if setting.collective not in TUNED:
        raise WeftError(f"{setting.collective} has no choice for a tuner: it is sent as single messages")
    sizes = sorted(set(sizes_bytes))
    best = {size: fastest(setting, size) for size in sizes}
    for low, high in pairwise(sizes):
        best.update(_between(setting, best[low], best[high]))
    found: list[Range] = []
    for _, alike in groupby((best[size] for size in sorted(best)), key=lambda one: (one.algorithm, one.protocol)):
        every = list(alike)
        first, last = every[0], every[-1]
        sampled = np.geomspace(max(first.size_bytes, 1), max(last.size_bytes, 1), SAMPLES).astype(np.int64).tolist()
        saves = max(1 - fastest(setting, size).time_s / expected(setting, size).time_s for size in sampled)
        found.append(Range(first.size_bytes, last.size_bytes, first.algorithm, first.protocol, saves))
    return found


def fastest(setting: Setting, size_bytes: int) -> Expected:
    """The candidate that is expected to take the least time, whatever the library believes."""
    every = (timed(setting, one, size_bytes) for one in candidates(setting) if size_bytes)
    return min(every, key=lambda one: one.time_s, default=expected(setting, size_bytes))


def _between(setting: Setting, low: Expected, high: Expected) -> Iterator[tuple[int, Expected]]:
    """Sizes at which the choice changes: of each change the last before it and the first after it."""
    if (low.algorithm, low.protocol) == (high.algorithm, high.protocol):
        return
    if high.size_bytes - low.size_bytes > 1:
        middle = fastest(setting, (low.size_bytes + high.size_bytes) // 2)
        yield from _between(setting, low, middle)
        yield from _between(setting, middle, high)
    else:
        yield from ((one.size_bytes, one) for one in (low, high))


def tuner_csv(setting: Setting, found: Sequence[Range]) -> str:
    """The file."""
    kind, of = setting.collective.replace("-", ""), f"{setting.nodes},{setting.n}"
    rows = [f"{kind},{one.first},{one.last},{_NAMES[one.algorithm]},{one.protocol.lower()},-1,{of}" for one in found]
    head = f"# {setting.collective} on {setting.machine.name}:{setting.nodes}, {setting.gpus} GPUs a node, by weft"
    return "\n".join([head, "# collective,min,max,algorithm,protocol,channels,nodes,ranks", *rows, ""])


def told(found: Sequence[Range]) -> list[str]:
    """The ranges for people, and what they save against what the library would choose."""
    return [
        f"# tuner: {format_size(one.first)} to {format_size(one.last)} {one.algorithm} {one.protocol}"
        + (f", up to {one.saves:.1%} less than what the library chooses" if one.saves >= 0.001 else "")
        for one in found
    ]
