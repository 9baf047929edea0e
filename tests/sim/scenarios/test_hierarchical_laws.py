"""Laws that hierarchical collectives obey in simulation, beside LIBRA's fluid time.

LIBRA charges dimension d with M_d / B_d, M_d the bytes that an NPU sends there, and takes the largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build, hierarchical, themis
from collectives.core.process_groups import process_group
from collectives.hierarchical import blocks_of
from sim import simulate
from sim.result import Result
from topologies import Topology, bytes_per_s, from_spec
from topologies.core.product import link_bandwidths, npu_bandwidths
from topologies.products import multidim

SPEC, EXTENTS, BUDGET = "RI(4)_FC(8)_RI(4)_SW(32)", (4, 8, 4, 32), 500e9
SIZE = 2**30
DIMENSIONS = len(EXTENTS)


def network(spec: str, npu_bandwidth: Sequence[float], latency: str | int = 0) -> Topology:
    """A product whose NPUs have these bandwidths, in bytes/s, out into each dimension."""
    links = link_bandwidths(npu_bandwidth, blocks_of(from_spec(spec)))
    return multidim(spec, bandwidth=[bytes_per_s(one) for one in links], latency=latency, hop_latency=0)


def traffic(extents: Sequence[int], size: float, kind: str = "all-reduce") -> list[float]:
    """Bytes that an NPU sends in each dimension (libra.md, section 1.1)."""
    sent, here = [], size
    for extent in extents:
        sent.append((2 if kind == "all-reduce" else 1) * here * (extent - 1) / extent)
        here = here if kind == "all-to-all" else here / extent
    return sent


M = traffic(EXTENTS, SIZE)
FLUID_S = sum(M) / BUDGET
LIBRA = [BUDGET * m / sum(M) for m in M]


def all_reduce_s(npu_bandwidth: Sequence[float], chunks: int, active: int | None = 1, forwarding: str = "cut-through",
                 latency: str | int = 0) -> float:
    network_ = network(SPEC, npu_bandwidth, latency)
    schedule = hierarchical.all_reduce(network_, SIZE, pipeline_chunks=chunks, active_chunks=active)
    assert schedule.block_bytes * schedule.pattern.n_blocks == SIZE  # the law is about bytes without padding
    return simulate(schedule, chunks=1, forwarding=forwarding).time_s


@pytest.mark.parametrize("spec", ["RI(4)", "RI(2)", "FC(5)", "SW(8)", "RI(4)_FC(8)_RI(4)_SW(4)", "FC(3)_LI(2)_SW(1)"])
def test_link_bandwidths_give_each_npu_what_was_asked(spec):
    blocks = blocks_of(from_spec(spec))
    wanted = [(dim + 1) * 10e9 for dim in range(len(blocks))]
    got = npu_bandwidths(network(spec, wanted))
    for dim, block in enumerate(blocks):
        assert got[dim] == pytest.approx(wanted[dim] if block.extent > 1 else 0)


@pytest.mark.table
@pytest.mark.parametrize("chunks", [1, 4, 64])
def test_fill_and_drain(chunks):
    """One active chunk, no latency, cut-through: T = T_LIBRA (1 + (D-1)/C), up to a few ps a step."""
    law = 1 + (DIMENSIONS - 1) / chunks
    assert all_reduce_s(LIBRA, chunks) / FLUID_S == pytest.approx(law, rel=1e-6)


@pytest.mark.parametrize(("chunks", "ratio"), [(1, 5.0), (4, 2.75), (64, 2.046875)])
def test_store_and_forward_doubles_every_switch_step(chunks, ratio):
    """The switch dimension then takes twice its time, is the slowest, and the others hide behind it."""
    assert ratio == 1 + 1 + (DIMENSIONS - 1) / chunks
    assert all_reduce_s(LIBRA, chunks, forwarding="store-and-forward") / FLUID_S == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize(("chunks", "ratio"), [(1, 4.0), (4, 2.02823), (64, 1.41373)])
def test_without_the_limit_it_is_not_the_law(chunks, ratio):
    """All chunks then share a link in turns, leave a dimension together, and overlap less."""
    assert all_reduce_s(LIBRA, chunks, active=None) / FLUID_S == pytest.approx(ratio, rel=1e-5)


def test_square_root_law():
    roots = [math.sqrt(m) for m in M]
    split = [BUDGET * root / sum(roots) for root in roots]
    gain = DIMENSIONS * sum(M) / sum(roots) ** 2
    assert all_reduce_s(LIBRA, 1) / all_reduce_s(split, 1) == pytest.approx(gain, rel=1e-6)
    assert gain == pytest.approx(1.615, abs=5e-4)
    for dim in range(1, DIMENSIONS):  # and no step away from it is better
        for change in (0.99, 1.01):
            other = [b * change if d == dim else b for d, b in enumerate(split)]
            other = [b * BUDGET / sum(other) for b in other]
            assert all_reduce_s(other, 1) > all_reduce_s(split, 1)


@pytest.mark.parametrize(
    ("chunks", "split", "published"),
    [
        (4, (314.22474662, 137.47332692, 30.90668429, 17.39524217), 1.466),
        (64, (372.63260746, 111.30341082, 12.10487871, 3.95910301), 1.040),
    ],
)
def test_finite_chunks_shift_the_optimum(chunks, split, published):
    """Splits found by a descent on the simulated time gain at least what the reference gives."""
    gain = all_reduce_s(LIBRA, chunks) / all_reduce_s([b * 1e9 for b in split], chunks)
    assert sum(split) == pytest.approx(500)
    assert gain >= published


@pytest.mark.table
@pytest.mark.parametrize(("chunks", "ratio"), [(1, 4.004), (4, 1.758), (64, 1.141)])
def test_latency_sets_an_optimal_number_of_chunks(chunks, ratio):
    """500 ns a step (claim 4 of the reference, on 869,449,728 B): the model there counts each step once.

    A switch step crosses two links here, so its latency is half of the step's on each.
    """
    size = 869_449_728
    topology = network(SPEC, LIBRA, ["500ns", "500ns", "500ns", "250ns"])
    schedule = hierarchical.all_reduce(topology, size, pipeline_chunks=chunks, element_bytes=1)
    wire = schedule.block_bytes * schedule.pattern.n_blocks
    fluid = sum(traffic(EXTENTS, wire)) / BUDGET
    assert simulate(schedule, chunks=1).time_s / fluid == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize(("extent", "ratio"), [(4, 4 / 3), (8, 16 / 7), (16, 64 / 15)])
def test_ring_all_to_all_takes_longer_than_the_traffic_of_libra(extent, ratio):
    """A bidirectional ring carries m p / 4 an NPU, LIBRA charges m (p-1)/p."""
    assert ratio == extent**2 / (4 * (extent - 1))
    schedule = hierarchical.all_to_all(network(f"RI({extent})", [100e9]), SIZE, pipeline_chunks=1)
    fluid = traffic([extent], SIZE, "all-to-all")[0] / 100e9
    assert simulate(schedule, chunks=1).time_s / fluid == pytest.approx(ratio, rel=1e-6)


def asplos_case(schedule_of, **options) -> Result:
    """SW(8)_SW(8)_SW(8), 50 GiB/s, 1 ns a step and 10 ns at its end, 1 GiB in 64 chunks (libra.md, section 6.4)."""
    topology = multidim("SW(8)_SW(8)_SW(8)", bandwidth="50GiB/s", latency="0.5ns", hop_latency=0)
    schedule = schedule_of(topology, 2**30, pipeline_chunks=64, **options)
    return simulate(schedule, chunks=1, endpoint_latency="10ns")


@pytest.mark.full
@pytest.mark.table
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("schedule_of", "published_us"), [(hierarchical.all_reduce, 35008.129), (themis.all_reduce, 13635.871)]
)
def test_themis_evens_out_three_equal_dimensions(schedule_of, published_us):
    assert asplos_case(schedule_of).time_s * 1e6 == pytest.approx(published_us, rel=0.01)


@pytest.mark.full
@pytest.mark.compiled
def test_the_order_inside_a_dimension_matters():
    assert asplos_case(themis.all_reduce, service="fifo").time_ps > 1.15 * asplos_case(themis.all_reduce).time_ps


@pytest.mark.full
@pytest.mark.compiled
def test_split_and_order_are_two_cures_for_one_ill():
    """At LIBRA's split the loads are equal, and Themis changes next to nothing."""
    m = traffic((8, 8, 8), 1.0)
    topology = network("SW(8)_SW(8)_SW(8)", [150 * 2**30 * one / sum(m) for one in m])
    plain, ordered = (
        simulate(build(name, "all-reduce", topology, 2**30, pipeline_chunks=64), chunks=1)
        for name in ("hierarchical", "themis")
    )
    assert plain.time_s == pytest.approx(sum(traffic((8, 8, 8), 2**30)) / (150 * 2**30) * (1 + 2 / 64), rel=1e-6)
    assert ordered.time_ps == pytest.approx(plain.time_ps, rel=0.01)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[float], str, str, dict[str, object]]:
    blocks = draw(st.lists(st.tuples(st.sampled_from(("RI", "FC", "SW")), st.integers(1, 5)), min_size=1, max_size=3))
    spec = "_".join(f"{kind}({extent})" for kind, extent in blocks)
    bandwidth = draw(st.lists(st.integers(1, 400), min_size=len(blocks), max_size=len(blocks)))
    name = draw(st.sampled_from(("hierarchical", "themis")))
    kinds = ("all-reduce", "reduce-scatter", "all-gather") + (("all-to-all",) if name == "hierarchical" else ())
    group = [draw(st.sampled_from([d for d in range(1, extent + 1) if extent % d == 0])) for _, extent in blocks]
    options: dict[str, object] = {
        "pipeline_chunks": draw(st.integers(1, 5)), "active_chunks": draw(st.sampled_from((1, 2, None))),
        "service": draw(st.sampled_from(("fifo", "smallest-first"))), "group": group,
    }
    return spec, [b * 1e9 for b in bandwidth], name, draw(st.sampled_from(kinds)), options


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from(("cut-through", "store-and-forward")), st.integers(1, 10**6))
def test_no_run_undercuts_the_fluid_time(case, forwarding, size):
    """T >= max_d M_d / B_d at any bandwidths: LIBRA's time bounds any simulation of the same order and traffic."""
    spec, bandwidth, name, kind, options = case
    topology = network(spec, bandwidth, "10ns")
    result = simulate(build(name, kind, topology, size, **options), chunks=2, forwarding=forwarding, check=True)
    extents = process_group(topology.shape, options["group"]).extents
    if name == "hierarchical":
        fluid = max(m / b for m, b in zip(traffic(extents, size, kind), bandwidth, strict=True))
    else:  # Themis moves traffic between dimensions, none of it away
        fluid = sum(traffic([math.prod(extents)], size, kind)) / sum(bandwidth)
    assert result.time_s >= fluid * (1 - 1e-12)


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(("cut-through", "store-and-forward")))
def test_representatives_stand_for_all(case, forwarding):
    """Pools and process groups included: the quotient on the kernel and all ranks on the reference agree."""
    spec, bandwidth, name, kind, options = case
    schedule = build(name, kind, network(spec, bandwidth, "10ns"), 10_000, **options)
    few = simulate(schedule, chunks=1, forwarding=forwarding)
    every = simulate(schedule, chunks=1, forwarding=forwarding, symmetry="off", engine="reference")
    assert few.time_ps == every.time_ps
