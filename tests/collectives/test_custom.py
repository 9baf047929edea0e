"""A schedule from a user's steps: proved or refused with the place of the mistake, and timed like the built-in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import ScheduleError, ring
from collectives.custom import Send, from_steps
from sim import simulate
from topologies import Topology, WeftError, from_spec, fully_connected

Steps = list[list[Send]]


def ring_all_gather(n: int) -> Steps:
    return [[(rank, (rank + 1) % n, [(rank - turn) % n]) for rank in range(n)] for turn in range(n - 1)]


def ring_all_reduce(n: int) -> Steps:
    sums: Steps = [[(r, (r + 1) % n, [(r - turn) % n], True) for r in range(n)] for turn in range(n - 1)]
    return sums + [[(r, (r + 1) % n, [(r + 1 - turn) % n]) for r in range(n)] for turn in range(n - 1)]


def ring_reduce_scatter(n: int) -> Steps:
    return [[(r, (r + 1) % n, [(r - turn - 1) % n], True) for r in range(n)] for turn in range(n - 1)]


def exchange(n: int) -> Steps:
    return [[(src, dst, [src * n + dst]) for src in range(n) for dst in range(n) if src != dst]]


def line(n: int) -> Steps:
    return [[(rank, rank + 1, [0])] for rank in range(n - 1)]


def back_line(n: int) -> Steps:
    return [[(rank, rank - 1, [0], True)] for rank in reversed(range(1, n))]


CASES: dict[str, Callable[[int], Steps]] = {
    "all-gather": ring_all_gather, "all-reduce": ring_all_reduce, "reduce-scatter": ring_reduce_scatter,
    "all-to-all": exchange, "broadcast": line, "reduce": back_line,
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_every_collective_is_proved_and_keeps_its_bounds(kind: str, n: int) -> None:
    made = from_steps(from_spec(f"ring:{n}"), kind, CASES[kind](n), 6000)
    assert made.proof == "proved"
    result = simulate(made, check=True)
    assert result.time_ps >= result.lower_bound_ps


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_pipelined_line_streams(n: int) -> None:
    """A broadcast along a line passes chunks on as they come: each hop but the first adds one chunk."""
    result = simulate(from_steps(from_spec(f"mesh:{n}"), "broadcast", line(n), "1MiB"), chunks=64)
    chunk_ps, latency_ps = 2**14 * 20, 400_000
    assert result.time_ps == (64 + n - 2) * chunk_ps + (n - 1) * latency_ps


def test_it_times_like_the_built_in_ring() -> None:
    """The same transfers in one direction of a ring take the time of lockstep: n - 1 steps of a block and a hop."""
    fabric = fully_connected(8, bandwidth="50GB/s", latency="100ns", hop_latency="0ns")
    result = simulate(from_steps(fabric, "all-gather", ring_all_gather(8), "8MiB"), chunks=1)
    assert result.time_ps == 7 * (2**20 * 20 + 100_000)


def without(steps: Steps, step: int, place: int) -> Steps:
    return [[one for at, one in enumerate(its) if (number, at) != (step, place)] for number, its in enumerate(steps)]


@given(st.sampled_from(["all-gather", "all-reduce", "all-to-all"]), st.integers(3, 6), st.data())
@settings(max_examples=30, deadline=None)
def test_a_missing_send_is_found(kind: str, n: int, data: Any) -> None:
    steps = CASES[kind](n)
    step = data.draw(st.integers(0, len(steps) - 1))
    place = data.draw(st.integers(0, len(steps[step]) - 1))
    with pytest.raises(ScheduleError):
        from_steps(from_spec(f"ring:{n}"), kind, without(steps, step, place), 6000)


FABRIC: Topology = from_spec("ring:4")


@pytest.mark.parametrize(
    ("send", "said"),
    [
        ((0, 4, [0]), "has the rank 4: ranks are 0 to 3"),
        ((-1, 1, [0]), "has the rank -1"),
        ((1, 1, [0]), "sends from a rank to itself"),
        ((0, 1, []), "has the blocks"),
        ((0, 1, [0, 0]), "distinct integers from 0"),
        ((0, 1, [-2]), "distinct integers from 0"),
        ((0, 1), "write \\(source, destination, \\[blocks\\]\\)"),
        ((0, 1, "ab"), "write \\(source"),
        (7, "write \\(source"),
        ((0, True, [0]), "has the rank True"),
    ],
)
def test_a_send_that_is_none_is_refused_by_its_step(send: Any, said: str) -> None:
    with pytest.raises(WeftError, match=f"step 1.*{said}"):
        from_steps(FABRIC, "all-gather", [[(0, 1, [0])], [send]], 6000)


def test_a_wrong_order_is_told_with_rank_and_step() -> None:
    with pytest.raises(ScheduleError, match=r"block"):
        from_steps(FABRIC, "all-gather", reversed(ring_all_gather(4)), 6000)
    with pytest.raises(WeftError, match="collective 'all-too-all' is unknown"):
        from_steps(FABRIC, "all-too-all", [], 6000)


def test_the_built_in_ring_uses_both_directions() -> None:
    """Twice the bandwidth of one direction, less a little."""
    one_way = simulate(from_steps(from_spec("ring:8"), "all-gather", ring_all_gather(8), "8MiB"))
    both = simulate(ring.all_gather(from_spec("ring:8"), "8MiB"))
    assert one_way.time_s / both.time_s > 1.9


def test_a_mistyped_block_is_told_before_anything_is_built() -> None:
    steps: Steps = [[(0, 1, [10**9]), (0, 3, [0])], [(1, 2, [0])]]
    with pytest.raises(WeftError, match="block 1000000000 makes 1000000001 blocks, of which 2 are sent"):
        from_steps(from_spec("ring:4"), "broadcast", steps, "1MiB")
