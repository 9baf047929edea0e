"""`weft judge --library nccl`: is a table of nccl-tests what the machine can do, and if not, what limits it?"""

from __future__ import annotations

import argparse

from sim.cli.library import setting_of
from sim.cli.output import say, write_csv, write_json
from sim.library.described import machine_of
from sim.measured.machine import Diagnosis, diagnose
from sim.measured.read import Measurements, read_measurements
from sim.study.spec import Spec
from sim.study.tables import aligned
from topologies.checks import WeftError
from topologies.machines.profile import Machine
from topologies.units import counted, format_size, format_time


def run(arguments: argparse.Namespace, spec: Spec) -> None:
    """Read, judge, print and write."""
    if spec.measured.known is not None or spec.bound.reducing_switches:
        raise WeftError("--known and --reducing-switches are of fits: omit them beside --library")
    measured = read_measurements(
        spec.measured.file or "", collective=spec.collective.name, placement=spec.measured.placement
    )
    told = spec.updated({"collective": {"name": measured.collective}})
    setting = setting_of(told, None if spec.fabric is not None else _of_header(measured))
    if measured.n_ranks not in (None, setting.n):
        raise WeftError(
            f"{measured.source} measured ranks {measured.n_ranks}, but {setting.machine.name} has {setting.n}"
        )
    found = diagnose(setting, [(point.size_bytes, point.time_s) for point in measured.points])
    say(arguments, *report(measured, found))
    rows = found.rows()
    write_json(
        arguments, spec, rows, verdict=found.verdict, limit=found.limit, share=found.share,
        share_of_any=found.share_of_any, outliers=list(found.outliers), contradictions=list(found.contradictions),
    )
    write_csv(arguments, rows)


def _of_header(measured: Measurements) -> tuple[Machine, int]:
    """Machine and nodes by the ranks that nccl-tests lists."""
    ranks, hosts = measured.n_ranks, measured.hosts
    if not ranks or not hosts or not measured.device or ranks % hosts:
        raise WeftError(f"{measured.source} does not say what it ran on: give --machine, as in dgx-h100:2")
    return machine_of(measured.device, measured.device, ranks // hosts, "", ""), hosts


def report(measured: Measurements, found: Diagnosis) -> list[str]:
    """The verdict, what it rests on, then the sizes."""
    setting = found.setting
    named = ", ".join(map(format_size, found.outliers))
    slower = ", ".join(map(format_size, found.contradictions))
    ports = f", {setting.nics} x {setting.machine.nic.name} a node" if setting.nodes > 1 else ""
    table = [["size", "measured", "expected", "ratio", "busbw", "choice", "limited by"]]
    for row in found.rows():
        table.append([
            format_size(row["size_bytes"]), format_time(row["measured_s"] * 1e12),
            format_time(row["expected_s"] * 1e12), f"{row['ratio']:.0%}", f"{row['busbw_GBps']:.4g} GB/s",
            f"{row['algorithm']} {row['protocol']}", row["limit"],
        ])
    return [
        f"# weft judge: {setting.collective} on {setting.machine.name}, {counted(setting.nodes, 'node')} of "
        f"{counted(setting.gpus, 'GPU')} ({setting.machine.gpu.name}){ports}; "
        f"{counted(len(measured.points), 'point')} of {measured.source} ({measured.format})",
        f"verdict     {found.verdict}",
        f"limited by  {found.limit}",
        f"reached     {found.share:.1%} of what the library is expected to, {found.share_of_any:.1%} of its fastest "
        "algorithm, at the best size",
        *([f"outliers    {named}"] if named else []),
        *([f"but         {slower} took longer than larger sizes: not counted"] if slower else []),
        "#", aligned(table),
    ]
