import argparse
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cli import bench_codec
from topologies import WeftError
from workloads.compression.rates import INSTANT, Rates, measure
from workloads.compression.sizing import Compression
from workloads.compression.timeline import compressed_all_reduce
from workloads.gradients import GRADIENTS, gradient


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
    assert line.total_s == pytest.approx(0.1 + line.index_s + line.sketch_s + 0.05 + 0.1)


@pytest.mark.compiled
def test_what_this_machine_does_is_measured():
    one = measure(100_000, 0.1, 1.4, repeats=1)
    assert one.complete and one.n_items == pytest.approx(10_000, rel=0.05) and one.rounds > 3
    assert min(one.index_Bps, one.sketch_Bps, one.encode_Bps, one.scan_Bps, one.peel_s_per_item) > 0
    assert one.rates().encode_Bps == one.encode_Bps
    for bad in ((0, 0.1), (10, 0.0), (10, 1.1)):
        with pytest.raises(WeftError, match="cannot measure"):
            measure(*bad)


def bench(*arguments):
    parser = argparse.ArgumentParser()
    bench_codec.add_arguments(parser)
    return bench_codec.run(parser.parse_args(list(arguments)))


@pytest.mark.compiled
def test_the_command_prints_a_row_a_layout_and_density(capsys, tmp_path):
    file = tmp_path / "rates.json"
    quick = ("--size", "64KiB", "--densities", "0.1,0.2", "--cells", "2", "--repeats", "1")
    assert bench(*quick, "--json", str(file)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].split()[0] == "layout"
    assert [row["layout"] for row in json.loads(file.read_text())["rows"]] == ["rotated"] * 2 + ["element"] * 2
    bench("--size", "64KiB", "--densities", "0.1", "--repeats", "1", "--layouts", "element", "--json", "-")
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1
    for bad in (("--layouts", "blocked"), ("--densities", "much"), ("--densities", "2")):
        with pytest.raises(WeftError):
            bench("--size", "64KiB", *bad)


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
    with pytest.raises(WeftError, match="shared support of 2"):
        ncf.union(2, 2)
