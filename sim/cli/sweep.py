"""`weft sweep`: many points from one file, kept in a store, gone on with after any interruption."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sim.cli.compare import reasons
from sim.cli.flags import add_outputs, add_run
from sim.cli.output import STANDARD_OUTPUT, check_outputs, say, say_where, write_text, write_whole
from sim.cli.progress import Steps, progress
from topologies import WeftError
from topologies.units import format_size, format_time

if TYPE_CHECKING:
    from sim.study.file import Sweep
    from sim.study.points import Task
    from sim.study.store import Finished, Store
    from sim.study.sweep import Tally

NAME = "sweep"
HELP = "run every combination in a file, store each point as it ends, and go on where it was interrupted"
EXAMPLES = (
    "weft sweep scaling.toml --workers 2",
    "weft sweep scaling.toml --status",
    "weft sweep scaling.toml --export scaling.csv",
    "weft sweep scaling.toml --dask tcp://head:8786 --export scaling.parquet",
)
FORMAT = """
FILE has the sections [topology] [collective] [model] [sweep] of an experiment; a key whose value is a list is an axis:

  [topology]
  spec = ["torus:4x4", "torus:8x8"]
  [collective]
  algorithms = ["swing", "ring"]
  [model]
  chunks = [1, 16]
  [sweep]
  begin = "1K"
  end = "1M"
  factor = 4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.epilog = f"{parser.epilog}\n{FORMAT}"
    parser.add_argument("file", type=Path, metavar="FILE", help="the sweep, in TOML")
    parser.add_argument("--store", type=Path, metavar="FILE", help="finished points (FILE with the suffix .db)")
    parser.add_argument("--status", action="store_true", help="only tell how far it is; nothing is computed")
    parser.add_argument("--retry", action="store_true", help="try points again that could not run")
    parser.add_argument("--why", action="store_true", help="account the critical path of every point")
    parser.add_argument("--dask", metavar="ADDRESS", help="compute on a Dask cluster, by the address of its scheduler")
    add_run(parser)
    add_outputs(parser, "json", "export")


def run(arguments: argparse.Namespace) -> None:
    """Compute what is missing, tell how far it is, write the files."""
    from sim.study.export import check_parquet
    from sim.study.file import read_sweep
    from sim.study.store import Store

    check_outputs(arguments)
    if arguments.dask and arguments.workers != 1:
        raise WeftError("give --workers or --dask, not both: a cluster has its own workers")
    if arguments.export and arguments.export.endswith(".parquet"):
        check_parquet()
    how = {"check": arguments.check, "why": arguments.why, "max_events": arguments.max_events}
    sweep = read_sweep(arguments.file, **how)
    path = arguments.store or arguments.file.with_suffix(".db")
    if path == arguments.file:
        raise WeftError(f"--store {path} is the sweep file itself: name another file")
    with Store(path, read_only=arguments.status) as store:
        tally = None if arguments.status else compute(sweep, store, arguments)
        say(arguments, *report(sweep, store, arguments.file, tally))
        _check_ended(sweep, store, tally)
        write_files(sweep, store, arguments)


def compute(sweep: Sweep, store: Store, arguments: argparse.Namespace) -> Tally:
    """Compute and store the points that are missing."""
    from sim.study.key import point_key
    from sim.study.sweep import IN_FLIGHT, run_sweep

    keys = {point_key(task) for task in sweep.points}
    known = store.reasons()
    if arguments.retry:
        store.forget(key for key in keys if known.get(key) is not None)
        known = store.reasons()
    with progress(NAME, len(keys - known.keys()), arguments.quiet) as steps:
        try:
            if not arguments.dask:
                how = {"workers": arguments.workers, "progress": steps.within}
                return run_sweep(sweep.points, store, done=_teller(steps), **how)
            from sim.study.dask import dask_executor

            with dask_executor(arguments.dask) as (executor, threads):
                how = {"in_flight": IN_FLIGHT * threads}
                return run_sweep(sweep.points, store, executor, done=_teller(steps), **how)
        except KeyboardInterrupt:
            kept = len(keys & store.reasons().keys())
            raise WeftError(
                f"interrupted: {kept:,} of {len(keys):,} points are in {store.path}; run it again to go on"
            ) from None


def _teller(steps: Steps) -> Callable[[Task, Finished | str | None], None]:
    def tell(task: Task, point: Finished | str | None) -> None:
        if point is None:
            said = "computed by another process"
        elif isinstance(point, str):
            said = "did not end"
        else:
            said = "cannot run" if point.row is None else format_time(point.row["time_s"] * 1e12)
        steps.advance(f"{task.spec.topology.spec} {task.algorithm} {format_size(task.size_bytes)}: {said}")

    return tell


def report(sweep: Sweep, store: Store, file: Path, tally: Tally | None) -> list[str]:
    """How far the sweep is, line by line."""
    from sim.study.export import status_of

    status = status_of(sweep, store)
    axes = "".join(f", {name} x {len(values)}" for name, values in sweep.axes.items())
    lines = [f"# weft {NAME}: {file}, {status.points:,} points{axes}; store {store.path}"]
    counts = f"{status.finished:,} finished, {status.left:,} left"
    if tally is not None:
        counts += f"; {tally.stored:,} were stored before, {tally.computed:,} computed now"
        counts += f", {tally.elsewhere:,} by another process" if tally.elsewhere else ""
    lines.append(f"# {counts}")
    return lines + [f"# {', '.join(names)} cannot run: {why}" for why, names in status.refused.items()]


def _check_ended(sweep: Sweep, store: Store, tally: Tally | None) -> None:
    """Points that did not end, or a sweep of which nothing can run, are not a success."""
    from sim.study.export import status_of

    if tally is None:
        return
    if tally.failed:
        said = (f"{', '.join(keys)}: {why}" for why, keys in reasons(tally.failed))
        raise WeftError(f"{len(tally.failed):,} points did not end and are not stored; " + "; ".join(said))
    if tally.refused == status_of(sweep, store).points:
        raise WeftError("no point can run")


def write_files(sweep: Sweep, store: Store, arguments: argparse.Namespace) -> None:
    """The table, and the JSON of everything."""
    import json

    from sim.study.export import export, sweep_rows
    from sim.study.tables import to_csv
    from sim.version import weft_version

    if not (arguments.export or arguments.json):
        return
    rows = sweep_rows(sweep, store)
    if arguments.export == STANDARD_OUTPUT:
        write_text(STANDARD_OUTPUT, to_csv(rows))
    elif arguments.export:
        write_whole(arguments.export, lambda path: export(rows, path))
    if arguments.json:
        spec = tomllib.loads(arguments.file.read_text(encoding="utf-8"))
        data = {"weft": weft_version(), "spec": spec, "rows": rows}
        write_text(arguments.json, json.dumps(data, indent=1) + "\n")
    say_where(arguments)
