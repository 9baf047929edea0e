"""The codec on whatever comes: special values, odd lengths, many workers, other layouts, damaged messages."""

import ml_dtypes  # noqa: F401  # NumPy knows bfloat16 then
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.oracles import lhc
from topologies import WeftError
from workloads.compression import Bitmap, Bloom, Codec, Form, Layout, NibbleSum, bloom_for, layout_for, lossless_sum
from workloads.compression import _kernels as kernels
from workloads.compression.codec import DTYPES

INDEXES = {"bitmap": Bitmap, "nibbles": NibbleSum, "bloom": lambda n: bloom_for(n, max(1, n // 4), 0.05)}

lanes = st.sampled_from([1, 2, 3, 31, 32, 33, 1024])
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38, -3.4028235e38]),
    st.floats(width=32), st.sampled_from([np.inf, -np.inf, np.nan]),
)


def turned(width, spread=True):
    return Form(width, rotated=True, spread=spread)


def union_size(given_arrays):
    return int(np.count_nonzero(np.any(np.array(given_arrays) != 0, axis=0)))


@settings(max_examples=60)
@given(arrays.arrays(np.float32, st.integers(0, 70), elements=floats), lanes, st.integers(0, 9))
def test_any_floats_of_one_worker_are_refused_or_come_back(x, width, seed):
    codec = Codec(layout_for(x.size, union_size([x]), 3.0, turned(width), seed=seed), dtype="float32")
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
    codec = Codec(layout_for(n, union_size(given_arrays), 2.0, turned(width)), INDEXES[index](n))
    if index == "nibbles" and workers > 15:
        with pytest.raises(WeftError, match="would carry over at 16"):
            lossless_sum(codec, given_arrays)
        return
    with np.errstate(over="ignore"):
        expected = np.sum(np.array(given_arrays), axis=0, dtype=np.int32)
    assert np.array_equal(lossless_sum(codec, given_arrays).values, expected)


@settings(max_examples=60)
@given(st.integers(0, 300), st.integers(3, 40), lanes, st.booleans(), st.booleans(), st.booleans(),
       st.sampled_from(DTYPES), st.integers(0, 2**32 - 1))
def test_damaged_messages_are_decoded_to_something(n, rows, width, rotated, split, spread, dtype, draw):
    """No bits in the index and no values in the cells lead outside the arrays, whatever they are."""
    rng = np.random.default_rng(draw)
    codec = Codec(Layout(n, rows, width, rotated, split, draw % 2**31, spread), dtype=dtype)
    message = codec.encode(np.zeros(n, dtype))
    cells = rng.integers(0, 256, message.cells.nbytes, dtype=np.uint8).view(message.cells.dtype)
    damaged = message._replace(cells=cells, support=rng.integers(0, 256, message.support.size, dtype=np.uint8))
    decoded = codec.decode(damaged, median=dtype == "int32")
    assert decoded.values.shape == (n,) and 0 <= decoded.n_recovered <= decoded.n_items <= n


def damage_once(message, rng):
    """The message with one bit of its index, of one cell, or of its fold turned over."""
    what = rng.integers(9)
    if what == 8:
        return message._replace(check=message.check ^ 1 << int(rng.integers(64)))
    changed = (message.support if what % 2 else message.cells).copy()
    words = changed.view(f"u{changed.itemsize}")
    words[rng.integers(words.size)] ^= words.dtype.type(1 << int(rng.integers(8 * changed.itemsize)))
    return message._replace(**{"support" if what % 2 else "cells": changed})


def accepted(dtype, width, damages, workers=3, n=1001):
    """Of messages that are damaged once before they are summed or between two sums, those that seem complete."""
    rng = np.random.default_rng([damages, width])
    values = rng.integers(-100, 100, (workers, n)) if dtype.startswith("int") else rng.normal(size=(workers, n))
    xs = [np.where(rng.random(n) < 0.1, one, 0).astype(dtype) for one in values]
    codec = Codec(layout_for(n, union_size(xs), 3.0, turned(width)), dtype=dtype)
    messages = [codec.encode(x) for x in xs]
    assert codec.decode(codec.sum(xs)).complete
    found = 0
    for number in range(damages):
        at = number % (workers + 1)
        total = damage_once(messages[0], rng) if at == 0 else messages[0]
        for step in range(1, workers):
            total = codec.add(total, damage_once(messages[step], rng) if at == step else messages[step])
        found += codec.decode(damage_once(total, rng) if at == workers else total).complete
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("width", [1, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_message_that_was_damaged_once_is_complete(dtype, width):
    assert accepted(dtype, width, 100) == 0


@pytest.mark.verify
@pytest.mark.parametrize("dtype", DTYPES)
def test_none_of_ten_thousand_damaged_messages_is_complete(dtype):
    assert accepted(dtype, 1, 10_000) == 0


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_decode_to_what_their_cells_hold(dtype):
    """The cells of two workers, as they were rounded, decoded in double precision and rounded at the end."""
    xs = [np.where(np.arange(500) % 7 == at, np.linspace(-3, 3, 500), 0).astype(dtype) for at in (0, 1)]
    layout = layout_for(500, union_size(xs), 3.0)
    codec, double = Codec(layout, dtype=dtype), Codec(layout, dtype="float64")
    message = codec.sum(xs)
    decoded = codec.decode(message)
    expected = double.decode(message._replace(cells=message.cells.astype(np.float64))).values.astype(dtype)
    assert decoded.complete and decoded.values.dtype == expected.dtype
    assert decoded.values.astype(float) == pytest.approx(expected.astype(float), rel=2**-9)
    worst = np.abs(decoded.values.astype(float) - sum(x.astype(float) for x in xs)).max()
    assert 0 < worst < 0.05


def test_messages_of_other_codecs_are_refused():
    codec, other = Codec(Layout(100, 9, lanes=8)), Codec(Layout(100, 10, lanes=8))
    mine, theirs = (one.encode(np.zeros(100, np.int32)) for one in (codec, other))
    for refused in (lambda: codec.decode(theirs), lambda: codec.add(mine, theirs)):
        with pytest.raises(WeftError, match=r"the message is of Layout\(n_elements=100, rows=10.* this codec has"):
            refused()
    with pytest.raises(WeftError, match="has 72 cells of int32 and an index of 12 B; this codec has 72 of"):
        codec.decode(mine._replace(support=mine.support[:-1]))
    with pytest.raises(WeftError, match="seed is -1"):
        Layout(100, 9, seed=-1)
    with pytest.raises(WeftError, match="what was opened is of"):
        codec.peel(other.open(theirs))


@pytest.mark.parametrize("other", [
    Codec(Layout(100, 90, lanes=8, seed=3), dtype="float32"),
    Codec(Layout(100, 90, lanes=8, split=True), dtype="float32"),
    Codec(Layout(100, 90, lanes=8, spread=False), dtype="float32"),
    Codec(Layout(100, 90, lanes=8), Bloom(100, 104, 2), "float32"),
], ids=["seed", "split", "spread", "index"])
def test_messages_of_the_same_size_are_told_apart(other):
    codec, x = Codec(Layout(100, 90, lanes=8), dtype="float32"), np.ones(100, np.float32)
    mine, theirs = codec.encode(x), other.encode(x)
    assert (mine.cells.size, mine.support.size) == (theirs.cells.size, theirs.support.size)
    for refused in (lambda: codec.add(mine, theirs), lambda: codec.decode(theirs)):
        with pytest.raises(WeftError, match="the message is of"):
            refused()


OTHER = np.ones(4, np.int32)


@pytest.mark.parametrize("refused", [
    lambda: Codec(Layout(100, 9, lanes=8), NibbleSum(50)), lambda: Codec(Layout(100, 9, lanes=8), Bitmap(50)),
    lambda: Codec(Layout(100, 9), Bloom(101, 8, 1)), lambda: Layout(4.5, 9), lambda: Layout(4, 9, lanes=2.5),
    lambda: Layout(4, True), lambda: Layout(4, 2**21, 1024), lambda: Layout("4", 9), lambda: Bitmap(-1),
    lambda: Bitmap(4.5), lambda: NibbleSum(4, 16), lambda: Bloom(4, 2.5, 1),
    lambda: Bitmap(50).encode(np.ones(51, np.int32)),
    lambda: NibbleSum(50).encode(np.ones(500, np.int32)), lambda: Bloom(4, 8, 1).encode(np.ones(5)),
    lambda: Bitmap(50).bits(np.zeros(6, np.uint8)), lambda: NibbleSum(50).bits(np.zeros(1, np.uint8)),
    lambda: NibbleSum(4).bits(np.zeros(2, np.int64)), lambda: Bloom(4, 80, 1).bits([0]),
    lambda: Bitmap(4).combine(np.zeros(1, np.uint8), np.zeros(2, np.uint8)),
    lambda: Codec(Layout(4, 9, lanes=1)).encode([1, 2, 3, 4]), lambda: Codec(Layout(4, 9, lanes=1)).encode(OTHER[:3]),
    lambda: Codec(Layout(4, 9, lanes=1)).encode(OTHER.astype(">i4")),
    lambda: Codec(Layout(4, 9, lanes=1)).encode(OTHER.reshape(2, 2)), lambda: Codec(Layout(4, 9, lanes=1)).sum([]),
    lambda: Codec(Layout(1, 9, lanes=1)).encode(np.array([1 + 2j])), lambda: layout_for(100, 10.5),
    lambda: layout_for(100, 10, float("nan")), lambda: layout_for(100, 10, float("inf")),
    lambda: layout_for(9, 1, 2.0, "blocked"),
], ids=range(30))
def test_what_would_lead_outside_of_an_array_is_refused(refused):
    with pytest.raises(WeftError):
        refused()


class Short(Bitmap):
    """An index of somebody else's that gives too few bits."""

    def bits(self, packed):
        return packed[:1]


def test_an_index_with_too_few_bits_and_arrays_of_other_kinds_are_refused():
    codec = Codec(Layout(100, 90), Short(100))
    with pytest.raises(WeftError, match="the index gives 1 B of bits"):
        codec.decode(codec.encode(np.ones(100, np.int32)))
    with pytest.raises(WeftError, match="is a MaskedArray: give a numpy array"):
        Codec(Layout(4, 9)).encode(np.ma.array(OTHER, mask=[1, 0, 0, 0]))
    for dtype in (np.float16, np.longdouble, np.int8, "bfloat16"):
        assert Bitmap(4).encode(np.array([0, 1, 0, 2], dtype)).tolist() == [10]


def test_arrays_with_gaps_and_read_only_ones_are_taken():
    codec, x = Codec(Layout(50, 90, lanes=1)), np.arange(100, dtype=np.int32)
    x.setflags(write=False)
    assert np.array_equal(codec.decode(codec.encode(x[::2])).values, x[::2])
    assert np.array_equal(codec.decode(codec.encode(x[50::-1][:50])).values, x[50::-1][:50])


@pytest.mark.table
@pytest.mark.parametrize(
    "n", [0, 1, 7, 8, 9, *(pytest.param(n, marks=pytest.mark.compiled) for n in (4095, 4096, 4097, 8193))]
)
@pytest.mark.parametrize("width", [1, 5, 64, 1024])
def test_lengths_around_what_is_looked_through_at_a_time(n, width):
    x = np.arange(1, n + 1, dtype=np.int64)
    codec = Codec(layout_for(n, n, 2.0, turned(width, width != 1024)), dtype="int64")
    result = lossless_sum(codec, [x, -2 * x])
    assert np.array_equal(result.values, -x)


@pytest.mark.parametrize("how", [
    (2**31 - 1, 1, False, False, 5, 0), (2097151, 1024, True, False, 0, 0), (2147483, 1000, True, True, 3, 0),
    (3, 1, False, True, 2**31 - 1, 0), (33554431, 64, True, False, 0, 33554432), (9, 64, False, True, 1, 33554432),
])
def test_places_up_to_the_largest_that_are_allowed(how):
    items = np.array([0, 1, 1023, 1024, 2**30 + 1, 2**31 - 1025, 2**31 - 2], np.int32)
    places = np.empty((3, items.size), np.int32)
    kernels.find_places(items, items.size, how, places)
    for k, item in enumerate(items.tolist()):
        assert places[:, k].tolist() == [cell if sign > 0 else ~cell for cell, sign in lhc.cells_of(item, *how)]
