"""Laws that hold whatever the algorithm, over the registry; each with the exceptions that are known, by name."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from collectives import build
from collectives.core.collective import COLLECTIVES
from collectives.core.routes import paths_of
from collectives.core.schedule import Schedule, schedule
from sim import simulate
from sim.program.model import Model
from tests.collectives.cases import CASES, Case, every_case
from topologies import Topology, WeftError, from_links, from_spec

SPECS = ("torus:4x4", "ring:8", "switch:8", "mesh:4x2", "RI(4)_SW(4)", "torus:3x2")
ALIKE = ("torus:4x4", "ring:8", "switch:8")
"""Fabrics that look the same from every rank; elsewhere ranks get out of step with each other."""

GBPS = 10**9
PS_PER_BYTE = 1000
FOUR_CHUNKS = Model(chunks=4)


def fabric(spec: str, times: int = 1) -> Topology:
    """All links at 1 GB/s, or a multiple."""
    plain = from_spec(spec)
    return plain.with_links(bandwidth_Bps=np.full(plain.n_links, float(GBPS * times)))


def built(case: Case, topology: Topology, size: str = "64KiB") -> Schedule | None:
    """None where the algorithm cannot do the fabric, as it says itself."""
    try:
        return case.build(topology, size)
    except WeftError:
        return None


def on(specs: tuple[str, ...], case: Case) -> Iterator[tuple[str, Schedule]]:
    """On the fabrics that a case takes; on a torus of threes where it takes none of them."""
    every = [(spec, found) for spec in specs if (found := built(case, fabric(spec))) is not None]
    last = built(case, fabric("torus:3x3"))
    yield from every or ([("torus:3x3", last)] if last is not None else [])


def time_ps(case: Case, spec: str) -> int | None:
    found = built(case, fabric(spec))
    return None if found is None else simulate(found, model=FOUR_CHUNKS).time_ps


def carried(work: Schedule, tie: str = "first") -> np.ndarray:
    """Bytes on every link: the blocks of each transfer on each link of its route, halves under `split`."""
    t = work.pattern.transfers()
    paths = paths_of(t, work.topology, tie, 0)
    routes = np.bincount(paths.pair, minlength=t.src.size)
    each = t.blocks[paths.pair] * work.block_bytes / routes[paths.pair]
    return np.bincount(paths.links, weights=np.repeat(each, np.diff(paths.ptr)), minlength=work.topology.n_links)


@pytest.mark.table
@every_case
@pytest.mark.parametrize("tie", ["first", "split"])
def test_every_link_carries_what_is_sent_over_it(case: Case, tie: str) -> None:
    """And is busy for that long, with and without symmetry."""
    looked_at = 0
    for _, work in on(SPECS, case):
        if tie == "split" and case.algorithm in ("double-binary-tree", "nccl-trees"):
            # halves cannot follow chunk by chunk
            with pytest.raises(WeftError, match="tie rule 'split' cannot serve"):
                simulate(work, model=Model(tie=tie))
            return
        for symmetry in ("auto", "off"):
            result = simulate(work, model=Model(tie=tie, chunks=1), symmetry=symmetry)
            np.testing.assert_array_equal(result.link_busy_ps, carried(work, tie) * PS_PER_BYTE)
            assert result.wire_bytes == work.pattern.transfers().blocks.sum() * work.block_bytes
        looked_at += 1
    assert looked_at


BY_BYTES = {"fast"}
"""Algorithms that cut what they send in pieces of so many bytes."""


@pytest.mark.table
@pytest.mark.parametrize("case", [case for case in CASES if case.algorithm not in BY_BYTES], ids=str)
def test_size_and_bandwidth_together_change_no_time(case: Case) -> None:
    """Where blocks need no padding: a multiple of the elements of all blocks."""
    looked_at = 0
    for spec, work in on(SPECS, case):
        four = built(case, fabric(spec, 4))
        assert four is not None
        blocks = work.kind.blocks_per_rank(work.pattern.n_blocks, work.pattern.p)
        size = 4 * 16 * blocks
        slow, fast = schedule(work.pattern, size), schedule(four.pattern, 4 * size)
        assert simulate(slow, model=FOUR_CHUNKS).time_ps == simulate(fast, model=FOUR_CHUNKS).time_ps
        looked_at += 1
    assert looked_at


# --- backwards in time --------------------------------------------------------------------------------------------

NOT_REVERSED = {
    "themis": "the order of dimensions is chosen for each of the two, by what is already under way",
    "in-network": "sums go up to the switches in turn, copies leave them at once",
    "pipelined": "at a link, chunks of trees are served in the order in which they come, not in that of the reversal",
    "bruck": "on the torus, far messages share links, and ranks that are done early begin the next step among them",
}
REVERSED = [
    case for case in CASES if case.collective == "all-gather" and case._replace(collective="reduce-scatter") in CASES
]


def ratios(case: Case) -> Iterator[tuple[str, float]]:
    """Reduce-scatter by all-gather, on the fabrics that look alike from every rank."""
    for spec in ALIKE:
        gather, scatter = time_ps(case, spec), time_ps(case._replace(collective="reduce-scatter"), spec)
        if gather is not None and scatter is not None:
            yield spec, scatter / gather


@pytest.mark.parametrize("case", REVERSED, ids=str)
def test_a_reduce_scatter_is_an_all_gather_backwards(case: Case) -> None:
    found = dict(ratios(case))
    assert found
    if case.algorithm in NOT_REVERSED:
        assert any(ratio != 1 for ratio in found.values()), "no exception any more"
        assert all(0.75 < ratio < 1.34 for ratio in found.values()), found
    else:
        assert set(found.values()) == {1.0}, found


# --- the sum of both ----------------------------------------------------------------------------------------------

NO_SUM = {
    "swing-all-reduce-latency": "every step moves the whole array",
    "recursive-doubling-all-reduce-latency": "every step moves the whole array",
    "mirrored-recursive-doubling-all-reduce-latency": "every step moves the whole array",
    "in-network-all-reduce-push": "the switches' sums come back to all as they are ready, and meet others going up",
}
SUMS = [
    case for case in CASES
    if case.collective == "all-reduce"
    and all(Case(case.algorithm, kind, None) in CASES for kind in ("reduce-scatter", "all-gather"))
]  # fmt: skip


@pytest.mark.parametrize("case", SUMS, ids=str)
def test_an_all_reduce_takes_no_longer_than_its_halves(case: Case) -> None:
    """One after the other, on fabrics that look alike from every rank; exactly as long where nothing can overlap."""
    shares = {}
    for spec in ALIKE:
        whole, *halves = (
            time_ps(one, spec)
            for one in (case, *(Case(case.algorithm, kind, None) for kind in ("reduce-scatter", "all-gather")))
        )
        if whole is not None and None not in halves:
            shares[spec] = whole / sum(halves)  # type: ignore[arg-type]  # none is None
    assert shares
    if str(case) in NO_SUM:
        assert any(share > 1 for share in shares.values()), "no exception any more"
    else:
        assert all(0.4 < share <= 1 for share in shares.values()), shares
    if case.algorithm in ("ring", "bucket", "nccl-rings") and "torus:4x4" in shares:
        assert shares["torus:4x4"] == 1.0


# --- other names for the nodes ------------------------------------------------------------------------------------

BY_NUMBER = {
    "swing", "recursive-doubling", "mirrored-recursive-doubling", "ring", "totient-rings", "bucket", "tree",
    "nccl-rings", "parameter-server", "double-binary-tree", "hierarchical", "themis", "pairwise", "in-network",
    "nccl-trees", "nvls-trees", "pat", "bine", "bruck", "recursive-multiplying", "trivance", "stragglar",
    "fast",
}  # fmt: skip
"""Algorithms in which the number of a rank decides whom it sends to, in which order, or which one adds up,
or which pairs have an element more."""
ROOTED = [one.name for one in COLLECTIVES.values() if one.rooted]
"""From rank 0, which is another node when the names change."""
BY_PAIRS = [
    case for case in CASES
    if case.algorithm not in BY_NUMBER and case.collective not in ROOTED and case.form != "best-roots"
]  # fmt: skip


def tree(seed: int, n: int = 7) -> list[tuple[int, int, int]]:
    """A random tree: of the routes between two nodes there is one."""
    rng = random.Random(seed)
    edges = [(rng.randrange(node), node, rng.randint(1, 3)) for node in range(1, n)]
    return [link for a, b, rate in edges for link in ((a, b, rate), (b, a, rate))]


def named(links: list[tuple[int, int, int]], names: list[int]) -> Topology:
    return from_links([(names[a], names[b], f"{rate}GB/s", "100ns") for a, b, rate in links], len(names))


def by_ends(topology: Topology, values: np.ndarray) -> dict[tuple[int, int], float]:
    return dict(zip(zip(topology.src.tolist(), topology.dst.tolist(), strict=True), values.tolist(), strict=True))


@pytest.mark.table
@pytest.mark.parametrize("case", BY_PAIRS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_other_names_for_the_nodes_of_a_tree_move_its_load_along(case: Case, seed: int) -> None:
    """Bytes and bounds; not the time, for ties between transfers are decided by the numbers of ranks."""
    links = tree(seed)
    names = list(range(7))
    plain = built(case, named(links, names))
    random.Random(seed + 100).shuffle(names)
    other = built(case, named(links, names))
    assert plain is not None and other is not None
    load = by_ends(plain.topology, carried(plain))
    assert by_ends(other.topology, carried(other)) == pytest.approx(
        {(names[a], names[b]): value for (a, b), value in load.items()}
    )
    assert simulate(plain).lower_bound_ps == simulate(other).lower_bound_ps


def test_where_several_routes_are_shortest_the_numbers_of_links_decide() -> None:
    """The exception: in a ring of six, of the two routes to the node opposite that of the lowest link is taken."""
    links = [link for a in range(6) for link in ((a, (a + 1) % 6, 1), ((a + 1) % 6, a, 1))]
    ways = [[0, 1, 2, 3, 4, 5], [0, 1, 2, 5, 4, 3], [0, 2, 4, 1, 3, 5], [0, 3, 1, 4, 2, 5]]
    works = [build("direct", "all-to-all", named(links, names), "60KiB") for names in ways]
    assert {carried(work).sum() for work in works} == {60 * 1024 * 54 // 6}
    assert {int(carried(work).max()) for work in works} == {50 * 1024, 60 * 1024}
