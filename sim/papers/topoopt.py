"""TopoOpt (Wang et al., NSDI'23): its comparisons redone, each with the published headline and what we assume."""

from __future__ import annotations

from pathlib import Path

from sim.papers import topoopt_figures
from sim.papers.tables import PAGE, Row, as_text, picture, write_table
from sim.papers.topoopt_studies import STUDIES
from sim.study.tables import screen_width
from sim.whole_file import write_text_whole

HEADLINES = {
    "iterations": "packet-level rerun of the released task graphs; VGG16 at 200 Gb/s: between its bound and the rerun",
    "twisted": "TPU v4 (ISCA'23); link loads give 1.745 times the all-to-all of the regular 4x4x8",
    "switching": "Harvest, SWOT, PCCL: planned switching beats static and every step; delay decides",
    "following": "TopoOpt figure 17: circuits that follow demand every 50 ms lose to static ones",
    "all_to_all": "TopoOpt figures 12 to 15: the gain shrinks as all-to-all takes over, by the bandwidth tax",
    "dedicated": "TopoOpt abstract: up to 3.4 times faster than a fat-tree of similar cost",
    "cluster": "TopoOpt figure 16, 27 jobs: the mean on ideal 100 Gb/s switches is 2.1 times that of TopoOpt d=4",
    "search": "TopoOpt section 4: strategies and topology searched together",
}

ASSUMPTIONS = (
    "Links have 1 us and no loss; a round ends when its acknowledgment is back; queues are first in, first out.",
    "Switched networks carry one ring of each all-reduce at d times the rate of an interface, or at the rate that "
    "costs as much by prices that are not verified; a 2:1 fat-tree has d times the rate, and at the edge half as many "
    "links up as servers. TopoOpt runs a ring on every interface.",
    "The expander runs one ring in rank order in both directions (the released code: one direction), and beside it the "
    "registry's fastest all-reduce of 16 MiB there, whose messages wait for no acknowledgment.",
    "Strategies are data parallel with one embedding table per server, in turn, except in the search study; the paper "
    "searched every point, with a simulator and profiles that are not public in full; CANDLE's released strategy is "
    "not data parallel.",
    "Compute: released A100 profiles where there are any, a line through two of them for other dense layers.",
    "In the sweeps the rounds of a ring are joined into 64 and flows take one hashed route; cluster jobs are drawn "
    "once from the mix 35/30/25/10 % and run two iterations in the fat-tree, on random servers (as published) or "
    "packed in rank order.",
    "Circuits that follow demand see all remaining bytes at once; the packet-level baseline has one ring, ours both.",
)


MOST_ROWS = 48
"""Of a table on the screen."""


def run(out: Path, quick: bool) -> None:
    """Write a table and a picture of every study and `topoopt.md` into `out`, and print the tables."""
    lines = [f"assumed: {assumption}" for assumption in ASSUMPTIONS]
    print("\n".join(lines))
    found = {}
    for name, study in STUDIES.items():
        found[name] = rows = list(study(quick))
        write_table(out / f"topoopt-{name}.csv", rows)
        if name in topoopt_figures.STUDIES:
            topoopt_figures.draw(name, rows, out / f"topoopt-{name}.png")
        print("\n".join(["", *_study(name, rows, screen_width())]))
    write_text_whole(out / "topoopt.md", report(found))
    print(f"\ntables and figures are in {out}")


def report(found: dict[str, list[Row]]) -> str:
    """All studies as a page, with the pictures where `docs/` keeps them."""
    lines = ["# TopoOpt: published and simulated", "", "Made by `weft paper topoopt`. What is assumed:", ""]
    lines += [f"- {assumption}" for assumption in ASSUMPTIONS]
    lines += ["", "What is left of the published gains:", ""]
    lines += [f"- {line}" for name in ("dedicated", "cluster") if name in found for line in findings(name, found[name])]
    for name, rows in found.items():
        title = name.replace("_", " ")
        drawn = picture(f"topoopt-{name}", title, "topoopt") if name in topoopt_figures.STUDIES else []
        lines += ["", f"## {title}", "", *drawn, "```"]
        lines += [*_study(name, rows), "```"]
    return "\n".join(lines) + "\n"


def _study(name: str, rows: list[Row], width: int = PAGE) -> list[str]:
    few = rows if len(rows) <= MOST_ROWS else _some(name, rows)
    part = "" if few is rows else f" ({len(few)} of {len(rows)} rows; the CSV has all)"
    found = (f"  {line}" for line in findings(name, rows))
    return [f"{name}: published: {HEADLINES[name]}{part}", *as_text(few, width).split("\n"), *found]


def findings(name: str, rows: list[Row]) -> list[str]:
    """The conclusion of a study, in a line or two."""
    if name == "dedicated":
        others = dict.fromkeys(row["fabric"] for row in rows if row["fabric"] != "TopoOpt")
        return [_gains(fabric, [row for row in rows if row["fabric"] == fabric]) for fabric in others]
    if name == "cluster":
        most_jobs = max(row["jobs"] for row in rows)
        last = {row["fabric"]: row for row in rows if row["jobs"] == most_jobs}
        optical = last["TopoOpt d=4 100 Gb/s"]
        return [
            f"{most_jobs} jobs, {fabric}: mean {row['mean_ms'] / optical['mean_ms']:.2f} times, 99th percentile "
            f"{row['p99_ms'] / optical['p99_ms']:.2f} times that of TopoOpt"
            for fabric, row in last.items() if row is not optical
        ]
    if name == "twisted":
        regular, twisted = rows
        return [
            f"gain by link load {regular['largest_load'] / twisted['largest_load']:.3f}, simulated with one hashed "
            f"route a pair {regular['simulated_us'] / twisted['simulated_us']:.3f}"
        ]
    if name == "switching":
        gaps = [abs(row["simulated_us"] / row["plan_us"] - 1) for row in rows if row["simulated_us"] is not None]
        return [f"largest difference between plan and simulation: {100 * max(gaps):.4f} %"]
    return []


def _gains(fabric: str, rows: list[Row]) -> str:
    """How many times the time of TopoOpt a fabric takes: least, median and most."""
    ordered = sorted(rows, key=lambda row: float(row["over_topoopt"]))
    least, median, most = (float(row["over_topoopt"]) for row in (ordered[0], ordered[len(rows) // 2], ordered[-1]))
    return (f"{fabric} over TopoOpt: {least:.2f} ({_point(ordered[0])}) to {most:.2f} ({_point(ordered[-1])}), "
            f"median {median:.2f}")


def _point(row: Row) -> str:
    return f"{row['model']}, {row['servers']} servers, d={row['interfaces']}, {row['Gbps']} Gb/s"


def _some(name: str, rows: list[Row]) -> list[Row]:
    """A part of a long table for the screen; the file has all of it."""
    if name == "dedicated":
        return [row for row in rows if row["Gbps"] == 100 and row["interfaces"] == 4]
    if name == "switching":
        return [row for row in rows if row["delay"] == "10us"]
    step = -(-len(rows) // MOST_ROWS)
    return rows[::step]
