"""`weft judge`: is a measured table what the machine or fabric can do, and if not, what limits it?"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sim import plots
from sim.cli.asked import spec_of
from sim.cli.compare import listed, missing
from sim.cli.flags import how, refuse_how
from sim.cli.library import setting_of
from sim.cli.output import say, write_csv, write_json, write_text
from sim.cli.progress import progress
from sim.how import How
from sim.library.described import OF_CARDS, PCIE, listed_gpu, listed_machine
from sim.library.tuner import SENDRECV, Setting
from sim.library.tuner import tables as library_tables
from sim.library.tuner_csv import TUNED, ranges, tuner_csv
from sim.measured.baseline import SMALL, Changes, Table
from sim.measured.causes import PCIE_GBPS, busbw
from sim.measured.diagnosis import GOOD, Diagnosis, Rate
from sim.measured.fabric_run import FabricRun, curves
from sim.measured.judge import Judgment, judge
from sim.measured.library_run import LibraryRun
from sim.measured.points import Measurements
from sim.measured.read import read_tables
from sim.study.keys import filled
from sim.study.paths import from_here
from sim.study.points import check_joined
from sim.study.spec import Spec
from sim.study.tables import aligned, time_text
from sim.study.workload_keys import check_no_library
from sim.whole_file import write_whole
from topologies import Topology, WeftError
from topologies.machines.profile import Machine, profiles
from topologies.stages import staged
from topologies.units import counted, format_size

RUN_BY_LIBRARIES = {
    "all-reduce": ("ring", "double-binary-tree", "recursive-doubling"),
    "all-gather": ("ring", "recursive-doubling"), "reduce-scatter": ("ring", "recursive-doubling"),
    "all-to-all": ("direct", "pairwise"), "broadcast": ("tree", "pipelined"), "reduce": ("tree", "pipelined"),
}
"""Candidates on a fabric that is no machine, unless others are named: what NCCL, HCCL and MPI libraries run."""

OF_ALL_LINKS = {"mesh": "direct", "torus-2d": "bucket", "torus-3d": "bucket"}
"""What uses every link of a machine without a library that is known, by how it is joined inside."""

MATTERS = 1.05
"""Factor from which a table that became slower is no longer good: less is said only."""

MOST_OF_A_HOST = 16
"""GPUs; a box with more is an NVLink domain of several hosts."""


def run(arguments: argparse.Namespace) -> None:
    """Read, judge, print, draw and write."""
    spec = spec_of(arguments)
    refused: dict[str, str] = {}
    if _by_library(spec):
        refuse_how(arguments, "a machine is judged by its library's formulas; --algorithms simulates")
    runs = _runs(spec, [from_here(file) for file in spec.judge.files or ()], refused, how(arguments))
    with progress("judge", len(runs), arguments.quiet) as steps:
        found = judge([one for _, one in runs])
        for measured, _ in runs:
            steps.advance(measured.source)
    tuned = _tuner([one for _, one in runs if isinstance(one, LibraryRun)]) if arguments.tuner else ""
    changed = _changes(arguments, spec, runs)
    found = _since(found, runs, changed)
    notes = _unequal(runs)
    say(arguments, *report(runs, found, changed, notes), *_assumed(found), *missing(refused, {}))
    rows, since = found.rows(), [
        {"source": one.now.source, "baseline": one.before.source, "noise": list(one.noise),
         "verdict_before": one.before.verdict, "rows": one.rows()} for one in changed]
    write_json(
        arguments, spec, rows, verdict=found.verdict, condition=found.condition, but=found.but, cause=found.cause,
        limit=found.limit, notes=notes, rates=[rate_facts(rate) for rate in found.rates],
        tables=[facts(one) for one in found.tables], changes=since, refused=refused,
        candidates=[candidate_facts(one) for _, one in runs if isinstance(one, FabricRun)],
    )
    write_csv(arguments, rows)
    if arguments.tuner:
        write_text(arguments.tuner, tuned)
    if arguments.plot:
        tables = [facts(one) | {"rows": one.rows()} for one in found.tables]
        width = plots.COLUMNS[arguments.columns]
        write_whole(arguments.plot, lambda path: plots.draw_judgment(tables, since, path, good=GOOD, width=width))


def _tuner(runs: Sequence[LibraryRun]) -> str:
    """What the machines as described should choose, at the sizes of every table that has a choice."""
    asked = {one.setting: [size for size, _ in one.points] for one in runs if one.setting.collective in TUNED}
    if not asked:
        raise WeftError("--tuner is for collectives that a library ran on a machine: give --machine")
    return "".join(tuner_csv(setting, ranges(setting, sizes)) for setting, sizes in asked.items())


# --- what ran -----------------------------------------------------------------------------------------------------


def _runs(spec: Spec, files: Sequence[str], refused: dict[str, str], how: How) -> list[tuple[Measurements, Run]]:
    """Every file and what ran there: a library on a machine, or algorithms on a fabric."""
    if not _by_library(spec):
        check_no_library(spec)
        topology = spec.build_topology()
        check_joined(topology)
        asked, placement = spec.collective.name, filled(spec.measured).placement
        alone = asked if len(files) == 1 else None
        return [(table, _fabric_run(spec, topology, table, refused, how)) for file in files for table in read_tables(
            file, collective=alone, unnamed=asked, n_ranks=topology.n_npus, placement=placement)]
    if spec.judge.known is not None or spec.bound.reducing_switches:
        raise WeftError("--known and --reducing-switches are of fabrics that are no machine: omit them")
    return [run for file in files for run in on_machine(spec, file, len(files) == 1)]


def _by_library(spec: Spec) -> bool:
    """Whether the fabric is a machine that a library runs on; algorithms that are named are simulated instead."""
    if spec.library.name is not None:
        return True
    if spec.collective.algorithms:
        return False
    if spec.fabric is None:
        return True  # the header may name the machine
    known = _machine(spec)
    return known is not None and known.gpu.architecture in library_tables()["architecture"]


def _machine(spec: Spec) -> Machine | None:
    """The machine that a spec names, also as a topology; None if it is none."""
    if spec.topology.machine is None:
        name = (spec.topology.spec or "").partition(":")[0]
        if name not in profiles("boxes") or spec.topology.link_bandwidth is not None:
            return None
    return spec.build_machine()[0]


@staged("parse")
def on_machine(spec: Spec, file: str, alone: bool) -> list[tuple[Measurements, LibraryRun]]:
    """The tables of a file, and the library's runs that they are of.

    `alone`: the collective of the spec is that of the file, and not only of one that names none.
    """
    named = spec.build_machine() if spec.fabric is not None else None
    ranks = named[1] * named[0].gpus if named is not None and ":" in (spec.fabric or "") else None
    kind = spec.collective.name
    tables = read_tables(file, collective=kind if alone else None, unnamed=kind, guess=ranks,
                         placement=filled(spec.measured).placement)
    return [_library_run(spec, named, table) for table in tables]


def _library_run(
    spec: Spec, named: tuple[Machine, int] | None, measured: Measurements
) -> tuple[Measurements, LibraryRun]:
    """A table on the machine named, as far as no header says otherwise."""
    box, nodes, gpus = _place(named, spec, measured)
    measured = replace(measured, notes=(*measured.notes, *_unlike(measured, named, spec, box, nodes)))
    message = measured.collective == SENDRECV  # which is no collective of a fabric
    told = spec if message else spec.updated({"collective": {"name": measured.collective}})
    library = told.library
    if library.name is None:
        own = "rccl" if box.gpu.architecture == "cdna" else "nccl"
        told = told.updated({"library": {"name": f"{own}:{measured.version}" if measured.version else own}})
    setting = replace(setting_of(told, (box, nodes)), gpus=gpus, collective=measured.collective or "")
    if library.gpus_per_process is None and measured.gpus_per_process:
        setting = replace(setting, gpus_per_process=min(measured.gpus_per_process, gpus))
    points = [(point.size_bytes, point.time_s) for point in measured.points]
    assumed = "" if named else _unsaid(measured, setting)
    nics_assumed = named is None and setting.nodes > 1
    return measured, LibraryRun(measured.source, setting, points, measured.wrong, assumed, nics_assumed)


def _unsaid(measured: Measurements, setting: Setting) -> str:
    """What a header does not say of the machine, and is assumed; "" if nothing.

    WeftError: it cannot be so.
    """
    found, gpus = [], setting.gpus
    if setting.machine.gpu.name == PCIE and gpus > 1:
        most = max(busbw(setting, *point) for point in measured.points)
        if setting.nodes == 1 and most > PCIE_GBPS[1]:
            raise WeftError(f"{measured.source} reaches {most:.4g} GB/s, more than PCIe: the header lists {gpus} x "
                            f"{measured.device} and no bridges; give --machine FILE.toml with the links between them")
        found.append(f"PCIe alone joins its {gpus} cards, as assumed: no header names bridges")
    if setting.nodes > 1:
        found.append(f"its NICs are {setting.nics} x {setting.machine.nic.name} a node, as assumed: no header names "
                     "them")
    return ", and ".join(found)


def _place(named: tuple[Machine, int] | None, spec: Spec, measured: Measurements) -> tuple[Machine, int, int]:
    """Machine, nodes and GPUs in use of each: as named, as far as the header does not say otherwise."""
    ranks, hosts = measured.n_ranks, measured.hosts
    each = ranks // hosts if ranks and hosts and ranks % hosts == 0 else 0
    if named is None:
        if not each or not measured.device:
            raise WeftError(f"{measured.source} does not say what it ran on: give --machine, as in dgx-h100:2")
        box = listed_machine(measured.device, each)
        return (box, *_domains(box, ranks or 1)) if box.gpus > MOST_OF_A_HOST else (box, hosts or 1, each)
    box, nodes = named
    if ranks is None or ranks == nodes * box.gpus:
        return box, nodes, box.gpus
    most = nodes * box.gpus if ":" in (spec.fabric or "") else None
    if most is not None and ranks > most:
        raise WeftError(f"{measured.source} measured ranks {ranks}, but {box.name} has {most}")
    if box.gpus > MOST_OF_A_HOST:
        return box, *_domains(box, ranks)
    if 0 < each <= box.gpus:
        return box, hosts or 1, each
    if ranks % box.gpus and ranks > box.gpus:
        raise WeftError(f"{measured.source} measured ranks {ranks}, no multiple of the {box.gpus} of {box.name}")
    return box, max(1, ranks // box.gpus), min(ranks, box.gpus)


def _unlike(
    measured: Measurements, named: tuple[Machine, int] | None, spec: Spec, box: Machine, nodes: int
) -> list[str]:
    """What the header says otherwise than the machine that is named, or that it is judged as."""
    notes = []
    asked = named[1] if named is not None and ":" in (spec.fabric or "") else nodes
    if asked != nodes and box.gpus <= MOST_OF_A_HOST and not box.dimensions:
        notes.append(f"--machine names {counted(asked, 'node')}, and {measured.source} measured {measured.n_ranks} "
                     f"ranks: judged as {counted(nodes, 'node')}")
    if other_gpu(measured, box):
        notes.append(f"the header lists {measured.device}, judged as {box.gpu.name}: is it {box.name}?")
    if measured.hosts is not None and measured.hosts != nodes and box.gpus <= MOST_OF_A_HOST:
        notes.append(f"the header lists {counted(measured.hosts, 'host')}, judged as {counted(nodes, 'node')} of "
                     f"{box.name}")
    return notes


def other_gpu(measured: Measurements, box: Machine) -> bool:
    """Whether the header lists a GPU of another kind than the machine's."""
    with contextlib.suppress(WeftError):  # a GPU that nobody knows
        gpu = listed_gpu(measured.device) if measured.device else box.gpu.name
        return box.gpu.name not in (OF_CARDS if gpu == PCIE else (gpu,))
    return False


def _domains(box: Machine, ranks: int) -> tuple[int, int]:
    """Nodes and GPUs of each where links inside a node join several hosts."""
    nodes = -(-ranks // box.gpus)
    return nodes, ranks // nodes


def _unequal(runs: Sequence[tuple[Measurements, Run]]) -> list[str]:
    """That tables of different machines have no rates in common."""
    settings = [run.setting for _, run in runs if isinstance(run, LibraryRun)]
    names = dict.fromkeys(f"{one.machine.name} ({one.machine.gpu.name}, {one.machine.nic.name})" for one in settings)
    if len({(one.machine.gpu, one.machine.nic) for one in settings}) < 2:
        return []
    return [f"these tables are of different machines: {', '.join(names)}: the verdict is the worst of them, rates are "
            "those of each, none of all"]


def _assumed(found: Judgment) -> list[str]:
    """That NICs and links are those of a box that only the name of a GPU suggests."""
    return ["# headers name no NICs or bridges: give --machine, and the verdict is no longer conditional"
            ] if found.condition else []


def _fabric_run(spec: Spec, topology: Topology, measured: Measurements, refused: dict[str, str], how: How) -> FabricRun:
    kind = measured.collective or ""
    if kind == SENDRECV:
        raise WeftError(f"{measured.source} measured send/recv, which is judged on machines only: give --machine")
    told = spec.updated({"collective": {"name": kind}})
    guessed = not told.collective.algorithms
    names = _candidates(told, kind) if guessed else told.algorithms
    sizes = sorted({point.size_bytes for point in measured.points})
    candidates, wrong = curves(told, topology, names, sizes, how)
    if wrong and not guessed:
        raise WeftError(next(iter(wrong.values())))
    if not candidates:
        raise WeftError(f"no algorithm can run {kind} on {topology.name}; {listed(wrong)}")
    refused |= wrong
    points = [(point.size_bytes, point.time_s) for point in measured.points]
    return FabricRun(
        measured.source, topology, kind, candidates, points, spec.judge.known or (), bool(spec.bound.reducing_switches),
        measured.wrong, guessed,
    )


def _candidates(spec: Spec, kind: str) -> tuple[str, ...]:
    """What may have run where nobody says so."""
    known, usual = _machine(spec), RUN_BY_LIBRARIES[kind]
    more = None if known is None or "ring" not in usual else OF_ALL_LINKS.get(known.inside)
    return usual if more is None else (more, *usual)


# --- an earlier run -----------------------------------------------------------------------------------------------


def _changes(arguments: argparse.Namespace, spec: Spec, runs: Sequence[tuple[Measurements, Run]]) -> list[Changes]:
    """Every table against the earlier one of its collective and ranks."""
    found, used = [], set()
    placement = filled(spec.measured).placement
    earlier = [
        table for file in spec.judge.baseline or ()
        for table in read_tables(from_here(file), unnamed=spec.collective.name, placement=placement,
                                 guess=runs[0][0].n_ranks)
    ]
    for measured, one in runs:
        for at, old in enumerate(earlier):
            same = old.collective == measured.collective and old.n_ranks in (None, measured.n_ranks)
            if same and at not in used:
                used.add(at)
                was = replace(one, source=old.source, points=old.points, wrong=old.wrong).finding if (
                    isinstance(one, LibraryRun)) else None
                found.append(Changes(Table(measured.source, measured.points, measured.others),
                                     Table(old.source, old.points, old.others, *(was[:2] if was else ()))))
                break
    for at, old in enumerate(earlier):
        if at not in used:
            raise WeftError(f"--baseline {old.source} is of {old.collective} on {old.n_ranks or 'unnamed'} ranks: "
                            "no table is")
    return found


def _since(found: Judgment, runs: Sequence[tuple[Measurements, Run]], changed: Sequence[Changes]) -> Judgment:
    """The verdict, if a table became slower that is fine by itself, or is limited by what limited it before: what is
    new leads, and the old is said to be so."""
    for one in changed:
        source = one.now.source
        run = next(run for measured, run in runs if measured.source == source)
        table = next(table for table in found.tables if table.source == source)
        old = not table.fine and (table.verdict, table.cause) == (one.before.verdict, one.before.cause)
        if not table.fine and not old:
            continue
        before = f"; as in {one.before.source}: {table.limit}" if old else ""
        if one.slower and statistics.median(one.of(one.slower)) >= MATTERS:
            nics = run.setting.nics if isinstance(run, LibraryRun) and run.setting.nodes > 1 else 0
            if one.lost_rail(nics):
                words = f"one NIC of {nics} less than in {one.before.source}: a dead rail"
                return replace(found, verdict="slow-hw", cause="dead-rail", limit=words + before, but="")
            what = "latency" if one.slower[-1] < SMALL else "something"
            words = (f"{what} since {one.before.source}: {range_of(one, one.slower)} slower by up to "
                     f"{max(one.of(one.slower)) - 1:.0%}")
            return replace(found, verdict="slow-unknown", cause="slower", limit=words + before, but="")
        if old and found.cause == table.cause:
            found = replace(found, limit=f"{table.limit}: as in {one.before.source}, nothing new")
    return found


# --- what is told ---------------------------------------------------------------------------------------------------


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
    return said.verdict + "".join(
        f", {word} {what}" for word, what in (("if", said.condition), ("but", said.but)) if what)


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
            ends = [time_text(end) for end in rate.share]
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
        first = [format_size(row["size_bytes"]), time_text(row["measured_s"])]
        expected, rate = time_text(row["expected_s"]), f"{row['busbw_GBps']:.4g} GB/s"
        if simulated:
            error = f"{row['simulated_s'] / row['measured_s'] - 1:+.1%}"
            lines.append([*first, time_text(row["simulated_s"]), error, rate, expected, f"{row['ratio']:.0%}",
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
        low, high = (time_text(end) for end in fit.latency_s[1:])
        value = time_text(fit.latency_s.value)
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
        "condition": one.condition, "but": one.but, "notes": list(one.notes),
    }


def rate_facts(rate: Rate) -> dict[str, Any]:
    """A rate as the JSON has it."""
    value, low, high = rate.share
    found = {"name": rate.name, "nominal": rate.nominal, "determined": rate.determined, "apart": rate.apart}
    return found | ({"value": value, "low": low, "high": high} if rate.determined and not rate.apart else {})


def candidate_facts(run: FabricRun) -> dict[str, Any]:
    """A candidate of a fabric as the JSON has it."""
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
