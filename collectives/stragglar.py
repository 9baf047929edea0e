"""StragglAR: an all-reduce behind a late rank: the others reduce and scatter, and it exchanges with one after another.

Of n = 2^k ranks, those on time are the powers g^0, g^1, ... of a generator of GF(2^k), and the late one is 0. Rank g^i
ends the reduce-scatter with the sum of part i. In round t rank x and rank x + g^t are partners, so that the late rank
meets g^t: they give each other what they have of part t, which both then have whole. All others hand parts on. Written
in g^(t-1), ..., g^(t-k), x sends the part of the last of these that it has, which every round doubles, until after k
rounds all have it; where that part does not exist any more, the last one. After n - 2 + k rounds of a part all is done.

The idea: "Efficient AllReduce with Stragglers", arXiv 2505.23523; the pairs here are derived anew.
"""

from collectives.core.builders import by_wiring
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import SendList
from topologies import Topology, WeftError
from topologies.checks import checked, integer
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
    k, sends = n.bit_length() - 1, SendList()
    parts, power = n - 1, powers(k) if k else []
    log = {element: at for at, element in enumerate(power)}
    on_time = [rank for rank in range(n) if rank != late]
    rank_of = {0: late} | dict(zip(power, on_time, strict=True))
    came: dict[tuple[int, int], list[int]] = {}  # element and part, and the transfers that brought it
    for ahead in range(1, parts):
        for at in range(parts):
            part = (at + ahead) % parts
            number = sends.add(on_time[at], on_time[part], [part], step=ahead - 1, reduces=True)
            came.setdefault((power[part], part), []).append(number)
    sent, received = dict[int, int](), dict[int, int]()
    for t in range(parts + k - 1 if k else 0):
        step, now = power[t % parts], list[tuple[int, int, int]]()
        for x in range(n):
            given, exchanged = _part(x, t, k, power, log), t < parts and x in (0, step)
            if given is None or (x == step and not exchanged):  # the late rank has all that it sums
                continue
            waits = came.get((x, given), []) + [one[at] for one, at in ((sent, x), (received, x ^ step)) if at in one]
            source, target = rank_of[x], rank_of[x ^ step]
            number = sends.add(source, target, [given], step=parts + t, reduces=exchanged, after=dict.fromkeys(waits))
            now.append((x, given, number))
        for x, part, number in now:
            came.setdefault((x ^ step, part), []).append(number)
            sent[x] = received[x ^ step] = number
    return sends.pattern(topology, "all-reduce", NAME, max(parts, 1))


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


def _part(x: int, t: int, k: int, power: list[int], log: dict[int, int]) -> int | None:
    """The part that an element sends in a round; None if it has none to send. `log`: the place of each power."""
    parts = len(power)
    if t < parts and x in (0, power[t]):
        return t
    if x == 0:
        return parts - 1
    # Times g^(k - t), the basis is g^(k-1), ..., g^0: bits, of which the least is that of the earliest part.
    least = power[(log[x] + k - t) % parts]
    earliest = t - k + (least & -least).bit_length() - 1
    return None if earliest < 0 else min(earliest, parts - 1)
