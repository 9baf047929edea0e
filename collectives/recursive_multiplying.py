"""Recursive multiplying: recursive doubling for groups of more than two ranks, which exchange all with all.

With factors p = k1 k2 ..., step i joins ki ranks whose numbers differ in one digit: fewer steps, more messages in each,
which pays off where latency is long or ports are many. (J. Bruck, C. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient
Algorithms for All-to-All Communications in Multiport Message-Passing Systems", 1997; in MPICH and Open MPI.)
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Annotated

import numpy as np

from collectives.butterfly import Core
from collectives.core.builders import EXCHANGED, Form, by_wiring, plain
from collectives.core.estimate import cheapest
from collectives.core.grid import Grid, shrink
from collectives.core.offsets import rounds_of, spread
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Round, rounds_pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.core.symmetry import Group, Groups, node_group
from topologies import Topology
from topologies.checks import Integer, checked
from topologies.core.symmetry import Permutation, move_nodes
from topologies.units import Quantity

NAME = "recursive-multiplying"
FORMS, ONLY_FORM = EXCHANGED
Radix = Annotated[int, Integer(2)]


@by_wiring
def _pattern(topology: Topology, kind: str, form: str, radix: Radix = 8) -> Pattern:
    p = topology.n_npus
    inner = _core(p, radix) if kind == "all-reduce" else p
    digits = Grid(tuple(factors(inner, radix)) or (1,))
    turns = zip(digits.strides, digits.shape, strict=True)
    fars = tuple(tuple(range(stride, extent * stride, stride)) for stride, extent in turns)
    # Far ranks come first in an all-gather and last in a reduce-scatter, so that little goes far.
    steps, _ = spread(digits, fars if form == "latency" else fars[::-1])
    core = Core(Grid((p,)), Grid((inner,)))
    rounds = [_on_core(core, one) for one in rounds_of(digits, kind, form, [steps])]
    blocks = inner if form == "bandwidth" else 1
    return rounds_pattern(
        topology, kind, NAME, form, core.folded(rounds, 1, blocks), n_blocks=blocks,
        groups=Groups(topology, partial(_group, digits)) if inner == p else (),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind, form, radix)),
    )


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, form: Form | None = None, radix: Radix = 8,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """All-reduce in one step per factor.

    `topology`: any; ranks are taken in their order. Ranks beyond the largest number that has no prime factor above the
        radix fold first.
    `form`: the entire vector in every step, or reduce-scatter and all-gather. Default: the lower estimate.
    `radix`: most ranks that exchange in a step.
    """
    forms = (form,) if form else FORMS
    return cheapest([_pattern(topology, "all-reduce", one, radix) for one in forms], size, element_bytes)


reduce_scatter = plain("reduce-scatter", _pattern, """
    The first half of the bandwidth form, near ranks first; any number of ranks.

    `radix`: as in `all_reduce`; prime factors above it have a step of their own.
    """, form="bandwidth")
all_gather = plain("all-gather", _pattern, """
    The second half, far ranks first, with the same parameters.""", form="bandwidth")


def _core(p: int, radix: int) -> int:
    """The largest number up to p that has no prime factor above the radix."""
    return next(q for q in range(p, 0, -1) if max(_primes(q), default=1) <= radix)


def _on_core(core: Core, one: Round) -> Round:
    """A round of ranks in the core; those have the numbers that they have among all."""
    return replace(one, receiver=core.lift(one.receiver), sender=core.lift(one.sender))


def factors(number: int, most: int) -> Iterator[int]:
    """Factors of a number up to `most`, as few as a greedy choice finds, and its larger primes; large ones first."""
    left = list(_primes(number))
    while left:
        factor = left.pop()
        for prime in reversed(left.copy()):
            if factor * prime <= most:
                factor *= prime
                left.remove(prime)
        yield factor


@lru_cache(maxsize=4096)
def _primes(number: int) -> tuple[int, ...]:
    """Prime factors in ascending order."""
    found, prime = [], 2
    while prime * prime <= number:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return (*found, number) if number > 1 else tuple(found)


@lru_cache(maxsize=64)
def _group(digits: Grid, topology: Topology) -> Group:
    """Turns of each digit, where links allow it."""
    return node_group(topology, "turns of digits", (
        (f"turn of digit {digit}", _turn(digits, digit, topology)) for digit in digits.dims
    ))


def _turn(digits: Grid, digit: int, topology: Topology) -> Permutation | None:
    """One more in a digit of the rank; None where that digit is not part of one coordinate."""
    stride, extent, before = digits.strides[digit], digits.shape[digit], 1
    for dim, size in enumerate(topology.shape):
        if stride % before == 0 and before * size % (stride * extent) == 0:
            at, step = np.arange(size), stride // before
            turned = (at // step + 1) % extent - at // step % extent
            return move_nodes(topology, {dim: at + step * turned})
        before *= size
    return None
