"""What `weft judge` prints and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.measured.baseline import Changes
from sim.measured.diagnosis import Diagnosis, Rate
from sim.measured.fabric_run import FabricRun
from sim.measured.judge import Judgment
from sim.measured.library_run import LibraryRun
from sim.measured.points import Measurements
from sim.study.tables import aligned
from topologies.units import counted, format_size, format_time

Run = LibraryRun | FabricRun
MOST_PERCENT = 100_000
"""Beyond which only the unit can be wrong."""


def report(
    runs: Sequence[tuple[Measurements, Run]], found: Judgment, changed: Sequence[Changes], notes: Sequence[str]
) -> list[str]:
    """The verdict on all, with `notes`, then every table: what it rests on, and its sizes."""
    lines = []
    if len(runs) > 1:
        lines += [
            f"# weft judge: {counted(len(runs), 'table')}", f"verdict     {_verdict(found)}",
            f"limited by  {found.limit}", *_rates(found.rates), *(f"note        {note}" for note in notes), "#",
        ]
    for (measured, run), table in zip(runs, found.tables, strict=True):
        alone = len(runs) == 1
        lines += _of_table(measured, run, table, found if alone else table)
        lines += [line for one in changed if one.now.source == table.source for line in _of_changes(one, table)]
        lines += ["#", aligned(_rows(table))]
        if isinstance(run, FabricRun):
            lines += ["#", aligned(_fits(run), left=1), "# intervals of 95 %; score: -2 log-likelihood plus a penalty "
                      "for bandwidth off nominal: the lowest is the most likely, a difference of 6 is 20 to 1"]
    return lines


def _verdict(said: Judgment | Diagnosis) -> str:
    return said.verdict + (f", if {said.condition}" if said.condition else "")


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < MOST_PERCENT / 100 else f"more than {MOST_PERCENT:,}%"


def _of_table(measured: Measurements, run: Run, table: Diagnosis, said: Judgment | Diagnosis) -> list[str]:
    left_out = f", {measured.left_out} left out (empty, not timed or cut off)" if measured.left_out else ""
    best = next(row for row in table.rows() if row["size_bytes"] == table.best_bytes)
    reduced = " with switches that reduce" if table.bound_reduces else ""
    bound = "" if table.share_of_bound is None else (
        f", {_percent(table.share_of_bound)} of the raw links' bound{reduced}")
    lines = [
        f"# weft judge: {table.ran}; {counted(len(measured.points), 'point')} of {measured.source} "
        f"({measured.format}){left_out}",
        f"verdict     {_verdict(said)}",
        f"limited by  {said.limit}",
        f"reached     {best['busbw_GBps']:.4g} GB/s busbw at {format_size(best['size_bytes'])}: "
        f"{_percent(table.share)} of what {table.algorithm} should here, "
        f"{_percent(table.share_of_any)} of the fastest algorithm{bound}",
        *_rates(table.rates),
    ]
    for name, sizes in (("switches", table.switches), ("breaks", table.breaks), ("outliers", table.outliers),
                        ("repeats", table.repeats)):
        words = {"switches": "expected after", "breaks": "of the measured curve after", "outliers": "at",
                 "repeats": "differ by half and more at"}[name]
        if sizes:
            lines.append(f"{name:<11} {words} {', '.join(map(format_size, sizes))}")
    if table.contradictions:
        named = ", ".join(map(format_size, table.contradictions))
        lines.append(f"contradicts {named}: larger sizes took less, or smaller ones longer: not counted")
    return [*lines, *(f"note        {note}" for note in (*measured.notes, *table.notes))]


def _rates(rates: Sequence[Rate]) -> list[str]:
    lines = []
    for rate in rates:
        if rate.apart:
            said = "differs between the tables: see each"
        elif not rate.determined:
            said = f"of {rate.nominal}: not determined by these sizes" if rate.name != "latency" else "not determined"
        elif rate.nominal.startswith("per transfer"):
            ends = [format_time(end * 1e12) for end in rate.share]
            said = f"{ends[0]} [{ends[1]}, {ends[2]}] {rate.nominal}"
        elif rate.name == "latency":
            said = f"{rate.share.value:.2f} [{rate.share.low:.2f}, {rate.share.high:.2f}] times that expected"
        else:
            said = f"{rate.share.value:.1%} [{rate.share.low:.1%}, {rate.share.high:.1%}] of {rate.nominal}"
        lines.append(f"{rate.name:<11} {said}")
    return lines


def _of_changes(one: Changes, table: Diagnosis) -> list[str]:
    was = one.before.verdict
    judged = f" (then {was}, now {table.verdict})" if was and was != table.verdict else ""
    lines = [f"since       {one.before.source}{judged}:"]
    for name, few in (("slower", one.slower), ("faster", one.faster)):
        if few:
            factors = one.of(few)
            lines[0] += f" {name} at {range_of(one, few)}, time {min(factors):.2f} to {max(factors):.2f} times;"
    if not one.slower and not one.faster:
        most = [f"{one.threshold(size) - 1:.1%}" for size in (one.sizes[0], one.sizes[-1])]
        lines[0] += f" no size changed by more than noise ({' to '.join(dict.fromkeys(most))});"
    if one.outliers:
        lines[0] += f" alone, and not counted: {', '.join(map(format_size, one.outliers))};"
    return [lines[0].rstrip(";")]


def _rows(table: Diagnosis) -> list[list[str]]:
    simulated = "simulated_s" in table.rows()[0]
    lines = [["size", "measured", "expected", "ratio", "busbw", "choice", "limited by"]]
    if simulated:
        lines = [["size", "measured", "fitted", "error", "busbw", "nominal", "ratio", "limited by"]]
    for row in table.rows():
        first = [format_size(row["size_bytes"]), format_time(row["measured_s"] * 1e12)]
        expected, rate = format_time(row["expected_s"] * 1e12), f"{row['busbw_GBps']:.4g} GB/s"
        if simulated:
            error = f"{row['simulated_s'] / row['measured_s'] - 1:+.1%}"
            lines.append([*first, format_time(row["simulated_s"] * 1e12), error, rate, expected, f"{row['ratio']:.0%}",
                          row["limit"]])
        else:
            lines.append([*first, expected, f"{row['ratio']:.0%}", rate, f"{row['algorithm']} {row['protocol']}",
                          row["limit"]])
    return lines


def _fits(run: FabricRun) -> list[list[str]]:
    lines = [["algorithm", "residual", "latency", "bandwidth", "score"]]
    for fit in run.fits:
        note = "" if fit.possible else " (too fast for the links)"
        shares = "; ".join(
            f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]" if sure else "not determined"
            for share, sure in zip(fit.shares, fit.determined[1:], strict=True)
        )
        low, high = (format_time(end * 1e12) for end in fit.latency_s[1:])
        value = format_time(fit.latency_s.value * 1e12)
        latency = f"{value} [{low}, {high}]" if fit.determined[0] else "not determined"
        score = f"{fit.score(len(run.points)):.1f}"
        lines.append([fit.algorithm, f"{fit.residual:.1%}", latency, shares + note, score])
    return lines


def facts(one: Diagnosis) -> dict[str, Any]:
    """A diagnosis without its rows."""
    return {
        "source": one.source, "ran": one.ran, "collective": one.collective, "nodes": one.nodes, "ranks": one.n_ranks,
        "verdict": one.verdict, "cause": one.cause, "limit": one.limit, "algorithm": one.algorithm, "share": one.share,
        "share_of_any": one.share_of_any, "share_of_bound": one.share_of_bound,
        "bound_reduces": one.bound_reduces,
        "rates": [rate_facts(rate) for rate in one.rates], "switches": list(one.switches), "breaks": list(one.breaks),
        "outliers": list(one.outliers), "contradictions": list(one.contradictions), "repeats": list(one.repeats),
        "condition": one.condition, "notes": list(one.notes),
    }


def rate_facts(rate: Rate) -> dict[str, Any]:
    value, low, high = rate.share
    found = {"name": rate.name, "nominal": rate.nominal, "determined": rate.determined, "apart": rate.apart}
    return found | ({"value": value, "low": low, "high": high} if rate.determined and not rate.apart else {})


def change_facts(one: Changes) -> dict[str, Any]:
    """What changed since an earlier run."""
    return {"source": one.now.source, "baseline": one.before.source, "noise": list(one.noise),
            "verdict_before": one.before.verdict, "rows": one.rows()}


def candidate_facts(run: FabricRun) -> dict[str, Any]:
    return {
        "source": run.source, "alike": run.alike,
        "fits": [
            {
                "algorithm": fit.algorithm, "possible": fit.possible, "residual": fit.residual,
                "latency_s": list(fit.latency_s), "bandwidth_shares": [list(share) for share in fit.shares],
                "determined": list(fit.determined), "score": fit.score(len(run.points)),
            }
            for fit in run.fits
        ],
    }


def range_of(one: Changes, few: Sequence[int]) -> str:
    """A range of sizes, or each of them."""
    first, last = one.sizes.index(few[0]), one.sizes.index(few[-1])
    if len(few) > 2 and last - first + 1 == len(few):
        return f"{format_size(few[0])} to {format_size(few[-1])}"
    return ", ".join(map(format_size, few))
