"""`weft compare --workload`: one workload by several algorithms of its collectives, the fastest first."""

import argparse
from typing import Any

from sim.cli.flags import how
from sim.cli.output import say, write_csv, write_json
from sim.cli.progress import progress
from sim.study.jobs import source_of
from sim.study.plans import looks
from sim.study.spec import Spec
from sim.study.tables import aligned, range_words, spent, time_text
from sim.study.workload_keys import by_each, check_no_collective
from sim.study.workload_runs import row_of, simulate_workload
from topologies.checks import WeftError
from topologies.units import counted, format_time
from workloads.formats.recognize import GOAL, MATRIX


def run(arguments: argparse.Namespace, spec: Spec) -> None:
    """Simulate by each algorithm, print and write."""
    check_no_collective(spec)
    for flag in ("all", "plot", "nccl_json", "tuner"):
        if getattr(arguments, flag, None):
            raise WeftError(f"--{flag.replace('_', '-')} is of the comparison of a collective over sizes: omit it")
    names = spec.collective.algorithms or ()
    if (source := source_of(spec.workload)) in (GOAL, MATRIX):
        raise WeftError(f"{source} has messages, and no collectives whose algorithms could be compared: weft train "
                        "and weft trace time it")
    if not names:
        raise WeftError("a workload is compared by the algorithms of its collectives: --algorithms ring,swing")
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    head: list[str] = []
    with progress("compare", len(names), arguments.quiet) as steps:
        for name, one in by_each(spec).items():
            try:
                opened, result = simulate_workload(one, drawn=False, how=how(arguments))
            except WeftError as wrong:
                if len(names) == 1:
                    raise
                refused[name] = str(wrong)
                continue
            steps.advance(f"{name}: {format_time(result.time_ps)}")
            spread = result.spread(spec.account.spread) if spec.account.spread else None
            account = result.why("kind") if spec.account.why else None
            rows.append(row_of(one, opened, result) | (looks(spread, account) if spread or account else {}))
            head = [
                f"# weft compare: {opened.name}, {opened.what}, on {result.job.topology.name}, "
                f"{counted(result.job.topology.n_npus, 'NPU')}", f"# {result.assumptions}",
            ]
    if not rows:
        raise WeftError(next(iter(refused.values())))
    rows.sort(key=lambda row: row["time_s"])
    say(arguments, *head, *_table(rows), *(f"# {name} cannot run: {why}" for name, why in refused.items()))
    write_json(arguments, spec, rows, model=spec.build_model(), refused=refused)
    write_csv(arguments, rows)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    times = [[row["algorithm"], time_text(row["time_s"]) + range_words(row), time_text(row["exposed_s"])]
             for row in rows]
    notes = [f"# {row['algorithm']}: {note}" for row in rows for note in row["notes"]]
    notes += [f"# {row['algorithm']}, critical path: {spent(row['why']['makespan_ps'], row['why']['parts_ps'])}"
              for row in rows if row.get("why")]
    return [aligned([["algorithm", "time", "exposed, at most"], *times], left=1), *notes]
