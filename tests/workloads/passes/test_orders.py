"""Orders of pipelines: is every pass there once, after what it needs, and is the bubble the published one?"""

from __future__ import annotations

from collections import Counter

import pytest

from topologies import WeftError
from workloads.passes.orders import ORDERS, Slot, order_of
from workloads.passes.timeline import Timeline, timeline

F, B, W = 1000, 1100, 900


def run(name: str, p: int, v: int, m: int, f: int = F, b: int = B, w: int = W, message: int = 0) -> Timeline:
    each = {"F": f, "B": b, "W": w, "BW": b + w}
    order = ORDERS[name]
    share = v if not order.chunks else 1

    def duration(rank: int, slot: Slot) -> int:
        return sum(each[one.kind] for one in slot) // share

    return timeline(name, p, v, m, duration, lambda src, dst: message)


def idle(found: Timeline, rank: int) -> int:
    """From the first pass of a rank to its last."""
    mine = found.ranks[rank]
    return mine[-1].end - mine[0].begin - sum(one.end - one.begin for one in mine)


def flight(found: Timeline, name: str, rank: int) -> int:
    now = most = 0
    gone = ("W", "BW") if ORDERS[name].splits else ("BW",)
    for one in found.ranks[rank]:
        for each in one.slot:
            now += (each.kind == "F") - (each.kind in gone)
            most = max(most, now)
    return most


CASES = [("gpipe", 4, 1, 8), ("1f1b", 4, 1, 8), ("1f1b", 8, 1, 64), ("interleaved", 8, 3, 64),
         ("interleaved", 4, 3, 28), ("interleaved", 16, 2, 144), ("zb-h1", 4, 1, 12), ("zb-h1", 8, 1, 64),
         ("zb-h2", 4, 1, 12), ("zb-h2", 8, 1, 24), ("zb-v", 4, 2, 8), ("zb-v", 8, 2, 24), ("dualpipe", 4, 2, 8),
         ("dualpipe", 8, 2, 20), ("dualpipe", 16, 2, 120), ("1f1b", 1, 1, 3), ("interleaved", 1, 2, 4)]
UNEVEN = [("interleaved", 4, 2, 9), ("interleaved", 4, 3, 6), ("interleaved", 4, 2, 3), ("interleaved", 8, 2, 20)]


@pytest.mark.table
@pytest.mark.parametrize(("name", "p", "v", "m"), CASES + UNEVEN)
def test_every_pass_is_there_once(name: str, p: int, v: int, m: int) -> None:
    order = ORDERS[name]
    each = m // order.ways
    for mine in order.slots(p, v, m):
        counts = Counter(one for slot in mine for one in slot)
        assert set(counts.values()) == {1}
        kinds = Counter((one.kind, one.chunk) for one in counts)
        chunks = range(v)
        assert all(kinds["F", chunk] == each for chunk in chunks)
        assert all(kinds["BW", chunk] + kinds["B", chunk] == each for chunk in chunks)
        assert all(kinds["B", chunk] == kinds["W", chunk] for chunk in chunks)


@pytest.mark.table
@pytest.mark.parametrize(("name", "p", "v", "m"), CASES + UNEVEN)
def test_what_a_pass_needs_has_ended(name: str, p: int, v: int, m: int) -> None:
    """By the times alone: a forward pass after that of the stage before, a backward pass after that of the next."""
    order, found = ORDERS[name], run(name, p, v, m, message=7)
    stages = order.stages(p, v)
    ends: dict[tuple[str, int, int, int], int] = {}
    begins: dict[tuple[str, int, int, int], int] = {}
    for rank, mine in enumerate(found.ranks):
        for timed in mine:
            for one in timed.slot:
                way = one.chunk if order.ways == 2 else 0
                key = one.kind[0], way, stages[rank][one.chunk], one.batch
                begins[key], ends[key] = timed.begin, timed.end
    last = max(stage for _, _, stage, _ in begins)
    for (kind, way, stage, batch), begin in begins.items():
        if kind == "F" and stage:
            assert begin >= ends["F", way, stage - 1, batch]
        if kind == "B":
            assert begin >= ends[("B", way, stage + 1, batch) if stage < last else ("F", way, stage, batch)]
        if kind == "W":
            assert begin >= ends["B", way, stage, batch]


BUBBLES = {
    "gpipe": lambda p, v: (p - 1) * (F + B + W), "1f1b": lambda p, v: (p - 1) * (F + B + W),
    "interleaved": lambda p, v: (p - 1) * (F + B + W) // v, "zb-h1": lambda p, v: (p - 1) * (F + B - W),
    "dualpipe": lambda p, v: (p // 2 - 1) * (F + 2 * (B + W) - 3 * W),
}
"""Closed forms: arXiv 2104.04473, section 2.2; 2401.10241, table 1; 2412.19437, table 2, a pair being its parts."""


@pytest.mark.table
@pytest.mark.parametrize(("name", "p", "v", "m"), [case for case in CASES if case[0] in BUBBLES and case[1] > 1])
def test_bubbles_are_the_closed_forms(name: str, p: int, v: int, m: int) -> None:
    found = run(name, p, v, m, 6 * F, 6 * B, 6 * W)
    assert max(idle(found, rank) for rank in range(p)) == 6 * BUBBLES[name](p, v)


@pytest.mark.table
@pytest.mark.parametrize(("name", "p", "v", "m"), [case for case in CASES if case[0] in ("zb-h2", "zb-v")])
def test_zero_bubble_has_none(name: str, p: int, v: int, m: int) -> None:
    found = run(name, p, v, m, 1000, 1000, 1000)
    assert all(idle(found, rank) == 0 for rank in range(p))


@pytest.mark.parametrize(("name", "p", "v", "m", "most"), [
    ("gpipe", 4, 1, 8, 8), ("1f1b", 8, 1, 64, 8), ("interleaved", 8, 3, 64, 31), ("zb-h1", 8, 1, 64, 8),
    ("zb-h2", 8, 1, 24, 15), ("zb-v", 8, 2, 24, 16), ("dualpipe", 16, 2, 120, 17),
])
def test_activations_in_flight(name: str, p: int, v: int, m: int, most: int) -> None:
    """v chunks are one stage; DualPipe keeps p + 1 of them."""
    found = run(name, p, v, m)
    assert max(flight(found, name, rank) for rank in range(p)) == most


def test_latency_counts_to_and_fro() -> None:
    """p = 8, m = 64, F = 1, B + W = 2: 213 + 124 c."""
    assert run("1f1b", 8, 1, 64, 1000, 1000, 1000).end == 213_000
    assert run("1f1b", 8, 1, 64, 1000, 1000, 1000, message=10).end == 213_000 + 124 * 10


def test_orders_that_do_not_exist_are_named() -> None:
    with pytest.raises(WeftError, match="1f1b"):
        order_of("1f2b")
    with pytest.raises(WeftError, match="dualpipe: needs even numbers"):
        ORDERS["dualpipe"].slots(4, 2, 6)
    with pytest.raises(WeftError, match="at least 7 microbatches"):
        ORDERS["zb-v"].slots(4, 2, 6)
