"""Real machines: public tables of nccl-tests and rccl-tests beside what profile and topology predict, nothing fitted.

`data/hardware_runs.csv` says what ran where, with its source; `data/hardware_times.csv` has the measured times. Other
tables have the columns of both in one file, one row a size.

How well a system is predicted by constants that were calibrated without it: for each system the calibrated constants
that its rows depend on are fitted anew to the rows of all other systems. A constant that only this system determines
takes what would be said of a machine that nobody has measured (`ASSUMED`).
"""

import csv
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.library.described import asked_of, machine_of, processes_of, version_of
from sim.library.expected import Expected, expected
from sim.library.tuner import ROOTED, SENDRECV, Setting
from sim.library.tuner import tables as known
from sim.papers.tables import Left, md_table, read_rows
from sim.plots.lines import CYCLE, OTHERS
from sim.plots.style import NARROW, WIDE, figure, legend, log_axis, sizes_axis
from topologies.checks import WeftError, told
from topologies.grouped import grouped
from topologies.machines.profile import FIELDS, Gpu, Nic, origin, sources
from topologies.units import format_size

DATA = Path(__file__).parent / "data"
MIB = 2**20
COLUMNS = ("id", "system", "gpus", "nodes", "gpu", "intra_link", "nic", "collective", "algorithm", "nccl_version",
           "notes", "size_bytes", "time_us")

LEFT_OUT = (
    (r"-tcp", "over sockets, not RDMA"), (r"^aicad-4n-ar-(a0|ll)", "64 channels, or LL beyond its sizes, were forced"),
    (r"^aws-p3dn", "latency of the plugin of 2019"), (r"^spark-2n-ag-i25", "an MTU of 1500 B"),
)
"""Runs that no error is counted of, by their names: broken settings, which the judge should find."""


class Point(NamedTuple):
    """A measured time and the prediction of it; `reason`: why no error is counted."""

    run: Mapping[str, str]
    setting: Setting | None
    size_bytes: int
    measured_us: float
    found: Expected | None
    reason: str

    @property
    def error(self) -> float:
        """Relative, of the predicted time."""
        return self.found.time_s * 1e6 / self.measured_us - 1 if self.found else float("nan")

    @property
    def counted(self) -> bool:
        """Whether the row counts among the errors: it was predicted, and nothing speaks against it."""
        return self.found is not None and not self.reason


def run(left: Left, quick: bool, data: str | None = None) -> None:
    """Predict every row, and leave `points`, `systems`, the page and a figure per generation."""
    points = [point_of(row) for row in (shipped() if data is None else read(data))]
    left.table("points", [_row(point) for point in points])
    left.table("systems", summary(points, lambda point: point.run["system"]))
    text = report(points, () if quick else left_out_by_system(points))
    left.page(report=text, tables=tables(points), constants=_constants())
    print("\n".join([*text, ""]))
    if not quick:
        draw(left.out, points)


def shipped() -> list[dict[str, str]]:
    """The rows that come with the package."""
    runs = {row["id"]: row for row in _csv((DATA / "hardware_runs.csv").read_text(encoding="utf-8"))}
    return [runs[row["id"]] | row for row in _csv((DATA / "hardware_times.csv").read_text(encoding="utf-8"))]


def read(path: str) -> list[dict[str, str]]:
    """Rows of another file.

    WeftError: it cannot be read, lacks a column, or has a number that is none.
    """
    name, kept = f"measurements {path}", []
    for number, row in enumerate(read_rows(path, "measurements", COLUMNS), start=2):
        size, gpus, nodes = (
            _number(row[key], f"{name}, line {number}: {key}") for key in ("size_bytes", "gpus", "nodes")
        )
        if min(gpus, nodes) < 1 or gpus < nodes or (size % 1 or gpus % 1 or nodes % 1):
            raise WeftError(f"{name}, line {number}: {size:g} B on {gpus:g} GPUs in {nodes:g} nodes cannot be")
        time, algbw, busbw = (
            _number(row.get(key) or "0", f"{name}, line {number}: {key}")
            for key in ("time_us", "algbw_GBps", "busbw_GBps")
        )
        if not time:  # only a bandwidth was published
            algbw = algbw or (busbw / _factor(row, int(gpus)) if gpus > 1 else 0.0)
            time = size / algbw / 1e3 if algbw else 0.0
        if time > 0:
            kept.append(row | {"time_us": f"{time:.9g}", "size_bytes": f"{size:.0f}", "gpus": f"{gpus:.0f}",
                               "nodes": f"{nodes:.0f}"})
    return kept


def _number(text: str, where: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise WeftError(f"{where} is {told(text)}: give a number") from None
    if not 0 <= found < 2**50:
        raise WeftError(f"{where} is {told(text)}: give a number from 0 to 2^50")
    return found


def _csv(text: str) -> Iterable[dict[str, str]]:
    return csv.DictReader(text.splitlines())


def _factor(row: Mapping[str, str], gpus: int) -> float:
    if row["collective"] in ("sendrecv", *ROOTED):
        return 1.0
    return (2 if row["collective"] == "all-reduce" else 1) * (gpus - 1) / gpus


def point_of(row: Mapping[str, str]) -> Point:
    """The prediction of a row, or why there is none."""
    size, measured = int(row["size_bytes"]), float(row["time_us"])
    reason = next((why for pattern, why in LEFT_OUT if re.search(pattern, row["id"])), "")
    setting = None
    try:
        setting = setting_of(row)
        if not size:
            raise WeftError("0 B: what is measured is the call alone")
        return Point(row, setting, size, measured, expected(setting, size), reason)
    except WeftError as wrong:
        return Point(row, setting, size, measured, None, str(wrong))


def setting_of(row: Mapping[str, str]) -> Setting:
    """What ran, by the words of the table: its columns system, gpu, intra_link, nic, algorithm and notes.

    WeftError: no GPU that is known, or an algorithm that is not modeled for the collective.
    """
    gpus, nodes = int(row["gpus"]), int(row["nodes"])
    if "NVL72" in f"{row['intra_link']} {row['system']}":
        nodes = -(-gpus // 72)  # one NVLink domain is one node
    each = gpus // nodes
    if gpus % nodes:
        raise WeftError(f"{gpus} GPUs in {nodes} nodes: only nodes alike are predicted")
    collective = SENDRECV if row["collective"] == "sendrecv" else row["collective"]
    algorithms, protocols = asked_of(row["algorithm"])
    if collective != "all-reduce":  # rings do the rest
        algorithms = tuple(name for name in algorithms if name in ("Ring", "CollNet"))
    if collective in ("all-to-all", SENDRECV):
        algorithms = protocols = ()
    return Setting(
        machine=machine_of(row["system"], row["gpu"], each, row["intra_link"], row["nic"]), nodes=nodes, gpus=each,
        collective=collective, version=version_of(row["nccl_version"]), algorithms=algorithms, protocols=protocols,
        gpus_per_process=processes_of(row["notes"], each), graphs="CUDA graphs" in row["notes"],
    )


def _row(point: Point) -> dict[str, Any]:
    found = point.found
    return {
        "id": point.run["id"], "system": point.run["system"], "collective": point.run["collective"],
        "nodes": point.run["nodes"], "gpus": point.run["gpus"], "size_bytes": point.size_bytes,
        "measured_us": point.measured_us, "predicted_us": found and found.time_s * 1e6,
        "error": found and point.error, "algorithm": found and found.algorithm, "protocol": found and found.protocol,
        "limit": found and found.limit, "reason": point.reason,
    }


def median_error(points: Iterable[Point]) -> float | None:
    """Median of the absolute errors that count; None if there is none."""
    errors = [abs(point.error) for point in points if point.counted]
    return statistics.median(errors) if errors else None


def summary(points: Sequence[Point], name: Callable[[Point], str]) -> list[dict[str, Any]]:
    """Errors by a name: number of rows, median, mean and largest, and the median of 1 MiB and more."""
    groups = grouped((name(point), point) for point in points if point.counted)
    return [
        {
            "name": key, "rows": len(group), "median": median_error(group),
            "mean": statistics.fmean(abs(point.error) for point in group),
            "largest": max((point.error for point in group), key=abs),
            "median_from_1_MiB": median_error(point for point in group if large(point.size_bytes)),
        }
        for key, group in groups.items()
    ]


def large(size: int) -> bool:
    """1 MiB and more, up to rounding to ranks."""
    return size >= 0.99 * MIB


GROUPS: dict[str, Callable[[int, int], bool]] = {
    "all": lambda size, nodes: True,
    "1 MiB and more inside a node": lambda size, nodes: large(size) and nodes == 1,
    "1 MiB and more between nodes": lambda size, nodes: large(size) and nodes > 1,
    "less than 1 MiB": lambda size, nodes: not large(size),
}
"""Which errors are summed up, by size and number of nodes."""


def of_group(points: Iterable[Point], name: str) -> list[Point]:
    """The points of a group of `GROUPS` of which an error is counted."""
    counted = ((point, point.setting) for point in points if point.counted)
    return [point for point, run in counted if run is not None and GROUPS[name](point.size_bytes, run.nodes)]


def left_out_by_system(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Errors of each system by constants that were fitted to all others, and the constants that it alone determines."""
    rows = grouped((point.run["system"], (point.setting, point.size_bytes, point.measured_us / 1e6))
                   for point in points if point.counted and point.setting is not None)
    found = []
    for name, own_rows in rows.items():
        one = left_out(own_rows, [row for other, group in rows.items() if other != name for row in group])
        each = zip(np.abs(one.errors).tolist(), own_rows, strict=True)
        found.append({
            "name": name, "errors": [(error, size, setting.nodes) for error, (setting, size, _) in each],
            "alone": [str(constant) for constant in one.alone],
        })
    return found


def _generalization(systems: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of `left_out_by_system`."""
    def median(kept: Callable[[int, int], bool], among: Sequence[Mapping[str, Any]] = systems) -> float | None:
        errors = [error for one in among for error, size, nodes in one["errors"] if kept(size, nodes)]
        return statistics.median(errors) if errors else None

    lines = [
        (one["name"], len(one["errors"]), _percent(median(GROUPS["all"], [one])),
         _percent(median(lambda size, _: large(size), [one])), ", ".join(one["alone"]) or "-")
        for one in systems
    ]
    return [
        "", "Each system predicted by constants that were fitted to all other systems. What it alone determines takes",
        "what would be assumed of a machine that nobody has measured: a NIC like InfiniBand, a GPU like the H100. The",
        "forms of the terms were chosen with all tables in view, and Sirius is of the same make as Polaris.", "",
        *md_table(("left out", "rows", "median error", "median from 1 MiB", "it alone determines"), lines), "",
        *md_table(("rows, their system left out", "median error"),
                  [(name, _percent(median(kept))) for name, kept in GROUPS.items()], 1),
    ]


def report(points: Sequence[Point], systems: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Errors overall, by system, collective, size and what limits a row; what is left out, and why.

    `systems`: of `left_out_by_system`.
    """
    groups = {name: of_group(points, name) for name in GROUPS}
    lines = md_table(("rows", "number", "median error"), [
        (name, len(group), _percent(median_error(group))) for name, group in groups.items()], 2)
    names: tuple[tuple[str, Callable[[Point], str]], ...] = (
        ("system", lambda point: point.run["system"]), ("collective", lambda point: point.run["collective"]),
        ("size", lambda point: _range(point.size_bytes)),
        ("limited by", lambda point: point.found.limit if point.found else ""),
    )
    for title, named in names:
        columns = (title, "rows", "median error", "mean", "largest", "median from 1 MiB")
        lines += ["", *md_table(columns, [
            (row["name"], row["rows"], *(_percent(row[key]) for key in ("median", "mean")), f"{row['largest']:+.0%}",
             _percent(row["median_from_1_MiB"]))
            for row in summary(points, named)
        ], 5)]
    if systems:
        lines += _generalization(systems)
    left = {point.run["id"]: point.reason for point in points if point.reason}
    lines += ["", "No error is counted of these runs:", ""]
    return lines + [f"- {key}: {why}" for key, why in left.items()]


def _range(size: int) -> str:
    return next(name for most, name in (
        (64 * 1024, "to 64 KiB"), (MIB * 0.99, "to 1 MiB"), (64 * MIB, "1 MiB to 64 MiB"),
        (float("inf"), "from 64 MiB"),
    ) if size < most)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def tables(points: Sequence[Point]) -> str:
    """Every run: its description and source, then each size."""
    runs = grouped((point.run["id"], point) for point in points)
    return "\n\n".join("\n".join([f"### {key}", "", *_table(group)]) for key, group in runs.items())


def _table(group: Sequence[Point]) -> list[str]:
    about, setting = group[0].run, group[0].setting
    words = [about["system"], f"{about['nodes']} x {int(about['gpus']) // int(about['nodes'])} {about['gpu']}",
             about["nic"], about["collective"], about["algorithm"], f"NCCL {about['nccl_version'] or 'unknown'}"]
    link = about.get("source_url", "")
    source = f"[source]({link})" if link.startswith("http") else link
    lines = [f"{', '.join(word for word in words if word)}. {source}", ""]
    if setting is not None:
        machine = setting.machine
        ports = f", {setting.nics} x {machine.nic.name} a node" if setting.nodes > 1 else ""
        lines += [f"Taken as {machine.gpu.name}, {machine.inside}{ports}.", ""]
    return lines + md_table(("size", "choice", "limited by", "measured us", "predicted us", "error"), [
        (format_size(point.size_bytes), f"{found.algorithm} {found.protocol}" if found else "-",
         found.limit if found else "-", point.measured_us, found and found.time_s * 1e6,
         f"{point.error:+.1%}" if found else "-")
        for point in group for found in (point.found,)
    ], 3)


def _constants() -> list[str]:
    """Constants that were calibrated, and on what."""
    every = [(name, key, source) for kind in ("gpus", "nics") for name, found in sources(kind).items()
             for key, source in found.items() if source.startswith("calibrated: ")]
    every += [("nccl", key, why) for key, (_, why) in known()["reached"].items()]
    return md_table(("profile", "constant", "calibrated on"), [
        (name, key, source.removeprefix("calibrated: ")) for name, key, source in every])


MOST_PANELS = 12
LEAST_SIZES = 8
GENERATIONS = {"ampere": "a100", "hopper": "h100", "blackwell": "b200", "cdna": "mi300x"}


def draw(out: Path, points: Sequence[Any]) -> None:
    """Write `hardware-GENERATION.png` to `out`, of runs with enough sizes: those with the most."""
    for architecture, name in GENERATIONS.items():
        runs = grouped((point.run["id"], point) for point in points
                       if point.counted and point.setting.machine.gpu.architecture == architecture)
        chosen = sorted((run for run in runs.values() if len(run) >= LEAST_SIZES), key=len, reverse=True)[:MOST_PANELS]
        if chosen:
            _picture(out / f"hardware-{name}.png", chosen)


def _picture(path: Path, runs: Sequence[Sequence[Any]]) -> None:
    across = min(4, len(runs))
    down = -(-len(runs) // across)
    with figure(path, WIDE if across > 1 else NARROW, 0.3 + 1.5 * down) as drawn:
        grid = drawn.subplots(down, across, squeeze=False)
        for axes, run in zip(grid.flat, runs, strict=False):
            sizes = [point.size_bytes for point in run]
            axes.plot(sizes, [point.measured_us for point in run], label="measured",
                      **CYCLE[-1].points() | {"marker": "o", "markersize": 2.6})
            axes.plot(sizes, [point.found.time_s * 1e6 for point in run], label="predicted", **OTHERS[0].curve())
            sizes_axis(axes, sizes, most=4 if len(runs) < 4 else 3)
            log_axis(axes, most=5, unit_s=1e-6)
            axes.set_title(run[0].run["id"], fontsize=6)
        for axes in list(grid.flat)[len(runs):]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel("time")
        legend(drawn)


F64 = npt.NDArray[np.float64]
Row = tuple[Setting, int, float]
"""What ran, size in bytes, measured seconds."""

ASSUMED = {
    "reached": 0.95, "messages": 0.95, "latency": 0.0, "handshake": 0.0, "handshake_simple": 0.0, "launch": 17e-6,
    "launch_per_gpu": 2.25e-6, "ramp": 4.5e-6, "ramp_ll128": 0.0, "channel": 20.4e9, "multicast_ramp": 1.0,
    "network_channel": 1e9, "most_of_a_channel": 2.0**24, "send": 8.4, "peer": 0.0, "scatter": 8.4,
}
"""For a constant of which nothing is measured: a NIC like InfiniBand, a GPU like the next generation that is known, and
of messages the latency that NCCL states for Simple; a ring reaches `RING` of the links."""

RING = 0.8
TIMES = ("latency", "handshake", "handshake_simple", "launch", "launch_per_gpu", "ramp", "ramp_ll128")
SHARES = ("reached", "messages")
UNIT_S = 10e-6
"""A unit of times in the fit; of all else it is the logarithm."""

STEP, NOISE, FELT = 0.02, 0.1, 1e-6
MOST_STEPS = 12


class Calibrated(NamedTuple):
    """A constant that was calibrated: "gpu", "nic" or "reached", the profile that has it, and its key."""

    part: str
    profile: str
    key: str

    def __str__(self) -> str:
        return f"{self.profile} {self.key}".strip()


Values = Mapping[Calibrated, float]


class LeftOut(NamedTuple):
    """Errors (predicted over measured, less one) of a system's rows, and the constants that it alone determines."""

    errors: F64
    alone: tuple[Calibrated, ...]


def _sources(setting: Setting) -> Iterator[tuple[str, str, Calibrated]]:
    """Part ("gpu", "nic" or "reached") and key of each calibrated constant of a setting, and where it comes from."""
    parts: dict[str, Gpu | Nic] = {"gpu": setting.machine.gpu, "nic": setting.machine.nic}
    for kind, part in parts.items():
        for key in FIELDS[type(part)]:
            if where := origin(f"{kind}s", part.name, key):
                yield kind, key, Calibrated(kind, *where)
    for key in setting.reached._fields:
        yield "reached", key, Calibrated("reached", "", key)


@cache
def _of(setting: Setting) -> dict[Calibrated, float]:
    """The calibrated constants of a setting, and their values."""
    parts: dict[str, Any] = {"gpu": setting.machine.gpu, "nic": setting.machine.nic, "reached": setting.reached}
    return {one: float(getattr(parts[kind], key)) for kind, key, one in _sources(setting)}


def with_values(setting: Setting, values: Values) -> Setting:
    """The setting with other values of constants, which every profile takes that has them from the same place."""
    new: dict[str, dict[str, Any]] = {"gpu": {}, "nic": {}, "reached": {}}
    for kind, key, one in _sources(setting):
        if one in values:
            new[kind][key] = values[one]
    machine = setting.machine
    gpu, nic = replace(machine.gpu, **new["gpu"]), replace(machine.nic, **new["nic"])
    known = setting.reached._replace(**new["reached"])
    return replace(setting, machine=replace(machine, gpu=gpu, nic=nic), reached=known)


def errors(rows: Sequence[Row], values: Values) -> F64:
    """Logarithms of predicted over measured times."""
    changed: dict[int, Setting] = {}
    found = []
    for setting, size, seconds in rows:
        if id(setting) not in changed:
            changed[id(setting)] = with_values(setting, values)
        found.append(math.log(expected(changed[id(setting)], size).time_s / seconds))
    return np.array(found)


def left_out(own: Sequence[Row], others: Sequence[Row]) -> LeftOut:
    """Predict the rows of a system by constants fitted to the others."""
    start = {one: value for setting, _, _ in own for one, value in _of(setting).items()}
    felt = [one for one in start if _matters(one, start, own)]
    alone = tuple(one for one in felt if not _matters(one, start, others))
    values = {one: _assumed(one, own) if one in alone else start[one] for one in felt}
    shared = [one for one in felt if one not in alone]
    near = [row for row in others if any(one in _of(row[0]) for one in shared)]
    values |= _fitted({one: values[one] for one in shared}, near) if shared else {}
    return LeftOut(np.expm1(errors(own, values)), alone)


def _matters(one: Calibrated, start: Values, rows: Sequence[Row]) -> bool:
    having = [row for row in rows if one in _of(row[0])]
    base = errors(having, {})
    return any(
        bool(np.any(np.abs(errors(having, {one: _moved(one, start[one], by)}) - base) > FELT)) for by in (-0.1, 0.1)
    )


def _moved(one: Calibrated, value: float, by: float) -> float:
    if one.key in TIMES:
        return max(value + by * UNIT_S, 0.0)
    moved = value * math.exp(by)
    return min(moved, 1.0) if one.key in SHARES else moved


def _assumed(one: Calibrated, own: Sequence[Row]) -> float:
    if one.key == "ring":
        return RING * next(setting.machine.gpu.link for setting, _, _ in own if one in _of(setting))
    return ASSUMED[one.key]


def _fitted(start: Values, rows: Sequence[Row]) -> Values:
    """Least squares of the logarithms, in which outliers count little."""
    from scipy.optimize import least_squares  # heavy: loaded where it is used

    names = list(start)

    def at(x: F64) -> Values:
        return {one: _moved(one, start[one], float(by)) for one, by in zip(names, x, strict=True)}

    lowest = [-start[one] / UNIT_S - 1e-9 if one.key in TIMES else -3.0 for one in names]
    solved: Any = least_squares(
        lambda x: errors(rows, at(x)), np.zeros(len(names)), bounds=(lowest, np.inf), loss="soft_l1", f_scale=NOISE,
        diff_step=STEP, x_scale=NOISE, max_nfev=MOST_STEPS,
    )
    return at(solved.x)
