"""StragglAR: an all-reduce behind a late rank: the others reduce and scatter, and it exchanges with one after another.

Of n = 2^k ranks, those on time are the powers g^0, g^1, ... of a generator of GF(2^k), and the late one is 0. Rank g^i
ends the reduce-scatter with the sum of part i. In round t rank x and rank x + g^t are partners, so that the late rank
meets g^t: they give each other what they have of part t, which both then have whole. All others hand parts on. Written
in g^(t-1), ..., g^(t-k), x sends the part of the last of these that it has, which every round doubles, until after k
rounds all have it; where that part does not exist any more, the last one. After n - 2 + k rounds of a part all is done.

The idea: "Efficient AllReduce with Stragglers", arXiv 2505.23523; the pairs here are derived anew.
"""

from itertools import pairwise

import numpy as np

from collectives.core.builders import by_wiring
from collectives.core.by_slots import WHOLE
from collectives.core.collective import collective
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import Columns, columns_pattern
from topologies import Topology, WeftError
from topologies.checks import checked, integer
from topologies.core.paths import Ints, ranges
from topologies.units import Quantity

NAME = "stragglar"

FEW_RANKS, MOST_RANKS = 256, 512
"""Up to the first it is built in a second, whether named or not; limit on ranks, n^2 of whose transfers are listed."""


def is_long(topology: Topology) -> bool:
    """Whether it takes more than a second to build."""
    return topology.n_npus > FEW_RANKS


@checked
def all_reduce(topology: Topology, size: Quantity, *, late: int = 0, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """All-reduce that does all it can before a late rank begins.

    `late`: the rank that begins late; how late is said by a fault plan.
    WeftError: a number of ranks that is no power of two, or a late rank that is none.
    """
    return schedule(_pattern(topology, integer(late, "late", 0, topology.n_npus - 1)), size, element_bytes)


@by_wiring
def _pattern(topology: Topology, late: int) -> Pattern:
    n = topology.n_npus
    if n & (n - 1):
        raise WeftError(f"{NAME} on {topology.name}: {n} ranks are no power of two")
    if n > MOST_RANKS:
        raise WeftError(f"{NAME} on {topology.name}: {n:,} ranks (limit: {MOST_RANKS})")
    k, parts = n.bit_length() - 1, n - 1
    power = np.array(powers(k) if k else [], np.int64)
    rank = np.full(n, late)
    rank[power] = np.delete(np.arange(n), late)
    ahead = np.add.outer(np.arange(1, parts), np.arange(parts)) % max(parts, 1)
    rounds = [_sent(t, k, power) for t in range(parts + k - 1 if k else 0)]
    scattered = np.tile(power, max(parts - 1, 0)), power[ahead].ravel(), ahead.ravel()
    x, y, part = map(np.concatenate, zip(scattered, *rounds, strict=True))
    sizes = [one.size for one, _, _ in rounds]
    step = np.append(np.repeat(np.arange(max(parts - 1, 0)), parts), parts + np.repeat(np.arange(len(sizes)), sizes))
    waits, other = _waits(x, y, part, np.cumsum([ahead.size, *sizes]))
    zeros, ones = np.zeros_like(x), np.ones_like(x)
    reduces = (step < parts - 1) | ((step < 2 * parts) & ((x == 0) | (y == 0)))
    columns = Columns(
        rank[x], rank[y], step, zeros, ones, reduces, waits, other, np.full(other.size, WHOLE), zeros, zeros[:0]
    )
    return columns_pattern(
        columns, part, topology=topology, kind=collective("all-reduce"), algorithm=NAME, n_blocks=max(parts, 1),
        alike_by_slot=False,
    )


def powers(k: int) -> list[int]:
    """All powers of a generator of GF(2^k), as bits of polynomials: the first modulus by which x is one.

    Examples
    --------
    >>> powers(3)
    [1, 2, 4, 3, 6, 7, 5]
    """
    for modulus in range(2**k + 1, 2 ** (k + 1), 2):
        found = [1]
        while len(found) < 2**k - 1 and (following := _times_x(found[-1], k, modulus)) != 1:
            found.append(following)
        if len(found) == 2**k - 1:
            return found
    raise AssertionError("every finite field has a generator")


def _times_x(element: int, k: int, modulus: int) -> int:
    return element << 1 ^ (modulus if element >> (k - 1) & 1 else 0)


def _sent(t: int, k: int, power: Ints) -> tuple[Ints, Ints, Ints]:
    """The elements that send in a round, their partners, and the part that each sends. `power`: all powers."""
    parts, step = power.size, power[t % power.size]
    # Times g^(k - t), the basis is g^(k-1), ..., g^0: bits, of which the least is that of the earliest part.
    least = power[(np.arange(parts) + k - t) % parts]
    earliest = t - k + np.log2(least & -least).astype(np.int64)
    given = np.full(parts + 1, parts - 1)
    given[power] = np.minimum(earliest, parts - 1)  # negative: none to send
    if t < parts:
        given[[0, step]] = t
    else:  # the late rank has all that it sums
        given[step] = -1
    x = np.flatnonzero(given >= 0)
    return x, x ^ step, given[x]


def _waits(x: Ints, y: Ints, part: Ints, begins: Ints) -> tuple[Ints, Ints]:
    """How many transfers each waits for, and which: in a round for all that brought its part before the round.

    And for the last that its sender sent and its receiver received in earlier rounds. `begins`: of each, and the end.
    """
    n, parts, number, last = x.size, int(part.max(initial=0)) + 1, np.arange(x.size), np.full((2, x.size), -1)
    of_rank = np.full((2, int(x.max(initial=0)) + 1), -1)
    for begin, end in pairwise(begins.tolist()):
        for row, element in enumerate((x[begin:end], y[begin:end])):
            last[row, begin:end] = of_rank[row][element]
            of_rank[row][element] = number[begin:end]
    last[1, last[0] == last[1]] = -1
    brought = np.sort((y * parts + part) * n + number)
    wanted = (x * parts + part) * n
    first = np.searchsorted(brought, wanted)
    before = np.repeat(np.append(0, begins[:-1]), np.diff(begins, prepend=0))
    count = np.searchsorted(brought, wanted + before) - first
    counts = count + np.count_nonzero(last >= 0, axis=0)
    ends = np.cumsum(counts)
    other = np.empty(counts.sum(), np.int64)
    other[ranges(ends - counts, count)] = brought[ranges(first, count)] % max(n, 1)
    other[(ends - 1)[last[1] >= 0]] = last[1, last[1] >= 0]
    other[(ends - 1 - (last[1] >= 0))[last[0] >= 0]] = last[0, last[0] >= 0]
    return counts, other
