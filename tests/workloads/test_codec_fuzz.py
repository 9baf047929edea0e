"""The codec on whatever comes: special values, odd lengths, many workers, other layouts, damaged messages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.oracles import lhc
from topologies import WeftError
from workloads.compression import Bitmap, Codec, Layout, NibbleSum, bloom_for, layout_for, lossless_sum
from workloads.compression import _kernels as kernels

INDEXES = {"bitmap": Bitmap, "nibbles": NibbleSum, "bloom": lambda n: bloom_for(n, max(1, n // 4), 0.05)}

lanes = st.sampled_from([1, 2, 3, 31, 32, 33, 1024])
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38, -3.4028235e38]),
    st.floats(width=32), st.sampled_from([np.inf, -np.inf, np.nan]),
)


def union_size(given_arrays):
    return int(np.count_nonzero(np.any(np.array(given_arrays) != 0, axis=0)))


@settings(max_examples=60)
@given(arrays.arrays(np.float32, st.integers(0, 70), elements=floats), lanes, st.integers(0, 9))
def test_any_floats_of_one_worker_are_refused_or_come_back(x, width, seed):
    codec = Codec(layout_for(x.size, union_size([x]), 3.0, lanes=width, seed=seed), dtype="float32")
    if not np.isfinite(x).all():
        first = int(np.flatnonzero(~np.isfinite(x))[0])
        with pytest.raises(WeftError, match=f"element {first} is .*: the codec takes finite values only"):
            codec.encode(x)
        return
    result = lossless_sum(codec, [x])
    assert not np.any(result.values[x == 0])
    alone = result.fell_back or np.count_nonzero(x) == 1
    near = 1e-6 * max(1, np.count_nonzero(x)) * float(np.abs(x.astype(np.float64)).max(initial=0))
    assert result.values.astype(np.float64) == pytest.approx(x.astype(np.float64), rel=0, abs=0 if alone else near)


@pytest.mark.compiled
@settings(max_examples=40)
@given(st.integers(1, 64), st.integers(0, 300), lanes, st.floats(0, 1), st.sampled_from(sorted(INDEXES)),
       st.integers(0, 2**32 - 1))
def test_any_number_of_workers_through_any_index(workers, n, width, density, index, draw):
    rng = np.random.default_rng(draw)
    given_arrays = list(np.where(rng.random((workers, n)) < density, rng.integers(-(2**31), 2**31, (workers, n)), 0)
                        .astype(np.int32))
    codec = Codec(layout_for(n, union_size(given_arrays), 2.0, lanes=width), INDEXES[index](n))
    if index == "nibbles" and workers > 15:
        with pytest.raises(WeftError, match="would carry over at 16"):
            lossless_sum(codec, given_arrays)
        return
    with np.errstate(over="ignore"):
        expected = np.sum(np.array(given_arrays), axis=0, dtype=np.int32)
    assert np.array_equal(lossless_sum(codec, given_arrays).values, expected)


@settings(max_examples=60)
@given(st.integers(0, 300), st.integers(3, 40), lanes, st.booleans(), st.booleans(),
       st.sampled_from(["int32", "int64", "float32", "float64"]), st.integers(0, 2**32 - 1))
def test_damaged_messages_are_decoded_to_something_that_is_looked_at(n, rows, width, rotated, split, dtype, draw):
    """No bits in the index and no values in the cells lead outside the arrays, whatever they are."""
    rng = np.random.default_rng(draw)
    codec = Codec(Layout(n, rows, width, rotated, split, seed=draw % 2**31), dtype=dtype)
    message = codec.encode(np.zeros(n, dtype))
    cells = rng.integers(0, 256, message.cells.nbytes, dtype=np.uint8).view(dtype)
    damaged = message._replace(cells=cells, support=rng.integers(0, 256, message.support.size, dtype=np.uint8))
    decoded = codec.decode(damaged, median=dtype == "int32")
    assert decoded.values.shape == (n,) and 0 <= decoded.n_recovered <= decoded.n_items <= n


@pytest.mark.compiled
@pytest.mark.parametrize("width", [1, 1024])
def test_every_damaged_cell_of_a_peelable_sketch_is_noticed(width):
    rng = np.random.default_rng(6)
    x = np.where(rng.random(4000) < 0.1, rng.integers(1, 2**20, 4000), 0).astype(np.int32)
    codec = Codec(layout_for(4000, union_size([x]), 3.0, lanes=width, seed=1))
    message = codec.encode(x)
    assert codec.decode(message).complete
    for cell in rng.choice(message.cells.size, 200, replace=False):
        cells = message.cells.copy()
        cells[cell] ^= 1 << int(rng.integers(0, 31))
        assert not codec.decode(message._replace(cells=cells)).complete


def test_messages_of_other_codecs_are_refused():
    codec, other = Codec(Layout(100, 9, lanes=8)), Codec(Layout(100, 10, lanes=8))
    mine, theirs = (one.encode(np.zeros(100, np.int32)) for one in (codec, other))
    with pytest.raises(WeftError, match="has 80 cells of int32 and an index of 13 B; this codec has 72 of"):
        codec.decode(theirs)
    with pytest.raises(WeftError, match="80 cells"):
        codec.add(mine, theirs)
    with pytest.raises(WeftError, match="an index of 12 B"):
        codec.decode(mine._replace(support=mine.support[:-1]))
    with pytest.raises(WeftError, match="has seed -1"):
        Layout(100, 9, seed=-1)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 4095, 4096, 4097, 8193])
@pytest.mark.parametrize("width", [1, 5, 1024])
def test_lengths_around_what_is_looked_through_at_a_time(n, width):
    x = np.arange(1, n + 1, dtype=np.int64)
    codec = Codec(layout_for(n, n, 2.0, lanes=width), dtype="int64")
    result = lossless_sum(codec, [x, -2 * x])
    assert np.array_equal(result.values, -x)


@pytest.mark.parametrize("how", [(2**31 - 1, 1, False, False, 5), (2097151, 1024, True, False, 0),
                                 (2147483, 1000, True, True, 3), (3, 1, False, True, 2**31 - 1)])
def test_places_up_to_the_largest_that_are_allowed(how):
    items = np.array([0, 1, 1023, 1024, 2**30 + 1, 2**31 - 1025, 2**31 - 2], np.int32)
    places = np.empty((3, items.size), np.int32)
    kernels.find_places(items, items.size, how, places)
    for k, item in enumerate(items.tolist()):
        assert places[:, k].tolist() == [cell if sign > 0 else ~cell for cell, sign in lhc.cells_of(item, *how)]
