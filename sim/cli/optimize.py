"""`weft optimize`: the bandwidth of every dimension, for a workload and a budget."""

import argparse
from typing import Any

from sim import plots
from sim.cli.asked import spec_of
from sim.cli.flags import how, refuse_how
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.optimizer.choices import TIMED
from sim.optimizer.study import Study
from sim.study.designs import make_studies
from sim.study.tables import aligned, range_s, screen_width, time_text
from topologies.checks import WeftError
from topologies.grouped import grouped
from topologies.units import counted


def run(arguments: argparse.Namespace) -> None:
    """Optimize, print, write the files."""
    spec = spec_of(arguments)
    if spec.optimize.evaluator == "analytic":
        refuse_how(arguments, "omit --evaluator analytic")
    studies = make_studies(spec, how(arguments))
    if arguments.plot and len(studies) > 1:
        raise WeftError(f"--plot draws one network, and {len(studies)} are given")
    rows = []
    for study in studies:
        with progress(f"optimize: {study.title}", 1, arguments.quiet, of_runs=True):
            found = study.rows()
        say(arguments, *report(study, found))
        if spec.collective.name and not spec.collective.algorithms:
            say(arguments, *(f"  {line}" for line in searched(study, found[0])))
        rows += found
    if len(rows) > 1:
        say(arguments, *_compared(spec.optimize.objective, rows))
    study = studies[0]
    if arguments.plot and study.cost is None:
        raise WeftError("--plot draws time over cost: the network needs prices (--cost FILE)")
    by_formula = study.cost is not None and study.evaluator == "analytic"  # by simulation it takes many times the runs
    front = study.front() if arguments.plot or (arguments.json and by_formula and len(studies) == 1) else []
    write_json(arguments, spec, rows, **({"front": [point.row() for point in front]} if front else {}))
    write_csv(arguments, [_flat(row) for row in rows])
    if arguments.plot:
        write_whole(arguments.plot, lambda path: plots.draw_pareto(front, path))


def report(study: Study, rows: list[dict[str, Any]]) -> list[str]:
    """The lines that are printed of a study."""
    lines = [f"{study.title}: {', '.join(study.settings())}"]
    for row in rows:
        lines += _headline(row)
        if row["rank_progress"] not in (None, "free"):
            lines.append(f"  progress of ranks, auto: {row['rank_progress']}")
        if row.get("circuits"):
            lines.append(f"  circuits of the simulated split: {row['circuits']}")
        lines += _splits(row)
        lines += _bounds(row)
        if other := row.get("recut"):
            lines.append(f"  at this split {other['knobs']}: {time_text(other['time_s'])}; --chunks 1,2,4,16 searches")
        if len(choices := row.get("choices", [])) > 1:
            lines += _choices(choices)
        for dim, saved in enumerate(row.get("saved_s_per_GBps") or (), start=1):
            lines.append(f"  one more GB/s in dimension {dim} {_saves(saved)}")
        lines += [f"  {line}" for line in row.get("left_out", ())]
    return lines


def searched(study: Study, row: dict[str, Any]) -> list[str]:
    """What was searched where no algorithm is named, and why others were not."""
    if not study.is_open:
        return ["hierarchical alone was searched, of which --orders and --dimension-algorithms are"]
    names = dict.fromkeys(one.algorithm for one in study.knobs)
    not_searched = row.get("not_searched", study.not_searched)
    able = [name for name in names if name not in not_searched]
    lines = [f"{counted(len(able), 'algorithm')} searched, for none is named (--algorithms takes some)"]
    how = {name: {one["how"] for one in row.get("choices", ()) if one["algorithm"] == name} for name in able}
    if few := [name for name, said in how.items() if said == {TIMED}]:
        lines.append(f"{', '.join(few)}: {TIMED} (--algorithms {few[0]} searches)")
    groups = grouped((why, name) for name, why in not_searched.items())
    return lines + [f"{', '.join(group)} not searched: {why}" for why, group in groups.items()]


def _headline(row: dict[str, Any]) -> list[str]:
    """What to build, and what it gains."""
    built, shares, found = row["evaluator"], row["bandwidth_GBps"], "time"
    if row["recommended"] == "equal":
        built, shares, found = "equal split", row["splits"][0]["bandwidth_GBps"], "best simulated"
    said, within = ("; no gain beyond the spread", ", within the spread") if row["tied"] else ("", "")
    return [
        f"{built}{_choice(row)}: {_shares(shares)} GB/s{said}",
        f"  {found} {time_text(row['time_s'])}, equal split {_time(row['equal_time_s'])}"
        + (f" ({row['speedup']:.3f}x{within})" if row["speedup"] else "") + _cost_words(row),
    ]


def _time(time_s: float | None) -> str:
    return "-" if time_s is None else time_text(time_s)


def _shares(bandwidth_GBps: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in bandwidth_GBps)


def _saves(saved_s: float | None) -> str:
    if saved_s is None:
        return "cannot be had: it cannot run there"
    return f"saves {time_text(saved_s)}" if saved_s >= 0 else f"costs {time_text(-saved_s)}"


def _splits(row: dict[str, Any]) -> list[str]:
    """The equal, the analytic and the simulated split side by side; `=` where the range overlaps that of the answer."""
    table = [["split", "simulated", "perturbed", "by formula", "GB/s of each dimension"]]
    for one in row["splits"]:
        simulated = _time(one["simulated_s"])
        ends = range_s(one)
        mark = "=" if one["tied"] and one is not row["splits"][-1] else " "
        perturbed = "-" if ends is None else f"{time_text(ends[0])} to {time_text(ends[1])} {mark}"
        shares = _shares(one["bandwidth_GBps"]) + ("" if one["allowed"] else " (breaks a constraint)")
        shares += f" ({one['form']} form)" if one["form"] not in ("", row["form"]) else ""
        shares += " (not in whole lanes)" if one["whole_lanes"] is False else ""
        table.append([one["split"], simulated, perturbed, time_text(one["formula_s"]), shares])
    return [f"  {line}" for line in aligned(table, left=1, width=screen_width() - 2).splitlines()]


def _bounds(row: dict[str, Any]) -> list[str]:
    """What is certified, of what, and what more bandwidth is worth."""
    of = "its formula" if row["evaluator"] == "analytic" else "any split's simulated time"
    lines = ["  no bound known"] if row["lower_bound_s"] is None else [
        f"  lower bound of {of}: {time_text(row['lower_bound_s'])}, by {row['bound_of']}; gap of the objective "
        f"{max(row['gap'], 0):.2g}"
    ]
    runs = counted(row["simulations"], "engine run")
    counts = f"{counted(row['evaluations'], 'evaluation')}: {runs}; "
    lines.append(f"  {counts if row['evaluations'] else ''}{row['ended']}")
    lines.append(f"  certified: {row['certified']}; not by simulation")
    saved = {"in the simulation": row.get("budget_saved_s_per_GBps"),
             "by formula": row.get("budget_saved_by_formula_s_per_GBps")}
    if said := [f"{_saves(value)} {how}" for how, value in saved.items() if value is not None]:
        lines.append(f"  one more GB/s of budget {', '.join(said)}")
    return lines


MOST_SHOWN = 12


def _choices(choices: list[dict[str, Any]]) -> list[str]:
    """The choices of the discrete knobs, best first."""
    legend = "; = its range overlaps that of the best" if any(one["tied"] for one in choices) else ""
    lines = [f"  {counted(len(choices), 'choice')}, best first{legend}:"]
    for one in choices[:MOST_SHOWN]:
        time = _time(one["time_s"])
        lines.append(f"  {'=' if one['tied'] else ' '} {time:>10}  {one['knobs']} ({one['how']})")
    if len(choices) > MOST_SHOWN:
        lines.append(f"    and {len(choices) - MOST_SHOWN} more (--json FILE has all)")
    return lines


def _compared(objective: str, rows: list[dict[str, Any]]) -> list[str]:
    """The networks side by side, the best, and those tied with it: ranges over perturbed runs overlap, or prints."""
    def value(row: dict[str, Any], of: str = "time_s") -> float:
        answer = {"time_s": row["time_s"]} | {key: one for key, one in row["splits"][-1].items() if one is not None}
        return float(answer.get(of, row["time_s"]) * (row["cost"] if objective == "time-cost" else 1.0))

    best = min(rows, key=value)
    table = [["network", "time", "equal split", ""]]
    for row in rows:
        times = [_time(row[key]) for key in ("time_s", "equal_time_s")]
        overlap = value(row, "spread_low_s") <= value(best, "spread_high_s")
        is_tied = overlap or time_text(value(row)) == time_text(value(best))
        table.append([row["network"], *times, "best" if row is best else "tied" if is_tied else ""])
    return aligned(table, left=1).splitlines()


def _choice(row: dict[str, Any]) -> str:
    return f" ({row['knobs']})" if row.get("knobs") else ""


def _cost_words(row: dict[str, Any]) -> str:
    if row["cost"] is None:
        return ""
    gain = row["perf_per_cost_gain"]
    return (f", cost {row['cost'] / 1e6:.3f} M$ (equal split {row['equal_cost'] / 1e6:.3f} M$)"
            + (f", perf per cost {gain:.3f}x" if gain else ""))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Lists as one cell each; the choices, and another number of chunks, are in the JSON."""
    return {
        key: " ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in row.items() if key not in ("choices", "recut", "left_out", "not_searched")
    }
