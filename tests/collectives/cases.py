"""Cases that the tests of this room run over."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pytest

from collectives.core.collective import collective
from collectives.core.schedule import Schedule
from collectives.registry import ALGORITHMS, build
from topologies import Topology, torus

FEW = {"pipeline_chunks": 3, "radix": 3}
"""Enough to be pipelined, and few enough to prove on every shape; one radix, for each size has its own by default."""


class Case(NamedTuple):
    """An algorithm, a collective that it does, and a form, if it has forms."""

    algorithm: str
    collective: str
    form: str | None

    def __str__(self) -> str:
        return "-".join(filter(None, self))

    def build(self, topology: Topology, size: str = "1MiB") -> Schedule:
        few = {name: value for name, value in FEW.items() if name in ALGORITHMS[self.algorithm].options}
        return build(self.algorithm, self.collective, topology, size, self.form, **few)


CASES = [
    Case(algorithm.name, collective, form)
    for algorithm in ALGORITHMS.values()
    for collective in algorithm.functions
    for form in algorithm.forms_of(collective) or (None,)
]


def shapes(most: int) -> list[tuple[int, ...]]:
    """Every shape of up to `most` ranks, sorted and unsorted, without extents of 1."""
    found = [(n,) for n in range(2, most + 1)]
    for shape in found:
        found.extend((*shape, n) for n in range(2, most // math.prod(shape) + 1))
    return found


WITH_ONES = [(1,), (1, 1), (1, 3), (4, 1), (1, 2, 1), (2, 1, 4), (3, 1, 3), (1, 4, 4), (5, 1), (2, 2, 1, 2)]


def supported(case: Case, shape: tuple[int, ...]) -> bool:
    """Whether an algorithm says that it can do a shape, in words of its own."""
    long = [extent for extent in shape if extent > 1]
    if case.algorithm == "swing" and (case.form == "bandwidth" or case.collective != "all-reduce"):
        return len(long) < 2 or not any(extent % 2 for extent in long)
    if case.algorithm == "bine" and case.form == "bandwidth" and not collective(case.collective).rooted:
        return math.prod(shape) == 1 or math.prod(shape) % 2 == 0
    if case.algorithm == "trivance" and case.form == "latency":
        return all(extent in (3, 9, 27, 81) for extent in long)
    if case.algorithm.endswith("recursive-doubling") and case.collective != "all-reduce":
        return all(extent in (2, 4, 8, 16, 32, 64, 128) for extent in long)
    if case.algorithm == "stragglar":
        return math.prod(shape) in (1, 2, 4, 8, 16, 32, 64, 128)
    if case.form == "rail-wise":
        return len(shape) > 1
    if case.algorithm == "ring":
        return len(long) < 2 or (len(long) == 2 and any(map(_cycles, (long, long[::-1]))))
    return True


def torus_for(case: Case, *shapes: tuple[int, ...]) -> Topology:
    """A torus of the first shape that a case supports, or of three ranks in all dimensions of the first."""
    return torus(next((shape for shape in shapes if supported(case, shape)), tuple(3 for _ in shapes[0])))


def _cycles(extents: list[int]) -> bool:
    rows, columns = extents
    return columns > 2 and rows % columns == 0 and math.gcd(rows, columns - 1) == 1


READS_LINKS = ("pipelined", "concurrent-flow", "bfb", "nccl-rings", "nccl-trees", "nvls-trees", "tacos")
"""Algorithms that look at links and not at the shape: what they refuse, they say themselves."""

NEEDS_PRODUCT = ("hierarchical", "themis")
"""Algorithms that take products of dimensions alone."""

IRREGULAR = (*READS_LINKS, "double-binary-tree", "fast", "stragglar")
"""Algorithms whose ranks differ, at least on some networks: no group is declared, and slots mean nothing."""


def runs_on(case: Case, fabric: Topology) -> bool:
    """Whether an algorithm can do a shape on this fabric; most see nothing of a fabric but its shape."""
    return supported(case, fabric.shape) and case.algorithm not in READS_LINKS


LIMITS = {
    "stragglar": "ranks are no power of two",
    "swing": "needs even extents in any number of dimensions, or one dimension of any extent",
    "recursive-doubling": "must all be powers of two",
    "mirrored-recursive-doubling": "must all be powers of two",
    "ring": "edge-disjoint Hamiltonian cycles",
    "bine": "are an odd number",
    "trivance": "must all be powers of three",
    "in-network": "needs at least two dimensions",
}

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def subsets(n: int) -> list[list[int]]:
    """Some sets of ranks."""
    return [[0], [n - 1], list(range(0, n, 2)), *map(list, itertools.islice(itertools.combinations(range(n), 2), 3))]
