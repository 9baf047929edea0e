"""DeAR and wait-free backpropagation: closed forms, fluid limits, and the simulation of the same iteration."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.hierarchical import blocks_of
from sim.papers.dear import Group, Ring, dear_s, fluid_gain, wfbp_s
from sim.program.model import Model
from sim.simulation import simulate
from topologies import bytes_per_s, from_spec, seconds
from topologies.core.product import link_bandwidths
from topologies.products import multidim
from workloads.training import MIB, Training, gradient_buckets, layer_of, training_job
from workloads.workload import Workload

WORKERS = 64
MB = 10**6


def equal_layers(n: int = 50, size_bytes: float = 2 * MB, scale: float = 1.0) -> Workload:
    """Layers of 1 ms forward and 2 ms backward."""
    return Workload("equal", tuple(layer_of(f"{i}", 1e-3 * scale, 2e-3 * scale, size_bytes, "data") for i in range(n)))


def groups_of(workload: Workload, bucket_bytes: int | None) -> list[Group]:
    groups = []
    for bucket in gradient_buckets(workload, bucket_bytes):
        layers = [workload.layers[number] for number in bucket.layers]
        backward = sum(layer.input_grad.compute_ns + layer.weight_grad.compute_ns for layer in layers) / 1e9
        forward = sum(layer.forward.compute_ns for layer in layers) / 1e9
        groups.append(Group(forward, backward, bucket.call.size_bytes))
    return groups


def simulated_s(workload: Workload, ring: Ring, loop: str, bucket_bytes: int | None) -> float:
    """The iteration on a bidirectional ring whose NPUs have the bandwidth of the closed form in both directions."""
    spec = f"RI({ring.workers})"
    (rate,) = link_bandwidths([1 / ring.s_per_byte], blocks_of(from_spec(spec)))
    topology = multidim(spec, bandwidth=bytes_per_s(rate), latency=seconds(ring.step_s), hop_latency=0)
    training = Training(
        loop=loop, bucket_bytes=bucket_bytes, in_order=True, options={"pipeline_chunks": 1, "element_bytes": 1}
    )
    job = training_job(topology, workload, {"data": (ring.workers,)}, training)
    return simulate(job, model=Model(chunks=1), check=True).time_s


NO_START_UP, TEN_GIGABIT, INFINIBAND = Ring(64, 0, 1 / 1e9), Ring(64, 20e-6, 1 / 1.25e9), Ring(64, 5e-6, 1 / 12.5e9)


@pytest.mark.table
@pytest.mark.parametrize(
    ("ring", "bucket_bytes", "wfbp_ms", "dear_ms"),
    [
        (NO_START_UP, None, 248.875, 201.406), (NO_START_UP, 25 * MIB, 268.875, 235.031),
        (NO_START_UP, 10**9, 346.875, 346.875),
        (TEN_GIGABIT, None, 335.5, 286.5), (TEN_GIGABIT, 25 * MIB, 239.58, 216.525),
        (TEN_GIGABIT, 10**9, 310.02, 310.02),
        (INFINIBAND, None, 150.945, 150.945), (INFINIBAND, 25 * MIB, 154.725, 154.725),
        (INFINIBAND, 10**9, 166.38, 166.38),
    ],
)
def test_published_vectors(ring, bucket_bytes, wfbp_ms, dear_ms):
    """50 equal layers of 2 MB: closed form to the printed digit, simulation to the picoseconds of the hops."""
    workload = equal_layers()
    groups = groups_of(workload, bucket_bytes)
    for loop, closed_form, published in (("wfbp", wfbp_s, wfbp_ms), ("dear", dear_s, dear_ms)):
        expected = closed_form(groups, ring)
        assert expected * 1e3 == pytest.approx(published, abs=6e-4)
        assert simulated_s(workload, ring, loop, bucket_bytes) == pytest.approx(expected, rel=2e-6)


def test_threshold_groups():
    assert [len(one.layers) for one in gradient_buckets(equal_layers(), 25 * MIB)] == [13, 13, 13, 11]
    assert [len(one.layers) for one in gradient_buckets(equal_layers(3), 1)] == [1, 1, 1]
    assert [one.call.size_bytes for one in gradient_buckets(equal_layers(3), 10**9)] == [6 * MB]


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 40)), min_size=1, max_size=6),
    st.integers(2, 5), st.integers(0, 50), st.sampled_from((None, 500_000)),
)
def test_uneven_layers(layers, workers, step_us, bucket_bytes):
    """The simulated iteration is the closed form, whatever the layers."""
    workload = Workload(
        "uneven",
        tuple(layer_of(f"{i}", f * 1e-3, b * 1e-3, n * 24_000, "data") for i, (f, b, n) in enumerate(layers)),
    )
    ring = Ring(workers, step_us * 1e-6, 1e-9)
    groups = groups_of(workload, bucket_bytes)
    for loop, closed_form in (("wfbp", wfbp_s), ("dear", dear_s)):
        assert simulated_s(workload, ring, loop, bucket_bytes) == pytest.approx(closed_form(groups, ring), abs=2e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.floats(0, 1), st.floats(0, 1), st.integers(1, 64), st.floats(0, 1e-2))
def test_dear_is_never_slower_for_equal_layers(n, forward_s, size_bytes, workers, step_s):
    groups = [Group(forward_s, 2 * forward_s, size_bytes)] * n
    ring = Ring(workers, step_s, 1.0)
    assert dear_s(groups, ring) <= wfbp_s(groups, ring) * (1 + 1e-12)


def test_dear_can_be_slower():
    """A gradient that is ready early hides whole behind backward; its all-gather finds no forward to hide behind."""
    groups = [Group(0.1, 2.0, 0.0), Group(0.1, 0.1, 1.0)]
    ring = Ring(2, 0, 1.0)
    assert wfbp_s(groups, ring) == pytest.approx(2.3)
    assert dear_s(groups, ring) == pytest.approx(2.1 + 0.5 + 0.1)


@pytest.mark.parametrize("all_reduce_s", [0.05, 0.1, 0.2, 0.4, 1.0])
def test_fluid_limit(all_reduce_s):
    """Many small layers without start-up: the gain peaks at 1.25, where the all-reduce takes four times forward."""
    n, workers = 2000, 10**6
    groups = [Group(0.1 / n, 0.2 / n, 1 / n)] * n
    ring = Ring(workers, 0, all_reduce_s / 2)
    gain = wfbp_s(groups, ring) / dear_s(groups, ring)
    assert gain == pytest.approx(fluid_gain(0.1, 0.2, all_reduce_s), rel=2e-3)
    assert gain <= 1.25 * (1 + 2e-3)
    assert fluid_gain(0.1, 0.2, 0.4) == pytest.approx(1.25)
