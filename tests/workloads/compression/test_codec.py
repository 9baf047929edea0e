import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import lhc
from topologies import WeftError
from workloads.compression import (
    FORMS,
    Bitmap,
    Bloom,
    Codec,
    Layout,
    NibbleSum,
    bloom_for,
    layout_for,
    lossless_sum,
    published_layout,
)
from workloads.compression import _kernels as kernels

INDEXES = {"bitmap": Bitmap, "nibbles": NibbleSum, "bloom": lambda n: bloom_for(n, max(1, n // 4), 0.02)}


def supports(rng, d, workers, density, low=-(2**20), high=2**20):
    return [np.where(rng.random(d) < density, rng.integers(low, high, d), 0).astype(np.int32) for _ in range(workers)]


def union_size(arrays):
    return int(np.count_nonzero(np.any(np.array(arrays) != 0, axis=0)))


def wrapped_sum(arrays):
    with np.errstate(over="ignore"):
        return np.sum(np.array(arrays), axis=0, dtype=arrays[0].dtype)


def test_the_first_vector_is_bit_exact():
    assert [int(kernels.murmur3(0, seed)) for seed in range(3)] == [0x2362F9DE, 0x78ED212D, 0x06DFADFC]
    codec = Codec(Layout(12, rows=18, lanes=1), dtype="int32")
    one = np.array([5, 0, 0, -7, 0, 0, 11, 0, 0, 0, 0, 2], np.int32)
    other = np.array([-5, 0, 3, 1, 0, 0, 0, 0, 0, 4, 0, 0], np.int32)
    message = codec.add(codec.encode(one), codec.encode(other))
    assert message.cells.tolist() == [-4, 0, -2, 0, -2, -6, -3, 0, 0, 0, -11, 4, 0, 0, 5, -5, 0, 20]
    assert np.unpackbits(message.support, bitorder="little")[:12].tolist() == [1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 1]
    decoded = codec.decode(message)
    assert decoded.values.tolist() == [0, 0, 3, -6, 0, 0, 11, 0, 0, 4, 0, 2]
    assert (decoded.rounds, decoded.residual_cells, decoded.complete) == (1, 0, True)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 60), st.integers(1, 4), st.sampled_from([1, 2, 5, 8, 40]), st.integers(3, 20), st.booleans(),
    st.booleans(), st.integers(0, 3), st.booleans(), st.floats(0, 1), st.integers(0, 2**32 - 1),
)
def test_it_is_the_plain_codec(n, workers, lanes, rows, rotated, split, seed, spread, density, draw):
    rng = np.random.default_rng(draw)
    arrays = supports(rng, n, workers, density, -1000, 1000)
    codec = Codec(Layout(n, rows, lanes, rotated, split, seed, spread), dtype="int32")
    how = (rows, lanes, rotated, split, seed, codec.layout.n_blocks if spread else 0)
    message = codec.sum(arrays)
    plain = [sum(column) for column in zip(*(lhc.encode(x.tolist(), *how) for x in arrays), strict=True)]
    assert message.cells.tolist() == plain
    union = np.flatnonzero(np.any(np.array(arrays) != 0, axis=0)).tolist()
    found, rounds, residual = lhc.decode(plain, union, *how)
    decoded = codec.decode(message)
    assert (decoded.n_items, decoded.n_recovered, decoded.rounds) == (len(union), len(found), rounds)
    assert decoded.residual_cells == residual
    assert {i: int(decoded.values[i]) for i in found} == found
    assert decoded.complete == (len(found) == len(union))
    if decoded.complete:
        assert decoded.values.tolist() == wrapped_sum(arrays).tolist()


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("workers", [1, 2, 15])
def test_every_index_finds_the_union(index, workers):
    rng = np.random.default_rng(workers)
    d = 1003
    arrays = supports(rng, d, workers, 0.02)
    codec = Codec(layout_for(d, min(d, 2 * union_size(arrays) + 60), 2.0, "element"), INDEXES[index](d))
    decoded = codec.decode(codec.sum(arrays))
    held = np.unpackbits(codec.index.bits(codec.sum(arrays).support), bitorder="little", count=d)
    assert np.all(held[np.any(np.array(arrays) != 0, axis=0)] == 1)
    assert decoded.n_items == held.sum() and decoded.complete
    assert np.array_equal(decoded.values, wrapped_sum(arrays))


def test_the_layout_of_the_demo():
    demo = published_layout(2**27, 10)
    assert (demo.rows, demo.lanes, demo.rotated, demo.spread) == (13108, 1024, False, False)
    assert layout_for(2**27, 5 * 2**27 // 100, 2.0, "published") == demo
    with pytest.raises(WeftError, match="compression ratio is 0: give a number above 0"):
        published_layout(5, 0)


def test_a_sixteenth_worker_would_carry_over():
    codec = Codec(Layout(8, 8, lanes=1), NibbleSum(8))
    x = np.ones(8, np.int32)
    with pytest.raises(WeftError, match="counts up to 15 workers and would carry over at 16: use a bitmap"):
        codec.sum([x] * 16)
    assert codec.sum([x] * 15).workers == 15


@pytest.mark.compiled
@pytest.mark.parametrize("form", ["spread", "element"])
def test_the_cliff_of_a_million_elements(form):
    d = 1_000_000
    for trial in range(2):
        arrays = supports(np.random.default_rng(trial), d, 8, 0.05)
        n = union_size(arrays)
        for cells, complete in ((1.20, False), (1.23, True)):
            codec = Codec(layout_for(d, n, cells, form, seed=100 * trial))
            decoded = codec.decode(codec.sum(arrays))
            assert decoded.complete is complete, f"c={cells}: {decoded.n_recovered} of {n}"
            assert decoded.overloaded is not complete
        assert np.array_equal(decoded.values, wrapped_sum(arrays))


@pytest.mark.compiled
def test_one_percent_too_little_loses_a_large_share():
    arrays = supports(np.random.default_rng(1), 1_000_000, 8, 0.01)
    codec = Codec(layout_for(1_000_000, union_size(arrays), 1.20, "element"))
    decoded = codec.decode(codec.sum(arrays), median=True)
    assert 1 - decoded.n_recovered / decoded.n_items == pytest.approx(0.496, abs=0.03)
    error = decoded.values.astype(float) - wrapped_sum(arrays)
    assert np.square(error).sum() / np.square(wrapped_sum(arrays).astype(float)).sum() == pytest.approx(0.39, abs=0.05)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("density", "cells", "lost"), [(0.01, 1.25, 0.37), (0.01, 1.5, 0.053), (0.05, 1.3, 0.097), (0.1, 1.3, 0.035)]
)
def test_the_published_layout_needs_more_space(density, cells, lost):
    d, rng, shares = 2**20, np.random.default_rng(5), []
    for trial in range(5):
        x = (rng.random(d) < 1 - (1 - density) ** 8).astype(np.int32)
        n = int(x.sum())
        codec = Codec(layout_for(d, n, cells, "published", seed=7 * trial))
        shares.append(1 - codec.decode(codec.encode(x)).n_recovered / n)
    sampling = np.std(shares, ddof=1) * np.sqrt(1 / 5 + 1 / 20)  # theirs is the mean of 20 trials
    assert np.mean(shares) == pytest.approx(lost, abs=4 * sampling + 5e-3 * lost)


@pytest.mark.compiled
def test_the_published_layout_loses_a_little_at_twice_the_items():
    d, x = 2**20, (np.random.default_rng(5).random(2**20) < 0.0773).astype(np.int32)
    for seed in (0, 7, 14):
        codec = Codec(layout_for(d, int(x.sum()), 2.0, "published", seed=seed))
        decoded = codec.decode(codec.encode(x))
        assert not decoded.complete and decoded.n_recovered / decoded.n_items > 0.998


@pytest.mark.compiled
def test_every_single_missing_index_bit_is_detected():
    d, rng = 20_000, np.random.default_rng(7)
    arrays = supports(rng, d, 8, 0.01)
    codec = Codec(layout_for(d, union_size(arrays), 3.0, "element"))
    message = codec.sum(arrays)
    assert codec.decode(message).complete
    total = wrapped_sum(arrays)
    chosen = rng.choice(np.flatnonzero(total), 200, replace=False)
    silent = 0
    for element in chosen:
        bits = message.support.copy()
        bits[element >> 3] ^= 1 << (element & 7)
        decoded = codec.decode(message._replace(support=bits))
        silent += decoded.complete
        assert decoded.index_incomplete or decoded.overloaded
    assert silent == 0


def test_late_worker_bits_fall_back_to_the_dense_sum():
    arrays = supports(np.random.default_rng(3), 5000, 4, 0.05)
    small = Codec(layout_for(5000, union_size(arrays), 1.0, "element"))
    result = lossless_sum(small, arrays)
    assert result.fell_back and np.array_equal(result.values, wrapped_sum(arrays))
    large = Codec(layout_for(5000, union_size(arrays), 1.5, "element"))
    result = lossless_sum(large, arrays)
    assert not result.fell_back and np.array_equal(result.values, wrapped_sum(arrays))
    with pytest.raises(WeftError, match="at least one worker"):
        lossless_sum(large, [])


@pytest.mark.compiled
def test_any_order_of_arrival_gives_identical_integers():
    arrays = supports(np.random.default_rng(11), 3001, 4, 0.1, -(2**31), 2**31 - 1)
    codec = Codec(layout_for(3001, union_size(arrays), 1.6))
    messages = [codec.encode(x) for x in arrays]
    sums = set()
    for order in itertools.permutations(messages):
        flat = codec.add(codec.add(codec.add(order[0], order[1]), order[2]), order[3])
        tree = codec.add(codec.add(order[0], order[1]), codec.add(order[2], order[3]))
        for message in (flat, tree):
            decoded = codec.decode(message)
            assert decoded.complete
            sums.add(decoded.values.tobytes())
    assert sums == {wrapped_sum(arrays).tobytes()}


@pytest.mark.compiled
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 5000), st.sampled_from([1, 2, 3, 64]), st.sampled_from(sorted(FORMS)),
    st.sampled_from(["int32", "int64"]), st.floats(0, 0.3), st.booleans(), st.integers(0, 2**32 - 1),
)
def test_whatever_is_given_the_integer_sum_is_exact(d, workers, form, dtype, density, identical, draw):
    rng = np.random.default_rng(draw)
    limits = np.iinfo(dtype)
    mask = rng.random((1 if identical else workers, d)) < density
    arrays = list(np.where(mask, rng.integers(limits.min, limits.max, (workers, d)), 0).astype(dtype))
    codec = Codec(layout_for(d, union_size(arrays), 1.4, form, seed=draw % 1000), dtype=dtype)
    result = lossless_sum(codec, arrays)
    assert np.array_equal(result.values, wrapped_sum(arrays))
    assert result.decoded.residual_cells == 0 or result.fell_back


def test_items_that_cancel_stay_in_the_union_and_are_zero():
    x = np.array([5, 0, -3], np.int32)
    codec = Codec(Layout(3, 9, lanes=1))
    decoded = codec.decode(codec.sum([x, -x]))
    assert decoded.values.tolist() == [0, 0, 0] and decoded.n_items == 2 and decoded.complete


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_that_are_not_finite_are_refused_and_denormals_are_values(dtype):
    codec = Codec(Layout(4, 12, lanes=1), dtype=dtype)
    for bad in (np.inf, -np.inf, np.nan):
        with pytest.raises(WeftError, match=r"element 2 is .*: the codec takes finite values only"):
            codec.encode(np.array([0, 1, bad, 0], dtype))
    tiny = np.array([np.finfo(dtype).smallest_subnormal, -0.0, 0.0, np.finfo(dtype).max], dtype)
    decoded = codec.decode(codec.encode(tiny))
    assert decoded.n_items == 2 and decoded.complete
    assert decoded.values[3] == tiny[3] and not np.signbit(decoded.values[1])
    both = codec.decode(codec.sum([tiny, tiny]))
    assert not both.complete  # the sum overflows: a value that is not finite is not passed off as recovered


@pytest.mark.compiled
@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-13), ("float64", 1e-28)])
def test_what_floating_point_loses_is_small_in_norm(dtype, limit):
    rng, d = np.random.default_rng(2), 100_000
    arrays = [np.where(rng.random(d) < 0.05, rng.normal(size=d), 0).astype(dtype) for _ in range(8)]
    codec = Codec(layout_for(d, union_size(arrays), 1.5), dtype=dtype)
    result = lossless_sum(codec, arrays)
    exact = np.sum(np.array(arrays, np.longdouble), axis=0)
    assert not result.fell_back
    assert np.square(result.values - exact).sum() / np.square(exact).sum() < limit


def test_what_does_not_fit_is_refused():
    codec = Codec(Layout(4, 6, lanes=1))
    with pytest.raises(WeftError, match="takes 4 values of int32; the array has shape \\(4,\\) of float64"):
        codec.encode(np.zeros(4))
    with pytest.raises(WeftError, match=r"shape \(3,\) of int32"):
        codec.encode(np.zeros(3, np.int32))
    with pytest.raises(WeftError, match="cells of 'uint8': choose one of int8"):
        Codec(Layout(4, 6), dtype="uint8")
    for bad in (
        lambda: Layout(4, 0), lambda: Layout(-1, 1), lambda: Layout(4, 2, split=True), lambda: layout_for(4, 5),
        lambda: layout_for(4, 2, 0), lambda: Layout(2**31, 5), lambda: published_layout(5, 0), lambda: Bloom(4, 0, 1),
        lambda: bloom_for(4, 2, 1.0),
    ):
        with pytest.raises(WeftError):
            bad()


@pytest.mark.compiled
def test_phantom_items_of_a_filter_decode_to_zero_and_fill_the_sketch():
    d, rng = 200_000, np.random.default_rng(9)
    arrays = supports(rng, d, 2, 0.04)
    n = union_size(arrays)
    codec = Codec(layout_for(d, n, 1.6, "element"), bloom_for(d, n, 0.01))
    decoded = codec.decode(codec.sum(arrays))
    phantoms = decoded.n_items - n
    assert phantoms == pytest.approx(0.01 * (d - n), rel=0.2)
    assert decoded.complete and np.array_equal(decoded.values, wrapped_sum(arrays))


@pytest.mark.compiled
def test_rounds_of_a_parallel_peel():
    d, n = 1_000_000, 77_000
    rng = np.random.default_rng(4)
    x = np.zeros(d, np.int32)
    x[rng.choice(d, n, replace=False)] = 1
    rounds = {c: Codec(layout_for(d, n, c, "element")).decode(Codec(layout_for(d, n, c, "element")).encode(x)).rounds
              for c in (1.3, 1.5, 2.0, 3.0)}
    assert rounds[1.3] == pytest.approx(20, abs=2) and rounds[1.5] == pytest.approx(10, abs=1)
    assert rounds[2.0] == pytest.approx(6, abs=1) and rounds[3.0] == pytest.approx(4, abs=1)


def runs_of(rng, d, density, width):
    """A union whose items stand `width` in a row, as the rows of embeddings do."""
    return np.repeat(rng.random(d // width + 7) < density, width)[5 : d + 5].astype(np.int32)


def share_complete(d, density, cells, form, trials, width=1):
    """Share of arrays that decode in full."""
    full = 0
    for trial in range(trials):
        x = runs_of(np.random.default_rng(1000 + trial), d, density, width)
        codec = Codec(layout_for(d, int(x.sum()), cells, form, seed=101 * trial))
        full += codec.decode(codec.encode(x)).complete
    return full / trials


@pytest.mark.compiled
@pytest.mark.parametrize(("density", "width"), [(0.3366, 1), (0.5695, 1), (0.0773, 1024)])
def test_dense_unions_and_runs_decode_at_1_23(density, width):
    assert share_complete(10**6, density, 1.23, "spread", 2, width) == 1


@pytest.mark.verify
@pytest.mark.parametrize("form", ["spread", "element"])
@pytest.mark.parametrize(("density", "width"), [(0.0773, 1), (0.3366, 1), (0.5695, 1), (0.75, 1), (0.0773, 64),
                                                (0.0773, 1024)])
def test_nothing_of_a_million_elements_is_left_at_1_23(form, density, width):
    assert share_complete(10**6, density, 1.23, form, 40, width) == 1


@pytest.mark.verify
def test_wide_blocks_of_neighbors_need_more():
    """Turned lanes of 1,024 neighbors: at 1.23 some dense unions fail and half of those with rows."""
    assert share_complete(10**6, 0.3366, 1.23, "rotated", 60) < 1
    assert share_complete(10**6, 0.3366, 1.25, "rotated", 60) == 1
    assert share_complete(10**6, 0.0773, 1.23, "rotated", 20, 1024) < 0.7


@pytest.mark.compiled
@pytest.mark.parametrize(("d", "n"), [(20_000, 1_000), (2_000, 1_000), (6_500, 3_250), (10**5, 10**4)])
def test_small_arrays_get_the_cells_that_they_need(d, n):
    for form in ("spread", "element"):
        full = 0
        for trial in range(20):
            x = np.zeros(d, np.int32)
            x[np.random.default_rng(trial).choice(d, n, replace=False)] = 1
            codec = Codec(layout_for(d, n, form=form, seed=trial))
            full += codec.decode(codec.encode(x)).complete
        assert full >= 18, form
