"""The all-reduce around several rings with a whole ring as one transfer per rank: its chunks are the rounds.

Each round of a ring moves one block from every rank to the next. Chunk j of a rank waits for the delivery of chunk
j - 1 of its own and of the rank behind it, so that an iteration of a hundred servers has thousands of transfers and
not millions. The times are those of `collectives.totient_rings`, where every round is a transfer. Rounds may be joined
into fewer for a coarser, faster picture, and may end with their acknowledgements.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import gcd

import numpy as np
import numpy.typing as npt

from collectives import totient_rings
from collectives.core.builders import kept_by_wiring
from collectives.core.collective import collective
from collectives.core.pattern import OwnProof, Pattern
from collectives.core.schedule import Schedule
from collectives.core.symmetry import translations
from collectives.core.transfers import Transfers, TransferTable
from topologies import Topology, WeftError, torus

NAME = "ring-rounds"

PROVED_ON = 16
"""Ranks of the rings whose rounds, each a transfer, are proved."""


def all_reduce(
    topology: Topology, size_bytes: int, *, jumps: Sequence[int], group: Sequence[int] | None = None,
    most_rounds: int | None = None, one_round: bool = False, acknowledged: bool = False, flow: int | None = None,
) -> Schedule:
    """All-reduce over several rings, each a transfer per rank.

    `size_bytes`: of the array; each ring takes an equal part.
    `jumps`: one ring each: from every place of the group to the one so much further on.
    `group`: ranks in the order of the ring of jump 1; all of them unless given. Give the operation of a job the same.
    `most_rounds`: rounds are joined until there are no more than this, with their latencies added.
    `one_round`: all bytes of a rank in a single round, with the latency of one.
    `acknowledged`: whether a round ends when its acknowledgement has come back over as many links, or when the block
        has arrived.
    `flow`: hashed with every pair for its route, so that other schedules take other routes; unless given, the model's
        rule for ties chooses.
    WeftError: a jump that does not visit every rank of the group, or fewer rounds than one.

    Examples
    --------
    >>> from topologies import ring
    >>> schedule = all_reduce(ring(8), 1 << 20, jumps=(1, 7))
    >>> schedule.pattern.transfers().src.size
    16
    """
    if most_rounds is not None and most_rounds < 1:
        raise WeftError(f"{NAME}: at most {most_rounds} rounds: at least 1")
    members = tuple(range(topology.n_npus)) if group is None else tuple(map(int, group))
    rounds, places = 2 * (len(members) - 1), len(members)
    count = 1 if one_round else max(min(rounds, most_rounds or rounds), 1)
    laps = (1 if one_round else max(-(-rounds // count), 1)) * (2 if acknowledged else 1)
    share = -(-size_bytes // len(jumps))
    # A chunk is a block of one element, so that joined rounds are cut as evenly as whole bytes allow.
    chunk_bytes = max(-(-share * rounds // (places * count)), 1)
    return Schedule(_pattern(topology, tuple(jumps), members, count, laps, flow), size_bytes, chunk_bytes)


@kept_by_wiring(256)
def _pattern(
    topology: Topology, jumps: tuple[int, ...], group: tuple[int, ...], count: int, laps: int, flow: int | None
) -> Pattern:
    members, k = np.array(group, np.int64), len(group)
    for jump in jumps:
        if gcd(jump, k) != 1:
            raise WeftError(f"{NAME}: the jump {jump} does not visit all {k} ranks; {k} and it share a divisor")
    place = np.full(topology.n_npus, -1, np.int64)
    place[members] = np.arange(k)
    everyone = group == tuple(range(topology.n_npus))
    # Where equals meet, the order of the ring decides: members that are not in rank order have slots of their own.
    stride = int(sorted(group) != list(group))

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks[place[ranks] >= 0] if k > 1 else ranks[:0])
        mine = place[table.ranks]
        for port, jump in enumerate(jumps):
            behind = (mine - jump) % k
            own, other = port * k + mine * stride, port * k + behind * stride
            table.add(
                own, members[(mine + jump) % k], count, port=port, tie_class=port,
                window=[(table.ranks, own, 1), (members[behind], other, 1)] if count > 1 else [],
            )
        t = table.build()
        if flow is not None:
            paths = topology.paths(t.src, t.dst, "ecmp", flow)
            t = t._replace(via_ptr=paths.ptr, via_links=paths.links.astype(np.int32))
        return t._replace(rounds=np.tile(np.array([count, laps], np.int32), (t.src.size, 1)))

    def blocks_of(source: int, slot: int) -> Sequence[int]:
        raise WeftError(f"{NAME}: the rounds of a ring are one transfer, which carries no single blocks")

    return Pattern(
        topology=topology, kind=collective("all-reduce"), algorithm=NAME,
        n_blocks=max(-(-len(jumps) * k * count // max(2 * (k - 1), 1)), 1), emit=emit, blocks_of=blocks_of,
        groups=translations(topology) if everyone and flow is None and len(topology.shape) == 1 else (),
        own_proof=OwnProof(lambda: _proof(len(jumps)), unnamed=True),
    )


@lru_cache(maxsize=16)
def _proof(rings: int) -> str:
    """The proof of as many rings, or of eight, each round of which is a transfer."""
    jumps = tuple(range(1, PROVED_ON, 2))[:rings]
    totient_rings.all_reduce(torus((PROVED_ON,)), 0, jumps=jumps)
    return f"proved round by round on ring:{PROVED_ON}"
