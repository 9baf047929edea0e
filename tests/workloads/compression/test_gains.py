from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import codec
from topologies import WeftError
from workloads.compression.cells import cells_required
from workloads.compression.gains import (
    GRADIENTS,
    Compression,
    Gradient,
    compressed_all_reduce,
    expansion,
    gradient,
    peel_rounds,
)
from workloads.compression.rates import INSTANT, Measured, Rates, measure


def line_rate(size_bytes):
    return size_bytes / 1e9


@settings(max_examples=60, deadline=None)
@given(st.integers(10**6, 10**9), st.floats(0.001, 1), st.sampled_from([1.23, 1.5, 2.0]), st.sampled_from([1, 4]))
def test_the_gain_on_a_fabric_that_bandwidth_bounds(n, union, cells, bits):
    wanted = Compression(cells, bits)
    line = compressed_all_reduce(line_rate, n, union, wanted, required=1.2)
    assert line.speed_up == pytest.approx(wanted.speed_up(union), rel=1e-3)
    assert (line.speed_up > 1) == (union < wanted.break_even()) or line.speed_up == pytest.approx(1, rel=1e-3)
    assert line.speed_up <= 32 / bits
    assert line.wire_bytes == wanted.index_bytes(n) + wanted.sketch_bytes(n, union)


def test_a_sketch_that_is_too_small_pays_for_the_dense_array_too():
    n = 10**7
    good, bad = (compressed_all_reduce(line_rate, n, 0.1, Compression(cells)) for cells in (1.23, 1.2))
    assert good.fallback_s == 0 and bad.fallback_s == bad.dense_s == line_rate(4 * n)
    assert bad.speed_up < 1 and bad.wire_bytes > 4 * n
    assert compressed_all_reduce(line_rate, n, 0.0, Compression(1.0)).fallback_s == 0


def test_rates_of_a_device_count():
    rates = Rates(encode_Bps=4e9, scan_Bps=8e9, peel_s_per_item=1e-7, launch_s=1e-5)
    assert rates.encode_s(10**9) == 1.0
    assert rates.decode_s(10**9, 10**6, rounds=10) == pytest.approx(0.5 + 0.1 + 1e-4)
    assert INSTANT.encode_s(10**9) == INSTANT.decode_s(10**9, 10**9) == 0
    line = compressed_all_reduce(line_rate, 10**8, 0.01, rates=rates)
    launches = 1e-5 * peel_rounds(10**6, 1.23)
    assert line.total_s == pytest.approx(0.1 + line.index_s + line.sketch_s + 0.05 + 0.1 + launches)
    slow = compressed_all_reduce(line_rate, 10**8, 0.01, rates=replace(rates, launch_s=1.0))
    assert slow.decode_s - line.decode_s == pytest.approx(peel_rounds(10**6, 1.23), rel=1e-4)


@pytest.mark.parametrize(("cells", "rounds"), [(1.25, 34), (1.3, 20), (1.5, 10), (2.0, 6), (3.0, 4)])
def test_rounds_of_a_parallel_peel_by_their_recursion(cells, rounds):
    assert peel_rounds(77_000, cells) == pytest.approx(rounds, abs=1)
    assert peel_rounds(0, cells) == 0 and 0 < peel_rounds(77_000, 1.0) < 100


def test_the_published_layout_falls_back_where_it_does_not_decode():
    """Twenty trials of 2^20 elements and three of 2^24, published: none, nine of ten, none, all."""
    for n, union, cells, fails in ((2**20, 0.0773, 1.25, True), (2**20, 0.0773, 2.0, True), (2**20, 0.3366, 1.5, False),
                                   (2**24, 0.3366, 1.3, False), (2**24, 0.0773, 1.25, True), (2**27, 0.05, 2.0, False)):
        line = compressed_all_reduce(line_rate, n, union, Compression(cells), form="published")
        assert (line.fallback_s > 0) == fails, (n, union, cells)
        assert compressed_all_reduce(line_rate, n, union, Compression(cells)).fallback_s == 0


def test_sixteen_bits_that_are_added_as_integers_of_thirty_two():
    n, half = 10**7, Compression(1.23, 1, value_bits=16)
    assert expansion(16, 32) == 2 and half.speed_up(0.1) == pytest.approx(1 / (2 * 1.23 * 0.1 + 1 / 16))
    narrow = compressed_all_reduce(line_rate, n, 0.1, half)
    wide = compressed_all_reduce(line_rate, n, 0.1, half, dense_bits=32)
    assert wide.dense_s == 2 * narrow.dense_s and wide.total_s == narrow.total_s
    assert narrow.speed_up == pytest.approx(half.speed_up(0.1), rel=1e-3)
    assert narrow.encode_s == 0 and half.break_even() == pytest.approx((1 - 1 / 16) / 2.46)


@pytest.mark.parametrize("refused", [
    lambda: compressed_all_reduce(line_rate, -5, 0.1), lambda: compressed_all_reduce(line_rate, 10, float("nan")),
    lambda: compressed_all_reduce(line_rate, 10, 0.1, form="blocked"), lambda: Rates(0, 1, 1), lambda: Rates(1, -1, 1),
    lambda: Rates(1, 1, -1), lambda: Rates(1, 1, 1, float("nan")), lambda: Compression(0, 1), lambda: Compression(-1),
    lambda: Compression(1.23, -4), lambda: Compression(float("inf")), lambda: Compression(value_bits=0),
    lambda: Compression("much"), lambda: cells_required(5, 4), lambda: peel_rounds(5, 0),
    lambda: compressed_all_reduce(line_rate, 10, 0.1, dense_bits=0), lambda: Gradient("x", -4, 0.5),
    lambda: Gradient("x", 4, 2.0), lambda: gradient("ncf").union(0), lambda: measure(10, 0.01),
    lambda: measure(2**29, 0.1),
    lambda: measure(True, 0.1),
], ids=range(22))
def test_numbers_out_of_range_are_refused(refused):
    with pytest.raises(WeftError):
        refused()


def test_nothing_to_send_gains_nothing():
    assert compressed_all_reduce(line_rate, 0, 0.1).speed_up == 1
    assert Compression(1.23, 0).speed_up(0) == float("inf") and Compression(1.23, 40).break_even() == 0


def test_what_this_machine_does_is_measured():
    one = measure(3_000, 0.1, 2.0, repeats=1)
    assert one.complete and one.n_items == pytest.approx(300, rel=0.2) and one.rounds > 2
    assert 2.0 <= one.cells_per_item < 2.0 + 64 / one.n_items
    assert min(one.index_Bps, one.sketch_Bps, one.encode_Bps, one.scan_Bps, one.peel_s_per_item) > 0
    assert one.rates().encode_Bps == one.encode_Bps
    for bad in ((0, 0.1), (10, 0.0), (10, 1.1)):
        with pytest.raises(WeftError, match=r"to measure is 0|density is 0.0|density is 1.1"):
            measure(*bad)


def test_the_benchmark_prints_a_row_per_layout_and_density(capsys):
    quick = ("--size", "4KiB", "--densities", "0.1", "0.2", "--cells", "2", "--repeats", "1")
    codec.main((*quick, "--layouts", "spread", "element"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(" | ")[0] == "| layout"
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| spread"] * 2 + ["| element"] * 2


@pytest.mark.parametrize("bad", [
    ("--layouts", "blocked"), ("--densities", "much"), ("--densities", "2"), ("--cells", "inf"), ("--cells", "-1"),
    ("--size", "20GiB"), ("--size", "3B"), ("--size", "0B"), ("--repeats", "0"),
])
def test_the_benchmark_rejects_what_it_cannot_measure(bad, capsys):
    with pytest.raises((WeftError, SystemExit)):
        codec.main(("--size", "64KiB", *bad))
    assert "spread" not in capsys.readouterr().out


@pytest.mark.compiled
def test_the_published_layout_is_measured_too(capsys):
    codec.main(("--size", "1MiB", "--densities", "0.3", "--repeats", "1", "--layouts", "published", "rotated"))
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[6]) for row in rows] == [("published", "no"), ("rotated", "yes")]


def test_gradients_of_the_models():
    assert set(GRADIENTS) == {"ncf", "lstm", "vgg-19", "bert-base"}
    ncf = gradient("ncf")
    assert ncf.size_bytes == 679_400_000
    assert ncf.union(8, shared=1.0) == pytest.approx(0.154)
    assert ncf.union(8) == pytest.approx(1 - 0.846**8)
    assert ncf.union(8, 1.0) < ncf.union(8, 0.5) < ncf.union(8, 0.0)
    assert ncf.union(1, 0.3) == pytest.approx(0.154)
    with pytest.raises(WeftError, match="choose one of ncf"):
        gradient("gpt")
    with pytest.raises(WeftError, match="shared support is 2: give a number from 0 to 1"):
        ncf.union(2, 2)


def test_gates_of_the_benchmark():
    one = Measured(0.1, 1.23, 100, 10, 9e9, 2e9, 1.6e9, 1e9, 70e-9, 60, True, 2e10)
    assert codec.keeps("spread", one) and codec.row("spread", one)[-2:] == ("yes", "encode and peel kept")
    slow, late = one._replace(encode_Bps=0.9e9), one._replace(peel_s_per_item=251e-9)
    assert not codec.keeps("spread", slow) and codec.keeps("element", slow)
    assert [codec.row(name, slow)[-1] for name in ("spread", "element")] == ["encode and peel MISSED", "peel kept"]
    assert codec.row("published", late._replace(complete=False))[-1] == "none apply"
    assert not codec.keeps("element", late) and codec.keeps("published", late._replace(complete=False))
