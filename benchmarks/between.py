"""`python -m benchmarks.between`: what Bine sends over the links between groups, over the binomial algorithms in use.

Counted along the route of every message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from collectives import build
from collectives.core.grid import floor_power_of_two
from sim.study.tables import aligned
from topologies import Topology, from_spec

Messages = list[tuple[int, int, float]]
"""From, to, and how much, in arrays."""
Groups = npt.NDArray[np.int64]
"""Of each rank of a job."""

WHOLE = (
    ("leaf-spine:8x8x4", 8, 64), ("leaf-spine:16x8x8", 16, 128), ("leaf-spine:16x16x8", 16, 256),
    ("leaf-spine:32x16x16", 32, 512), ("dragonfly:9x4x2", 8, 72), ("dragonfly:17x4x2", 8, 136),
    ("dragonfly:17x4x4", 16, 272),
)
"""Fabric, ranks of a group, ranks of the job, which begins with the first."""
ANYWHERE = (
    ("dragonfly:9x4x2", 8, 64), *(("dragonfly:17x4x4", 16, p) for p in (64, 128, 256)),
    *(("dragonfly:33x8x4", 32, p) for p in (128, 256, 512)), *(("leaf-spine:16x20x8", 16, p) for p in (64, 128, 256)),
    ("leaf-spine:48x22x24", 48, 512), ("leaf-spine:64x16x32", 64, 512),
    ("dragonfly:33x8x4", 32, 64), ("dragonfly:33x8x4", 32, 100),
)
"""The same, of jobs of ranks in turn that begin anywhere in a group."""


def near_first(p: int, far: bool = False) -> Messages:
    """A reduce-scatter that halves what is sent, the near ranks first, or the far ones; surplus ranks hand theirs over.

    As MPICH does it: of the first ranks the even ones add to the odd ones and get the result from them.
    """
    q = floor_power_of_two(p)
    surplus = p - q
    inner = [2 * i + 1 if i < surplus else i + surplus for i in range(q)]
    steps = range(q.bit_length() - 1)
    rounds = ((1 << k, k) for k in steps) if not far else ((q >> k + 1, k) for k in steps)
    return [(2 * i, 2 * i + 1, 1.0) for i in range(surplus)] + [
        (inner[i], inner[i ^ distance], 0.5 ** (k + 1)) for distance, k in rounds for i in range(q)
    ]


def all_reduce(p: int) -> Messages:
    """Rabenseifner's: that reduce-scatter, and back."""
    there = near_first(p)
    return there + [(to, one, much) for one, to, much in there]


def tree(p: int, doubling: bool = False) -> Messages:
    """The edges of a binomial tree from rank 0 whose distances halve, or double."""
    parent = (lambda r: r - (1 << r.bit_length() - 1)) if doubling else (lambda r: r & r - 1)
    return [(parent(rank), rank, 1.0) for rank in range(1, p)]


def parted_tree(p: int) -> Messages:
    """A scatter down the tree whose distances halve: with each rank goes all that is below it."""
    return [(one, rank, min(rank & -rank, p - rank) / p) for one, rank, _ in tree(p)]


def bruck(p: int) -> Messages:
    """An all-to-all by the digits of distances."""
    steps = range((p - 1).bit_length())
    sent = [sum(distance >> k & 1 for distance in range(p)) / p for k in steps]
    return [(rank, (rank + (1 << k)) % p, sent[k]) for k in steps for rank in range(p)]


def _least_scattered(groups: Groups) -> float:
    return float(np.mean(groups != groups[0]))


def _others(groups: Groups) -> float:
    """Groups but one: each array enters them once, or leaves them reduced."""
    return len(set(groups.tolist())) - 1


def _exchanged(groups: Groups) -> float:
    """Every block for another group."""
    return float(np.mean(groups[:, None] != groups) * groups.size)


CELLS: tuple[tuple[str, str, str | None, Callable[[int], Messages], Callable[[Groups], float]], ...] = (
    ("all-reduce", "all-reduce", "bandwidth", all_reduce, lambda groups: 2 * _others(groups)),
    ("reduce-scatter, all-gather", "reduce-scatter", None, lambda p: near_first(p, far=True), _others),
    ("the same, near first", "reduce-scatter", None, near_first, _others),
    ("broadcast, doubling", "broadcast", "latency", lambda p: tree(p, doubling=True), _others),
    ("broadcast, reduce, halving", "broadcast", "latency", tree, _others),
    ("scatter, gather", "scatter", "latency", parted_tree, _least_scattered),
    ("all-to-all", "all-to-all", None, bruck, _exchanged),
)
"""Head, collective and form of Bine, the counterpart, and the least of any algorithm, in arrays."""


def bine(p: int, kind: str, form: str | None, peers: str) -> Messages:
    """What Bine sends."""
    built = build("bine", kind, from_spec(f"switch:{p}"), "64MiB", form, peers=peers)
    rows = built.pattern.transfers()
    sent = rows.blocks / built.pattern.n_blocks * (p if kind == "all-to-all" else 1)
    return list(zip(rows.src.tolist(), rows.dst.tolist(), sent.tolist(), strict=True))


def group_of(fabric: Topology, per: int) -> Groups:
    """Of each node: hosts in turn, and the switch that they share; other switches are a group of their own."""
    group = np.full(fabric.n_nodes, -1)
    group[: fabric.n_npus] = np.arange(fabric.n_npus) // per
    hosts = fabric.src < fabric.n_npus
    group[fabric.dst[hosts]] = group[fabric.src[hosts]]
    return group


def crossing(messages: Messages, fabric: Topology, per: int, starts: range) -> npt.NDArray[np.float64]:
    """What links between groups carry, in arrays, for each first host of a job, by the routes of the fabric."""
    one, other, much = (np.array(column) for column in zip(*messages, strict=True))
    hosts = np.array(starts)[:, None]
    group = group_of(fabric, per)
    paths = fabric.paths((one.astype(np.int64) + hosts).ravel(), (other.astype(np.int64) + hosts).ravel())
    before = np.append(0, np.cumsum((group[fabric.src] != group[fabric.dst])[paths.links]))
    links = (before[paths.ptr[1:]] - before[paths.ptr[:-1]]).reshape(len(starts), -1)
    found: npt.NDArray[np.float64] = links @ much
    return found


def row(spec: str, per: int, p: int, starts: range) -> list[str]:
    """Bine over its counterparts, with the better peers of each start; above 0.75 with the least of any algorithm."""
    found, fabric = [], from_spec(spec)
    hops = 2 if spec.startswith("leaf-spine") else 1  # links between groups that a message takes at least
    for _, kind, form, rival, least in CELLS:
        ours = [crossing(bine(p, kind, form, peers), fabric, per, starts) for peers in ("aligned", "shifted")]
        total = crossing(rival(p), fabric, per, starts).sum()
        share = np.minimum(*ours).sum() / total
        fewest = hops * sum(least((np.arange(p) + start) // per) for start in starts) / total
        found.append(f"{share:.2f}" + (f" ({fewest:.2f})" if share > 0.75 else ""))
    return found


def crossings() -> Iterator[list[str]]:
    """The whole table."""
    for spec, per, p in WHOLE:
        yield [spec, str(per), f"{p}, from the first", *row(spec, per, p, range(1))]
    for spec, per, p in ANYWHERE:
        yield [spec, str(per), f"{p}, from any", *row(spec, per, p, range(per))]


HEADS = ["fabric", "group", "ranks", *(cell[0] for cell in CELLS)]

WHY = """`python -m benchmarks.between`. A job has ranks in turn, from the first rank of a group, or from each rank of a
group once, summed; Bine has the better of its peers (`peers=shifted` from odd places) for each. Bytes are counted along
the routes: in a dragonfly some shortest ones pass a third group. In brackets, above 0.75: the least that *any*
algorithm and any routes can send between the groups, over the same counterpart.

| column | the counterpart |
|---|---|
| all-reduce | Rabenseifner's of MPICH and Open MPI: a reduce-scatter, near ranks first, and back |
| reduce-scatter, all-gather | recursive halving and doubling of MPICH and Open MPI, which send most bytes farthest |
| the same, near first | the other order, with which the authors of Bine compare |
| broadcast, doubling | Open MPI's tree, whose distances double |
| broadcast, reduce, halving | MPICH's tree, which is also Open MPI's for a reduce |
| scatter, gather | that tree (`tree`); Bine in its latency form |
| all-to-all | Bruck's |

At most 0.75 are all reduce-scatters and all-gathers over those of the two libraries (0.05 to 0.46), all broadcasts over
Open MPI's tree (0.05 to 0.39), and the all-reduces of jobs that begin anywhere and have at least four groups (0.64 to
0.74; broadcasts 0.61 to 0.76). Above it:

- Whole groups from the first rank on. The near-first butterfly and the halving tree send one array into each group but
  one, the least that there is: 1.00 in brackets, less where their shortest routes pass third groups. Bine's steps of 3,
  5, 11 places leave a group where 2, 4, 8 do not.
- Jobs of two or three groups: Bine counts modulo p, so that the ends of the job are one more border.
- Gathers, scatters and all-to-alls: every step carries as much as the next, and the steps that are longer than a group
  are log2(p / group) in both.

The authors' own count (their repository `pico`, 413bc5d: all-reduces of the jobs that ran on Leonardo and LUMI, over
the near-first order) has the same: of the 97 and 309 jobs with 64 to 512 nodes, powers of two, the median saves 17 and
15 %, and 7 and 4 % of the jobs save 25 % or more; the 33 % of the paper is the most that a distance of 2/3 gives.
On `dragonfly:9x4x2`, ranks 3 to 66, an all-reduce of 64 MiB takes 4.79 ms with `peers=shifted`, 5.29 without, 6.59 by
`recursive-doubling`."""

if __name__ == "__main__":
    print(aligned([HEADS, *crossings()], left=1))
