"""`weft compare --library nccl`: the table that nccl-tests would print, with what the library chooses at each size."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.cli.flags import how
from sim.cli.output import say, write_csv, write_figure, write_json, write_text
from sim.library.expected import REPEATS, expected, expected_row
from sim.library.tuner import ROOTED, SENDRECV, Setting, runs_on, version
from sim.library.tuner_csv import ranges, told, tuner_csv
from sim.measured.nccl_text import nccl_json
from sim.study.spec import Spec
from sim.study.tables import aligned, nccl_table, screen_width, time_text
from topologies.checks import WeftError
from topologies.grouped import grouped
from topologies.lazy import later
from topologies.machines.profile import Machine
from topologies.units import counted, format_rate, format_size

COMPARISON = "comparison"
"""The figure of a library: expected times, and those by the engine."""


def setting_of(spec: Spec, machine_and_nodes: tuple[Machine, int] | None = None) -> Setting:
    """What a spec asks of a library.

    `machine_and_nodes`: where the spec names none.
    WeftError: no machine, or a key that the library takes from elsewhere.
    """
    later("sim.study.plans:check_no_engine")(spec)  # with all of training, which nothing else here needs
    asked, (machine, nodes) = spec.library, machine_and_nodes or spec.build_machine()
    ranks, root = machine.gpus * nodes, spec.collective.root or 0
    if root >= ranks:
        raise WeftError(f"root is {root}: {counted(nodes, 'node')} of {machine.name} have ranks 0 to {ranks - 1}")
    if asked.name:
        runs_on(asked.name, machine)
    return Setting(
        machine=machine, nodes=nodes, gpus=machine.gpus, collective=SENDRECV if spec.messages else spec.kind.name,
        version=version(asked.name or ""), algorithms=asked.algorithms or (), protocols=asked.protocols or (),
        gpus_per_process=1 if asked.gpus_per_process is None else asked.gpus_per_process,
    )


def beside_ideal(spec: Spec, machine: Machine, nodes: int) -> list[str]:
    """What a library is expected to take on a fabric that is a machine, whose links a simulation has at raw rates."""
    try:
        setting = Setting(machine=machine, nodes=nodes, gpus=machine.gpus, collective=spec.kind.name)
    except WeftError:  # no machine whose library is modeled
        return []
    sizes = dict.fromkeys((min(spec.sizes_bytes), max(spec.sizes_bytes)))
    times = [f"{time_text(expected(setting, size).time_s)} at {format_size(size)}" for size in sizes]
    return [f"ideal links: NCCL on {counted(nodes, 'node')} of {machine.name} is expected to take "
            f"{' and '.join(times)}: --library nccl"]


def run(arguments: argparse.Namespace, spec: Spec) -> None:
    """Print the tables, write the files."""
    if arguments.plot and arguments.figure != COMPARISON:
        raise WeftError(f"--figure {arguments.figure} is for simulations: omit it beside --library")
    if arguments.workers != 1:
        raise WeftError("--workers is for comparisons of algorithms: omit it beside --library")
    from sim.study.library_runs import simulated, why_apart  # the engine: `beside_ideal` does without

    setting = setting_of(spec)
    rows = []
    for size in spec.sizes_bytes:
        one = expected(setting, size)
        named = f"{setting.machine.name}:{setting.nodes}"
        engine = simulated(setting, one, how(arguments))
        rows.append(expected_row(setting, one, named) | {
            "simulated_s": engine.time_s, "schedule": engine.schedule, "not_simulated": engine.reason,
            "apart": "" if engine.time_s is None else why_apart(setting, one, engine.time_s),
        })
    tuned = ranges(setting, spec.sizes_bytes) if arguments.tuner else []
    say(arguments, *report(spec, setting, rows), *told(tuned))
    if arguments.plot:
        write_figure(arguments, [*_curves(rows)])
    write_json(arguments, spec, rows)
    write_csv(arguments, rows)
    if arguments.tuner:
        write_text(arguments.tuner, tuner_csv(setting, tuned))
    if arguments.nccl_json:
        one_run = [row | {"algorithm": spec.library.name} for row in rows]  # which the library chose is not its name
        write_text(arguments.nccl_json, nccl_json(one_run, setting.n, spec.element_bytes, spec.collective.root or 0))


def _curves(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What is expected, and what the engine takes, as rows of two algorithms."""
    for row in rows:
        yield {**row, "algorithm": "expected"}
        if row["simulated_s"] is not None:
            yield {**row, "algorithm": "by the engine", "time_s": row["simulated_s"]}


def _apart(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Sizes at which the simulation and what is expected differ, by the reason."""
    return grouped((row["apart"], format_size(row["size_bytes"])) for row in rows if row["apart"])


def report(spec: Spec, setting: Setting, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of nccl-tests, then the choices."""
    from sim.study.library_runs import APART  # the engine, as above

    machine = setting.machine
    table = [["size", "algorithm", "protocol", "expected", "simulated", "by", "busbw", "limited by"]]
    for row in rows:
        engine = row["simulated_s"]
        table.append([
            format_size(row["size_bytes"]), row["algorithm"], row["protocol"], time_text(row["time_s"]),
            "-" if engine is None else f"{time_text(engine)} {engine / row['time_s'] - 1:+.0%}",
            "-" if engine is None else row["schedule"], f"{row['busbw_GBps']:.4g} GB/s", row["limit"],
        ])
    ports = f", {setting.nics} x {machine.nic.name} a node" if setting.nodes > 1 else ""
    return [
        f"# weft compare: {setting.collective} by {spec.library.name} on {machine.name}, "
        f"{counted(setting.nodes, 'node')} of {counted(setting.gpus, 'GPU')} ({machine.gpu.name}){ports}",
        f"# reached: {format_rate(machine.gpu.ring)} of {format_rate(machine.gpu.link)} inside a node"
        + (f", {machine.nic.reached:.1%} of {format_rate(machine.nic.port)} a port" if setting.nodes > 1 else ""),
        "#", nccl_table(rows, setting.n, spec.element_bytes, spec.collective.root or 0, width=screen_width()), "#",
        "# what the library is expected to choose; simulated: the same algorithm, chunk by chunk, and how much longer",
        *([f"# simulated is one {setting.collective} alone, expected one of {REPEATS} that nccl-tests starts back to "
           "back: their chain of ranks fills once"] if setting.collective in ROOTED else []),
        aligned(table),
        *(f"# apart by more than {APART:.0%} at {', '.join(sizes)}: {why}" for why, sizes in _apart(rows).items()),
        *(f"# not simulated: {why}" for why in dict.fromkeys(row["not_simulated"] for row in rows) if why),
    ]
