"""Measured files: every format says the same points, and what is wrong is named with file and line or key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.measured.nccl_text import nccl_json
from sim.measured.points import Measurements, Point, geometric_error, mean_error, with_measured
from sim.measured.read import read_measurements, read_tables
from sim.study.tables import nccl_table
from topologies import WeftError

NCCL = """\
[1,0]<stdout>:# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid    100 on     host1 device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid    101 on     host1 device  1 [0x0f] NVIDIA A100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     0.10    0.00    0.00       0     0.10    0.00    0.00       0
[1,0]<stdout>:     1048576        262144     float     sum      -1    25.00   41.94   41.94       0    24.00   43.69   43.69     N/A
        1024           256     float     sum      -1     8.50    0.12    0.12       0     8.25    0.12    0.12     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 21.5
"""  # noqa: E501 - as nccl-tests prints it
OSU = """\
# OSU MPI Allgather Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
1                       2.81              1.89              3.73          10
1048576               104.30            104.26            104.33          10
"""
IMB = """\
#----------------------------------------------------------------
# Benchmarking Allgather 
# #processes = 4 
# ( 2 additional processes waiting in MPI_Barrier)
#----------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0         1000         0.05         0.06         0.05
          256         1000         8.00         9.00         8.50
       262144          160        24.00        26.00        25.00
"""  # noqa: W291 - as IMB prints it


class TestIMB:
    """Intel MPI Benchmarks."""
HCCL = """\
the minbytes is 1024, maxbytes is 1048576, iters is 20, warmup_iters is 5
data_size(Bytes): |   aveg_time(us): | alg_bandwidth(GB/s): | check_result:
1024              |     8.50         |       0.12           | success
1048576           |     25.00        |       41.94          | NULL
"""
POINTS = (Point(1024, 8.5e-6), Point(1048576, 25e-6))


def row(size: float, time_us: float, **more: Any) -> dict[str, Any]:
    return {"size": size, "out_of_place": {"time": time_us}, "in_place": {"time": time_us / 2}, **more}


def document(**changes: Any) -> str:
    data: dict[str, Any] = {
        "version": 3, "args": ["./build/all_reduce_perf", "-g", "2"], "devices": [{"rank": 0}, {"rank": 1}],
        "results": [row(1024, 8.5), row(1048576, 25.0), {"size": 2048, "out_of_place": None, "in_place": {"time": 9}}],
    }
    return json.dumps(data | changes)


def read(text: str, tmp_path: Path, **how: Any) -> Measurements:
    path = tmp_path / "measured"
    path.write_text(text, encoding="utf-8")
    return read_measurements(path, **how)


def test_nccl_text(tmp_path: Path) -> None:
    found = read(NCCL, tmp_path)
    assert (found.points, found.left_out, found.collective, found.n_ranks) == (POINTS, 1, "all-reduce", 2)
    inside = read(NCCL, tmp_path, placement="in-place")
    assert inside.points == (Point(1024, 8.25e-6), Point(1048576, 24e-6))


@pytest.mark.parametrize("text", [
    "| size | time |\n|---|--:|\n| 1K | 8.5 |\n| 1 | 0 |\n| 1M | 25 |\n", "size;time\n1024;8.5\n1048576;25.0\n",
    "Size (B),Time (us)\n1024,8.5\n1048576,25\n", "size time(us)\n1KiB 8.5\n1MiB 25\n",
    "size_bytes\talgbw_GBps\n1024B\t0.12047058823529412\n1048576B\t41.94304\n",
])
def test_tables_as_people_paste_them(text: str, tmp_path: Path) -> None:
    found = read(text, tmp_path, collective="all-reduce").points
    assert [size for size, _ in found] == [1024, 1048576]
    assert [time for _, time in found] == pytest.approx([8.5e-6, 25e-6])


def test_a_log_of_several_runs_is_several_tables(tmp_path: Path) -> None:
    """Of several programs, with prefixes and colors; a run that failed is left out, and ranks may be listed once."""
    path = tmp_path / "slurm.out"
    again = "".join(f"0: {line}\n" for line in NCCL.replace("[1,0]<stdout>:", "").splitlines())
    bare = "".join(line for line in NCCL.splitlines(keepends=True) if "Rank" not in line).replace("25.00", "50.00")
    failed = NCCL[: NCCL.index("           0  ")] + "host1: Test NCCL failure common.cu:958 'unhandled system error'\n"
    gather = again.replace("all_reduce", "all_gather").replace("0:         1024", "\x1b[32m0:         1024\x1b[0m")
    path.write_text(f"2 hosts\n{NCCL}{gather}{failed}done\n2024 was not a size\n{bare}", encoding="utf-8")
    found = read_tables(path)
    assert [(one.source, one.collective, one.n_ranks) for one in found] == [
        (f"{path}, table {at}", kind, 2) for at, kind in enumerate(("all-reduce", "all-gather", "all-reduce"), start=1)
    ]
    assert [one.points for one in found] == [POINTS, POINTS, (POINTS[0], Point(1048576, 50e-6))]
    assert found[0].notes[0] == "a table without rows (line 34) is left out"
    assert found == read_tables(path, collective="all-reduce")  # which is that of tables that name none
    osu = OSU + OSU.replace("Allgather", "Allreduce")
    path.write_text(osu, encoding="utf-8")
    assert [one.collective for one in read_tables(path, n_ranks=4)] == ["all-gather", "all-reduce"]
    path.write_text(NCCL + NCCL.replace("25.00", "fast"), encoding="utf-8")
    with pytest.raises(WeftError, match="table 2, line 23: size 1048576 or time 'fast'"):
        read_tables(path)


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    old = "# size count type time algbw busbw error\n 1024 256 float 8.5 0.1 0.1 1e-7\n 1048576 1 float 25 4 4 1e-7\n"
    assert read(old, tmp_path, collective="all-reduce").points == POINTS


def test_nccl_json(tmp_path: Path) -> None:
    found = read(document(), tmp_path)
    assert (found.points, found.left_out, found.collective, found.n_ranks) == (POINTS, 1, "all-reduce", 2)
    assert found.format == "nccl-tests JSON"


def test_a_last_row_that_is_cut_off_is_left_out_and_said(tmp_path: Path) -> None:
    for text, how in ((NCCL[: NCCL.index("8.25")], {}), (OSU[: OSU.index("104.30")], {"n_ranks": 8})):
        found = read(text, tmp_path, **how)
        assert len(found.points) == 1
        assert "B) is cut off, and left out" in found.notes[0]
        assert found.left_out >= 1


def test_wrong_results_are_counted(tmp_path: Path) -> None:
    assert read(NCCL, tmp_path).wrong == read(document(), tmp_path).wrong == 0
    assert read(NCCL + "# Out of bounds values : 42 FAILED\n", tmp_path).wrong == 42
    table = "# size count type time algbw busbw #wrong\n 1024 256 float 8.5 0.1 0.1 7\n 2048 1 float 25 4 4 N/A\n"
    assert read(table, tmp_path, collective="all-reduce").wrong == 7
    assert read(document(out_of_bounds={"count": 3, "okay": "false"}), tmp_path).wrong == 3


@pytest.mark.parametrize(("redop", "ratio", "kind"), [
    ("sum", 1.75, "all-reduce"), ("sum", 0.875, "reduce-scatter"), ("sum", 1.0, "reduce"), ("none", 1.0, "broadcast"),
    ("none", 0.875, None),
])
def test_older_tables_name_no_collective(redop: str, ratio: float, kind: str | None, tmp_path: Path) -> None:
    """That of the file's name, or what busbw over algbw leaves: all-gather and all-to-all have the same."""
    rows = "".join(f" {2**n} 1 float {redop} -1 25 {2**n / 1e6} {2**n / 1e6 * ratio} 0\n" for n in range(20, 28))
    table = f"# size count type redop root time algbw busbw #wrong\n{rows}"
    if kind is None:
        with pytest.raises(WeftError, match="give --collective"):
            read(table, tmp_path, guess=8)
    else:
        assert read(table, tmp_path, guess=8).collective == kind
    assert read(table, tmp_path, collective="all-to-all").collective == "all-to-all"
    path = tmp_path / "node3_reduce_scatter_perf.log"
    path.write_text(table)
    assert read_measurements(path).collective == "reduce-scatter"


def test_osu_of_libraries_of_gpus(tmp_path: Path) -> None:
    for title in ("OSU NCCL Allreduce", "OSU NCCL-CUDA Allreduce Latency Test v7.3", "OSU MPI-ROCM Allreduce v7.4"):
        text = "\n".join([f"# {title}", *OSU.splitlines()[1:]])
        assert read(text, tmp_path).collective == "all-reduce"


def test_osu_counts_the_bytes_of_a_pair(tmp_path: Path) -> None:
    found = read(OSU, tmp_path, n_ranks=8)
    assert found.points == (Point(8, 2.81e-6), Point(8 * 1048576, 104.3e-6))
    assert found.collective == "all-gather"
    reduced = read(OSU.replace("Allgather", "Allreduce"), tmp_path, n_ranks=8)
    assert reduced.points == (Point(1, 2.81e-6), Point(1048576, 104.3e-6))


def test_hccl_text(tmp_path: Path) -> None:
    found = read(HCCL, tmp_path, collective="all-gather", guess=8)
    assert (found.points, found.collective, found.n_ranks, found.format) == (POINTS, "all-gather", 8, "HCCL text")
    spelled = "alg_bandwidth(GB/s): | data_size(Bytes): | avg_time(us):\n0.12 | 1024 | 8.5\n41.94 | 1048576 | 25\n"
    assert read(spelled, tmp_path, collective="all-reduce").points == POINTS
    command = "mpirun -n 16 tools/hccl_test/bin/all_gather_test -b 1K -p 8\n"
    assert read(command + HCCL, tmp_path).collective == "all-gather"
    with pytest.raises(WeftError, match="measured collective all-gather, but all-reduce is requested"):
        read(command + HCCL, tmp_path, collective="all-reduce")


@pytest.mark.parametrize("prefix", [
    "", "[1,0]<stdout>: ", "0: ", "Thu Jul 18 15:41:05 2024<stdout>:", "Thu Jul 18 15:41:05 2024[1,0]<stdout>:",
])
def test_what_ran_is_read_from_the_header_behind_any_prefix(prefix: str, tmp_path: Path) -> None:
    ranks = "".join(
        f"#  Rank {rank:>2} Group  0 Pid  1 on  node{rank // 4} device {rank % 4} [0x1{rank % 4}] AMD Instinct MI300X\n"
        for rank in range(8)
    )
    head = f"# nccl-tests version 2.13.9 nccl-headers=22304 nccl-library=22703\n# nThread 1 nGpus 2 minBytes 8\n{ranks}"
    table = NCCL.replace("[1,0]<stdout>:", "").split("device  1 [0x0f] NVIDIA A100\n")[1]
    text = f"# Collective test starting: all_gather_perf\n{head}{table}"
    found = read("".join(f"{prefix}{line}\n" for line in text.splitlines()), tmp_path)
    assert (found.points, found.collective) == (POINTS, "all-gather")
    assert (found.n_ranks, found.hosts, found.device) == (8, 2, "AMD Instinct MI300X")
    assert (found.version, found.gpus_per_process) == ("2.27", 2)


@pytest.mark.parametrize(("line", "version"), [
    ("NCCL version 2.21.5+cuda12.4", "2.21"), ("RCCL version 2.22.3+hip6.4", "2.22"), ("nccl-library=2708", ""),
    ("nccl-library=23007", "2.30"), ("no version", ""),
])
def test_the_version_of_the_library(line: str, version: str, tmp_path: Path) -> None:
    assert read(f"{line}\n{NCCL}", tmp_path).version == version


def test_json_lists_hosts_and_gpus(tmp_path: Path) -> None:
    devices = [{"rank": rank, "hostname": f"h{rank // 2}", "device_info": "NVIDIA H100"} for rank in range(4)]
    found = read(document(devices=devices, nccl_version=22703, config={"ngpus": 1}), tmp_path)
    assert (found.n_ranks, found.hosts, found.device, found.version) == (4, 2, "NVIDIA H100", "2.27")
    assert found.gpus_per_process == 1


def test_our_own_results_come_back_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "switch:4", "--collective", "all-gather", "--algorithm", "ring", "-b", "4K", "-e",
             "64K", "-f", "4", "--quiet"]
    files = {kind: tmp_path / f"ours.{kind}" for kind in ("json", "nccl")}
    assert main([*words, "--json", str(files["json"]), "--nccl-json", str(files["nccl"])]) == 0
    text = capsys.readouterr().out
    ours = read_measurements(files["json"])
    theirs = read_measurements(files["nccl"])
    printed = read(text, tmp_path, collective="all-gather")
    assert theirs.collective == ours.collective == "all-gather"
    assert theirs.n_ranks == 4
    for other, half_a_digit in ((theirs, 0), (printed, 5e-9)):
        assert [point.size_bytes for point in other.points] == [point.size_bytes for point in ours.points]
        times = [one.time_s for one in ours.points]
        assert [point.time_s for point in other.points] == pytest.approx(times, rel=1e-12, abs=half_a_digit)
    data = json.loads(files["nccl"].read_text(encoding="utf-8"))
    assert data["results"][0]["root"] == "    -1"
    assert data["out_of_bounds"]["okay"] == "true"
    assert data["results"][0]["count"] == 4096 // 4 // 4  # per rank


def test_the_table_fits_its_columns_at_any_number() -> None:
    one = {"collective": "all-reduce", "size_bytes": 2**40, "time_s": 123.456, "algbw_GBps": 12345678.0,
           "busbw_GBps": 1e-9}
    line = nccl_table([one], 4).splitlines()[3]
    assert line.split()[5:8] == ["1.2e+08", "1e+07", "0.00"]


def test_several_algorithms_are_not_one_measurement(tmp_path: Path) -> None:
    rows = [
        {"topology": "t", "collective": "all-reduce", "algorithm": name, "size_bytes": 8, "time_s": 1e-6,
         "algbw_GBps": 1.0, "busbw_GBps": 1.0} for name in ("ring", "swing")
    ]
    with pytest.raises(WeftError, match="rows of several: experiment_name ring, swing"):
        read(nccl_json(rows, 2), tmp_path)
    with pytest.raises(WeftError, match="rows of several: algorithm ring, swing"):
        read(json.dumps({"weft": "0", "rows": rows}), tmp_path)


def _scaled_rows(text: str, head: str, column: int, by: float) -> str:
    """Numbers of a column below a head, in another unit."""
    above, line, below = text.partition(head)
    rows = [row.split() if row.strip()[:1].isdecimal() else [row] for row in below.splitlines()]
    for words in rows:
        if len(words) > column:
            words[column] = repr(float(words[column]) * by)
    return above + line + "\n".join("  ".join(words) for words in rows) + "\n"


@pytest.mark.parametrize(("unit", "by"), [("ms", 1e-3), ("s", 1e-6), ("ns", 1e3), ("usec", 1)])
@pytest.mark.parametrize(("text", "head", "column"), [
    (NCCL.replace("[1,0]<stdout>:", ""), "(us)", 5), (OSU, "Latency(us)", 1), (IMB, "t_avg[usec]", 4),
    ("size time(us)\n1KiB 8.5\n", "time(us)", 1),
    ("size_bytes time_us\n1024 8.5\n", "time_us", 1),
])
def test_times_in_the_unit_of_the_header(
    text: str, head: str, column: int, unit: str, by: float, tmp_path: Path
) -> None:
    known = re.sub(r"us(ec)?(?=\)|\]|$)", unit if "_us" not in head else unit.replace("usec", "us"), head)
    there = _scaled_rows(text, head, column, by)
    one, other = read(text, tmp_path, guess=2, unnamed="all-reduce"), read(
        there.replace(head, known), tmp_path, guess=2, unnamed="all-reduce")
    assert [point.size_bytes for point in one.points] == [point.size_bytes for point in other.points]
    assert [point.time_s for point in one.points] == pytest.approx([point.time_s for point in other.points])


def test_tables_of_julia_are_in_seconds(tmp_path: Path) -> None:
    """Of MPIBenchmarks.jl: the average of three times, or the only one."""
    heads = ("size (bytes),iterations,min_time (seconds),max_time (seconds),avg_time (seconds)\n4,9,1e-6,9e-6,2.5e-6\n",
             "size (bytes),iterations,time (seconds)\n4,9,2.5e-6\n")
    found = [read(text, tmp_path, n_ranks=2, unnamed="all-reduce").points for text in heads]
    assert found[0] == found[1] and found[0][0].time_s == pytest.approx(2.5e-6)


@pytest.mark.parametrize(("unit", "number"), [
    ("GB/s", 8.0), ("Gb/s", 64.0), ("Gbps", 64.0), ("Gbit/s", 64.0), ("MB/s", 8000.0), ("TBps", 0.008),
    ("GiB/s", 8e9 / 2**30),
])
def test_rates_in_the_unit_of_the_header(unit: str, number: float, tmp_path: Path) -> None:
    for head in (f"size algbw ({unit})", f"size,algbw[{unit}]"):
        found = read(f"{head}\n1048576 {number}\n", tmp_path, n_ranks=2, unnamed="all-reduce")
        assert found.points[0].time_s == pytest.approx(2**20 / 8e9)
    below = f"# size count algbw busbw\n#  (KiB) (elements)  ({unit})  (GB/s)\n1024 7 {number} 1.0\n"
    assert read(below, tmp_path, n_ranks=2, unnamed="all-reduce").points[0] == (2**20, pytest.approx(2**20 / 8e9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "has no known format"),
        ("size,busbw (gbps)\n1048576,258.9\n", "line 1: the unit 'gbps' of busbw is not known: GB/s and"),
        ("size (MB),time (us)\n1,258.9\n", "line 1: the unit 'MB' of size is not known: B, KiB"),
        ("size,time (min)\n1048576,0.2\n", "line 1: the unit 'min' of time is not known: ns, us, ms, s are"),
        (NCCL.replace("(us)", "(ticks)"), "the unit 'ticks' of time is not known"),
        (NCCL.replace("(B)", "(B) (ms)", 1), "8 units"),
        (OSU.replace("(us)", "(cycles)"), "the unit 'cycles' of time is not known"),
        (IMB.replace("t_avg[usec]", "t_avg[ticks]"), "the unit 'ticks' of time is not known"),
        (HCCL.replace("(us)", "(ticks)"), "the unit 'ticks' of time is not known"),
        ("size time\n1,048,576 56.70\n", "line 2: 4 words under 2 columns: numbers have no commas"),
        ("size;time\n1048576;56,70\n", "line 2: 3 words under 2 columns: numbers have no commas"),
        ("size time\n1048576 1e30\n", "is out of range"),
        ("{", "is not JSON"),
        ("[1]", "has no known format"),
        (document(results=None), "lacks the key 'results'"),
        (document(results=[{"time": 3}]), "results[0] lacks the key 'size'"),
        (document(results=[{"size": 3, "out_of_place": {"bw": 1}}]), "out_of_place lacks the key 'time'"),
        (document(results=[row(8, -1.0)]), "is out of range"),
        (document(results=[row(2.5, 1.0)]), "size 2.5 or time 1.0 is out of range"),
        (document(results=[row(2**60, 1.0)]), "is out of range"),
        (document().replace("1048576", "1e999"), "size inf or time 25.0 is not a number"),
        (document(results=[{"size": "many", "out_of_place": {"time": 1}}]), "size 'many'"),
        (document(results=[row(0, 1.0)]), "has no measured time"),
        (document(args=["./gather_perf"]), "gather_perf measures no known collective"),
        (document(args=[]), "does not name its collective: give --collective"),
        (NCCL[: NCCL.index("8.25")] + "\n" + NCCL.splitlines()[9], "line 11: 9 of 13 columns: is the file cut off?"),
        (NCCL.replace("#       size", "#       sise"), "numbers before the header"),
        (NCCL.replace("25.00", "fast"), "time 'fast' is not a number"),
        (NCCL + NCCL, "has 2 tables: one is expected"),
        (HCCL + HCCL, "table 1 does not name its collective"),
        (HCCL.replace("success", "failed"), "line 3: the result was wrong"),
        (HCCL.replace("aveg_time(us)", "time"), "line 2: the table has no column aveg_time(us):"),
        (HCCL[: HCCL.index("| NULL")], "3 of 4 columns: is the file cut off?"),
        (HCCL, "does not name its collective: give --collective"),
        (OSU.replace("Allgather", "Barrier"), "the test 'Barrier' is not one of"),
        (OSU.replace("Avg Latency(us)", "Overall(us)"), "not Avg Latency(us)"),
        (OSU, "counts the bytes of a pair of ranks: the number of ranks is needed"),
        (OSU[:-40] + "\n" + OSU.splitlines()[-1], "columns: is the file cut off?"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError) as caught:
        read(text, tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "measured") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"collective": "all-gather"}, "measured collective all-reduce, but all-gather is requested"),
        ({"n_ranks": 8}, "measured ranks 2, but 8 is requested"),
        ({"placement": "beside"}, "placement 'beside' is unknown"),
    ],
)
def test_the_file_and_the_caller_must_agree(how: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=message):
        read(NCCL, tmp_path, **how)


def test_errors_against_measurements() -> None:
    measured = Measurements("f", "x", (Point(8, 1.0), Point(8, 3.0), Point(16, 4.0)))
    rows = with_measured([{"size_bytes": 8, "time_s": 1.0}, {"size_bytes": 16, "time_s": 8.0}], measured)
    assert [one["measured_s"] for one in rows] == [2.0, 4.0]
    assert [one["error"] for one in rows] == [-0.5, 1.0]
    assert mean_error(rows) == 0.75
    assert geometric_error(rows) == pytest.approx(2.0)


# --- tables that somebody wrote, and files that contradict themselves --------------------------------------------

RATES = {"time": "25.00", "algbw": "41.94", "busbw": "41.94"}


@pytest.mark.parametrize("header", [
    "# size count type redop root algbw", "size time", "size,busbw", "size_bytes,time_us,busbw_GBps",
    "# size algbw busbw", "size time(us) algbw(GB/s)",
])
@pytest.mark.parametrize("size", ["1048576", "1M"])
def test_a_table_of_a_time_or_of_one_rate_alone(header: str, size: str, tmp_path: Path) -> None:
    columns = re.findall(r"time|algbw|busbw", header)
    between = "," if "," in header else "  "
    more = ["262144", "float", "sum", "-1"] if "count" in header else []
    text = f"{header}\n{between.join([size, *more, *(RATES[column] for column in columns)])}\n"
    found = read(text, tmp_path, collective="all-reduce", guess=2)
    assert found.points[0].size_bytes == 2**20
    assert found.points[0].time_s == pytest.approx(25e-6, rel=1e-3)
    assert not found.notes


def test_a_rate_alone_needs_ranks_and_collective(tmp_path: Path) -> None:
    for how in ({"collective": "all-reduce"}, {"guess": 4}):
        with pytest.raises(WeftError, match="gives busbw alone"):
            read("size busbw\n1048576 40\n", tmp_path, **how)
    eight = read("size busbw\n1048576 40\n", tmp_path, collective="all-reduce", guess=8)
    assert eight.points[0].time_s == pytest.approx(2**20 / 40e9 * 1.75)


def test_a_time_that_is_missing_is_that_of_the_rate(tmp_path: Path) -> None:
    line = next(at for at, text in enumerate(NCCL.splitlines(), start=1) if "25.00   41.94" in text)
    for missing in ("N/A", "nan", "-"):
        found = read(NCCL.replace("25.00   41.94", f"{missing}   41.94"), tmp_path)
        assert found.points[1].time_s == pytest.approx(25e-6, rel=1e-3) and found.left_out == 1
        assert found.notes == (f"no time in line {line}: that of the rate beside it is taken",)
    assert read(NCCL.replace("25.00   41.94", "0.00   41.94"), tmp_path).left_out == 2
    many = "size time algbw\n" + "".join(f"{2**at} nan 1\n" for at in range(10, 15))
    assert read(many, tmp_path, collective="all-reduce", guess=3).notes == (
        "no time in line 2, 3, 4 and 2 more: that of the rate beside it is taken",)
    both = NCCL.replace("24.00   43.69", "-   43.69")
    assert both != NCCL and not read(both, tmp_path).notes
    assert len(read(both, tmp_path, placement="in-place").notes) == 1


def test_columns_that_are_passed_over_leave_no_row_out(tmp_path: Path) -> None:
    found = read("size time odd\n1024 5 3\n2048 6 3\n", tmp_path, collective="all-reduce", guess=2)
    assert found.left_out == 0 and found.notes == ("columns that are passed over: odd",)


def test_times_in_place_alone(tmp_path: Path) -> None:
    text = NCCL.replace("25.00   41.94   41.94", "N/A N/A N/A").replace("8.50    0.12    0.12", "N/A N/A N/A")
    with pytest.raises(WeftError, match="has no time out-of-place: --placement in-place"):
        read(text, tmp_path)
    assert len(read(text, tmp_path, placement="in-place").points) == 2


def test_the_other_placement_is_kept(tmp_path: Path) -> None:
    out, inside = (Point(1048576, 25e-6), Point(1024, 8.5e-6)), (Point(1048576, 24e-6), Point(1024, 8.25e-6))
    assert read(NCCL, tmp_path).others == inside
    assert read(NCCL, tmp_path, placement="in-place").others == out
    assert read(document(results=[row(1024, 8.5)]), tmp_path).others == (Point(1024, 4.25e-6),)


def test_messages_are_read(tmp_path: Path) -> None:
    found = read(NCCL.replace("all_reduce_perf", "sendrecv_perf"), tmp_path)
    assert (found.collective, found.points) == ("send/recv", POINTS)


@pytest.mark.parametrize(("old", "new", "note"), [
    ("1 [0x0f] NVIDIA A100", "1 [0x0f] NVIDIA H100", "different GPUs (NVIDIA A100, NVIDIA H100)"),
    ("#  Rank  1", "#  Rank  3", "the header lists 2 of 4 ranks"),
    ("25.00   41.94", "25.00   20.97", "algbw is not size over time in 1 of 3 rows"),
    ("41.94   41.94 ", "41.94   73.39 ", "busbw over algbw is 1.75, and 1 for all-reduce on 2 ranks"),
])
def test_what_contradicts_the_rest_of_the_file_is_noted(old: str, new: str, note: str, tmp_path: Path) -> None:
    assert read(NCCL, tmp_path).notes == ()
    notes = read(NCCL.replace(old, new), tmp_path).notes
    assert note in " ".join(notes)


def test_a_run_that_failed_is_said_so(tmp_path: Path) -> None:
    error = "node0: Test NCCL failure common.cu:1005 'unhandled system error'\n"
    for text in (NCCL[: NCCL.index("           0 ")] + error, "# nThread 1 nGpus 1\n" + error):
        with pytest.raises(WeftError, match=r"the run failed .Test NCCL failure common\.cu:1005"):
            read(text, tmp_path)


@pytest.mark.parametrize("prefix", ["node-01.cluster: ", "2026-07-18T15:41:05.12Z [1,0]<stdout>: ",
                                    "[prterun-host-7@1,0]<stdout>:", "2026-07-18T15:41:05.123456789Z ", "    ", "[0] ",
                                    "2026-07-18 15:41:05,12 ", "[2026-07-18 15:41:05] ", "15:41:05.1 ", "[rank0]: ",
                                    "\x1b[1;32m"])
def test_prefixes_of_other_tools(prefix: str, tmp_path: Path) -> None:
    plain = NCCL.replace("[1,0]<stdout>:", "")
    assert read("".join(f"{prefix}{line}\n" for line in plain.splitlines()), tmp_path).points == POINTS


def test_of_several_files_the_collective_is_that_of_those_that_name_none(tmp_path: Path) -> None:
    assert read(HCCL, tmp_path, unnamed="all-gather").collective == "all-gather"
    assert read(NCCL, tmp_path, unnamed="all-gather").collective == "all-reduce"


PREFIXES = {
    "a host": "node1: ", "a host of a domain": "gpu-a100-01.cluster.local: ", "hosts of clush": "node[01-02]: ",
    "mpirun --tag-output": "[1,0]<stdout>: ", "mpirun of PRRTE": "[prterun-node1-123@1,0]<stdout>: ",
    "srun -l": " 0: ", "a date": "2026-01-02 03:04:05 ", "a date of ISO": "2026-01-02T03:04:05.123456789Z ",
    "a date and a tag": "Fri Jan  2 03:04:05 2026[1,0]<stdout>:", "kubectl": "[pod/nccl-test-launcher/launcher] ",
    "a container runtime": "2026-01-02T03:04:05.123456789Z stdout F ", "docker compose": "nccl-tests-1  | ",
    "torchrun": "[default0]:", "logging of Python": "INFO:root:", "a rank": "rank0: ", "a quotation": "> ",
    "syslog": "Jan  2 03:04:05 node1 run[123]: ", "Ray": "(RayWorker pid=123, ip=10.0.0.1) ", "a port": "node1:0: ",
    "mpirun --xml": '<stdout rank="0">', "a tab": "\t", "PALS": "x1c0.example.org 0: ", "a color": "\x1b[32m",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("text", [NCCL, OSU, HCCL], ids=["nccl-tests", "OSU", "HCCL"])
def test_what_launchers_put_before_lines_is_left_out(text: str, prefix: str, tmp_path: Path) -> None:
    how = {"collective": "all-reduce"} if text == HCCL else {"n_ranks": 2}
    end = "</stdout>" if "<stdout " in prefix else ""
    wrapped = "\n".join(prefix + line + end for line in text.splitlines())
    plain, found = read(text, tmp_path, **how), read(wrapped, tmp_path, **how)
    for name in ("points", "collective", "n_ranks", "hosts", "device", "wrong", "notes"):
        assert getattr(found, name) == getattr(plain, name)


class TestNewerColumns:
    """Options of nccl-tests that add or rename columns, and those of tools around it."""

    def test_time_stamps_of_rows(self, tmp_path: Path) -> None:
        stamped = re.sub(r"(#wrong)$", r"\1           timestamp", NCCL, flags=re.MULTILINE)
        stamped = re.sub(r"(N/A)$", r"\1 2026-01-02 03:04:05", stamped, flags=re.MULTILINE)
        stamped = stamped.replace("0.00       0\n", "0.00       0 2026-01-02 03:04:05\n")
        assert read(stamped, tmp_path).points == POINTS

    def test_columns_that_nobody_knows_are_passed_over(self, tmp_path: Path) -> None:
        found = read(NCCL.replace("  #wrong", "  sparkle"), tmp_path)
        assert (found.points, found.notes) == (POINTS, ("columns that are passed over: sparkle",))

    def test_the_time_of_the_cpu_is_not_that_of_the_collective(self, tmp_path: Path) -> None:
        """Beside it stands the rate of the collective."""
        found = read(NCCL.replace("    time ", " cputime "), tmp_path)
        assert [time for _, time in found.points] == pytest.approx([1024 / 0.12e9, 1048576 / 41.94e9])
        assert found.notes == ("columns that are passed over: cputime",)
        result = {"size": 2**20, "out_of_place": {"cpu_time": 3.0, "alg_bw": 40.0}, "in_place": {"cpu_time": 3.0}}
        assert read(document(results=[result]), tmp_path).points == (Point(2**20, pytest.approx(2**20 / 40e9)),)

    def test_rows_in_place_alone_have_blanks_before(self, tmp_path: Path) -> None:
        blank = NCCL.replace("-1    25.00   41.94   41.94       0 ", "-1" + " " * 33)
        assert read(blank, tmp_path, placement="in-place").points == (Point(1024, 8.25e-6), Point(1048576, 24e-6))
        assert read(blank, tmp_path).points == POINTS[:1]

    def test_keys_that_nobody_knows_are_passed_over(self, tmp_path: Path) -> None:
        one = {"size": 2**20, "color": 3, "out_of_place": {"time": 25.0, "mood": 2}}
        found = read(document(magic=1, results=[one]), tmp_path)
        assert found.notes == ("keys that are passed over: magic of the document, color of results, mood of "
                               "out_of_place",)

    def test_rccl_lists_its_ranks_as_it_does(self, tmp_path: Path) -> None:
        lines = [line for line in NCCL.splitlines() if "Rank" not in line]
        ranks = [f"#   Rank  {at} Pid  1{at} on   amd1 device  {at} [0000:0c:00.0] AMD MI300X" for at in range(2)]
        found = read("\n".join(["rccl-tests: Version develop:ae3e635", *ranks, *lines]), tmp_path)
        assert (found.n_ranks, found.hosts, found.device) == (2, 1, "AMD MI300X")


class TestLogsAsTheyArePosted:
    """With the command, without marks of comments, of a build that does not know MPI."""

    ranks = tuple(NCCL.splitlines()[2:4])
    table = "\n".join(NCCL.splitlines()[4:])

    def test_the_command_names_the_collective(self, tmp_path: Path) -> None:
        runs = [f"$ mpirun -np 2 ./build/{test}_perf -b 1K\n" + "\n".join(self.ranks) + "\n" + self.table
                for test in ("broadcast", "all_gather")]
        (tmp_path / "log").write_text("\n".join(runs))
        assert [one.collective for one in read_tables(tmp_path / "log")] == ["broadcast", "all-gather"]

    def test_marks_of_comments_may_be_lost(self, tmp_path: Path) -> None:
        found = read(NCCL.replace("#", ""), tmp_path)
        assert (found.points, found.n_ranks, found.hosts, found.device) == (POINTS, 2, 1, "NVIDIA A100")

    def test_processes_that_ran_alone_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(WeftError, match="rank 0 is there twice: every process ran alone"):
            read(NCCL.replace("Rank  1", "Rank  0"), tmp_path)


    @pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "0: "])
    def test_it_counts_the_bytes_of_a_pair(self, prefix: str, tmp_path: Path) -> None:
        found = read("\n".join(prefix + line for line in IMB.splitlines()), tmp_path)
        assert (found.points, found.collective, found.n_ranks) == (POINTS, "all-gather", 4)
        whole = read(IMB.replace("Allgather", "Allreduce"), tmp_path)
        assert [size for size, _ in whole.points] == [256, 262144]

    def test_every_number_of_ranks_is_a_table(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text(IMB + "\n" + IMB.replace("processes = 4", "processes = 8"))
        assert [one.n_ranks for one in read_tables(tmp_path / "log")] == [4, 8]

    @pytest.mark.parametrize(("old", "new", "message"), [
        ("Allgather", "Exchange", "line 6: the benchmark 'Exchange' is not one of allreduce"),
        ("        25.00", "", "line 9: 4 of 5 columns: is the file cut off"),
        ("#processes", "processes", "has no line '# #processes = ' above its table"),
    ])
    def test_what_is_wrong_is_named(self, old: str, new: str, message: str, tmp_path: Path) -> None:
        with pytest.raises(WeftError, match=message):
            read(IMB.replace(old, new), tmp_path)


@pytest.mark.parametrize("is_json", [False, True])
def test_groups_that_ran_at_once_are_one_where_they_share_no_node(is_json: bool, tmp_path: Path) -> None:
    """NCCL_TESTS_SPLIT: by nodes (DIV 4) one group stands for all; across them (MOD 4) none ran alone."""
    def text(group_of: Callable[[int], int]) -> str:
        if is_json:
            return document(devices=[{"rank": rank, "group": group_of(rank), "hostname": f"n{rank // 4}"}
                                     for rank in range(8)])
        ranks = "".join(
            f"#  Rank {rank:>2} Group {group_of(rank):>2} Pid  1 on  n{rank // 4} device {rank % 4} [0x1] A100\n"
            for rank in range(8)
        )
        return f"# Collective test starting: all_reduce_perf\n{ranks}" + NCCL.split("NVIDIA A100\n")[-1]

    found = read(text(lambda rank: rank // 4), tmp_path)
    assert (found.n_ranks, found.hosts) == (4, 1)
    assert "2 groups of 4 ranks ran at once, each on nodes of its own: taken as one such group" in found.notes
    for shared in (lambda rank: rank % 4, lambda rank: int(rank > 2)):
        with pytest.raises(WeftError, match=r"groups that ran at once \(NCCL_TESTS_SPLIT\)"):
            read(text(shared), tmp_path)


def test_a_log_of_pythons_logging_is_read(tmp_path: Path) -> None:
    for prefix in ("2026-01-02 10:00:00,123 - root - INFO - ", "my.tool - WARNING - ", "10:00:00 - a - DEBUG - "):
        lines = "".join(f"{prefix}{line}\n" for line in NCCL.replace("[1,0]<stdout>:", "").splitlines())
        assert read(lines, tmp_path).points == POINTS


MSCCLPP = """# minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 10 iters: 100 validation: 1 graph: 15
#  Rank  0 Pid  26168 on a device  0 [0001:00:00.0] NVIDIA A100-SXM4-40GB
#  Rank  1 Pid  26169 on a device  1 [0002:00:00.0] NVIDIA A100-SXM4-40GB
#
#                                    in-place                       out-of-place
#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144    20.00   52.43   52.43      0
     2097152        524288    40.00   52.43   52.43      0

# Out of bounds values : 0 OK
"""


def test_one_of_two_placements_of_mscclpp_test(tmp_path: Path) -> None:
    found = read(MSCCLPP, tmp_path, collective="all-reduce")
    assert found.n_ranks == 2 and [(point.size_bytes, point.time_s) for point in found.points] == [
        (1 << 20, pytest.approx(20e-6)), (1 << 21, pytest.approx(40e-6))]


RECORD = {"numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": 8, "ranksPerNode": 8, "gpusPerRank": 1,
          "size": 4096, "type": "float", "redop": "sum", "inPlace": 0, "time": 30.5, "wrong": "0"}


@pytest.mark.parametrize("lines", [False, True])
def test_records_of_rccl_tests(lines: bool, tmp_path: Path) -> None:
    rows = [RECORD, RECORD | {"inPlace": 1, "time": 29.5, "wrong": "3"}, RECORD | {"size": 8192, "time": 31.0}]
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    found = read(text, tmp_path)
    assert (found.collective, found.n_ranks, found.hosts, found.wrong) == ("all-reduce", 8, 1, 3)
    assert [(one.size_bytes, one.time_s) for one in found.points] == [(4096, 30.5e-6), (8192, 31e-6)]
    assert read(text, tmp_path, placement="in-place").points[0].time_s == 29.5e-6


@pytest.mark.parametrize(("rows", "why"), [
    ([RECORD, RECORD | {"ranks": 4}], "records of several: ranks 4, 8"), ([RECORD, 3], "the key 'size' are expected"),
])
def test_records_that_are_not_of_one_run(rows: list[Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=why):
        read(json.dumps(rows), tmp_path)


@pytest.mark.parametrize(("text", "command", "ranks"), [
    (OSU, "$ mpirun_rsh --export-all -np 2 a b osu_allreduce -d cuda -n 7", 2), (OSU, "srun -n 16 ./osu_allreduce", 16),
    (OSU, "srun --ntasks=4 ./osu_allreduce", 4), (HCCL, "mpirun -n 8 ./bin/all_reduce_test -b 8K -n 20", 8),
])
def test_ranks_of_the_command_above_a_table(text: str, command: str, ranks: int, tmp_path: Path) -> None:
    assert read(f"{command}\n{text}", tmp_path, unnamed="all-reduce", guess=64).n_ranks == ranks


@pytest.mark.parametrize(("text", "old", "new", "why"), [
    (HCCL, "data_size(Bytes):", "x data_size(Bytes):", "has no column data_size"),
    (IMB, "t_avg", "xt_avg", "is not one of"),
])
def test_columns_that_only_end_as_known_ones(text: str, old: str, new: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=why):
        read(text.replace(old, new), tmp_path)


LOG = "host1:100:107 [0] NCCL INFO AllReduce: opCount 2 sendbuff 0x7f count 256 datatype 7 op 0 root 0 [nranks=2]\n"


def _cut(by: str, tag: str = "") -> str:
    """The table with a line of the log behind each of the three pieces of a row, as nccl-tests prints them."""
    def cut(row: re.Match[str]) -> str:
        return "".join(piece + tag + LOG + tag for piece in re.findall(by, row[0])).removesuffix(tag + LOG + tag) + "\n"
    plain = NCCL.replace("[1,0]<stdout>:", "")
    rows = re.sub(r"(?m)^ {8}.*\n", cut, plain)
    return f"{tag}{LOG}" + "".join(f"{tag}{line}" for line in rows.splitlines(True)) if tag else LOG + rows


PIECES = r"^(?:\s*\S+){5}|(?:\s+\S+){4}"


@pytest.mark.parametrize("text", [
    _cut(".+"), _cut(PIECES), _cut(PIECES, "[1,0]<stdout>:"),
    _cut(PIECES).replace("host1:", "[2026-01-02 03:04:05] host1:"),
    _cut(PIECES).replace("host1", "10a.b-c"), _cut(PIECES).replace("\n", "\n    "),
    NCCL.replace("#wrong\n", "#wrong\n" + LOG).replace("# Out", LOG + "# Out"),
    LOG + NCCL.replace("        1024 ", LOG.rstrip() + "        1024 "),
])
def test_lines_of_nccls_log_are_passed_over(text: str, tmp_path: Path) -> None:
    found = read(text, tmp_path)
    assert (found.points, found.collective, found.n_ranks) == (POINTS, "all-reduce", 2)
    assert re.fullmatch(r"passed over: \d+ lines? of NCCL's log", found.notes[0])
    assert found.others == read(NCCL, tmp_path).others


def test_a_row_that_the_log_cut_within_a_number_is_left_out(tmp_path: Path) -> None:
    text = LOG + NCCL.replace("8.50    0.12", f"8.{LOG}50    0.12")
    found = read(text, tmp_path)
    assert [size for size, _ in found.points] == [1048576]
    assert "left out: 1 row that it cut, at line" in found.notes[1]
    lost = read(LOG + NCCL.replace("0.12       0     8.25", LOG + LOG), tmp_path)
    assert [size for size, _ in lost.points] == [1048576]
