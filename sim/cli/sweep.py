"""`weft sweep`: many points from one file, kept in a store, resumed after an interruption."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sim.cli.asked import changes_of, check_apart, check_used, sections_of
from sim.cli.flags import how, refuse_how
from sim.cli.output import STANDARD_OUTPUT, say, write_text, write_whole
from sim.cli.progress import progress
from sim.faults.plan import FaultPlan
from sim.study.file import Sweep, points_of
from sim.study.key import Keyed, keyed
from sim.study.points import Task
from sim.study.processes import dask_executor
from sim.study.spec import STANDARD_INPUT
from sim.study.store import Finished, Store
from sim.study.sweep import IN_FLIGHT, Status, Tally, check_parquet, export, keyed_rows, run_sweep, status_of
from sim.study.tables import document, time_text, to_csv
from sim.study.workload_keys import works
from topologies.checks import WeftError
from topologies.units import counted, format_size

NAME = "sweep"


def run(arguments: argparse.Namespace) -> None:
    """Compute what is missing, report progress, write the files."""
    if arguments.dask and arguments.workers != 1:
        raise WeftError("give --workers or --dask, not both: a cluster has its own workers")
    if arguments.export and arguments.export.endswith(".parquet"):
        check_parquet()
    if arguments.spec is None and arguments.spec_again is None:
        raise WeftError("no file is given: write FILE, or --spec FILE")
    if arguments.spec is not None and arguments.spec_again is not None:
        raise WeftError(f"{arguments.spec} and --spec {arguments.spec_again} are both the file of the sweep: give one")
    file = Path(arguments.spec if arguments.spec_again is None else arguments.spec_again)
    if file == STANDARD_INPUT and not arguments.store:
        raise WeftError("a sweep from standard input needs --store FILE")
    sections = read(file, arguments)
    path = arguments.store = arguments.store or file.with_suffix(".db")
    check_apart(arguments, sections)
    as_it_was = f"no point was computed, {path} is as it was"
    with progress(f"{NAME}: points", 1, arguments.quiet), _resumable(as_it_was):
        swept = keyed(*points_of(sections, f"sweep file {file}", how(arguments)))
    tell = None if arguments.quiet else _tell_waiting
    with _resumable(f"what is finished is in {path}"), Store(path, read_only=arguments.status, tell=tell) as store:
        tally = None if arguments.status else compute(swept, store, arguments)
        status = status_of(swept, store)
        say(arguments, *report(swept.sweep, store, file, status, tally))
        if tally is None or status.finished > tally.refused:  # else there is no row with a time
            write_files(swept, store, sections, arguments)
        _check_ended(swept, status, tally)


@contextmanager
def _resumable(kept: str) -> Iterator[None]:
    """Ctrl-C says what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise WeftError(f"interrupted: {kept}; run it again to go on") from None


def _tell_waiting(line: str) -> None:
    print(f"{NAME}: {line}", file=sys.stderr, flush=True)


def read(file: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The sections of a sweep file, changed by the flags.

    WeftError: the file cannot be read, or has keys that a sweep does not use.
    """
    sections = dict(sections_of(file, "sweep file", NAME))
    for section, keys in changes_of(arguments).items():
        given = sections.get(section, {})
        sections[section] = {**given, **keys} if isinstance(given, Mapping) else given
    designed = "optimize" in sections
    check_used(sections, "optimize" if designed else NAME, f"sweep file {file}")
    if designed:
        _check_designs(sections, f"sweep file {file}", arguments)
    return sections


def _check_designs(sections: Mapping[str, Any], where: str, arguments: argparse.Namespace) -> None:
    """Reject points that are not each what `weft optimize` may be asked."""
    if sections["optimize"].get("network") is None:
        raise WeftError(f"{where}: [optimize] has no network: those whose bandwidths are asked for")
    if "analytic" in str(sections["optimize"].get("evaluator")):
        refuse_how(arguments, "omit evaluator of [optimize]")


def compute(swept: Keyed, store: Store, arguments: argparse.Namespace) -> Tally:
    """Compute and store the points that are missing."""
    keys = swept.distinct.keys()
    known = store.reasons()
    if arguments.retry:
        store.forget(key for key in keys if known.get(key) is not None)
        known = store.reasons()

    def tell(task: Task, point: Finished | str | None) -> None:
        if point is None:
            said = "computed by another process"
        elif isinstance(point, str):
            said = "did not end"
        else:
            said = "cannot run" if point.row is None else time_text(point.row["time_s"])
        steps.advance(f"{_named(task)}: {said}")

    with progress(NAME, len(keys - known.keys()), arguments.quiet) as steps:
        try:
            if not arguments.dask:
                here = {"workers": arguments.workers, "progress": steps.within}
                return run_sweep(swept.distinct, store, done=tell, **here)
            with dask_executor(arguments.dask) as (executor, threads):
                in_flight = IN_FLIGHT * threads
                return run_sweep(swept.distinct, store, executor, done=tell, in_flight=in_flight)
        except KeyboardInterrupt:
            kept = len(keys & store.reasons().keys())
            raise WeftError(
                f"interrupted: {kept:,} of {counted(len(keys), 'point')} are in {store.path}; run it again to go on"
            ) from None


def _named(task: Task) -> str:
    size = "" if works(task.spec) else f" {format_size(task.size_bytes)}"
    return f"{task.spec.fabric} {task.algorithm}{size}"


def report(sweep: Sweep, store: Store, file: Path, status: Status, tally: Tally | None) -> list[str]:
    """Progress of the sweep, line by line."""
    axes = "".join(f", {name} x {len(values)}" for name, values in sweep.axes.items())
    lines = [f"# weft {NAME}: {file}, {counted(status.points, 'point')}{axes}; store {store.path}"]
    counts = f"{status.finished:,} finished, {status.left:,} left"
    if tally is not None:
        counts += f"; {tally.stored:,} were stored before, {tally.computed:,} computed now"
        counts += f", {tally.elsewhere:,} by another process" if tally.elsewhere else ""
    lines.append(f"# {counts}")
    return lines + [f"# {', '.join(names)} cannot run: {why}" for why, names in status.refused.items()]


def _check_ended(swept: Keyed, status: Status, tally: Tally | None) -> None:
    """Points that did not end, or a sweep without a point that can run, are a failure."""
    if tally is None:
        return
    if tally.failed:
        first, why = next(iter(tally.failed.items()))
        name = _named(swept.distinct[first])
        which = f"the first is {name}" if len(tally.failed) > 1 else name
        few = "point did not end and is" if len(tally.failed) == 1 else "points did not end and are"
        raise WeftError(f"{len(tally.failed):,} {few} not stored; {which}: {why}")
    if tally.refused == status.points:
        raise WeftError("no point can run")


def write_files(swept: Keyed, store: Store, sections: Mapping[str, Any], arguments: argparse.Namespace) -> None:
    """The table, and the JSON of everything."""
    if not (arguments.export or arguments.json):
        return
    rows = keyed_rows(swept, store)
    if arguments.export == STANDARD_OUTPUT:
        write_text(STANDARD_OUTPUT, to_csv(rows))
    elif arguments.export:
        write_whole(arguments.export, lambda path: export(rows, path))
    if arguments.json:
        write_text(arguments.json, document(NAME, self_contained(sections), rows))


def self_contained(sections: Mapping[str, Any]) -> dict[str, Any]:
    """The sections with the fault plan itself instead of its file; if plans are an axis, rows name their files."""
    model = sections.get("model", {})
    if not isinstance(model.get("faults"), str):
        return dict(sections)
    return {**sections, "model": {**model, "faults": FaultPlan.read(model["faults"]).to_dict()}}
