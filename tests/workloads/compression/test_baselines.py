import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.compression_bounds import (
    THRESHOLD,
    best_bloom_rate,
    bloom_bits_per_element,
    coordinate_bits,
    space_bound_bits,
)
from topologies import WeftError
from workloads.compression.baselines import (
    Thc,
    add_blocks,
    add_coordinates,
    from_fixed,
    non_zero_blocks,
    shared_scale,
    to_fixed,
    top_k,
)
from workloads.compression.cells import cells_required
from workloads.compression.gains import Compression, union_density


@pytest.mark.parametrize(
    ("density", "expected"), [(0.001, [0.004, 0.008, 0.016, 0.062, 0.226]), (0.05, [0.186, 0.337, 0.560, 0.963, 1.0])]
)
def test_union_of_independent_supports(density, expected):
    found = [union_density(density, workers) for workers in (4, 8, 16, 64, 256)]
    assert found == pytest.approx(expected, abs=6e-4)
    assert union_density(1.0, 3) == 1.0 and union_density(0.0, 3) == 0.0


@pytest.mark.parametrize(
    ("union", "bound", "bitmap", "nibbles", "bloom", "coo"),
    [
        (0.001, 0.043, 1.039, 4.04, 0.062, 0.064), (0.01, 0.401, 1.394, 4.39, 0.571, 0.64),
        (0.05, 1.886, 2.968, 5.97, 2.684, 3.2), (0.0773, 2.866, 4.043, 7.04, 4.075, 4.95),
        (0.10, 3.669, 4.936, 7.94, 5.213, 6.4), (0.3366, 11.69, 14.25, 17.2, 16.5, 21.5),
        (0.5695, 19.21, 23.4, 26.4, 26.8, 36.4),
    ],
)
def test_bits_of_an_element(union, bound, bitmap, nibbles, bloom, coo):
    found = (
        space_bound_bits(union), Compression().bits_per_element(union),
        Compression(index_bits=4).bits_per_element(union), bloom_bits_per_element(union), coordinate_bits(union),
    )
    assert found == pytest.approx((bound, bitmap, nibbles, bloom, coo), rel=0.013)
    assert found[0] < min(found[1:4])


def test_gain_and_break_even():
    one, four = Compression(1.0, 1), Compression(1.0, 4)
    for r, s1, s4 in ((5, 4.32, 3.08), (8, 6.40, 4.00), (10, 7.62, 4.44), (20, 12.3, 5.71), (50, 19.5, 6.90)):
        assert (one.speed_up(1 / r), four.speed_up(1 / r)) == pytest.approx((s1, s4), rel=0.005)
    assert Compression(1.23, 1).break_even() == pytest.approx(0.788, abs=5e-4)
    assert Compression(2.0, 4).break_even() == pytest.approx(0.438, abs=6e-4)
    assert Compression(1.23, 4).speed_up(0) == 8 and Compression(1.23, 1).speed_up(0) == 32
    assert Compression(1.5, 4).sketch_bytes(1000, 0.1) == 600 and Compression(1.5, 4).index_bytes(1001) == 501
    assert cells_required(10**6) == 1.23 > THRESHOLD and cells_required(5000) == 1.30 and cells_required(0) == 2.0
    assert best_bloom_rate(0.05) == pytest.approx(2.8e-3, rel=0.01)
    for bad in (lambda: union_density(1.5, 2), lambda: union_density(0.5, 0), lambda: best_bloom_rate(0)):
        with pytest.raises(WeftError):
            bad()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 700), st.integers(1, 5), st.integers(1, 64), st.integers(0, 2**32 - 1))
def test_sparse_messages_sum_to_the_dense_array(n, workers, block, draw):
    rng = np.random.default_rng(draw)
    arrays = [np.where(rng.random(n) < 0.2, rng.integers(-50, 50, n), 0) for _ in range(workers)]
    total = np.sum(arrays, axis=0)
    assert np.array_equal(add_blocks([non_zero_blocks(x, block) for x in arrays], n), total)
    assert np.array_equal(add_coordinates([top_k(x, n) for x in arrays], n), total)
    k = int(rng.integers(0, n + 1))
    kept = top_k(arrays[0], k)
    rest = np.delete(np.abs(arrays[0]), kept.places)
    assert kept.places.size == k
    assert np.abs(kept.values).min(initial=10**9) >= rest.max(initial=0)


def test_blocks_of_zeros_are_not_sent():
    x = np.zeros(1000, np.float32)
    x[[0, 999]] = 1
    blocks = non_zero_blocks(x)
    assert blocks.places.tolist() == [0, 3] and blocks.n_bytes == 2 * (4 + 4 * 256)
    with pytest.raises(WeftError):
        non_zero_blocks(x, 0)
    with pytest.raises(WeftError):
        top_k(x, 1001)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 64), st.integers(0, 200), st.floats(-300, 300), st.integers(0, 2**32 - 1))
def test_fixed_point_never_overflows_and_rounds_by_half_a_step(workers, n, exponent, draw):
    rng = np.random.default_rng(draw)
    arrays = [rng.normal(size=n) * 10.0**exponent for _ in range(workers)]
    scale = shared_scale(arrays)
    fixed = [to_fixed(x, scale) for x in arrays]
    total = np.sum(fixed, axis=0, dtype=np.int64)
    assert np.abs(total).max(initial=0) < 2**31
    error = np.abs(from_fixed(total.astype(np.int32), scale) - np.sum(arrays, axis=0))
    assert error.max(initial=0) <= workers * 0.5 / scale * (1 + 1e-6)


def test_fixed_point_refuses_what_it_cannot_hold():
    with pytest.raises(WeftError, match="finite"):
        shared_scale([np.array([np.inf])])
    with pytest.raises(WeftError, match="leave no bits"):
        shared_scale([np.zeros(1)] * 5000, bits=8)
    assert shared_scale([np.zeros(4)]) == 1.0


def test_the_lossy_codec_adds_up_and_loses_what_it_loses():
    rng, workers, n = np.random.default_rng(0), 8, 20_000
    arrays = [rng.normal(size=n) for _ in range(workers)]
    total = np.sum(arrays, axis=0)

    def nmse(codec):
        half_width = codec.range_of(arrays)
        messages = [codec.encode(x, half_width, worker) for worker, x in enumerate(arrays)]
        assert messages[0].n_bytes == codec.padded * codec.bits // 8
        found = codec.decode(codec.add(messages), workers, half_width)
        return np.square(found - total).sum() / np.square(total).sum()

    four, eight = nmse(Thc(n)), nmse(Thc(n, bits=8, granularity=255, clip=1 / 512))
    assert 0.005 < four < 0.03 and eight < 0.001
    table = Thc(n).table()
    assert np.all(np.diff(table) >= 1) and table[0] == 0 and table[-1] == 30
    for bad in ({"bits": 0}, {"bits": 4, "granularity": 14}):
        with pytest.raises(WeftError):
            Thc(n, **bad)


def test_the_lossy_codec_on_nothing_and_on_zeros():
    assert Thc(0).decode(Thc(0).add([Thc(0).encode(np.zeros(0), 0.0)]), 1, 0.0).size == 0
    codec = Thc(5)
    assert codec.range_of([np.zeros(5)]) == 0.0
    assert codec.decode(codec.add([codec.encode(np.zeros(5), 0.0)]), 1, 0.0).tolist() == [0.0] * 5


@pytest.mark.parametrize("refused", [
    lambda: Thc(8, clip=0), lambda: Thc(8, clip=2), lambda: Thc(-1), lambda: Thc(8).add([]),
    lambda: Thc(8).range_of([]),
    lambda: Thc(8).encode(np.ones(5), 1.0), lambda: Thc(8).encode(np.ones(9), 1.0),
    lambda: Thc(8).encode(np.full(8, np.nan), 1.0), lambda: Thc(8).encode(np.ones(8), -1.0),
    lambda: Thc(8).encode(np.ones(8), np.nan), lambda: Thc(8, bits=2).add([Thc(8).encode(np.ones(8), 1.0)]),
    lambda: Thc(8).range_of([np.ones(7)]), lambda: Thc(8).decode(np.zeros(7, np.int64), 1, 1.0),
    lambda: Thc(8).range_of([np.full(8, np.inf)]), lambda: add_coordinates([], 5), lambda: add_blocks([], 5),
    lambda: add_coordinates([top_k(np.ones(9), 9)], 5), lambda: add_blocks([non_zero_blocks(np.ones(9), 2)], 3),
    lambda: add_blocks([non_zero_blocks(np.ones(9), 2), non_zero_blocks(np.ones(9), 3)], 9),
    lambda: top_k(np.array([1.0, np.nan]), 1), lambda: top_k([1, 2], 1),
    lambda: to_fixed(np.array([1e30]), 1.0), lambda: to_fixed(np.array([2.0**31]), 1.0),
    lambda: to_fixed(np.array([np.nan]), 1.0), lambda: to_fixed(np.array([1.0]), 1.0, "uint8"),
    lambda: from_fixed(np.array([1]), 0.0), lambda: cells_required(-1), lambda: union_density(0.5, 0),
    lambda: best_bloom_rate(0.5, 0.0), lambda: best_bloom_rate(1.0), lambda: shared_scale([[1.0]]),
], ids=range(31))
def test_what_does_not_fit_is_refused_in_one_line(refused):
    with pytest.raises(WeftError) as fault:
        refused()
    assert "\n" not in str(fault.value)


def test_the_least_integer_is_the_largest_in_magnitude():
    assert top_k(np.array([5, -(2**31), 3], np.int32), 1).places.tolist() == [1]
    assert to_fixed(np.array([-(2.0**31)]), 1.0).tolist() == [-(2**31)]


def test_cells_that_layouts_require():
    assert [cells_required(n) for n in (999, 1_000, 10_000, 77_000)] == [2.0, 1.30, 1.25, 1.23]
    assert [cells_required(round(0.5695 * n), n, 64) for n in (10**6, 10**5, 10**4)] == [1.23, 1.25, 1.30]
    assert cells_required(900_000, 10**6, 64) == 1.25  # full lanes: as few items as blocks
    assert cells_required(0, 10, 64) == cells_required(5, 10, 64) == 2.0
    wide = [cells_required(round(0.0773 * n), n, 1024, rotated=False) for n in (2**20, 2**24, 2**28)]
    assert wide[0] > 3 and wide == sorted(wide, reverse=True) and wide[2] == 1.30
    assert cells_required(10, 10, 1024, rotated=False) > 3
