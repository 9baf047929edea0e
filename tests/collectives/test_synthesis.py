"""The compiled search finds what the plain one finds, and its transfers are those that are added one by one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from collectives import build, synthesis
from collectives.core import _matches
from collectives.core._matches import Matches, lanes_in_order, match
from collectives.core.proof import ScheduleError
from collectives.core.sends import SendList
from collectives.core.transfers import Transfers
from tests.oracles import synthesis as oracle
from topologies import Topology, WeftError, from_links, from_spec

SPECS = ("ring:1", "ring:2", "ring:3", "torus:3x5", "mesh:3x2", "switch:5", "fat-tree:4", "dgx1:2",
         "random-regular:12x3", "dragonfly:5x4")


def network(t: Topology, block_bytes: int, inward: bool) -> tuple[list[tuple[int, int]], list[int]]:
    """Ends of all lanes, and what a block costs on each."""
    lanes = synthesis.lanes_of(t)
    ends = [(one.dst, one.src) if inward else (one.src, one.dst) for one in lanes]
    costs = [max(1, one.latency_ps + int(-(-block_bytes * 10**12 // Fraction(one.rate_Bps)))) for one in lanes]
    return ends, costs


def rows(found: Matches) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in found), strict=True))


def compiled(
    n: int, n_blocks: int, ends: Sequence[tuple[int, int]], costs: Sequence[int], seed: int = 7
) -> list[tuple[int, ...]]:
    lanes = lanes_in_order(n, ends, costs)
    return rows(match(n, n_blocks, lanes, np.random.default_rng(seed), lambda found: None))


def plain(
    n: int, n_blocks: int, ends: Sequence[tuple[int, int]], costs: Sequence[int], seed: int = 7
) -> list[tuple[int, ...]]:
    return [tuple(one) for one in oracle.search(n, n_blocks, ends, costs, np.random.default_rng(seed))]


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("spec", SPECS)
def test_the_compiled_search_is_the_plain_one(spec: str, parts: int, inward: bool) -> None:
    t = from_spec(spec)
    for block_bytes in (0, 1, 10**6):
        ends, costs = network(t, block_bytes, inward)
        given = t.n_npus, t.n_npus * parts, ends, costs
        assert compiled(*given) == plain(*given)


@pytest.mark.parametrize(("spec", "fewest"), [("torus:4x4x4", 1), ("torus:5x3", 1), ("dgx-a100:3", 8), ("ring:7", 1)])
@pytest.mark.parametrize("block_bytes", [1, 4_099, 777_777])
def test_runs_end_with_one_that_no_other_can_beat(
    spec: str, fewest: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, ends = from_spec(spec), list[int]()

    def counted(*given: Any) -> Matches:
        ends.append(int((found := match(*given)).end_ps.max()))
        return found

    monkeypatch.setattr(synthesis, "match", counted)
    found = synthesis.search(topology, 1, 3, 8, block_bytes)
    ran = list(ends)
    monkeypatch.setattr(synthesis, "_is_least", lambda *given: False)
    synthesis._best.cache_clear()
    again = synthesis.search(topology, 1, 3, 8, block_bytes)
    assert len(ran) >= fewest and ends == [*ran, *ran, *ends[2 * len(ran):]] and len(ends) - len(ran) == 8
    assert all(map(np.array_equal, found, again)) and min(ends[len(ran):]) == min(ran)


def test_random_networks_with_ties_parallel_lanes_and_unreachable_npus() -> None:
    lots = np.random.default_rng(1)
    short = 0
    for _ in range(300):
        n, n_lanes = int(lots.integers(1, 9)), int(lots.integers(0, 30))
        ends = [tuple(lots.choice(n, 2, replace=False).tolist()) for _ in range(n_lanes)] if n > 1 else []
        costs = lots.integers(1, 4, len(ends)).tolist()
        n_blocks = n * int(lots.integers(1, 40))
        found = compiled(n, n_blocks, ends, costs)
        assert found == plain(n, n_blocks, ends, costs)
        short += len(found) < n_blocks * (n - 1)
    assert 50 < short < 250


@pytest.mark.parametrize("draws", [1, 2, 37, 1000])
def test_random_numbers_are_one_stream_however_many_are_drawn_at_a_time(
    draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = from_spec("random-regular:12x3")
    lanes = network(t, 1000, False)
    at_once, told = compiled(t.n_npus, t.n_npus * 11, *lanes), list[int]()
    monkeypatch.setattr(_matches, "DRAWS", draws)
    found = match(t.n_npus, t.n_npus * 11, lanes_in_order(t.n_npus, *lanes), np.random.default_rng(7), told.append)
    assert rows(found) == at_once
    assert len(told) > 10 and told == sorted(told) and told[-1] == len(at_once)


@pytest.mark.parametrize("many", [7, 100, 333])
def test_more_lanes_than_random_numbers_are_left_for_is_where_a_search_pauses_too(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many lanes draw for few blocks: what is left may do for the next block, and not for the lanes that are ready."""
    ends = [(one, (one + 1) % 3) for one in range(3) for _ in range(many)]
    costs = [1 + number % 5 for number in range(len(ends))]
    monkeypatch.setattr(_matches, "DRAWS", 1)
    assert compiled(3, 30, ends, costs) == plain(3, 30, ends, costs)


def test_blocks_are_sent_while_they_are_held_and_lanes_carry_one_at_a_time() -> None:
    """What any search must do, whichever block it chooses."""
    t = from_spec("dgx1:2")
    ends, costs = network(t, 4096, False)
    n_blocks = 3 * t.n_npus
    held = {(block % t.n_npus, block): 0 for block in range(n_blocks)}
    last = [0] * len(ends)
    for lane, block, start, end in compiled(t.n_npus, n_blocks, ends, costs):
        (src, dst), end_of_last = ends[lane], last[lane]
        assert held[src, block] <= start and end_of_last <= start and end == start + costs[lane]
        assert (dst, block) not in held
        held[dst, block] = last[lane] = end
    assert len(held) == t.n_npus * n_blocks


def one_by_one(t: Topology, kind: str, found: Matches | None, inward: Matches | None) -> Transfers:
    sends, lanes, roots = SendList(), synthesis.lanes_of(t), dict[int, list[int]]()
    if inward is not None:
        roots = oracle.add_up(sends, lanes, [oracle.Match(*row) for row in rows(inward)], t.n_npus)
    if found is not None:
        oracle.add_down(sends, lanes, [oracle.Match(*row) for row in rows(found)], roots)
    return sends.build()[0]


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "ring:1"])
def test_transfers_are_those_that_are_added_one_by_one(spec: str, kind: str) -> None:
    t = from_spec(spec)
    given = t, 2, 0, 1, 4096
    outward = synthesis.search(*given) if kind != "reduce-scatter" else None
    inward = synthesis.search(*given, inward=True) if kind != "all-gather" else None
    expected = one_by_one(t, kind, outward, inward)
    function = getattr(synthesis, kind.replace("-", "_"))
    found = function(t, 2 * t.n_npus * 4096, parts=2, runs=1).pattern.transfers()
    for name, column in expected._asdict().items():
        assert np.array_equal(column, getattr(found, name)), name


def test_an_empty_array_without_latency_is_gathered() -> None:
    t = from_spec("ring:5", latency="0s", hop_latency="0s")
    assert synthesis.all_reduce(t, "0B").proof == "proved"


def test_an_npu_that_cannot_be_reached_is_named() -> None:
    t = from_links([(0, 1, "1GB/s", "1us"), (1, 2, "1GB/s", "1us"), (1, 0, "1GB/s", "1us")], 3)
    with pytest.raises(WeftError, match="no route leads from npu2 to npu0"):
        synthesis.all_gather(t, "1KiB")


@pytest.mark.parametrize("rate", ["1b/s", "1e-300GB/s"])
def test_blocks_that_no_clock_has_room_for_are_refused(rate: str) -> None:
    with pytest.raises(WeftError, match=r"tacos on torus:3x3: a block of 3,728,271 B takes .*; the clock ends at"):
        build("tacos", "all-gather", from_spec("torus:3x3", rate), "32MiB")


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize(("spec", "parts"), [
    ("ring:2", 1), ("torus:3x2", 2), ("mesh:3x3", 1), ("random-regular:8x3", 3),
])
def test_transfers_are_proved_block_by_block_and_none_of_their_waits_may_be_missing(
    spec: str, parts: int, kind: str
) -> None:
    """Beside the general proof, which all of these pass; what is damaged is refused."""
    t = from_spec(spec)
    n, (ends, _, _), n_blocks = t.n_npus, synthesis._kinds_of(t), t.n_npus * parts
    assert build("tacos", kind, t, "1MiB", parts=parts).proof == "proved"
    up = synthesis._up(ends, synthesis.search(t, parts, 0, 2, 1000, inward=True), n, n_blocks)
    down = synthesis._down(ends, synthesis.search(t, parts, 0, 2, 1000), n, n_blocks)
    sends = {"all-gather": down, "reduce-scatter": up, "all-reduce": synthesis._joined(up, down, n)}[kind]
    assert synthesis.prove_sends(sends, n, n_blocks, kind) == "proved block by block"

    def fails(damaged: synthesis.Sends) -> bool:
        try:
            synthesis.prove_sends(damaged, n, n_blocks, kind)
        except ScheduleError:
            return True
        return False

    turn = np.roll(np.arange(sends.src.size), 1)
    for name in ("src", "dst", "block"):
        assert fails(sends._replace(**{name: getattr(sends, name)[turn]})) or sends.src.size <= 4
    assert fails(sends._replace(child=sends.parent, parent=sends.child)) or not sends.child.size
    needed = sends.block[sends.child] == sends.block[sends.parent]  # and not only the order of a lane
    same_lane = sends.lane[sends.child] == sends.lane[sends.parent]
    for wait in np.flatnonzero(needed & ~same_lane):
        kept = np.arange(sends.child.size) != wait
        assert fails(sends._replace(child=sends.child[kept], parent=sends.parent[kept]))


@pytest.mark.compiled
def test_hundreds_of_npus_without_switches_are_proved_too() -> None:
    assert build("tacos", "all-gather", from_spec("torus:20x20"), "16MiB", runs=1).proof == "proved block by block"
    assert build("tacos", "all-reduce", from_spec("torus:20x20"), "16MiB", runs=1).proof == "proved block by block"
