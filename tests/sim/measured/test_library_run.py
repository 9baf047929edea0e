"""The judge of a library on a machine: are public threads judged as their maintainers did, and healthy tables good?"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from sim.analytic.cut_bound import cut_bound
from sim.library.described import asked_of, machine_of
from sim.library.expected import expected, timed
from sim.library.tuner import Setting, candidates
from sim.measured.causes import busbw, causes, ceiling, healthy, most, times_of, with_nics
from sim.measured.diagnosis import CLASSES, GOOD, Diagnosis
from sim.measured.judge import Judgment, judge
from sim.measured.library_run import AGGREGATED, LibraryRun
from sim.papers.hardware import LEFT_OUT, setting_of, shipped
from tests.places import DATA
from topologies import WeftError
from topologies.machines.profile import Nic, machine, part
from topologies.units import format_size, parse_size

CASES = list(csv.DictReader((DATA / "diagnosed.csv").read_text(encoding="utf-8").splitlines()))
"""Public threads in which a run was diagnosed: points as size=us or size@busbw, those of another run of as many ranks
that the thread names, what the thread does not say and is assumed, evidence M (a maintainer), U (confirmed by the
asker), D (documentation) or N (a cause was not read)."""


def runs_of(case: dict[str, str]) -> list[LibraryRun]:
    algorithms, protocols = asked_of(case["algorithm"])
    found = machine_of(case["system"], case["gpu"], int(case["each"]), case["inside"], case["nic"])
    setting = Setting(
        machine=found, nodes=int(case["nodes"]), gpus=int(case["each"]), collective=case["collective"],
        algorithms=algorithms, protocols=protocols,
    )

    def points(text: str) -> list[tuple[int, float]]:
        found = []
        for word in text.split():
            by_rate = "@" in word
            size_text, value = word.split("@" if by_rate else "=")
            size = parse_size(size_text)
            found.append((size, size * setting.bus_factor / float(value) / 1e9 if by_rate else float(value) / 1e6))
        return found

    return [LibraryRun(case["id"], setting, points(case[key])) for key in ("points", "beside") if case[key]]


def judged(case: dict[str, str]) -> Judgment:
    return judge(runs_of(case))


def test_confirmed_cases_are_judged_to_their_class() -> None:
    confirmed = [case for case in CASES if case["evidence"] in "MUD"]
    wrong = {case["id"]: judged(case).verdict for case in confirmed if judged(case).verdict != case["verdict"]}
    assert len(confirmed) == 23
    assert wrong == {}


@pytest.mark.parametrize("case", [case for case in CASES if case["verdict"] == "good"], ids=lambda case: case["id"])
def test_no_good_case_is_called_bad(case: dict[str, str]) -> None:
    assert judged(case).tables[0].fine


@pytest.mark.parametrize("case", [case for case in CASES if case["evidence"] == "N"], ids=lambda case: case["id"])
def test_what_nobody_explained_is_at_least_slow_or_not(case: dict[str, str]) -> None:
    assert judged(case).tables[0].fine == (case["verdict"] == "good")


NOT_REACHED = ("slinky-[0-9]+n-sr", "b200-2g-ar-ll128", "h100-4g-ata-2169", "aicad-4n-ar-t1am4")
"""Public tables with a known shortfall: send/recv beyond eight nodes, LL128 on two B200, 4 H100 whose thread is about a
drop, four Sparks with few channels."""


@pytest.mark.full
def test_healthy_public_tables_are_good_and_broken_ones_are_not() -> None:
    for name, group in groupby(shipped(), key=lambda row: row["id"]):
        rows = list(group)
        if "ag-collnet" in name or any(re.match(pattern, name) for pattern in NOT_REACHED):
            continue
        points = [(int(r["size_bytes"]), float(r["time_us"]) / 1e6) for r in rows]
        found = LibraryRun(name, setting_of(rows[0]), points).diagnosis()
        broken = any(re.search(pattern, name) for pattern, _ in LEFT_OUT)
        if not broken:
            assert found.fine, name
        elif "tcp" in name:
            assert (found.verdict, found.cause) == ("wrong-config", "sockets"), name


# --- every rule by the input that only it decides ----------------------------------------------------------------

SIZES = [2**power for power in range(10, 34)]
FOUR = Setting(machine=machine("dgx-h100"), nodes=4, gpus=8, collective="all-gather")
ONE = replace(FOUR, nodes=1, collective="all-reduce")
GATHER = replace(ONE, collective="all-gather")
SHARP = replace(FOUR, machine=machine("dgx-b200"), collective="all-reduce", algorithms=("CollNet",))
SPINE = replace(FOUR, machine=machine("dgx-a100"))
PAIR = replace(with_nics(SPINE, 4), nodes=2, collective="all-reduce")
ROCE = replace(FOUR, machine=replace(machine("dgx-a100"), nic=machine("a3-ultra").nic))


def times(setting: Setting, sizes: list[int] | None = None) -> list[tuple[int, float]]:
    return [(size, expected(setting, size).time_s) for size in sizes or SIZES]


def found(setting: Setting, points: list[tuple[int, float]]) -> Diagnosis:
    return LibraryRun("table", setting, points).diagnosis()


def at_rate(setting: Setting, share: float) -> list[tuple[int, float]]:
    """As by the library, but the bytes take longer."""
    slow = replace(setting, machine=replace(
        setting.machine, nic=replace(setting.machine.nic, reached=setting.machine.nic.reached * share)))
    by_name = [{(one.algorithm, one.protocol): one for one in candidates(each)} for each in (setting, slow)]
    points = []
    for size in SIZES:
        one = expected(setting, size)
        points.append((size, timed(slow, by_name[1][one.algorithm, one.protocol], size).time_s))
    return points


def collapsed(setting: Setting) -> list[tuple[int, float]]:
    return [(size, time * (6 if size > 2**26 else 1)) for size, time in times(setting)]


def through_cpu() -> list[tuple[int, float]]:
    one = with_nics(replace(SPINE, machine=machine("dgx-a100")), 1)
    return at_rate(one, 16.0 / (one.machine.nic.port * one.machine.nic.reached / 1e9))


def delayed(setting: Setting, factor: float, sizes: list[int]) -> list[tuple[int, float]]:
    """As by the library, but every step takes longer."""
    x = np.log([1.0, 1.0, factor])
    return list(zip(sizes, times_of(setting, sizes)(x).tolist(), strict=True))


RULES = {
    "healthy": (FOUR, times(FOUR), "good"),
    "collapse": (FOUR, collapsed(FOUR), "slow-hw"),
    "tree-2n": (replace(SPINE, nodes=2, collective="all-reduce", machine=replace(SPINE.machine, nics=2)),
                [(2**32, 2**32 * 15 / 8 / 80e9)], "tree-2n"),
    "protocol": (replace(ONE, protocols=("LL128",)), [(2**30, 2**30 * 1.75 / 150e9)], "wrong-config"),
    "ll128-off": (replace(SPINE, machine=machine("dgx-h100"), nodes=4, collective="all-reduce"),
                  times(replace(SPINE, machine=machine("dgx-h100"), collective="all-reduce",
                                protocols=("LL", "Simple"))), "wrong-config"),
    "nvls-off": (ONE, times(replace(ONE, algorithms=("Ring", "Tree"))), "wrong-config"),
    "sharp-off": (SHARP, times(replace(SHARP, algorithms=("Ring",))), "wrong-config"),
    "pcie": (ONE, [(size, 5e-5 + size * 1.75 / 20e9) for size in SIZES], "wrong-config"),
    "slow-inside": (GATHER, [(size, time + size * 0.875 / 370e9 * 0.9) for size, time in times(GATHER)],
                    "slow-unknown"),
    "one-nic": (FOUR, times(with_nics(FOUR, 1)), "slow-hw"),
    "half-the-nics": (FOUR, times(with_nics(FOUR, 4)), "slow-hw"),
    "dead-rail": (with_nics(FOUR, 4), times(with_nics(FOUR, 3)), "slow-hw"),
    "through-cpu": (with_nics(SPINE, 1), through_cpu(), "slow-hw"),
    "sockets": (FOUR, at_rate(FOUR, 0.06), "wrong-config"),
    "shared-link": (SPINE, at_rate(SPINE, 0.43), "slow-hw"),
    "collisions": (ROCE, at_rate(ROCE, 0.45), "wrong-config"),
    "ring-of-two": (PAIR, times(replace(PAIR, algorithms=("Ring",))), "good"),
    "host-copies": (replace(SPINE, nodes=2), at_rate(replace(SPINE, nodes=2), 0.4), "wrong-config"),
    "slow-between": (FOUR, at_rate(FOUR, 0.65), "slow-unknown"),
    "per-step": (SPINE, delayed(SPINE, 6.0, SIZES[8:17]), "wrong-config"),
    "latency": (FOUR, [(size, 5 * time) for size, time in times(FOUR, SIZES[:6])], "slow-unknown"),
}


@pytest.mark.parametrize("cause", RULES)
def test_every_cause_is_named(cause: str) -> None:
    setting, points, verdict = RULES[cause]
    one = found(setting, points)
    assert (one.cause, one.verdict) == (cause, verdict)
    assert verdict in CLASSES


def test_all_causes_have_such_an_input() -> None:
    every = {one.name for setting in (FOUR, ONE, SPINE, ROCE, with_nics(FOUR, 4), with_nics(SPINE, 1),
                                      PAIR, RULES["sharp-off"][0]) for one in causes(setting)}
    assert every <= set(RULES)


def test_what_only_a_network_that_reduces_explains_is_said_to_be_so() -> None:
    four = replace(SPINE, collective="all-reduce")
    bound = float(cut_bound(four.machine.topology(4), "all-reduce").s_per_byte)
    fast = [(size, size * bound / 1.2) for size in SIZES[-4:]]
    one = found(four, fast)
    assert one.verdict == "good" and "is aggregation (SHARP) on?" in one.limit
    assert one.bound_reduces and one.share_of_bound is not None and one.share_of_bound < 1
    told = found(replace(four, algorithms=("CollNet",)), fast)
    assert told.bound_reduces and "SHARP" not in told.limit
    pair = replace(four, nodes=2)
    passed = float(cut_bound(pair.machine.topology(2), "all-reduce").s_per_byte)
    of_two = found(pair, [(size, size * passed / 1.2) for size in SIZES[-4:]])
    assert of_two.limit == AGGREGATED or AGGREGATED in of_two.notes
    usual = found(four, times(four))
    assert not usual.bound_reduces and AGGREGATED not in (usual.limit, *usual.notes)


@pytest.mark.parametrize("setting", [replace(FOUR, collective="all-reduce"), FOUR, ONE, SPINE])
def test_what_levels_out_near_the_rate_of_the_largest_messages_is_not_too_small(setting: Setting) -> None:
    """Wherever a sweep ends, and once it is good it stays so."""
    whole = times(setting)
    verdicts = []
    for last in range(12, len(whole) + 1):
        one = found(setting, whole[:last])
        before, top = (row["busbw_GBps"] for row in one.rows()[-2:])
        levels = top >= GOOD * ceiling(setting) and top < 1.05 * before
        assert one.fine and (not levels or one.verdict == "good"), whole[last - 1]
        verdicts.append(one.verdict)
    assert verdicts == sorted(verdicts, reverse=True) and set(verdicts) == {"good", "too-small"}


def test_a_sweep_to_half_a_gigabyte_fills_the_links_of_four_nodes() -> None:
    """At 86 % of the rate of 16 GiB, and a doubling gave 2 %; a single size of that rate tells less."""
    points = [point for point in times(FOUR) if point[0] <= 2**29]
    assert found(FOUR, points).verdict == "good"
    alone = found(FOUR, points[-1:])
    assert alone.verdict == "too-small" and "86% of what the largest messages should reach" in alone.limit


def test_small_messages_say_nothing() -> None:
    assert found(FOUR, times(FOUR, SIZES[:6])).verdict == "too-small"
    assert found(FOUR, times(FOUR, SIZES[:14])).verdict == "too-small"


@pytest.mark.parametrize("last", [2**14, 2**18, 2**22, 2**32])
@pytest.mark.parametrize("few", [1, 2, 5])
def test_a_fine_table_says_that_its_small_messages_are_slow(few: int, last: int) -> None:
    """One of several may be of the first iterations; latency of every size has the same words."""
    whole = [point for point in times(FOUR) if point[0] <= last]
    one = found(FOUR, [(size, time * (20 if at < few else 1)) for at, (size, time) in enumerate(whole)])
    slow = f"small messages are slow: {format_size(whole[0][0])} to {format_size(whole[few - 1][0])}, 20.0 times"
    assert one.but.startswith(slow) == (one.fine and few > 1) and (one.fine or few > len(whole) / 3)
    assert found(FOUR, [(size, time * 1.9) for size, time in whole[:few]]).but == ""
    late = found(FOUR, [(size, time + 1e-3) for size, time in whole])
    assert (late.but != "") == late.fine and (late.fine or last < 2**32)


def test_one_outlier_decides_nothing_and_is_named() -> None:
    points = [(size, time * (40 if size == 2**24 else 1)) for size, time in times(FOUR)]
    one = found(FOUR, points)
    assert (one.verdict, one.contradictions, one.outliers) == ("good", (2**24,), (2**24,))


@pytest.mark.parametrize("share", [0.85, 0.925, 1.0])
def test_what_an_engineer_calls_good_is_good(share: float) -> None:
    """A ring at 92.5 % of its NICs is not fair."""
    one = found(SPINE, at_rate(SPINE, share))
    assert one.verdict == "good"
    assert one.share == pytest.approx(share, rel=0.03)


def test_one_rail_of_eight_is_within_the_scatter_and_noted() -> None:
    one = found(SPINE, times(with_nics(SPINE, 7)))
    assert one.verdict == "good"
    assert "7 NICs of 8 in use" in one.notes[0]


@pytest.mark.parametrize("setting", [GATHER, replace(ONE, machine=machine("dgx-a100")),
                                     replace(FOUR, collective="all-reduce")])
def test_half_of_the_rate_is_that_of_a_protocol(setting: Setting) -> None:
    """LL, whoever forced it, on links that scatter by little."""
    one = found(setting, times(replace(setting, protocols=("LL",))))
    assert (one.cause, one.verdict) == ("protocol", "wrong-config")
    assert "LL is forced" in one.limit


def test_a_shortfall_of_few_points_is_no_outlier() -> None:
    """One point of 60 % is a shortfall, not a healthy machine with noise."""
    size = 2**30
    assert not found(SPINE, [(size, expected(SPINE, size).time_s / 0.6)]).fine


def test_rates_have_intervals_or_are_not_determined() -> None:
    near, link, latency = found(SPINE, at_rate(SPINE, 0.7)).rates
    assert (near.name, link.name, latency.name) == ("NVLink", "NICs", "latency")
    assert link.determined and link.share.low < 0.7 < link.share.high
    assert not found(SPINE, times(SPINE, SIZES[:4])).rates[1].determined


def test_a_missing_nic_is_not_blamed_for_more_than_the_rest_can_carry() -> None:
    """60 GB/s pass neither half of eight ports of 12.5 GB/s nor half of a shared link."""
    slow = replace(SPINE, machine=replace(SPINE.machine, nic=machine("dgx1").nic))
    one = found(slow, [(2**30, 2**30 * 31 / 32 / 60e9)])
    assert one.cause == "slow-between"
    assert ceiling(with_nics(slow, 4)) < 60


def test_switches_are_those_of_the_library_and_breaks_those_that_show() -> None:
    """A library that switches where both take as long leaves no break."""
    one = found(FOUR, times(FOUR))
    assert one.switches[0] in one.breaks
    assert set(one.breaks) <= set(one.switches)


def test_nothing_to_judge_is_named() -> None:
    with pytest.raises(WeftError, match="no measured time"):
        LibraryRun("x", FOUR, [(0, 1.0)])
    with pytest.raises(WeftError, match="no table"):
        judge([])


# --- tables that no machine gives ---------------------------------------------------------------------------------


def scaled(points: list[tuple[int, float]], factor: float) -> list[tuple[int, float]]:
    return [(size, time * factor) for size, time in points]


@pytest.mark.parametrize("setting", [FOUR, ONE, SPINE, GATHER, ROCE, PAIR])
def test_what_no_machine_reaches_is_impossible(setting: Setting) -> None:
    usual = times(setting)
    assert found(setting, scaled(usual, 1 / 4)).verdict == "impossible"
    falls = [(size, usual[-1][1] * 2**20 / size) for size, _ in usual]
    assert found(setting, falls).verdict == "impossible"
    for factor in (1e-3, 1e3):
        one = found(setting, scaled(usual, factor))
        assert (one.verdict, one.cause) == ("impossible", "units")
        assert "the unit of the format (us)" in one.limit


def test_one_box_as_another_is_impossible() -> None:
    one = found(replace(ONE, machine=machine("dgx-a100")), times(ONE))
    assert (one.verdict, one.cause) == ("impossible", "too-fast")
    assert one.share_of_bound is not None and one.share_of_bound > 1


def test_wrong_results_come_first() -> None:
    for points in (times(FOUR), scaled(times(FOUR), 1e-3)):
        one = LibraryRun("table", FOUR, points, wrong=3).diagnosis()
        assert (one.verdict, one.cause, one.fine) == ("corrupt", "data-corruption", False)


def test_wrong_results_depend_on_nothing_that_was_assumed() -> None:
    fine = LibraryRun("a", FOUR, times(FOUR), assumed="its NICs are as assumed")
    wrong = replace(fine, source="b", wrong=3)
    assert judge([fine]).condition == "its NICs are as assumed"
    for runs in ([wrong], [fine, wrong]):
        said = judge(runs)
        assert (said.verdict, said.condition, said.tables[-1].condition) == ("corrupt", "", "")


def test_rows_that_contradict_each_other_are_no_good_table() -> None:
    zigzag = [(size, time * (2.5 if at % 2 else 1)) for at, (size, time) in enumerate(times(FOUR))]
    one = found(FOUR, zigzag)
    assert (one.verdict, one.cause) == ("slow-unknown", "unsteady")
    twice = found(FOUR, [*times(FOUR), *scaled(times(FOUR), 2.5), *times(FOUR)])
    assert (twice.verdict, twice.cause, len(twice.repeats)) == ("slow-unknown", "unsteady", len(SIZES))
    assert found(FOUR, [*times(FOUR), *scaled(times(FOUR), 1.1)]).verdict == "good"


@pytest.mark.parametrize("factor", [0.01, 100])
@pytest.mark.parametrize("size", [2**20, 2**26, 2**30])
def test_one_size_that_is_off_by_a_hundred_times_is_named(factor: float, size: int) -> None:
    one = found(FOUR, [(each, time * (factor if each == size else 1)) for each, time in times(FOUR)])
    assert (one.verdict, one.cause) == ("good", "healthy")
    assert {*one.contradictions, *one.outliers} == {size}


@pytest.mark.parametrize("seed", range(5))
def test_what_a_noisy_table_reached_is_not_its_luckiest_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [2**power for power in range(20, 34)]
    one = found(ONE, [(size, time * float(np.exp(rng.normal(0, 0.25)))) for size, time in times(ONE, sizes)])
    assert 0.8 < one.share < 1.2 < max(row["ratio"] for row in one.rows())
    assert any(note.startswith("noisy: ") for note in one.notes)
    assert not any("noisy" in note for note in found(ONE, times(ONE, sizes)).notes)


def test_repeats_that_contradict_each_other_are_not_as_expected() -> None:
    once = times(ONE, [2**20])
    assert found(ONE, [*once, *scaled(once, 1.1)]).verdict == "too-small"
    one = found(ONE, [*once, *scaled(once, 1.1), *scaled(once, 9.0)])
    assert (one.verdict, one.cause) == ("slow-unknown", "unsteady") and "repeats of 1 MiB differ" in one.limit
    large = times(ONE, [2**32])
    assert any("on which the verdict rests" in note for note in found(ONE, [*large, *large, *scaled(large, 2.0)]).notes)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_times_that_fall_with_size_say_nothing(scale: float) -> None:
    usual = [time for _, time in times(FOUR)]
    one = found(FOUR, [(size, time * scale) for size, time in zip(SIZES, reversed(usual), strict=True)])
    assert (one.verdict, one.cause) in (("slow-unknown", "unsteady"), ("impossible", "too-fast"))
    assert len(one.contradictions) > len(SIZES) / 3


def test_too_many_sizes_are_refused() -> None:
    with pytest.raises(WeftError, match="1,001 sizes; at most 1,000"):
        LibraryRun("x", FOUR, [(size, 1.0) for size in range(1, 1002)])


@pytest.mark.parametrize("late", [1.0, 2.0, 2.5])
def test_a_missing_algorithm_shows_by_its_shape_and_not_by_one_factor(late: float) -> None:
    """Whatever small messages take: without NVLS large ones follow a ring, a slow machine is slower everywhere."""
    ring = [(size, time * (late if size <= 2**20 else 1)) for size, time in times(replace(ONE, algorithms=("Ring",)))]
    assert found(ONE, ring).cause == "nvls-off"
    assert found(ONE, scaled(times(ONE), 1.3)).cause == "slow-inside"
    assert found(ONE, scaled(times(ONE), 1.18)).verdict == "good"


def test_what_passes_a_ring_has_reducing_switches() -> None:
    """Large messages alone, which leave the shape of a curve open."""
    large = [(size, time) for size, time in times(ONE) if size >= 2**28]
    ring = [(size, time) for size, time in times(replace(ONE, algorithms=("Ring",))) if size >= 2**28]
    assert found(ONE, ring).cause == "nvls-off"
    assert found(ONE, scaled(large, 1.14)).verdict == "good"


@pytest.mark.parametrize("version", [(2, 21), (2, 27)])
def test_the_hole_of_ll128_whatever_the_library_would_choose_instead(version: tuple[int, int]) -> None:
    """A version that chooses badly without LL128 is no reason to miss it where another chose well."""
    setting = replace(SPINE, collective="all-reduce", version=version)
    off = replace(setting, protocols=("LL", "Simple"))
    best = [(size, min(timed(off, one, size).time_s for one in candidates(off))) for size in SIZES]
    fastest = [(size, max(time, expected(setting, size).time_s)) for size, time in best]
    assert found(setting, fastest).cause == "ll128-off"


def test_messages_as_large_as_tables_go_are_not_too_small() -> None:
    domain = Setting(machine=machine("gb200-nvl72"), nodes=1, gpus=72, collective="all-reduce")
    assert found(domain, scaled(times(domain, [2**28, 2**30, 2**32]), 1.06)).verdict == "good"


def test_rates_do_not_contradict_the_cause() -> None:
    """What the cause explains is no matter of rates, and a mean of two machines is that of neither."""
    nic = found(FOUR, times(with_nics(FOUR, 1))).rates[1]
    assert nic.determined and nic.share.low < 1 < nic.share.high
    two = several((SPINE, times(SPINE)), (SPINE, at_rate(SPINE, 0.5)))
    assert all(rate.apart for rate in two.rates if rate.determined)
    assert not any(rate.apart for rate in several((SPINE, times(SPINE)), (SPINE, times(SPINE))).rates)


# --- several tables ----------------------------------------------------------------------------------------------


def several(*tables: tuple[Setting, list[tuple[int, float]]]) -> Judgment:
    return judge([LibraryRun(f"table {number}", *table) for number, table in enumerate(tables)])


def test_the_same_run_on_other_nodes() -> None:
    one = several((SPINE, times(SPINE)), (SPINE, times(with_nics(SPINE, 7))))
    assert (one.verdict, one.cause) == ("slow-hw", "dead-rail")
    assert "table 1 reaches 8" in one.limit and "one NIC of 8 is dead" in one.limit
    other = several((SPINE, at_rate(SPINE, 0.75)), (SPINE, times(SPINE)))
    assert (other.verdict, other.cause) == ("slow-hw", "other-nodes")
    assert "table 0 reaches 7" in other.limit
    assert several((SPINE, times(SPINE)), (SPINE, at_rate(SPINE, 0.95))).verdict == "good"


def test_what_a_library_was_told_is_no_matter_of_other_nodes() -> None:
    one = several((ONE, times(ONE)), (ONE, times(replace(ONE, algorithms=("Ring",)))))
    assert (one.verdict, one.cause) == ("wrong-config", "nvls-off")


def test_the_spine_is_what_more_nodes_share() -> None:
    pair = replace(SPINE, nodes=2)
    one = several((pair, times(pair)), (SPINE, at_rate(SPINE, 0.5)))
    assert (one.verdict, one.cause) == ("slow-hw", "spine")
    assert several((pair, at_rate(pair, 0.5)), (SPINE, at_rate(SPINE, 0.5))).cause != "spine"


def test_collectives_that_lose_differently_are_not_of_their_links() -> None:
    other = replace(SPINE, collective="reduce-scatter")
    one = several((SPINE, at_rate(SPINE, 0.28)), (other, at_rate(other, 0.65)))
    assert (one.verdict, one.cause) == ("wrong-config", "per-step")


def test_a_thread_with_every_collective() -> None:
    """nccl 2409, two nodes of eight H100 with 400G RoCE: something per step inside the library, not the fabric."""
    roce = machine_of("", "H100", 8, "NVSwitch", "8x400G RoCE")
    rates = {"all-reduce": {"1G": 216.5, "8G": 231.0}, "all-gather": {"256M": 101.0}, "reduce-scatter": {"256M": 100.0},
             "all-to-all": {"256M": 25.0}}
    tables = []
    for collective, points in rates.items():
        setting = Setting(machine=roce, nodes=2, gpus=8, collective=collective)
        tables.append((setting, [(size, size * setting.bus_factor / rate / 1e9) for text, rate in points.items()
                                 for size in [parse_size(text)]]))
    assert several(*tables).verdict == "wrong-config"


def test_one_rate_per_class_of_links_from_all_tables() -> None:
    inside = replace(SPINE, nodes=1)
    one = several((inside, times(inside)), (SPINE, at_rate(SPINE, 0.6)))
    link = {rate.name: rate for rate in one.rates}
    assert link["NVLink"].determined and link["NVLink"].share.value == pytest.approx(1.0, rel=0.02)
    assert link["NICs"].determined and link["NICs"].share.value == pytest.approx(0.6, rel=0.02)
    assert "NICs" not in {rate.name for rate in one.tables[0].rates}


def test_the_spine_has_its_own_rate() -> None:
    """Two nodes at their rate and four at half: NICs are as they should be, and half is left of them beyond."""
    pair = replace(SPINE, nodes=2)
    for share in (1.0, 0.5):
        rates = {rate.name: rate for rate in several((pair, times(pair)), (SPINE, at_rate(SPINE, share))).rates}
        assert list(rates) == ["NVLink", "NICs", "spine", "latency"]
        assert rates["NICs"].share.value == pytest.approx(1.0, rel=0.03) and not rates["NICs"].apart
        assert rates["spine"].determined and rates["spine"].share.value == pytest.approx(share, rel=0.03)
        assert rates["spine"].nominal.endswith("by more than 2 nodes")


def test_machines_that_differ_have_no_common_rates() -> None:
    one = several((SPINE, times(SPINE)), (FOUR, times(FOUR)))
    assert (one.rates, one.verdict) == ((), "good")


def test_what_is_vague_costs_more() -> None:
    usual, *others = causes(SPINE)
    assert usual.cost == healthy(SPINE).cost == 0
    assert all(one.cost > 0 and math.isfinite(one.cost) for one in others)


class TestUnknownNics:
    """Where no header names the NICs, their number is a hypothesis like the others."""

    @staticmethod
    def judged(nics: int, nic: str, collective: str, nodes: int) -> Diagnosis:
        """A table of H100 nodes with so many NICs and forced rings, judged as if they had eight of InfiniBand."""
        there = replace(machine("dgx-h100"), nic=part(Nic, "nics", nic, "nic"), nics=nics)
        ran = Setting(machine=there, nodes=nodes, gpus=8, collective=collective, algorithms=("Ring",))
        taken = Setting(machine=machine("dgx-h100"), nodes=nodes, gpus=8, collective=collective)
        points = [(2**at, expected(ran, 2**at).time_s) for at in range(20, 31)]
        return LibraryRun("a", taken, points, assumed="its NICs are as assumed", nics_assumed=True).diagnosis()

    @pytest.mark.parametrize("nodes", [3, 5])
    @pytest.mark.parametrize("collective", ["all-reduce", "all-gather"])
    @pytest.mark.parametrize("nic", ["ib-ndr", "roce-400"])
    @pytest.mark.parametrize("nics", [4, 2])
    def test_fewer_are_named(self, nics: int, nic: str, collective: str, nodes: int) -> None:
        found = self.judged(nics, nic, collective, nodes)
        assert (found.cause, found.condition) == (f"{nics}-nics", "its NICs are as assumed")
        share = {4: "half", 2: "a quarter"}[nics]
        assert found.limit == f"{share} of the 8 NICs that were assumed: {nics} in use, or a node that has {nics}"

    @pytest.mark.table
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("sizes", [range(10, 34, 2), range(26, 34), range(30, 31)])
    @pytest.mark.parametrize("nodes", [2, 3])
    @pytest.mark.parametrize("collective", ["all-gather", "all-to-all"])
    @pytest.mark.parametrize("box", ["dgx-a100", "dgx-h100"])
    @pytest.mark.parametrize("nics", [1, 2, 4, 8])
    def test_their_number_is_found_behind_noise(
        self, nics: int, box: str, collective: str, nodes: int, sizes: range, seed: int
    ) -> None:
        """Of nodes that are healthy otherwise: neither sockets nor copies through the host, of such rates too."""
        taken = Setting(machine=machine(box), nodes=nodes, gpus=8, collective=collective)
        there, rng = with_nics(taken, nics), np.random.default_rng([seed, nics, nodes])
        lost = math.exp(abs(rng.normal(0, 0.05)))
        least_s = {at: busbw(there, 2**at, 1.0) / most(there) for at in sizes}  # no table passes the raw rate
        points = [(2**at, max(expected(there, 2**at).time_s * lost * math.exp(rng.normal(0, 0.03)), least_s[at]))
                  for at in sizes]
        found = LibraryRun("a", taken, points, assumed="as assumed", nics_assumed=True).diagnosis()
        assert found.fine if nics == 8 else found.cause == f"{nics}-nics"

    def test_more_are_asked_for(self) -> None:
        found = LibraryRun("a", with_nics(FOUR, 2), times(FOUR), assumed="as assumed", nics_assumed=True).diagnosis()
        assert found.verdict == "impossible"
        assert "is it dgx-h100, does a node have more than 2 NICs, are sizes those of whole arrays?" in found.limit

    @pytest.mark.parametrize("collective", ["all-reduce", "all-gather"])
    def test_all_of_them_are_good(self, collective: str) -> None:
        assert self.judged(8, "ib-ndr", collective, 4).fine
