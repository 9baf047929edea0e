"""`weft calibrate`: the constants of a machine from tables of nccl-tests, as a profile to use with `--machine`."""

import argparse
from dataclasses import fields
from typing import Any

from sim.cli.asked import spec_of
from sim.cli.judge import on_machine, other_gpu
from sim.cli.output import say, write_json
from sim.cli.progress import progress
from sim.library.tuner import Setting
from sim.measured.calibrate import CONSTANTS, POOR, Calibrated, Table, calibrate
from sim.measured.points import Measurements
from topologies.checks import WeftError
from topologies.machines.profile import OF_LINK, Gpu, Machine, Nic, part
from topologies.units import counted, format_size

_TIMES = {one.key for one in CONSTANTS if one.time}


def run(arguments: argparse.Namespace) -> None:
    """Read, fit, print the profile."""
    spec = spec_of(arguments)
    files = spec.calibrate.files or ()
    runs = [run for file in files for run in on_machine(spec, file, len(files) == 1)]
    for measured, ran in runs:
        box = ran.setting.machine
        if other_gpu(measured, box):
            raise WeftError(f"{measured.source} is of {measured.device}, and {box.name} has {box.gpu.name}: calibrate "
                            "the tables of one machine, on a profile with its GPU")
    tables = [(ran.setting, ran.points) for _, ran in runs]
    with progress("calibrate", 1, arguments.quiet):
        found = calibrate(tables)
    taken = [_taken(measured, ran.setting) for measured, ran in runs]
    notes = [*_notes(found), *(f"note: {measured.source}: {note}" for measured, _ in runs for note in measured.notes)]
    say(arguments, *report(found, tables, [*taken, *notes]))
    rows = [
        {"constant": name, "value": _value(found.machine, name), "low": low, "high": high}
        for name, (low, high) in found.intervals.items()
    ]
    write_json(
        arguments, spec, rows, error=found.error, error_before=found.error_before, left_out=dict(found.left_out),
        undetermined=list(found.undetermined), together=[list(pair) for pair in found.together],
        unexplained=[list(point) for point in found.unexplained], limited=list(found.limited), taken=taken, notes=notes,
    )


def _taken(measured: Measurements, setting: Setting) -> str:
    """What a table was taken to be of."""
    by = "" if measured.n_ranks else f", as nobody says otherwise: {setting.machine.name}:NODES does"
    return (f"{measured.source}: {setting.collective} on {counted(setting.nodes, 'node')} of "
            f"{counted(setting.gpus, 'GPU')}{by}")


def _notes(found: Calibrated) -> list[str]:
    """What makes a profile doubtful."""
    poor = [f"note: a poor fit, its median error is above {POOR:.0%}: is it another machine, or number of nodes?"]
    limits = "note: at the least or most that it can be: " + ", ".join(found.limited)
    return [*poor * found.poor, *[limits] * bool(found.limited)]


def _value(machine: Machine, name: str) -> float:
    kind, key = name.split(".")
    return float(getattr(getattr(machine, kind), key))


def report(found: Calibrated, tables: list[Table], notes: list[str]) -> list[str]:
    """A profile in TOML, whose comments say what it is of (`notes`) and how sure it is."""
    points = sum(len(points) for _, points in tables)
    lines = [
        f"# weft calibrate: {found.machine.name}, {counted(points, 'point')} of {counted(len(tables), 'table')}",
        f"# median error {found.error:.1%}, of the profile as it was {found.error_before:.1%}",
        *(f"# {note}" for note in notes),
    ]
    for name, (low, high) in found.intervals.items():
        key = name.partition(".")[2]
        value = _text(key, _value(found.machine, name))
        lines.append(f"# {name} {value} [{_text(key, low)}, {_text(key, high)}]".replace('"', ""))
    for name in found.undetermined:
        lines.append(f"# {name}: these tables do not determine it")
    for one, other in found.together:
        lines.append(f"# {one} and {other}: these tables cannot tell them apart")
    for sizes, error in found.left_out.items():
        low, high = map(int, sizes.split("-"))
        to = f"below {format_size(high)}" if high < 2**60 else "and more"
        lines.append(f"# without {format_size(low)} {to}: median error {error:.1%} there")
    if found.unexplained:
        said = ", ".join(f"{kind} {format_size(size)} ({ratio:.2g} times)" for kind, size, ratio in found.unexplained)
        lines.append(f"# not explained, and counted little: {said}")
    machine = found.machine
    ports = [f"nic = {_part(machine.nic, Nic, 'nics')}", f"nics = {machine.nics}"] if machine.nics else []
    return [
        *lines, f"gpu = {_part(machine.gpu, Gpu, 'gpus')}", f"gpus = {machine.gpus}", f'inside = "{machine.inside}"',
        *ports, f'cpu = "{machine.cpu}"',
    ]


def _part(one: Gpu | Nic, kind: type[Any], file: str) -> str:
    """A GPU or NIC as a table: the profile that it is like, and what differs."""
    like = part(kind, file, one.name, "profile")
    words = [f'like = "{one.name}"']
    for field in fields(kind)[1:]:
        value = getattr(one, field.name)
        of_link = field.name in OF_LINK and getattr(one, "link", 0) != getattr(like, "link", 0)
        if value != getattr(like, field.name) or of_link:
            words.append(f"{field.name} = {_text(field.name, value)}")
    return f"{{ {', '.join(words)} }}"


def _text(key: str, value: Any) -> str:
    """A value as a profile has it."""
    if key in _TIMES:
        return f'"{round(value * 1e6, 3):.6g}us"'
    if isinstance(value, bool) or (key == "multicast" and not value):
        return str(bool(value)).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:.4g}" if key in ("reached", "messages") else f'"{value / 1e9:.5g}GB/s"'
