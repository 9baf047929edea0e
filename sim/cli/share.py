"""`weft share`: several collectives and training iterations on one fabric at once.

A tenant is a text of words and NAME=VALUE, or a table [[tenant]] in TOML: a collective (`collective algorithm size`,
and the options of the algorithm), a training iteration or another workload (`workload=NAME` or `job=FILE`, which mean
the same, and the keys of `[workload]` and `[training]`), or an iteration of a language model (`model=NAME`, and the
keys of `[iteration]`), on all NPUs or on some.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

from collectives import Schedule, algorithm, build
from sim.cli.asked import check_apart, check_looks_into, spec_of
from sim.cli.flags import how
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.lower.tenants import Tenant, check_npus, merge
from sim.program.model import Model
from sim.program.model_options import parse_value
from sim.scenarios.placement import MOST_NODES, WAYS, Npus, Wanted, fragmentation, placed, spans_of, spread
from sim.scenarios.tenants import Shares, share_fabric
from sim.study.jobs import open_workload, with_npu_bandwidth
from sim.study.keys import KINDS, keys_of
from sim.study.plans import ALGORITHM, machine_of, model_of_jobs, plan_job
from sim.study.spec import Spec
from sim.study.tables import aligned, spent
from sim.timeline.perfetto import check_size, write_perfetto
from sim.why.path import by_kind
from topologies import Topology, switch
from topologies.checks import LONGEST_TOLD, WeftError, told
from topologies.core.routing import ShortestPathRouter
from topologies.grouped import in_ranges
from topologies.machines.profile import Machine
from topologies.units import PS_PER_S, counted, format_size, format_time, parse_size, parse_time
from workloads.group_collectives import among
from workloads.job import Job, on_npus


def run(arguments: argparse.Namespace) -> None:
    """Simulate all at once and each alone, print and write."""
    spec = read(arguments)
    check_looks_into(spec)
    topology = with_npu_bandwidth(spec.build_topology(), spec.workload, spec.topology.link_bandwidth)
    box, made = machine_of(spec), dict[str, Described]()
    asked = [ask(table, topology, number, box, made) for number, table in enumerate(spec.tenant, 1)]
    model = model_of(spec, made.values())
    wanted = [one for one in asked if isinstance(one, Wanted)]
    # those that are placed, all at once, each alone, and the accounts
    with progress("share", len(wanted) + len(asked) + 2, arguments.quiet) as steps:
        given_run: dict[str, Any] = {
            "engine": spec.engine, "symmetry": spec.symmetry, "faults": spec.build_faults(),
            "done": lambda what, time_ps: steps.advance(f"{what}: {format_time(time_ps)}"),
            **how(arguments).arguments(),
        }
        named = {one.name: npus for one in asked if isinstance(one, Tenant) and (npus := made[one.name].npus)}
        running, held = placed(asked, topology, model, named, **given_run)
        tenants = [made[one.name] for one in asked]
        if arguments.perfetto:
            check_size(merge(running, model), model, spec.symmetry)
        steps.begin("all together")
        result = share_fabric(running, model, **given_run)
        rows = rows_of(spec, tenants, result)
        steps.advance("where the time went")
    notes = add_placement(rows, running, wanted, held, result) if wanted else []
    say(arguments, *report(spec, tenants, result, rows), *notes)
    write_json(arguments, given(spec, tenants), rows, model=model)
    write_csv(arguments, rows)
    if arguments.perfetto:
        write_whole(arguments.perfetto, lambda path: write_perfetto(result.run.timeline(), path))


def add_placement(
    rows: Sequence[dict[str, Any]], tenants: Sequence[Tenant], wanted: Sequence[Wanted], held: Mapping[str, Npus],
    result: Shares,
) -> list[str]:
    """Where tenants are and how long they waited, and the fragments of what was free: in their rows, and in words."""
    fabric, asked = result.run.job.topology, {one.name: one for one in wanted}
    ends = {share.name: share.arrival_ps + share.time_ps for share in result.shares}
    part, table = fragmentation(fabric, spans_of(tenants, held, ends)), []
    for row, one in zip(rows, tenants, strict=True):
        npus, place = held.get(one.name, tuple(range(fabric.n_npus))), asked.get(one.name)
        waited_ps = parse_time(one.arrival) - parse_time(place.arrival) if place else 0
        far = spread(fabric, npus)
        row |= {"npus": in_ranges(npus), "waited_s": waited_ps / PS_PER_S, "spread": far, "fragmentation": part}
        table += [[one.name, place.way, format_time(waited_ps), f"{far:.2f}", in_ranges(npus)]] if place else []
    return ["#", aligned([["tenant", "place", "waited", "spread", "NPUs"], *table], left=2),
            f"# fragmentation: {part:.1%} of the free NPUs are outside of their largest part, on average over time"]


def read(arguments: argparse.Namespace) -> Spec:
    """The spec, with the tenants of the file and then those of the flags."""
    spec = spec_of(arguments)
    spec = replace(spec, tenant=(*spec.tenant, *map(read_tenant, arguments.tenant)))
    check_apart(arguments, spec.to_dict())
    return spec


def given(spec: Spec, tenants: Sequence[Described]) -> Spec:
    """The spec for `--spec` to run again: tables with numeric priorities."""
    tables = tuple(
        {**table, "priority": one.tenant.priority} if "priority" in table else table
        for table, one in zip(spec.tenant, tenants, strict=True)
    )
    return replace(spec, tenant=tables)


def model_of(spec: Spec, tenants: Iterable[Described]) -> Model:
    """The model; as of `weft train` where all are jobs; links serve by priority if tenants differ in it, unless the
    spec names a discipline."""
    model = model_of_jobs(spec) if all(isinstance(one.tenant.work, Job) for one in tenants) else spec.build_model()
    if spec.model.discipline is None and len({one.tenant.priority for one in tenants}) > 1:
        return replace(model, discipline="priority")
    return model


def rows_of(spec: Spec, tenants: Sequence[Described], result: Shares) -> list[dict[str, Any]]:
    """A row for each tenant."""
    cost = {} if result.run.faults is None else {"faults": result.run.faults.plan.to_dict()}
    return [
        {
            "topology": result.run.job.topology.name, "tenant": one.tenant.name, "work": one.what,
            "start_s": row["start_s"], "priority": one.tenant.priority, **row, "engine": spec.engine,
            "symmetry": result.run.symmetry, "all_end_s": result.time_ps / PS_PER_S,
            "all_lower_bound_s": result.run.lower_bound_ps / PS_PER_S, **cost,
        }
        for one, row in zip(tenants, result.rows(), strict=True)
    ]


def report(spec: Spec, tenants: Sequence[Described], result: Shares, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Table and account, line by line."""
    topology = result.run.job.topology
    head = ["tenant", "work", "priority", "start", "alone", "shared", "slow-down"]
    table = [
        [
            share.name, one.what, str(one.tenant.priority), format_time(share.arrival_ps), format_time(share.alone_ps),
            format_time(share.time_ps), "-" if row["slowdown"] is None else f"{share.slowdown:.2f}",
        ]
        for one, share, row in zip(tenants, result.shares, rows, strict=True)
    ]
    lines = [
        f"# weft share: {counted(len(tenants), 'tenant')} on {topology.name}, {counted(topology.n_npus, 'NPU')}",
        f"# model: {result.run.assumptions}; {spec.engine} engine, seed {spec.build_model().seed}",
        f"# symmetry: {result.run.symmetry}", *(f"# {note}" for note in (*spec.preset_notes, *result.run.notes())), "#",
        aligned([head, *table], left=2), "#", "# the time of each, by what its critical path was spent on:",
    ]
    lines += [f"#   {row['tenant']}, {_account(row)}" for row in rows]
    if (optics := topology.optics) is not None and not (optics.policy or optics.only):
        lines.append("# note: circuits stay as they are: policy=demand or policy=provisioned switches them for tenants")
    return lines + [f"# note: {one.tenant.name}: {note}" for one in tenants for note in one.notes]


def _account(row: Mapping[str, Any]) -> str:
    parts = by_kind(row["why"]["parts_ps"], ": ")  # all time spent waiting for another tenant is one item
    return spent(row["why"]["makespan_ps"], dict(sorted(parts.items(), key=lambda part: -part[1])))


# --- tenants as users write them ------------------------------------------------------------------------------------


Table = Mapping[str, Any]

POSITIONS = ("collective", "algorithm", "size")
"""Names of the words without a name, in order."""

EVERY = ("name", "start", "priority", "npus", "place")
"""Keys of every tenant."""

OF_COLLECTIVES = (*POSITIONS, "form", "root", "element_bytes")
"""Further keys of a collective; others are options of its algorithm."""

TEXTS = ("name", "job", "workload", "model", "collective", "algorithm", "form")
"""Keys whose values are always text."""


class Made(NamedTuple):
    """The work of a tenant, in a few words, and notes of its file."""

    work: Schedule | Job
    what: str
    notes: tuple[str, ...] = ()


class Described(NamedTuple):
    """A tenant, and its work in a few words for tables."""

    tenant: Tenant
    what: str
    notes: tuple[str, ...] = ()  # of its file
    npus: Npus | None = None


def read_tenant(text: str) -> dict[str, Any]:
    """The table of a text: "all-reduce ring 64MiB priority=1 start=10us".

    WeftError: an unexpected word, or a key that is given twice.
    """
    where, table, words = f"tenant {told(text)}", {}, 0
    try:
        parts = shlex.split(text)
    except ValueError as wrong:
        raise WeftError(f"{where}: {wrong}") from None
    of_workload = any(part.startswith(("workload=", "model=")) for part in parts)
    for word in parts:
        key, equals, value = word.partition("=")
        if not equals:
            if of_workload:
                raise WeftError(f"{where}: {told(word)} has no value: write NAME=VALUE, such as in-order=true")
            if words == len(POSITIONS):
                raise WeftError(
                    f"{where}: {told(word)} is one word too many: write COLLECTIVE ALGORITHM SIZE, then NAME=VALUE"
                )
            key, value, words = POSITIONS[words], word, words + 1
        key = key.replace("-", "_")
        if not key or not value:
            raise WeftError(f"{where}: {told(word)}: write NAME=VALUE")
        if key in table:
            raise WeftError(f"{where}: {told(key)} is given twice")
        table[key] = value
    if not table:
        raise WeftError("a tenant is empty: write COLLECTIVE ALGORITHM SIZE, workload=NAME, model=NAME or job=FILE")
    return table


def make_tenant(table: Table, topology: Topology, number: int, box: Machine | None = None) -> Described:
    """The tenant of a table of `read_tenant`, or of TOML.

    `number`: it is called t1, t2, ... unless it has a name.
    `box`: the machine, if the fabric is one.
    WeftError: a key or a value that is not accepted.
    """
    name = table.get("name", f"t{number}")
    try:
        rest = _checked(table)
        start, priority = rest.pop("start", "0s"), _whole(rest.pop("priority", 0), "priority")
        rest.pop("name", None)
        kinds = [kind for kind in WORK if kind in rest]
        if len(kinds) != 1:
            raise WeftError(f"give one of {', '.join(WORK)}; {' and '.join(kinds) or 'none'} is given")
        npus = _npus(rest.pop("npus"), topology.n_npus) if "npus" in rest else None
        if npus is not None:
            check_npus(npus, topology.n_npus, f"tenant {told(name)}")
        made = WORK[kinds[0]](rest, topology, box, npus)
        tenant = Tenant(name=name, work=made.work, arrival=start, priority=priority,
                        npus=None if isinstance(made.work, Job) else npus)
        return Described(tenant, made.what, made.notes, npus)
    except WeftError as wrong:
        where = f"tenant {told(name)}: "
        raise WeftError(f"{where}{str(wrong).removeprefix(where)}") from None


def ask(
    table: Table, topology: Topology, number: int, box: Machine | None, made: dict[str, Described]
) -> Tenant | Wanted:
    """The tenant of a table, or what one is that is placed when it arrives; `made` gets it, and each one anew."""
    def make(change: Table) -> Tenant:
        one = make_tenant({**table, **change}, topology, number, box)
        made[one.tenant.name] = one
        return one.tenant

    if "place" not in table:
        return make({})
    name, text = table.get("name", f"t{number}"), table["place"]
    way, _, count = text.partition(":") if isinstance(text, str) else ("", "", "")
    table = {key: value for key, value in table.items() if key != "place"}
    where = f"tenant {told(name)}: place {told(text)}"
    if way not in WAYS or not (count.isascii() and count.isdecimal()) or "npus" in table:
        raise WeftError(f"{where}: write WAY:NPUS, such as packed:8, without npus; ways are {', '.join(WAYS)}")
    if not (len(count) < 10 and 1 <= int(count) <= topology.n_npus):
        raise WeftError(f"{where}: {topology.name} has {counted(topology.n_npus, 'NPU')}: place on 1 to "
                        f"{topology.n_npus}")
    if topology.n_nodes > MOST_NODES:
        raise WeftError(f"{where}: {topology.name} has {topology.n_nodes:,} nodes; tenants are placed on at most "
                        f"{MOST_NODES:,}: give npus")
    start = make({"npus": list(range(int(count)))}).arrival  # whatever is wrong is said before any run
    return Wanted(name, way, int(count), start, lambda npus, start: make({"npus": list(npus), "start": start}))


def _checked(table: Table) -> dict[str, Any]:
    """The table by names with underscores; rejects values that a tenant cannot have."""
    checked: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in checked:
            raise WeftError(f"{told(name)} is given twice, with - and with _")
        if name in TEXTS and not isinstance(value, str):
            raise WeftError(f"{name} is {told(value)}: give text")
        if name == "start" and not isinstance(value, str):
            raise WeftError(f"start {told(value)} is not a time: give text with a unit, such as 10us")
        if name != "npus":
            _check_plain(key, value)
        checked[name] = value
    return checked


def _check_plain(key: str, value: object) -> None:
    """Accept only what a file can hold and a terminal can show."""
    if not isinstance(value, (str, int, float)):
        raise WeftError(f"{told(key)} is {told(value)}: give text or a number")
    if not (value.isprintable() if isinstance(value, str) else isfinite(value)):
        raise WeftError(f"{told(key)} is {told(value)}: give printable text, or a finite number")


def _collective(
    table: dict[str, Any], topology: Topology, _box: Machine | None, npus: Sequence[int] | None = None
) -> Made:
    """The schedule of a collective, of any NPUs, or of whole process groups if it has some."""
    for key in POSITIONS:
        if key not in table:
            raise WeftError(f"no {key} is given: write COLLECTIVE ALGORITHM SIZE")
    kind, named = table["collective"], table["algorithm"]
    taken = algorithm(named).options
    options: dict[str, Any] = {}
    for key, value in table.items():
        if key in ("root", "element_bytes"):
            options[key] = _whole(value, key)
        elif key not in OF_COLLECTIVES:
            if key not in taken:
                accepted = ", ".join([*EVERY, *OF_COLLECTIVES, *taken])
                raise WeftError(f"unknown key {told(key)}; accepted are {accepted}")
            options[key] = parse_value(value) if isinstance(value, str) else value
    if not isinstance(table["size"], str) or len(table["size"]) > LONGEST_TOLD:
        raise WeftError(f"size {told(table['size'])} is not a text such as 64MiB")
    size = parse_size(table["size"], "size")
    if npus is None or len(npus) == topology.n_npus or "group" in taken:
        schedule = build(named, kind, topology, size, table.get("form"), **options)
    else:
        if (root := options.get("root")) is not None:
            if root not in npus:
                raise WeftError(f"root {root} is not one of the tenant's npus")
            options["root"] = npus.index(root)
        schedule = among(named, kind, size, topology, npus, table.get("form"), **options)
    return Made(schedule, f"{schedule.kind.name} {schedule.name} {format_size(size)}")


WORKLOAD_KEYS = {
    ("workload" if name == "name" else name): (section, name)
    for section in ("workload", "training") for name in keys_of(section)
    if name != "npu_bandwidth"  # links are those of the fabric
} | {"comm_group": ("workload", "communicator")}
"""Keys of a workload, and where they stand in a spec."""


def _workload(
    table: dict[str, Any], topology: Topology, box: Machine | None, npus: Sequence[int] | None = None
) -> Made:
    """An iteration or a file, on some NPUs as on a switch; the keys are those of `[workload]` and `[training]`."""
    spec = _spec_of(table, WORKLOAD_KEYS)
    named = table["algorithm"].split(",") if "algorithm" in table else ()
    part = topology if npus is None else replace(switch(len(npus)), name=f"a part of {counted(len(npus), 'NPU')}",
                                                 router=ShortestPathRouter())  # of no dimensions
    opened = open_workload(spec.workload, spec.training, part, named, box.gpu.name if box else "")
    job = opened.job if npus is None else on_npus(opened.job, topology, npus)
    return Made(job, f"iteration of {opened.name}" if opened.is_layers else opened.name, opened.notes)


PLAN_KEYS = {name: ("iteration", name) for name in keys_of("iteration") if name != "inline"} | {
    "efficiency": ("workload", "efficiency")}


def _plan(table: dict[str, Any], topology: Topology, box: Machine | None, npus: Sequence[int] | None = None) -> Made:
    """An iteration of a language model; the keys are those of `[iteration]`."""
    spec = _spec_of(table, PLAN_KEYS)
    algorithm = table.get("algorithm", ALGORITHM)
    plan, job = plan_job(spec.iteration, spec.workload.efficiency, topology, algorithm, npus, box)
    what = f"iteration of {plan.model.name} on {counted(plan.n_ranks, 'NPU')}"
    return Made(job, what, (plan.assumptions,))


def _spec_of(table: Mapping[str, Any], keys: Mapping[str, tuple[str, str]]) -> Spec:
    """The sections that the keys of a tenant stand in; all but the algorithm."""
    sections: dict[str, dict[str, Any]] = {section: {} for section, _ in keys.values()}
    for key, value in table.items():
        if key == "algorithm":
            continue
        if key not in keys:
            raise WeftError(f"unknown key {told(key)}; accepted are {', '.join([*EVERY, *keys, 'algorithm'])}")
        section, name = keys[key]
        kind = KINDS[keys_of(section)[name].metadata["kind"]]
        if kind.parse is str and not isinstance(value, bool):  # a number in TOML, such as active_chunks = 4
            value = str(value)
        try:
            sections[section][name] = kind.parse(value) if isinstance(value, str) else value
        except ValueError:
            raise WeftError(f"{key} is {told(value)}: {kind.wanted}") from None
    return Spec.from_dict(sections, "tenant")


Make = Callable[[dict[str, Any], Topology, Machine | None, Sequence[int] | None], Made]

WORK: Mapping[str, Make] = {"collective": _collective, "workload": _workload, "job": _workload, "model": _plan}
"""Constructors of the work of a tenant, by its identifying key."""


def _whole(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value)
    if not isinstance(value, str) or not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise WeftError(f"{what} {told(value)} is not an integer")
    return int(text)


def _npus(value: object, n_npus: int) -> tuple[int, ...]:
    """NPUs of "0-31,40", or of a list of numbers."""
    if isinstance(value, list):
        return tuple(_whole(npu, "NPU") for npu in value)
    if isinstance(value, int):
        return (_whole(value, "NPU"),)
    if not isinstance(value, str):
        raise WeftError(f"npus {told(value)} are neither a text such as 0-31,40 nor a list of numbers")
    found: list[int] = []
    for part in value.split(","):
        first, dash, last = part.partition("-")
        ends = _whole(first.strip(), "NPU"), _whole((last if dash else first).strip(), "NPU")
        if ends[0] > ends[1]:
            raise WeftError(f"npus {told(part)}: the first number is above the last")
        if not 0 <= ends[0] <= ends[1] < n_npus:  # before a range of them is made
            raise WeftError(f"npus {told(part)}: the NPUs are 0 to {n_npus - 1}")
        found += range(ends[0], ends[1] + 1)
        if len(found) > n_npus:
            raise WeftError(f"npus {told(value)} name an NPU twice")
    return tuple(found)
