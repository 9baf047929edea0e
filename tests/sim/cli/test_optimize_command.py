"""`weft optimize`: rows, files, and one line for what is wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectives.registry import algorithms_for
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.optimizer import study
from sim.optimizer.network import read_any_network
from sim.optimizer.programs import collective_objective
from sim.program.model import Model

NETWORK = "Topology: [Ring, FullyConnected, Switch]\nNpusCount: [4, 2, 4]\nCostDimension: [P, P, Q]\n"
GROUPS = "Forward: [4, -1, -1]\nInputGrad: [4, -1, -1]\nWeightGrad: [-1, 2, 4]\n"
COST = "P:\n  Link: 4.0\nQ:\n  Link: 7.8\n  Switch: 18.0\n  Nic: 31.6\n"
WORK = (
    "a -1 1000 ALLREDUCE 8000000 1000 ALLREDUCE 8000000 1000 ALLREDUCE 4000000 0\n"
    "b -1 9 NONE 0 9 NONE 0 9 NONE 0 0\n"
)

KEYS = {"bandwidth_GBps", "time_s", "equal_time_s", "cost", "lower_bound_s", "simulations"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The four input files of LIBRA."""
    texts = {"network.yml": NETWORK, "groups.yml": GROUPS, "cost.yml": COST, "work.txt": WORK}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name.partition(".")[0]: str(tmp_path / name) for name in texts}


def flags(files: dict[str, str], *more: str) -> list[str]:
    return ["optimize", "--network", files["network"], "--workload", files["work"], "--communicator", files["groups"],
            "--cost", files["cost"], "--budget", "100GB/s", *more]


@pytest.mark.parametrize(("network", "budget", "said"), [
    ("ring:1", "--budget=5GB/s", "ring:1 has no link in dimension 1, and no bandwidth to give to it: leave it out"),
    ("RI(1)_SW(4)", "--budget=5GB/s", "RI(1)_SW(4) has no link in dimension 1"),
    ("RI(4)_SW(1)", "--budget-cost=1000", "RI(4)_SW(1) has no price list"),
])
def test_dimensions_without_links(network: str, budget: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "--network", network, "--collective", "all-reduce", "-b", "1M", budget]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


PLAN = ["optimize", "--network", "RI(4)_SW(3)", "--budget", "300GB/s", "--model", "gpt-1.7b", "--device", "a100",
        "--tp", "4", "--global-batch", "6", "--evaluations", "12"]


def test_a_split_for_a_plan_is_what_train_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--json", str(tmp_path / "split.json")]) == 0
    assert "gpt-1.7b tp=4 dp=3 on RI(4)_SW(3): least time, a100" in capsys.readouterr().out
    [row] = json.loads((tmp_path / "split.json").read_text(encoding="utf-8"))["rows"]
    assert row["loop"] is None and row["lower_bound_s"] <= row["time_s"] <= row["equal_time_s"]
    rates = ",".join(f"{rate:.12g}GB/s" for rate in row["bandwidth_GBps"])
    assert main(["train", "--topology", "RI(4)_SW(3)", *PLAN[5:-2], "--npu-bandwidth", rates, "--json",
                 str(tmp_path / "train.json")]) == 0
    [iteration] = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))["rows"]
    assert iteration["time_s"] == pytest.approx(row["time_s"], rel=1e-9)


@pytest.mark.parametrize(("more", "said"), [
    (["--inline"], "run the answer with weft train --inline"), (["--peak", "312"], "--peak 312.0 is of the layers"),
    (["--workload", "gpt-3"], "--workload gpt-3 is of layers: omit it beside --model"),
    (["--checkpointed"], "--checkpointed is of layers"), (["--orders", "all"], "--orders all is of collectives"),
    (["--collective", "all-reduce"], "a plan has collectives and sizes of its own"),
    (["--tp", "5"], "tp=5 x pp=1 x cp=1 do not divide the 12 NPUs"), (["--loop", "no-overlap"], "--loop no-overlap"),
    (["--model", "gpt-175b"], "gpt-175b needs"),
])
def test_what_a_plan_refuses(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, *more]) == EXIT_BAD_INPUT
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_plan_needs_a_model(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(files, "--tp", "4")) == EXIT_BAD_INPUT
    assert "--tp 4 is of a plan: give --model" in capsys.readouterr().err


@pytest.mark.parametrize(("budget", "said"), [
    ("-5GB/s", "budget '-5GB/s' must be above zero and finite"),
    ("-.5GB/s", "budget '-.5GB/s' must be above zero and finite"),
    ("0GB/s", "budget '0GB/s' must be above zero and finite"),
    ("1e300GB/s", "budget '1e300GB/s' must be above zero and finite"),
    ("1e20GB/s", "constraint sum of B = 1e+20 GB/s: the most that a solver tells apart from its error is 1e+15"),
    ("500", "budget '500' is not a rate"),
    ("1b/s", "constraint sum of B = 1.25e-10 GB/s: the least that a solver tells apart from nothing is 1e-06 GB/s"),
])
def test_budgets_that_cannot_be_spent(budget: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number below zero is a value, whatever its unit, and not an unknown flag."""
    assert main(["optimize", "--network", "RI(4)_FC(8)", "--workload", "gpt-3", "--budget", budget]) == EXIT_BAD_INPUT
    assert said in capsys.readouterr().err


def test_the_least_budget_can_be_spent(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["optimize", "--network", "RI(4)_FC(8)", "--collective", "all-reduce", "-b", "1M", "--budget", "1e-6GB/s"]
    assert main([*asked, "--evaluator", "analytic", "--json", "-"]) == 0
    assert sum(row_of(capsys)["bandwidth_GBps"]) == pytest.approx(1e-6)


@pytest.mark.parametrize("flag", [["--weight", "-1"], ["--parallelism", "tp=2"], ["--communicator", "a.json"]])
def test_flags_of_workloads_are_not_of_a_collective(flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["optimize", "--network", "RI(4)_FC(8)", "--collective", "all-reduce", "-b", "1M", "--budget", "9GB/s"]
    assert main([*asked, *flag]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert f"{flag[0]} " in said and "is of workloads, and --collective is given: omit it" in said


UNNAMED = ["optimize", "--collective", "all-reduce", "-b", "1M", "--budget", "9GB/s", "--evaluations", "2",
           "--no-sensitivity"]


@pytest.mark.parametrize(("more", "said"), [
    ([], "algorithms searched, for none is named"),
    (["--orders", "0,1"], "hierarchical alone was searched, of which --orders"),
    (["--algorithm", "hierarchical"], ""),
])
def test_what_was_searched_is_said(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*UNNAMED, "--network", "RI(3)_SW(5)", *more]) == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert ("searched" in printed) is bool(said)


@pytest.mark.parametrize("network", ["RI(3)_SW(5)", "torus:3x5", "leaf-spine:2x3x2", "mesh:2x3"])
def test_unnamed_algorithms_are_all_searched(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is no slower than any other named alone at the splits at which it began; all others are accounted for.
    """
    assert main([*UNNAMED, "--network", network, "--json", "-", "--quiet"]) == 0
    row = row_of(capsys)
    searched, others = {one["algorithm"] for one in row["choices"]}, set(row["not_searched"])
    assert searched | others == set(algorithms_for("all-reduce")) and not searched & others
    assert row["not_searched"]["in-network"] == f"{network} does not say that its switches reduce: name it to search it"
    fabric, (first, *_), halves = read_any_network(network).topology, row["choices"], [4.5, 4.5]
    assert first["time_s"] == row["time_s"]
    for name in sorted(searched):
        found = collective_objective(fabric, "all-reduce", name, "1MiB", model=Model(chunks=16)) if name not in (
            "hierarchical", "themis") else collective_objective(
            fabric, "all-reduce", name, "1MiB", model=Model(chunks=1), pipeline_chunks=16)
        assert found.evaluate(np.array(halves)).time_ns * 1e-9 >= row["time_s"] * (1 - 1e-9)


def test_splits_at_which_an_algorithm_cannot_be_built(capsys: pytest.CaptureFixture[str]) -> None:
    """bfb balances loads in whole parts of a shard: equal links of a torus do, those of most splits do not."""
    asked = [*UNNAMED, "--network", "torus:3x5", "--algorithm", "bfb"]
    assert main([*asked, "--json", "-", "--quiet"]) == 0
    row = row_of(capsys)
    assert row["bandwidth_GBps"] == [4.5, 4.5] and row["splits"][1]["simulated_s"] is None
    assert "bfb was left out at " in row["left_out"][0] and " GB/s bfb on torus:3x5: balanced loads need" in (
        row["left_out"][0])
    assert main([*asked, "--constraint", "B1 = 3.8713 GB/s"]) == EXIT_BAD_INPUT
    assert "at 3.8713 / 5.1287 GB/s bfb on torus:3x5: balanced loads need" in capsys.readouterr().err


def row_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert set(row) >= KEYS
    return dict(row)


@pytest.mark.parametrize("objective", ["time", "time-cost"])
def test_analytic(files: dict[str, str], capsys: pytest.CaptureFixture[str], objective: str) -> None:
    """Certified: the gap is nothing, the budget is spent, and equal bandwidths are not better."""
    assert main(flags(files, "--objective", objective, "--evaluator", "analytic", "--json", "-")) == 0
    row = row_of(capsys)
    assert row["certified"].startswith("the analytic split has the least time")
    assert "LIBRA's formulas" in row["certified"] and row["bound_of"] == "LIBRA's formulas"
    assert [one["split"] for one in row["splits"]] == ["equal", "analytic"]
    assert sum(row["bandwidth_GBps"]) == pytest.approx(100)
    assert abs(row["gap"]) < 1e-6
    assert row["simulations"] == 0
    assert row["speedup" if objective == "time" else "perf_per_cost_gain"] >= 1


def test_simulated(files: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No worse than the analytic split, above its bound, and the files that were asked for."""
    table, plot = tmp_path / "row.csv", tmp_path / "front.png"
    asked = ["--chunks", "2,4", "--evaluations", "12", "--sensitivity", "--json", "-"]
    assert main(flags(files, *asked, "--csv", str(table), "--plot", str(plot))) == 0
    row = row_of(capsys)
    assert row["lower_bound_s"] <= row["time_s"] <= row["analytic_simulated_s"]
    assert row["time_s"] <= row["equal_time_s"]
    assert row["chunks"] in (2, 4)
    assert len(row["saved_s_per_GBps"]) == 3
    assert row["simulations"] >= 1
    with table.open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 1
    assert plot.stat().st_size > 1000


def test_the_peak_is_given_as_to_train(capsys: pytest.CaptureFixture[str]) -> None:
    """In TFLOP/s, 312 if it is not given; its flag of old says so."""
    asked = ["optimize", "--network", "SW(8)", "--workload", "resnet-50", "--budget", "8000TB/s"]
    times = []
    for peak in ([], ["--peak", "312"], ["--peak", "156"]):
        assert main([*asked, *peak, "--evaluator", "analytic", "--json", "-"]) == 0
        times.append(row_of(capsys)["time_s"])
    assert times[0] == times[1] == pytest.approx(times[2] / 2, rel=1e-3)
    with pytest.raises(SystemExit):
        main([*asked, "--peak-flops", "3e14"])
    assert "--peak, in TFLOP/s as in weft train" in capsys.readouterr().err


def test_the_plain_command_simulates_and_shows_three_splits_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    """LIBRA's optimum is slower than the equal split here, and its certificate is of its formulas."""
    asked = ["optimize", "--network", "RI(4)_FC(8)_RI(4)_SW(32)", "--workload", "gpt-3", "--budget", "800GB/s"]
    assert main([*asked, "--chunks", "4", "--evaluations", "20", "--json", "-"]) == 0
    row = row_of(capsys)
    equal, analytic, simulated = row["splits"]
    assert [one["split"] for one in row["splits"]] == ["equal", "analytic", "simulated"]
    assert row["time_s"] == simulated["simulated_s"] < equal["simulated_s"] < analytic["simulated_s"]
    assert analytic["formula_s"] < min(equal["formula_s"], simulated["formula_s"])
    assert row["bound_of"] == "the busiest links and the longest chain" and row["formula"] == "LIBRA's formulas"
    assert analytic["formula_s"] < row["lower_bound_s"] <= row["time_s"]
    assert 1e-3 < row["budget_saved_s_per_GBps"] < 3e-3
    assert row["budget_saved_by_formula_s_per_GBps"] == pytest.approx(1.288e-3, rel=1e-3)
    assert main([*asked, "--chunks", "4", "--evaluations", "2"]) == 0
    said = capsys.readouterr().out
    assert "certified: the analytic split has the least time by LIBRA's formulas" in said
    assert "one more GB/s of budget saves" in said and "lower bound of any split's simulated time" in said


def test_lanes_loops_and_constraints(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--loop", "wfbp", "--evaluations", "8", "--lane", "10GB/s",
             "--constraint", "B3 >= 20", "--json", "-")
    assert main(flags(files, *asked)) == 0
    bandwidth = row_of(capsys)["bandwidth_GBps"]
    assert all(value % 10 == 0 for value in bandwidth)
    assert bandwidth[2] >= 20


def test_a_collective_on_a_torus(capsys: pytest.CaptureFixture[str]) -> None:
    """Any network and algorithm; the best of several is found, and there are no prices to show."""
    asked = ["optimize", "--topology", "torus:8x2", "--collective", "all-reduce", "--algorithms", "swing,bucket",
             "-b", "1M", "--budget",
             "100GB/s", "--chunks", "2", "--evaluations", "10", "--json", "-"]
    assert main(asked) == 0
    row = row_of(capsys)
    assert row["algorithm"] in ("swing", "bucket")
    assert row["cost"] is None
    assert row["speedup"] >= 1


def test_knobs_and_networks(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each network, all choices of the knobs in it, and a table at the end; what is tied is said to be."""
    asked = ["optimize", "--topology", "RI(4)_RI(4)", "--topology", "torus:4x4", "--topology", "circulant:8x1x3",
             "--collective", "all-reduce", "-b", "1M", "--budget", "100GB/s", "--evaluations", "8"]
    assert main([*asked, "--algorithm", "bucket", "--plot", "x.png"]) == EXIT_BAD_INPUT
    assert "--plot draws one network, and 3 are given" in capsys.readouterr().err
    assert main([*asked, "--algorithm", "bucket", "--chunks", "4,8"]) == 0
    said = capsys.readouterr().out
    assert said.count("2 choices, best first; = its range overlaps that of the best:") == 3
    assert sum(line.startswith("  = ") for line in said.splitlines()) == 3
    table = said.splitlines()[-4:]
    assert table[0].startswith("# network")
    assert [line.split()[-1] for line in table[1:3]] == ["best", "tied"] and table[3].endswith("us")


def test_orders_and_algorithms_of_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["optimize", "--topology", "RI(4)_FC(2)", "--collective", "all-reduce", "-b", "1M", "--budget", "100GB/s",
             "--chunks", "2", "--evaluations", "6", "--json", "-"]
    assert main([*asked, "--orders", "all", "--dimension-algorithms", "ring,;direct,direct"]) == 0
    row = row_of(capsys)
    assert len(row["choices"]) == 4
    assert row["time_s"] == min(one["time_s"] for one in row["choices"])
    assert "order" in row["knobs"]


def test_the_analytic_evaluator_takes_the_best_algorithm_too(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["optimize", "--topology", "torus:8x2", "--collective", "all-reduce", "--algorithms",
             "recursive-doubling,bucket", "-b", "1M", "--budget", "100GB/s", "--evaluator", "analytic", "--json", "-"]
    assert main(asked) == 0
    assert row_of(capsys)["algorithm"] == "bucket"


def test_an_iteration_on_a_network_without_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["optimize", "--topology", "circulant:8x1x3", "--workload", "resnet-50", "--budget", "100GB/s"]
    assert main([*asked, "--evaluator", "analytic"]) == EXIT_BAD_INPUT
    assert "LIBRA's formulas need dimensions of NPUs" in capsys.readouterr().err
    more = ["--algorithm", "totient-rings", "--evaluations", "3", "--json", "-"]
    assert main([*asked, *more]) == 0
    assert row_of(capsys)["speedup"] >= 1


def test_pipeline_stages(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["optimize", "--network", "SW(2)_SW(4)", "--workload", "bert-base", "--parallelism", "tp=2,pp=4",
             "--microbatches", "4", "--samples", "256", "--budget", "100GB/s"]
    assert main([*asked, "--evaluator", "analytic"]) == 0
    said = capsys.readouterr().out
    assert "pipeline of 4 stages, 4 microbatches (1f1b), messages of 192 KiB not counted" in said
    assert main([*asked, "--chunks", "1", "--evaluations", "5", "--json", "-"]) == 0
    row = row_of(capsys)
    assert row["lower_bound_s"] <= row["time_s"] <= row["equal_time_s"]
    assert row["time_s"] >= 0.99 * row["analytic_time_s"]


def test_models_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Several at once, each with a weight."""
    asked = ["optimize", "--network", "RI(4)_FC(8)_RI(4)_SW(32)", "--workload", "gpt-3", "--workload", "resnet-50",
             "--weight", "1", "--weight", "5", "--budget", "500GB/s", "--evaluator", "analytic", "--json", "-"]
    assert main(asked) == 0
    assert row_of(capsys)["workload"] == "gpt-3 + resnet-50"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--objective", "time-cost", "--budget-rule", "at-most"], "time x cost has no optimum"),
        (["--constraint", "B1 >= 200"], "contradict each other"),
        (["--constraint", "B9 = 1"], "no dimension B9"),
        (["--budget-cost", "1"], "contradict each other"),
        (["--loop", "dear", "--evaluator", "analytic"], "--loop 'dear' is unknown to the analytic evaluator"),
        (["--loop", "overlap"], "unknown to the simulated evaluator"),
        (["--chunks", "0"], "--chunks 0"),
        (["--evaluations", "0"], "at least 1"),
        (["--collective", "all-reduce"], "give either --workload, --collective or --model"),
        (["--budget", "500"], "budget '500' is not a rate"),
        (["--budget-rule", "some"], "budget rule 'some' is unknown"),
        (["--counting", "1999"], "counting '1999' is unknown"),
        (["--weight", "1", "--weight", "2"], "--weight is given 2 times for 1 workloads"),
        (["--weight", "1e300"], "weight is 1e+300: give a number from 1e-09 to 1000000000"),
        (["--weight", "0"], "weight is 0.0: give a number from 1e-09 to 1000000000"),
        (["--size", "1M"], "--size belongs to --collective"),
        (["--orders", "all", "--evaluator", "analytic"], "--orders has no effect in LIBRA's formulas of a workload"),
        (["--degrees", "2"], "--degrees is for circulants"),
        (["--algorithms", "none"], "algorithm 'none' is unknown"),
        (["--option", "trees=1"], "none of the algorithms hierarchical takes it"),
        (["--microbatches", "2"], "has no pipeline stages"),
    ],
)
def test_one_line_for_what_is_wrong(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert main(flags(files, *more)) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_groups_that_do_not_fit(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files["groups"]).write_text(GROUPS.replace("2, 4", "2, 8"), encoding="utf-8")
    assert main(flags(files)) == EXIT_BAD_INPUT
    assert "line 3: WeightGrad: 8 NPUs of dimension 3, which has 4" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--workload", "ncf", "--loop", "wfbp"],
                                   ["--collective", "all-reduce", "--algorithm", "themis", "-b", "1M"]])
def test_the_bounds_of_a_front_hold_for_each_of_its_budgets(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of up to twice the budget: what no run at the budget itself undercuts, others may."""
    asked, real = [], study.design_simulated

    def kept(objective: Any, feasible: Any, *rest: Any, **named: Any) -> Any:
        asked.append((objective, feasible.most_GBps))
        return real(objective, feasible, *rest, **named)

    monkeypatch.setattr(study, "design_simulated", kept)
    where = "--topology" if "--collective" in words else "--network"
    plot = ["--budget", "100GB/s", "--evaluations", "2", "--plot", str(tmp_path / "a.png")]
    assert main(["optimize", where, "RI(2)_SW(2)", *words, *plot]) == 0
    assert max(most for _, most in asked) > 1.5 * min(most for _, most in asked)
    for objective, most in asked:
        split = np.full(objective.n_dims, most * (1 - 1e-6) / objective.n_dims)
        for part, floor in zip(objective.evaluate(split).parts, objective.floors, strict=True):
            assert floor.time_ns(split) <= part.time_ns * (1 + 1e-12)


@pytest.mark.parametrize("more", [[], ["--lane", "0.5GB/s", "--constraint", "B1 <= 60GB/s"], ["--lane", "30GB/s"]])
def test_counts_add_up_and_noise_is_no_price(more: list[str], tmp_path: Path) -> None:
    """Of one collective every evaluation is one engine run; a difference of the solver saves nothing."""
    out = tmp_path / "out.json"
    asked = ["--network", "RI(4)_SW(4)", "--collective", "all-reduce", "-b", "1M", "--budget", "100GB/s"]
    assert main(["optimize", *asked, "--evaluations", "8", *more, "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["evaluations"] == row["simulations"]
    saved = row["budget_saved_by_formula_s_per_GBps"]
    assert saved is None or saved == 0 or abs(saved) > 1e-9 * row["time_s"]


def test_another_number_of_chunks_that_is_faster_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--collective", "all-reduce", "--algorithms", "themis,bucket", "-b", "300K", "--budget", "100GB/s"]
    assert main(["optimize", "--network", "SW(5)_SW(5)", *words, "--evaluations", "4", "--quiet"]) == 0
    assert "at this split themis, 2 chunks: 7.898 us; --chunks 1,2,4,16 searches" in capsys.readouterr().out
    searched = ["--evaluations", "4", "--quiet", "--chunks", "1,2,4,16"]
    assert main(["optimize", "--network", "SW(5)_SW(5)", *words, *searched]) == 0
    out = capsys.readouterr().out
    assert "themis, 2 chunks): 50.00 / 50.00" in out and "at this split" not in out
