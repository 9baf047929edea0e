"""Tables of nccom-test of AWS Neuron, as its guide has them: units, times, the command above, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.measured.points import Measurements
from sim.measured.read import read_measurements
from topologies import WeftError

OLD = "size(B) count(elems) type time(us) algbw(GB/s) busbw(GB/s)\n1048576 262144 fp32 68 14.36 14.36\n"
NEW = ("size(B) count(elems) total_input_size(B) type time:avg(us) time:p50(us) algbw(GB/s) busbw(GB/s) algorithm\n"
       "8192 2048 1024 fp32 10.22 10 0.80 0.70 mesh\n524288 131072 65536 fp32 14.83 15 35.35 30.92 rdh\n")
END = "Avg bus bandwidth:\t9.1966GB/s\n"


def read(folder: Path, text: str, **given: Any) -> Measurements:
    path = folder / "table.txt"
    path.write_text(text, encoding="utf-8")
    return read_measurements(path, **given)


@pytest.mark.parametrize(("command", "kind", "ranks", "hosts"), [
    ("$ nccom-test -r 2 allr", "all-reduce", 2, None),
    ("nccom-test --nworkers 64 -N 2 -d fp32 allg", "all-gather", 64, 2),
    ("X=1 nccom-test -r=8 --minbytes 1kb redsct --check", "reduce-scatter", 8, None),
    ("nccom-test alltoall -r 16", "all-to-all", 16, None),
])
def test_the_command_says_what_ran(command: str, kind: str, ranks: int, hosts: int | None, tmp_path: Path) -> None:
    found = read(tmp_path, f"{command}\n    {OLD.replace('14.36 14.36', '- -')}{END}")
    assert (found.collective, found.n_ranks, found.hosts) == (kind, ranks, hosts)
    assert [tuple(one) for one in found.points] == [(2**20, pytest.approx(68e-6))]


def test_rates_are_of_2_to_the_30_in_older_tables_alone(tmp_path: Path) -> None:
    """Either agrees with size over time, so that no note says otherwise."""
    assert read(tmp_path, f"nccom-test -r 2 allr\n{OLD}").notes == ()
    found = read(tmp_path, f"nccom-test -r 8 allg\n{NEW}{END}")
    assert found.notes == ("columns that are passed over: total_input_size, p50, algorithm",)
    assert [one.time_s for one in found.points] == pytest.approx([10.22e-6, 14.83e-6])


def test_a_percentile_alone_is_the_time(tmp_path: Path) -> None:
    alone = NEW.replace(" time:avg(us)", "").replace(" 10.22", "").replace(" 14.83", "")
    found = read(tmp_path, f"nccom-test -r 8 allg\n{alone}")
    assert [one.time_s for one in found.points] == pytest.approx([10e-6, 15e-6])


def test_its_json_is_the_same_table(tmp_path: Path) -> None:
    rows = [{"size(B)": 8192, "count(elems)": 2048, "type": "fp32", "algbw(GB/s)": 1.25, "busbw(GB/s)": 1.21,
             "time:avg(us)": 6.55}]
    found = read(tmp_path, json.dumps({"results": rows}), collective="all-gather", n_ranks=32)
    assert (found.collective, found.n_ranks, found.notes) == ("all-gather", 32, ())
    assert [tuple(one) for one in found.points] == [(8192, pytest.approx(6.55e-6))]


@pytest.mark.parametrize(("text", "why"), [
    (f"nccom-test -r 8 permute\n{OLD}", "is of no collective that is known"),
    (f"nccom-test -r 8 --data-parallel-dimension 2 allr\n{OLD}", "groups that ran at once"),
    ("nccom-test -r 2 allr\n" + OLD.split("\n")[0] + "\n33554432 Failure running neuron-bench - log file x.log\n"
     "1 errors found - test failed\n", "line 3"),
])
def test_what_is_not_read_is_one_line(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=why) as wrong:
        read(tmp_path, text)
    assert "\n" not in str(wrong.value)
