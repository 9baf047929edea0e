"""Choice of rings: jumps that visit every server once, and a few among them that keep all paths short.

On Z_n the jump p makes one ring of all servers if and only if p and n have no common divisor. TopoOpt picks jumps in
geometric progression (W. Wang et al., "TopoOpt: Co-optimizing Network Topology and Parallelization Strategy for
Distributed Training Jobs", NSDI 2023). The paper and the released code use different progressions; both are here.
"""

from collections.abc import Sequence
from math import gcd
from typing import Annotated

from topologies.checks import Choice, Count, WeftError, checked

RULES = ("paper", "code")


@checked
def totient_perms(n: int, k: int | None = None) -> list[int]:
    """Jumps whose rings visit every server of a group of `k` exactly once.

    Parameters
    ----------
    n : int
        Servers.
    k : int, optional
        Servers per group, a divisor of n; group s is s, s + n/k, s + 2 n/k, ... Default: all n.

    Returns
    -------
    list of int
        Ascending: (n/k) p for every p below k that is coprime to k.

    Raises
    ------
    WeftError
        A group size that does not divide n, or fewer than one server.
    """
    k = n if k is None else k
    if n < 1 or k < 1 or n % k:
        raise WeftError(f"groups of {k} among {n} servers: the group size must divide the number of servers")
    return [n // k * p for p in range(1, k) if gcd(p, k) == 1]


@checked
def select_permutations(
    n: int, degree: Count, candidates: Sequence[int], *, rule: Annotated[str, Choice(RULES)] = "paper",
    duplex: bool = False, dedupe: bool = False,
) -> list[int]:
    """Jumps for rings, in geometric progression (TopoOpt, SelectPermutations).

    Parameters
    ----------
    n : int
        Servers.
    degree : int
        Interfaces of each server for these rings. A duplex ring takes two, one for each direction.
    candidates : sequence of int
        From `totient_perms`.
    rule : {"paper", "code"}
        The published rule, or that of the released code.
    duplex : bool
        Whether a cable serves both directions.
    dedupe : bool
        Skip jumps above n/2, which are smaller jumps in reverse: for duplex rings.

    Returns
    -------
    list of int
        In order of selection; fewer than requested if the candidates run out.

    Raises
    ------
    WeftError
        An unknown rule, a degree below one, or an odd degree of duplex rings.
    """
    if duplex and degree % 2:
        raise WeftError(f"duplex rings over {degree} interfaces: each ring takes two, so the degree must be even")
    left = sorted(p for p in set(candidates) if not dedupe or 2 * p <= n)
    wanted = degree // 2 if duplex else degree
    if not left:
        return []
    return _by_code(left, wanted, duplex) if rule == "code" else _by_paper(n, left, wanted)


def _by_paper(n: int, left: list[int], wanted: int) -> list[int]:
    ratio = n ** (1 / wanted)
    chosen = [left.pop(0)]
    while len(chosen) < wanted and left:
        at = ratio * chosen[-1]
        # 1e-9: n ** (1 / wanted) may miss an exact power by rounding, which must not decide a tie.
        nearest = min(left, key=lambda p: (round(abs(p - at), 9), p))
        left.remove(nearest)
        chosen.append(nearest)
    return chosen


def _by_code(left: list[int], wanted: int, duplex: bool) -> list[int]:
    if wanted == 1:
        return left[:1]
    ratio = (left[-1] / left[0]) ** (1 / (wanted if duplex else wanted - 1))
    chosen: list[int] = []
    at = float(left[0])
    while len(chosen) < wanted and left:
        nearest = next((p for p in left if p >= at - 1e-9), left[-1])
        left.remove(nearest)
        chosen.append(nearest)
        at *= ratio
    return chosen
