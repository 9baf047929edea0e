"""Do the tables parse as nccl-tests' do, and do they say what the rows say?"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from collectives import ALGORITHMS, COLLECTIVES, build
from sim import FaultPlan, SlowLink, simulate
from sim.measured.read import read_measurements
from sim.study.tables import (
    abbreviations,
    aligned,
    common_notes,
    comparison_table,
    legend,
    links_csv,
    nccl_table,
    tied_with,
    to_csv,
)
from topologies import from_spec

PER_RANK = ("all-gather", "reduce-scatter", "all-to-all", "gather", "scatter")


def row(algorithm: str, size: int, time_s: float, form: str = "", **more: Any) -> dict[str, Any]:
    rate = size / time_s / 1e9 if time_s else 0.0
    return {"collective": "all-reduce", "algorithm": algorithm, "form": form, "size_bytes": size, "time_s": time_s,
            "algbw_GBps": rate, "busbw_GBps": 1.5 * rate, **more}


def read_nccl(text: str) -> list[dict[str, Any]]:
    """As a reader of nccl-tests does: by the header line, the first measurement of each row."""
    lines = text.splitlines()
    head = next(line for line in lines if "size" in line and "algbw" in line)
    names = head.lstrip("#").split()
    return [dict(zip(names[:9], map(_number, line.split()[:9]), strict=True)) for line in lines if line[0] != "#"]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def test_one_row_stands_as_nccl_tests_prints_it() -> None:
    """The row of the reference: 1 MiB in 25 us on 8 ranks."""
    one = row("ring", 2**20, 25e-6) | {"busbw_GBps": 2**20 / 25e-6 / 1e9 * 1.75}
    text = nccl_table([one], 8).splitlines()
    assert text[3] == (
        "     1048576        262144     float     sum      -1"
        "    25.00   41.94   73.40       0    25.00   41.94   73.40       0"
    )
    measured = ["time", "algbw", "busbw", "#wrong"]
    assert text[1].split() == ["#", "size", "count", "type", "redop", "root", *measured, *measured]
    assert text[4:] == ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 73.4003"]


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_the_table_reads_back(kind: str) -> None:
    name = "tree" if COLLECTIVES[kind].rooted else "direct"
    results = [simulate(build(name, kind, from_spec("torus:2x2"), size)) for size in (4096, 2**20)]
    read = read_nccl(nccl_table([result.row() for result in results], 4))
    for result, line in zip(results, read, strict=True):
        assert line["size"] == result.schedule.size_bytes
        assert line["count"] == result.schedule.size_bytes / 4 / (4 if kind in PER_RANK else 1)
        assert line["time"] == pytest.approx(result.time_s * 1e6, abs=0.006)
        assert line["algbw"] == pytest.approx(result.algbw, abs=0.006)
        assert line["busbw"] == pytest.approx(result.busbw, abs=0.006)
        assert line["redop"] == ("sum" if "reduce" in kind else "none")
        assert line["root"] == (0 if COLLECTIVES[kind].rooted else -1)


@pytest.mark.parametrize(("time_s", "text"), [(9.999e-6, "10.00"), (1.23456, "1234560"), (0.12345678, "123457"),
                                              (0.01234567, "12345.7"), (0, "0.00")])
def test_times_keep_their_column(time_s: float, text: str) -> None:
    line = nccl_table([row("ring", 4, time_s)], 8).splitlines()[3]
    assert line.split()[5] == text
    assert len(line) == len(nccl_table([row("ring", 4, 1e-6)], 8).splitlines()[3])


@pytest.mark.parametrize(("element_bytes", "name"), [(1, "int8"), (2, "half"), (4, "float"), (8, "double"), (3, "3B")])
def test_the_type_follows_the_element(element_bytes: int, name: str) -> None:
    line = nccl_table([row("ring", 24, 1e-6)], 8, element_bytes).splitlines()[3].split()
    assert (line[1], line[2]) == (str(24 // element_bytes), name)


def test_the_winner_is_marked_at_every_size() -> None:
    rows = [row("swing", 1024, 1e-6, "latency"), row("ring", 1024, 2e-6), row("swing", 2048, 3e-6, "bandwidth"),
            row("ring", 2048, 2e-6)]
    table = comparison_table(rows).splitlines()
    assert table[0].split() == ["#", "size", "swing", "ring", "fastest", "by"]
    assert table[1].split() == ["1", "KiB", "1", "us", "L", "*", "2", "us", "100.0%"]
    assert table[2].split() == ["2", "KiB", "3", "us", "B", "2", "us", "*", "50.0%"]
    assert legend(rows) == ["* fastest at this size; L = latency form; B = bandwidth form"]


def test_a_wide_table_is_broken_between_algorithms() -> None:
    """Nothing is lost: the tables side by side are the table on a screen that is wide enough, and the winner's name."""
    rows = [row(f"algorithm-{n}", size, n * 1e-6) for n in range(1, 12) for size in (4, 8)]
    blocks = [block.splitlines() for block in comparison_table(rows, 80).split("\n#\n")]
    assert len(blocks) > 1 and max(len(line) for block in blocks for line in block) <= 80
    beside = [[cell for index, block in enumerate(blocks) for cell in block[line].split()[2 * (index > 0):]]
              for line in range(3)]
    assert [line.pop(-2) for line in beside[1:]] == ["algorithm-1"] * 2
    assert beside == [line.split() for line in comparison_table(rows, 1000).splitlines()]


def test_a_form_has_the_same_letters_in_every_table() -> None:
    """Whichever forms run on a fabric; and no two have the same."""
    forms = dict.fromkeys(form for one in ALGORITHMS.values() for kind in one.functions for form in one.forms_of(kind))
    every = abbreviations(forms)
    assert len(forms) > 5 and len(set(every.values())) == len(forms)
    assert all(abbreviations([form]) == {form: every[form]} for form in forms)
    assert every | {"bound": "Bo"} == abbreviations(["bound", *forms])


def test_equal_times_are_both_marked() -> None:
    table = comparison_table([row("a", 4, 1e-6), row("b", 4, 1e-6)])
    assert table.count("*") == 2
    assert table.endswith("tied")


def test_ranges_that_overlap_are_marked_and_explained() -> None:
    ranges = {"a": (1e-6, 2e-6), "b": (1.9e-6, 3e-6), "c": (2.1e-6, 4e-6)}
    rows = [row(name, 4, time_s) | {"spread_low_s": low_s, "spread_high_s": high_s}
            for time_s, (name, (low_s, high_s)) in zip((1.5e-6, 2e-6, 3e-6), ranges.items(), strict=True)]
    assert tied_with(rows) == ("b",)
    assert comparison_table(rows).splitlines()[1].split() == [
        "4", "B", "1.5", "us", "-33%", "+33%", "*", "2", "us", "-5%", "+50%", "=", "3", "us", "-30%", "+33%", "tied"]
    assert legend(rows) == ["* fastest at this size; = its range overlaps that of the fastest"]
    assert legend([rows[0], rows[2]]) == ["* fastest at this size"]


def test_one_algorithm_has_no_winner() -> None:
    assert "*" not in comparison_table([row("ring", 4, 1e-6)])
    assert legend([row("ring", 4, 1e-6)]) == []


def test_a_missing_point_is_a_dash() -> None:
    rows = [row("a", 4, 1e-6), row("b", 8, 1e-6), row("a", 8, 2e-6)]
    assert comparison_table(rows).splitlines()[1].split() == ["4", "B", "1", "us", "*", "-"]


def test_csv_is_tidy_and_reads_back() -> None:
    rows = [row("swing", 4, 1e-6, note=None, why={"a": 1}), row("ring", 8, 2e-6, note="x, y", why={})]
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert [one["algorithm"] for one in read] == ["swing", "ring"]
    assert [one["note"] for one in read] == ["", "x, y"]
    assert [float(one["time_s"]) for one in read] == [1e-6, 2e-6]
    assert json.loads(read[0]["why"]) == {"a": 1}
    assert to_csv([]).strip() == ""


def test_csv_has_a_column_that_only_later_rows_have() -> None:
    """Steps over planes have no estimate, and may come first."""
    first, second = csv.DictReader(io.StringIO(to_csv([row("swing", 4, 1e-6), row("ring", 4, 2e-6, estimate_s=3e-6)])))
    assert first["estimate_s"] == "" and float(second["estimate_s"]) == 3e-6


def test_links_add_up_to_the_wire() -> None:
    result = simulate(build("ring", "all-reduce", from_spec("torus:4x4"), "1MiB"))
    links = list(csv.DictReader(io.StringIO(links_csv(result))))
    assert len(links) == result.schedule.topology.n_links
    assert links[0]["link"] == "npu0->npu1"
    assert sum(int(link["carried_bytes"]) for link in links) == result.wire_bytes
    assert all(0 <= float(link["utilisation"]) <= 1 for link in links)


@pytest.mark.parametrize("at", ["0s", "10us"])
def test_slow_links_carry_what_healthy_ones_do(at: str) -> None:
    """At half their rate links are busy twice as long; what they carry is the same."""
    schedule = build("ring", "all-reduce", from_spec("ring:4"), "1MiB")
    plan = FaultPlan(faults=(SlowLink(link="npu0->npu1", share=0.5, at=at),))
    healthy, slow = simulate(schedule), simulate(schedule, faults=plan)
    carried = [[int(link["carried_bytes"]) for link in csv.DictReader(io.StringIO(links_csv(one)))]
               for one in (healthy, slow)]
    assert carried[0] == carried[1] and sum(carried[1]) == slow.wire_bytes
    assert slow.effbw == pytest.approx(healthy.effbw * healthy.time_ps / slow.time_ps)


def test_notes_are_said_once_or_by_name() -> None:
    rows = [row("swing", 4, 1, note="same"), row("ring", 4, 1, note="same")]
    assert common_notes(rows, lambda one: one["note"]) == ["same"]
    rows[1]["note"] = "other"
    assert common_notes(rows, lambda one: one["note"]) == ["swing: same", "ring: other"]
    assert common_notes(rows, lambda one: "") == []


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather"])
def test_on_a_narrow_screen_the_table_of_nccl_tests_has_each_result_once(kind: str, tmp_path: Path) -> None:
    results = [simulate(build("bucket", kind, from_spec("torus:2x2"), size)) for size in (4096, 2**33)]
    text = nccl_table([result.row() for result in results], 4, width=80)
    assert max(map(len, text.splitlines())) <= 80
    (tmp_path / "narrow.txt").write_text(text)
    read = read_measurements(tmp_path / "narrow.txt", collective=kind, n_ranks=4)
    assert [point.size_bytes for point in read.points] == [4096, 2**33]
    assert [point.time_s for point in read.points] == pytest.approx([one.time_s for one in results], rel=1e-2)


WORDS = ["a", "fat-tree", "12.5us", "100,000,000,000"]


@pytest.mark.parametrize("text", ["-", "spanning trees that reach the bound"])
@pytest.mark.parametrize("columns", [1, 3, 8, 14])
@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_fits_and_loses_nothing(columns: int, left: int, width: int, text: str) -> None:
    """Tables one beside the other, without the column that they repeat, are the whole."""
    lines = [[f"column-{at}" for at in range(columns)]]
    lines += [[f"row-{row}", *(WORDS[(at + row) % 4] for at in range(1, columns - 1)), *[text] * (columns > 1)]
              for row in range(6)]
    table = aligned(lines, left, width)
    assert max(map(len, table.splitlines())) <= width
    found: list[list[str]] = [[] for _ in lines]
    for index, block in enumerate(table.split("\n#\n")):
        at = -1
        for line in block.splitlines():
            words = line.lstrip("#").split()
            is_new = words[0].startswith(("column-0", "row-"))
            at += is_new
            found[at] += words[is_new and index > 0:]
    assert found == [" ".join(line).split() for line in lines]


def test_text_of_a_last_column_goes_on_below_itself() -> None:
    lines = [["name", "what it is"], ["ring", "every rank sends to the next one"], ["tree", "halves"]]
    assert aligned(lines, 2, 30).splitlines() == [
        "# name  what it is", "  ring  every rank sends to", "        the next one", "  tree  halves",
    ]


def test_a_broken_table_repeats_the_columns_that_tell_its_lines_apart() -> None:
    lines = [["size", "algorithm", "time", "bound"], ["4 B", "ring", "1 us", "1 us"], ["4 B", "swing", "2 us", "1 us"]]
    first, second = (block.splitlines() for block in aligned(lines, 0, 26).split("\n#\n"))
    assert [line.split() for line in (first[0], second[0])] == [
        ["#", "size", "algorithm", "time"], ["#", "size", "algorithm", "bound"]]
    assert second[2].split() == ["4", "B", "swing", "1", "us"]


def test_columns_are_aligned() -> None:
    assert aligned([["a", "bb"], ["ccc", "d"]], left=1).splitlines() == ["# a    bb", "  ccc   d"]


def test_where_nothing_moves_nobody_is_fastest() -> None:
    """One NPU: narrow, and where the algorithms do not fit a line, which would list all of them as tied."""
    idle = {"size_bytes": 1024, "time_s": 0.0, "form": "", "spread_low_s": 0.0, "spread_high_s": 0.0}
    rows = [idle | {"algorithm": name} for name in ("swing", "ring", "bucket")]
    for width in (120, 30):
        assert comparison_table(rows, width).splitlines()[-1].endswith("nothing moves")
