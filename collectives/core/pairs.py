"""All-to-all(v): how much each rank sends every other, from a table or drawn with a skew, in whole elements."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collectives.core.builders import kept_by_wiring
from collectives.core.collective import Collective, uneven
from collectives.core.pattern import Pattern
from collectives.core.schedule import Schedule
from collectives.core.sends import SendList
from topologies import Topology, WeftError
from topologies.checks import integer, told
from topologies.text.input_text import read_input, stamp_of
from topologies.units import Quantity, parse_size

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Pairs = str | Sequence[Sequence[float]] | npt.NDArray[np.number]
"""Proportions: "zipf:1.2" or "moe:1.2:7" (exponent, seed), a CSV file, or a matrix whose row i is what rank i sends."""

SKEWS = ("moe", "zipf")
MOST_EXPONENT = 16.0
"""At it all but 2^-16 of what is drawn has one destination."""


def demand_of(kind: Collective, p: int) -> Ints:
    """Elements of each pair of ranks of an all-to-all with weights; the diagonal, which is not sent, is 0."""
    found: Ints = np.array(kind.weights, np.int64).reshape(-1, p, p).sum(axis=0)
    np.fill_diagonal(found, 0)
    return found


def elements(pairs: Pairs | None, p: int, size: Quantity, element_bytes: int) -> Ints:
    """Elements that rank i sends to rank j; `size` is what a rank sends on average, as nccl-tests counts it.

    The largest remainders are rounded up, so that the sum is exact: of whole elements, the last one filled up. Without
    `pairs` all are equal, each filled up as a block of any other collective is.
    """
    sent, one = parse_size(size), integer(element_bytes, "element_bytes", 1)
    if pairs is None:
        return np.full((p, p), -(-sent // (p * one)), np.int64)
    share, total = proportions(pairs, p), -(-sent * p // one)
    exact = share / share.sum() * total
    found: Ints = np.floor(exact).astype(np.int64)
    short = total - int(found.sum())
    if short:
        rest = np.argsort((found - exact).ravel(), kind="stable")
        found.ravel()[rest[:short] if short > 0 else rest[short:]] += np.sign(short)
    return found


def proportions(pairs: Pairs, p: int) -> Floats:
    """The matrix of a skew, a file or numbers.

    WeftError: not p rows of p numbers, one of them negative, or nothing is sent.
    """
    if not isinstance(pairs, str):
        return _checked(np.asarray(pairs, np.float64), p, "pairs")
    name, _, rest = pairs.partition(":")
    return _drawn(name, rest, pairs, p) if name in SKEWS else _of_file(pairs, p, stamp_of(pairs))


def _drawn(name: str, rest: str, pairs: str, p: int) -> Floats:
    """Popularities k^-a, k = 1, 2, ...: of destinations in a random order (moe), or of pairs (zipf)."""
    exponent, _, seed = rest.partition(":")
    try:
        a, rng = float(exponent), np.random.default_rng(int(seed or 0))
    except ValueError:
        a, rng = -1.0, np.random.default_rng()
    if not 0 <= a <= MOST_EXPONENT:
        raise WeftError(f"pairs {pairs!r}: write {name}:1.2 or {name}:1.2:7, an exponent from 0 to {MOST_EXPONENT:g} "
                        "and a seed")
    if name == "moe":
        return np.tile(rng.permutation(np.arange(1.0, p + 1) ** -a), (p, 1))
    return rng.permutation(np.arange(1.0, p * p + 1) ** -a).reshape(p, p)


@lru_cache(maxsize=8)
def _of_file(path: str, p: int, stamp: tuple[int | bytes, ...]) -> Floats:
    lines = [line for line in read_input(path, "pairs").splitlines() if line.strip() and not line.startswith("#")]
    try:
        rows = [[float(cell) for cell in line.split(",")] for line in lines]
    except ValueError as wrong:
        raise WeftError(f"{path}: {wrong}: give a row of {p} numbers for each rank, between commas") from None
    if len(rows) != p or any(len(row) != p for row in rows):
        shown = sorted({len(row) for row in rows})
        raise WeftError(f"{path} has {len(rows)} rows of {' or '.join(map(str, shown)) or 'no'} numbers: give {p} rows "
                        f"of {p}, what each rank sends to every rank")
    return _checked(np.array(rows), p, path)


def _checked(share: Floats, p: int, where: str) -> Floats:
    if share.shape != (p, p):
        raise WeftError(f"{where} has the shape {share.shape}: give {p} rows of {p} numbers")
    wrong = np.argwhere(~(np.isfinite(share) & (share >= 0)))
    if wrong.size:
        i, j = wrong[0].tolist()
        raise WeftError(f"{where}: from rank {i} to rank {j} goes {told(float(share[i, j]))}: give a number from 0")
    if not share.sum():
        raise WeftError(f"{where}: nothing is sent")
    return np.asarray(share / share.max())


def exchange(
    topology: Topology, algorithm: str, pairs: Pairs, size: Quantity, element_bytes: int, *, in_turn: bool
) -> Schedule:
    """Every pair's elements in a message, the nearest destination ahead first: all at once, or one after the other.

    `in_turn`: a message waits for the one that its sender sent before, and for what its receiver received before.
    """
    count = elements(pairs, topology.n_npus, size, element_bytes)
    return Schedule(_exchange(topology, algorithm, count.tobytes(), in_turn), parse_size(size), element_bytes)


@kept_by_wiring(4)
def _exchange(topology: Topology, algorithm: str, sizes: bytes, in_turn: bool) -> Pattern:
    p, sends = topology.n_npus, SendList()
    count = np.frombuffer(sizes, np.int64).reshape(p, p)
    sent, received = dict[int, int](), dict[int, int]()
    for ahead in range(1, p):
        for source in range(p):
            target = (source + ahead) % p
            if one := int(count[source, target]):
                known = (before[rank] for before, rank in ((sent, source), (received, target)) if rank in before)
                waits = sorted(set(known)) if in_turn else ()
                number = sends.add(source, target, [source * p + target], step=ahead - 1, count=one, after=waits)
                sent[source] = received[target] = number
    return sends.pattern(topology, uneven(tuple(count.ravel().tolist())), algorithm, p * p)
