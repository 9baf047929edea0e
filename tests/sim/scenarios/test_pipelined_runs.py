"""Pipelined trees, simulated: near the exact bound with the right service, and no algorithm ever below it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import ALGORITHMS, bfb, build, pipelined
from sim import simulate
from sim.analytic.cut_bound import cut_bound, is_cheap
from tests import fabrics
from tests.oracles.bfb import step_loads
from topologies import TOPOLOGIES, WeftError, from_links, from_spec, torus
from topologies.flows.programs import best_roots
from topologies.units import PS_PER_S

pytestmark = pytest.mark.compiled

LARGE = 2**30


def over_bound(topology, schedule, **model) -> float:
    bound_ps = cut_bound(topology, schedule.kind.name).s_per_byte * schedule.size_bytes * PS_PER_S
    result = simulate(schedule, **model)
    assert result.time_ps >= bound_ps
    return float(result.time_ps / bound_ps)


@pytest.mark.table
@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize(
    "spec",
    ["ring:8", "torus:4x4", "torus:8x8", "torus:3x3x3", "torus:4x4x4", "torus:4x2x3", "hypercube:3", "hypercube:4",
     "dgx-a100:2", "dgx1:1", "mi250:1", "random-regular:16x4", "dragonfly:9x4"],
)
def test_within_four_per_cent_at_64_chunks(spec, kind):
    t = from_spec(spec)
    schedule = build("pipelined", kind, t, LARGE, "two-phase" if kind == "all-reduce" else None)
    assert over_bound(t, schedule, chunks=64, discipline="lowest-chunk-first") <= 1.04


@pytest.mark.table
@pytest.mark.parametrize("seed", range(50))
def test_random_fabrics_with_as_many_chunks_as_it_takes(seed):
    """Doubled up to 1,024 until within 4 %."""
    t = fabrics.random_fabric(20_000 + seed)
    schedule = pipelined.all_gather(t, LARGE)
    chunks = 64
    while over_bound(t, schedule, chunks=chunks, discipline="lowest-chunk-first") > 1.04:
        chunks *= 2
        assert chunks <= 1024


def test_fifo_comes_near_the_bound_later_than_the_lowest_chunk_first():
    """Under FIFO the chunks of one node go ahead of those that it must pass on, as far as injection offers them."""
    t = from_spec("mi250:1")
    schedule = pipelined.reduce_scatter(t, LARGE)
    fifo, lowest = (
        [over_bound(t, schedule, chunks=chunks, discipline=discipline) for chunks in (64, 256)]
        for discipline in ("fifo", "lowest-chunk-first")
    )
    assert lowest[1] < lowest[0] < fifo[0] and lowest[1] < 1.01 < fifo[1]


def test_broadcast_and_reduce_reach_their_rate():
    t = from_spec("dgx-a100:2")
    for schedule in (pipelined.broadcast(t, LARGE, root=3), pipelined.reduce(t, LARGE, root=3)):
        bound_ps = cut_bound(t, schedule.kind.name, 3).s_per_byte * LARGE * PS_PER_S
        assert bound_ps <= simulate(schedule, chunks=64, discipline="lowest-chunk-first").time_ps <= 1.05 * bound_ps


def test_best_roots_beat_two_phases_on_a_mesh():
    t = from_spec("mesh:4x4")
    two, best = (
        simulate(pipelined.all_reduce(t, LARGE, form=form), chunks=256, discipline="lowest-chunk-first").algbw
        for form in pipelined.FORMS
    )
    assert best / two == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize("rate", [9.99e9, 9.1234567e9])
def test_a_link_of_an_unround_rate_costs_no_more_than_its_bandwidth(rate):
    """Two phases would take half as long again."""
    t = from_spec("mesh:4x4", "10GB/s")
    rates = t.bandwidth_Bps.copy()
    rates[5] = rate
    t = t.with_links(bandwidth_Bps=rates)
    made = pipelined.all_reduce(t, LARGE)
    assert made.pattern.form == "best-roots"
    reached_GBps = simulate(made, chunks=256, discipline="lowest-chunk-first").algbw
    assert 0.97 < 1e9 * reached_GBps / best_roots(t).rate_Bps < 1


def drawn(seed):
    """A fabric of links in both directions, in one, or with switches, of whole, decimal or any rates."""
    draw = np.random.default_rng(seed)
    both, switches = seed % 3 != 1, int(draw.integers(1, 3)) * (seed % 3 == 2)
    npus = int(draw.integers(3, 8))
    nodes, rates = npus + switches, {}
    round_trip = [int(node) for node in draw.permutation(nodes)]
    more = draw.integers(0, nodes, (int(draw.integers(1, 2 * npus)), 2)).tolist()
    for src, dst in [*zip(round_trip, round_trip[1:] + round_trip[:1], strict=True), *more]:
        if src != dst and (src, dst) not in rates:
            rate = float(draw.uniform(1, 20))
            rate = (round(rate, 1), rate, round(rate))[seed // 3 % 3]
            rates |= {(src, dst): rate} | ({(dst, src): rate} if both else {})
    return from_links([(*ends, f"{rate}GB/s", "50ns") for ends, rate in rates.items()], npus)


@pytest.mark.table
@pytest.mark.parametrize("seed", range(45))
def test_an_all_reduce_along_trees_reaches_the_program_on_any_fabric(seed):
    """The default, 256 MiB: at least 97 % of the linear program over roots and both directions of every link."""
    t = drawn(seed)
    made = pipelined.all_reduce(t, "256MiB")
    least_ps = min(
        simulate(made, chunks=256, discipline=discipline).time_ps for discipline in ("fifo", "lowest-chunk-first")
    )
    assert 0.97 < 2**28 * PS_PER_S / least_ps / best_roots(t).rate_Bps < 1 + 1e-6


@pytest.mark.parametrize("size_bytes", [1009, 65521, 2**20])
def test_small_arrays_have_few_trees(size_bytes):
    """Fine fractions take 256 trees here, which would pad a small array: fewer are faster than two phases, too."""
    made, two = (pipelined.all_reduce(drawn(0), size_bytes, form=form) for form in (None, "two-phase"))
    assert made.size_bytes <= max(1.01 * size_bytes, two.size_bytes)
    if size_bytes > 2**16 - 100:
        assert made.pattern.form == "best-roots"
    if size_bytes == 2**20:
        assert simulate(made).time_ps < simulate(two).time_ps


@pytest.mark.parametrize("spec", ["torus:4x4", "torus:3x5", "hypercube:4", "torus:18x18"])
def test_best_roots_that_are_all_alike_take_the_trees_of_two_phases(spec):
    """The translated trees: packed ones would be deeper, and torus:18x18 is beyond the limit of packing."""
    t = from_spec(spec)
    two, *others = (pipelined.all_reduce(t, "64KiB", form=form) for form in pipelined.FORMS)
    for other, form in zip(others, pipelined.FORMS[1:], strict=True):
        assert other.pattern.form == form and other.pattern.emit == two.pattern.emit
        assert simulate(other).time_ps == simulate(two).time_ps


def test_k_is_no_option_of_roots_that_are_not_equal():
    with pytest.raises(WeftError, match="k is for equal roots, and best-roots chooses others here"):
        pipelined.all_reduce(from_spec("mesh:3x3"), "64KiB", form="best-roots", k=2)
    t = from_spec("torus:3x3")
    blocks = [pipelined.all_reduce(t, "64KiB", form=form, k=3).pattern.n_blocks for form in pipelined.FORMS]
    assert blocks == [27] * 2


@pytest.mark.parametrize("spec", ["torus:4x4", "torus:4x2x3", "hypercube:4", "ring:7", "mesh:4x4"])
def test_bfb_takes_the_sum_of_its_steps(spec):
    t = from_spec(spec, latency="1ns", hop_latency="0s")
    shard_ps = LARGE / t.n_npus / float(t.bandwidth_Bps[0]) * PS_PER_S
    time_ps = simulate(bfb.all_gather(t, LARGE), chunks=16).time_ps
    assert time_ps == pytest.approx(float(sum(step_loads(t))) * shard_ps, rel=1e-3)


SMALL = [spec for family in TOPOLOGIES.values() for spec in family.samples if from_spec(spec).n_npus <= 16]
CASES = [(name, kind) for name, algorithm in ALGORITHMS.items() for kind in algorithm.functions]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SMALL), st.sampled_from(CASES), st.sampled_from([1, 1000, 2**20]), st.sampled_from([1, 5, 32]),
       st.sampled_from(["cut-through", "store-and-forward"]), st.sampled_from(["fifo", "lowest-chunk-first"]))
def test_no_algorithm_beats_the_bound(spec, case, size, chunks, forwarding, discipline):
    t = from_spec(spec)
    try:
        schedule = build(*case, t, size)
    except WeftError:
        return
    result = simulate(schedule, chunks=chunks, forwarding=forwarding, discipline=discipline)
    assert is_cheap(t)
    reducing = (schedule.pattern.n_sources or t.n_npus) > t.n_npus
    bound = cut_bound(t, case[1], schedule.pattern.root, reducing_switches=reducing)
    assert result.time_ps >= int(bound.s_per_byte * size * PS_PER_S)
    assert result.lower_bound_ps <= result.time_ps


@pytest.mark.parametrize("spec", ["torus:2", "ring:3", "switch:5", "dgx-h100:1"])
@pytest.mark.parametrize("size", [1, 3, 9, 1001])
def test_no_algorithm_loses_the_last_bytes(spec: str, size: int) -> None:
    """A size that no number of blocks divides is filled up, never cut: all-to-all of one byte has something to send."""
    t = from_spec(spec)
    for name, kind in CASES:
        try:
            build(name, kind, t, 2**20)
        except WeftError:  # not on this fabric
            continue
        schedule = build(name, kind, t, size)
        reducing = (schedule.pattern.n_sources or t.n_npus) > t.n_npus
        bound = cut_bound(t, kind, schedule.pattern.root, reducing_switches=reducing)
        time_ps = simulate(schedule, chunks=1).time_ps
        assert time_ps >= max(1, int(bound.s_per_byte * size * PS_PER_S)), (name, kind)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(CASES))
def test_no_algorithm_beats_the_bound_on_random_fabrics(seed, case):
    t = fabrics.random_fabric(seed)
    try:
        schedule = build(*case, t, 2**20)
    except WeftError:
        return
    reducing = (schedule.pattern.n_sources or t.n_npus) > t.n_npus
    bound = cut_bound(t, case[1], schedule.pattern.root, reducing_switches=reducing)
    assert simulate(schedule, chunks=16).time_ps >= int(bound.s_per_byte * schedule.size_bytes * PS_PER_S)


def test_alike_npus_are_simulated_by_one():
    result = simulate(pipelined.all_reduce(torus((4, 4)), "1MiB"))
    assert result.symmetry.startswith("1 of 16 ranks simulated")
    whole = simulate(pipelined.all_reduce(torus((4, 4)), "1MiB"), symmetry="off")
    assert whole.time_ps == result.time_ps


def test_too_many_unlike_npus_are_refused():
    with pytest.raises(WeftError, match=r"pipelined on fat-tree:12: packing trees for 432 NPUs that are not alike"):
        pipelined.all_gather(from_spec("fat-tree:12"), "1MiB")


@pytest.mark.parametrize(("fabric", "form"), [
    ("mesh:4x4", "best-roots"),  # the corners of a mesh are poor roots
    ("torus:4x4", "two-phase"),  # all roots are alike
    ("mesh:8x8", "two-phase"),  # the linear program would be too large
])
def test_an_all_reduce_without_a_form_takes_the_better_one(fabric: str, form: str) -> None:
    topology = from_spec(fabric)
    chosen = build("pipelined", "all-reduce", topology, "1MiB")
    assert chosen.pattern.form == form
    assert build("pipelined", "all-reduce", topology, "1MiB", k=4).pattern.form == "two-phase"


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("size", [97, 16_384, 65_536, 2**20])
def test_a_rooted_tree_is_alone_where_it_is_earlier(kind: str, size: int) -> None:
    """Where two DGX H100 take one, it is the earlier; where they take several, those are."""
    t = from_spec("dgx-h100:2")
    chosen, one = build("pipelined", kind, t, size), build("pipelined", kind, t, size, most_k=1)
    several = build("pipelined", kind, t, size, most_k=128)  # an option: its number of trees is not looked at again
    assert simulate(chosen).time_ps == min(simulate(one).time_ps, simulate(several).time_ps)
