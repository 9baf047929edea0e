"""Published training runs: their time an iteration beside what model, plan, device and machine predict.

`data/training.csv` has the runs, with their sources; other files have the same columns. There is one constant for each
device, stack and precision, fitted on at most two named runs (`workloads/passes/stacks.toml`), and none for a run.
"""

import csv
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from sim.library.described import machine_of
from sim.papers.tables import Left, as_text, md_table, read_rows
from sim.plots.lines import CYCLE
from sim.plots.style import NARROW, REFERENCE, figure, legend
from sim.plots.timeline import draw_passes
from sim.study.group_times import library_times
from sim.study.keys import IterationKeys, filled
from sim.study.plans import plan_by, torus_of
from topologies.checks import WeftError, told
from topologies.grouped import grouped
from topologies.machines.profile import Machine, machine
from workloads.models.language import LanguageModel, language_model
from workloads.passes.device import Stack, device, stack, stacks
from workloads.passes.iteration import WAITING, Iteration, iterate
from workloads.passes.plan import Plan

DATA = Path(__file__).parent / "data" / "training.csv"
COLUMNS = (
    "id", "source", "model", "layers", "hidden", "heads", "kv_heads", "ffn", "gated", "vocab", "tied", "seq", "gpus",
    "gpu", "nvlink_GBps", "nic_Gbps_a_gpu", "precision", "tp", "sequence_parallel", "pp", "vp", "dp", "cp", "ep",
    "zero", "schedule", "micro_batch", "microbatches", "global_batch", "recompute", "attention", "dp_overlap",
    "p2p_overlap", "tp_overlap", "grad_bytes", "iteration_s", "notes",
)

STACKS = (
    (r"2104\.04473", "megatron-2021"), (r"torchtitan", "torchtitan"),
    (r"fms-fsdp.*0d319983", "fms-2023"), (r"fms-fsdp", "fms"),
    (r"llm-foundry.*A100-40GB", "llm-foundry-2023"), (r"llm-foundry|mosaicml", "llm-foundry"),
    (r"maxtext", "maxtext"), (r"DeepSeek", "deepseek"),
    (r"2407\.21783", "meta"),
)
"""Software by the source of a run and its GPU; Megatron-LM where none of these is named."""

DEVICES = (
    (r"v5p", "tpu-v5p"), (r"GB200", "gb200"), (r"B200", "b200"), (r"H200", "h200"), (r"H800", "h800"),
    (r"H100.*\b500 ?W", "h100-500w"), (r"H100", "h100"), (r"A100.*\b40 ?GB", "a100-40gb"),
    (r"A100", "a100"), (r"MI300X", "mi300x"),
)

RECOMPUTED = (
    (r"selective op", "products"), (r"selective layer", "layers"), (r"selective", "selective"), (r"full", "full"),
    (r"minimal|norm|activation|up-proj", "memory"),
)

RECOMPUTES = "^(none|)$|" + "|".join(pattern for pattern, _ in RECOMPUTED)
SCHEDULES = ("dualpipe", "interleaved", "1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v")

DEEPSEEK = "DeepSeek-(V3|R1)"
"""Models that were trained to predict one token more (MTP)."""

OF_PHASES = "Seconds of an iteration; all that follows the last pass is the optimizer.\n"


class Point(NamedTuple):
    """A published run and its prediction; `reason`: why there is none."""

    row: Mapping[str, str]
    published_s: float
    found: Iteration | None
    reason: str = ""

    @property
    def error(self) -> float:
        """Relative, of the predicted time."""
        return self.found.time_s / self.published_s - 1 if self.found else float("nan")


def run(left: Left, quick: bool, data: str | None = None) -> None:
    """Predict every run, and leave `points`, `pairs`, the page and the figures."""
    rows = shipped() if data is None else read(data)
    points = [point_of(row) for row in rows if not (quick and _number(row["microbatches"]) > MANY)]
    left.table("points", map(_row, points))
    left.table("pairs", list(map(_pair, pairs(points))) or [{"what": "none"}])
    reasons = [f"- {point.row['id']}: {point.reason}\n" for point in points if point.reason]
    left.page(
        summary=summary(points), runs=_runs(points), reasons="".join([*reasons, *["\n"] * bool(reasons)]),
        pairs=_pairs(points), phases="".join(_phases(points)), parts=_parts(points), constants=_constants(),
        sources=dict.fromkeys(f"- {point.row['source']}" for point in points),
    )
    print(as_text([_row(point) for point in points]))
    print("\n".join(summary(points)))
    if not quick and any(point.found for point in points):
        draw(left.out, points)


MANY = 200
"""Microbatches of runs that a quick look leaves out."""


def shipped() -> list[dict[str, str]]:
    """The runs that come with the package."""
    return list(csv.DictReader(DATA.read_text(encoding="utf-8").splitlines()))


def read(path: str) -> list[dict[str, str]]:
    """Runs of another file.

    WeftError: it cannot be read, lacks a column, or has a line of another length.
    """
    rows = read_rows(path, "runs", COLUMNS)
    for number, row in enumerate(rows, start=2):
        if not _time(row["iteration_s"]):
            raise WeftError(f"runs {path}, line {number}: iteration_s is {told(row['iteration_s'])}: give seconds")
    return rows


def _time(text: str) -> float:
    try:
        return max(0.0, float(text)) if math.isfinite(float(text)) else 0.0
    except ValueError:
        return 0.0


def _number(text: str, default: int = 1) -> int:
    """The first number in a cell."""
    found = re.search(r"\d+", text)
    return int(found[0]) if found else default


_INTEGER = re.compile(r"\d+(?![\d.,]|e\d)")
_IN_WORDS = re.compile(r"not published|DualPipe|MLA|dense \d", re.IGNORECASE)


def _cell(row: Mapping[str, str], column: str, default: int | None = None) -> int:
    """The integer that a cell begins with, or that its known words have; without one the default.

    WeftError: other words, or no cell where there is no default.
    """
    text = row[column].strip()
    if found := _INTEGER.match(text):
        return int(found[0])
    if (text or default is None) and not _IN_WORDS.match(text):
        raise WeftError(f"{column} is {told(row[column])}: give an integer")
    return _number(text, 0 if default is None else default)


def _one_of(row: Mapping[str, str], column: str, pattern: str, known: str) -> str:
    """A cell that a pattern matches.

    WeftError: none of the known words.
    """
    if not re.search(pattern, row[column], re.IGNORECASE):
        raise WeftError(f"{column} is {told(row[column])}: known are {known}")
    return row[column]


def _flag(row: Mapping[str, str], column: str, unsaid: bool = False) -> bool:
    said = _one_of(row, column, r"^(0|1||not published)$", "0, 1, nothing and not published")
    return {"0": False, "1": True}.get(said, unsaid)


def _named(words: Iterable[tuple[str, str]], text: str, default: str) -> str:
    return next((name for pattern, name in words if re.search(pattern, text, re.IGNORECASE)), default)


# --- a run as a plan on a machine


def point_of(row: Mapping[str, str]) -> Point:
    """The prediction of a run, or why there is none."""
    published = _time(row["iteration_s"])
    try:
        return Point(row, published, predict(row, plan_of(row)))
    except WeftError as wrong:
        return Point(row, published, None, str(wrong))


def predict(row: Mapping[str, str], plan: Plan) -> Iteration:
    """The iteration of a plan on the machine of a run."""
    found = machine_of_row(row)
    return iterate(plan, torus_of(found, plan) if found.dimensions else library_times(found, plan.groups))


def stack_of(row: Mapping[str, str]) -> Stack:
    """The software stack of a row, by its source and GPU."""
    return stack(_named(STACKS, f"{row['source']} {row['gpu']}", "megatron"))


def plan_of(row: Mapping[str, str]) -> Plan:
    """What a run did, by its columns.

    WeftError: a device that is not known, or ranks that are not the GPUs.
    """
    of, on = stack_of(row), device(_named(DEVICES, row["gpu"], row["gpu"]))
    said = _one_of(row, "precision", "bf16|fp16|fp8", "bf16, fp16 and fp8")
    precision = "fp8" if "fp8" in said and on.fp8 else "half"
    recomputed = _one_of(row, "recompute", RECOMPUTES, "none, full and selective")
    attention = _attention(_one_of(row, "attention", "unfused|flash|cuDNN|MLA", "unfused, flash and cuDNN"))
    tp, pp, dp, batch, gpus = (_cell(row, key) for key in ("tp", "pp", "dp", "global_batch", "gpus"))
    cp, micro, vp = (_cell(row, key, 1) for key in ("cp", "micro_batch", "vp"))
    if tp * pp * dp * cp != gpus:
        raise WeftError(f"tp x pp x dp x cp are {tp * pp * dp * cp} ranks, not the {gpus} GPUs")
    if pp > 1 and of.microbatches == "stages" and "not published" in row["microbatches"]:
        micro = max(1, batch // (dp * pp))
    named = _one_of(row, "schedule", rf"^(none|{'|'.join(SCHEDULES)})\b", f"none, {', '.join(SCHEDULES)}").lower()
    schedule = next((one for one in SCHEDULES if named.startswith(one)), "1f1b")
    if schedule in ("1f1b", "interleaved"):
        schedule = "interleaved" if pp > 1 and vp > 1 else "1f1b"
    keys = filled(IterationKeys(
        stack=of.name, precision=precision, tp=tp, pp=pp, vp=vp if schedule == "interleaved" else None, cp=cp,
        ep=_cell(row, "ep", 1), replicas=_copies(row, gpus), zero=_cell(row, "zero", 0),
        schedule=schedule, micro_batch=micro, global_batch=batch, sequence=_cell(row, "seq"),
        sequence_parallel=_flag(row, "sequence_parallel"), recompute=_named(RECOMPUTED, recomputed, "none"),
        attention=attention, overlap_tp=bool(re.search("userbuffers|async|pipelined", row["tp_overlap"])),
        kernels=row.get("kernels") or None,
    ))
    return replace(
        plan_by(keys, model_of(row), on, gpus, _node(row)), data_overlap=_flag(row, "dp_overlap", unsaid=not of.waits),
        send_overlap=_flag(row, "p2p_overlap"), gradient_bytes=_cell(row, "grad_bytes", 4),
        compiled="without torch.compile" not in row["notes"],
    )


def _attention(text: str) -> str:
    if "unfused" in text:
        return "unfused"
    return "flash3" if re.search("-3|cuDNN|MLA|class", text) else "flash2"


def model_of(row: Mapping[str, str]) -> LanguageModel:
    """The model of a run by its hyper-parameters; widths of latent attention are in the notes."""
    gated, text = _flag(row, "gated"), row["ffn"]
    mixture: dict[str, Any] = {}
    if experts := re.search(r"(\d+) (?:routed|experts)", text):
        mixture = {
            "experts": int(experts[1]), "active": _after(r"(\d+) active", text),
            "shared": _after(r"(\d+) shared", text),
            "expert_width": _after(r"expert (\d+)", text) or _number(text),
            "dense_layers": _after(r"dense \d+ \((\d+) layers", text),
            "nodes_per_token": _after(r"at most (\d+) nodes", row["notes"]),
        }
    old = not gated and "MPT" not in row["model"]  # MPT has ALiBi and no biases
    ahead = int(bool(re.search(DEEPSEEK, row["model"], re.IGNORECASE)) and "without MTP" not in row["notes"])
    return LanguageModel(
        name=row["model"], layers=_cell(row, "layers") + ahead, ahead=ahead, hidden=_cell(row, "hidden"),
        heads=_cell(row, "heads"), kv_heads=_cell(row, "kv_heads", 0), feed_forward=_cell(row, "ffn"), gated=gated,
        vocabulary=_cell(row, "vocab"), tied=_flag(row, "tied"), sequence=_cell(row, "seq"), positions=old,
        biases=old, **mixture, **(_latent(row) if "MLA" in row["kv_heads"] else {}),
    )


def _latent(row: Mapping[str, str]) -> dict[str, Any]:
    """Multi-head latent attention: of the notes, or of DeepSeek-V3 where that is the model."""
    widths = [_after(rf"\b{name} (\d+)", row["notes"]) for name in ("q rank", "kv rank", "nope", "rope", "v")]
    if not all(widths):
        if not re.search(DEEPSEEK, row["model"], re.IGNORECASE):
            raise WeftError("kv_heads is MLA: expected in the notes are q rank N, kv rank N, nope N, rope N, v N")
        known = language_model("deepseek-v3")
        widths = [known.q_rank, known.kv_rank, known.head_size - known.rotary, known.rotary, known.value_size]
    q, kv, nope, rope, value = widths
    return {"q_rank": q, "kv_rank": kv, "rotary": rope, "head_size": nope + rope, "value_size": value}


def _after(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _copies(row: Mapping[str, str], gpus: int) -> int:
    """Slices, or nodes that each have all shards (HSDP)."""
    return gpus // _node(row) if "HSDP" in row["notes"] else _after(r"(\d+) slices", row["gpu"]) or 1


def _node(row: Mapping[str, str]) -> int:
    return 72 if "NVL72" in row["gpu"] else _after(r"(\d+) a node", row["gpu"]) or 8


def machine_of_row(row: Mapping[str, str]) -> Machine:
    """The machine of a run: its GPU, with the rates of links and NICs that are published."""
    name = _named(DEVICES, row["gpu"], row["gpu"])
    if name.startswith("tpu"):
        return machine(name)
    node, nic = _node(row), _cell(row, "nic_Gbps_a_gpu", 200 if name.startswith("a100") else 400)
    if not nic:
        raise WeftError("nic_Gbps_a_gpu is 0")
    found = machine_of(row["id"], name.partition("-")[0].upper(), node, "NVSwitch", f"{node}x {max(nic, 100)}G IB")
    gpu, link = found.gpu, _cell(row, "nvlink_GBps", 0) * 1e9
    share = link / gpu.link if link else 1.0
    gpu = replace(gpu, link=gpu.link * share, ring=gpu.ring * share, multicast=gpu.multicast * share)
    return replace(found, gpu=gpu, nic=replace(found.nic, port=nic / 8 * 1e9 * stack_of(row).network))


# --- pairs


AXES: dict[str, frozenset[str]] = {
    "recomputation": frozenset({"recompute", "sequence_parallel"}), "ranks": frozenset({"dp"}),
    "ranks, one batch": frozenset({"dp", "microbatches"}), "schedule": frozenset({"schedule", "vp"}),
    "precision": frozenset({"precision", "efficiency"}), "compiler": frozenset({"compiled"}),
    "slices": frozenset({"dp", "replicas"}), "overlap of tensor parallelism": frozenset({"tensor_overlap"}),
}
"""Effects: what of two plans differs."""


class Pair(NamedTuple):
    """Two runs that differ in one thing: the time of the slower over that of the faster."""

    what: str
    one: Point
    other: Point

    @property
    def published(self) -> float:
        """The published ratio of the two times."""
        return self.one.published_s / self.other.published_s

    @property
    def predicted(self) -> float:
        """weft's ratio of the two times."""
        assert self.one.found and self.other.found
        return self.one.found.time_s / self.other.found.time_s


def pairs(points: Sequence[Point]) -> list[Pair]:
    """Runs of one source whose plans differ in one thing alone; no constant can fake their ratio."""
    found = []
    for one, other in combinations([point for point in points if point.found], 2):
        if one.row["source"].partition(" ")[0] != other.row["source"].partition(" ")[0]:
            continue
        assert one.found and other.found
        a, b = vars(one.found.plan), vars(other.found.plan)
        differ = {key for key in a if key not in ("groups", "layers") and a[key] != b[key]}
        axis = next((name for name, keys in AXES.items() if differ and differ <= keys), None)
        if axis:
            slow, fast = (one, other) if one.published_s >= other.published_s else (other, one)
            found.append(Pair(axis, slow, fast))
    return found


# --- tables


def _row(point: Point) -> dict[str, Any]:
    found = point.found
    return {
        "id": point.row["id"], "published_s": point.published_s, "predicted_s": found and found.time_s,
        "error": found and round(point.error, 4), "fitted": point.row["id"] in fitted(),
        "bubble": found and round(found.bubble, 4), "mfu": found and round(found.figures["mfu"], 4),
        "hfu": found and round(found.figures["hfu"], 4), "reason": point.reason,
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {"what": pair.what, "slower": pair.one.row["id"], "faster": pair.other.row["id"],
            "published": round(pair.published, 4), "predicted": round(pair.predicted, 4)}


def fitted() -> set[str]:
    """Runs that a constant was fitted on."""
    known = [stack(name) for name in stacks()]
    return {name for one in known for names in (one.behind, *(rows for _, rows, *_ in one.efficiency.values()))
            for name in names}


def errors(points: Iterable[Point]) -> tuple[int, float, float]:
    """Number of predictions, mean and worst absolute error."""
    found = [abs(point.error) for point in points if point.found]
    return len(found), statistics.fmean(found) if found else 0.0, max(found, default=0.0)


def summary(points: Sequence[Point]) -> list[str]:
    """Errors of all runs, of sets, of stacks, and of those that nothing was fitted on."""
    groups = {
        "all": list(points), "nothing fitted on it": [one for one in points if one.row["id"] not in fitted()],
        **grouped((f"set {one.row.get('set', '-')}", one) for one in points),
        **grouped((f"stack {stack_of(one.row).name}", one) for one in points),
    }
    if any(one.row.get("kernels") for one in points):
        groups |= grouped(("measured kernels" if one.row.get("kernels") else "one constant", one) for one in points)
    found = {name: errors(group) for name, group in groups.items()}
    return md_table(("runs", "number", "mean error", "worst"), [
        (name, number, f"{mean:.1%}", f"{worst:.1%}") for name, (number, mean, worst) in found.items() if number
    ], 3)


def _runs(points: Sequence[Point]) -> list[str]:
    columns = ("run", "published s", "predicted s", "error", "bubble", "MFU", "HFU")
    return md_table(columns, [
        (point.row["id"] + " (fitted)" * (point.row["id"] in fitted()), f"{point.published_s:.2f}",
         f"{point.found.time_s:.2f}", f"{point.error:+.1%}", f"{point.found.bubble:.1%}",
         *(f"{point.found.figures[key]:.1%}" for key in ("mfu", "hfu")))
        for point in points if point.found
    ], 6)


def _pairs(points: Sequence[Point]) -> list[str]:
    return md_table(("what", "slower", "faster", "published", "predicted"), [
        (one.what, one.one.row["id"], one.other.row["id"], f"{one.published:.3f}", f"{one.predicted:.3f}")
        for one in pairs(points)
    ], 2)


def phases(found: Iteration, rank: int) -> dict[str, float]:
    """Seconds of a rank in passes alone and beside each other, waiting, and behind the last pass of all ranks."""
    spent = {"1F": 0.0, "bubble": found.parts[rank].get(WAITING, 0) / 1e12, "1B": 0.0, "1W": 0.0, "1F1B": 0.0}
    for one in found.pipeline.ranks[rank]:
        spent["1F1B" if len(one.slot) > 1 else f"1{one.slot[0].kind[0]}"] += (one.end - one.begin) / 1e12
    return {**spent, "optimizer": (found.time_ps - found.pipeline.end) / 1e12}


def _phases(points: Sequence[Point]) -> Iterator[str]:
    """A section for each run whose notes publish its phases."""
    for point in points:
        told_ = re.findall(r"(\w+) ([\d.]+)(?=,|;)", point.row["notes"].partition("phases (s):")[2])
        if point.found is None or not told_:
            continue
        each = [phases(point.found, rank) for rank in range(point.found.plan.pp)]
        table = md_table(("phase", "published", "first rank", "error", "mean of the ranks"), [
            (name, published, f"{each[0][name]:.2f}", f"{each[0][name] / float(published) - 1:+.1%}",
             f"{statistics.fmean(one[name] for one in each):.2f}") for name, published in told_ if name in each[0]
        ], 4)
        yield "\n".join([f"\n## Phases of {point.row['id']}\n", OF_PHASES, *table, ""])


def _parts(points: Sequence[Point]) -> list[str]:
    """Where the time goes, on the mean rank."""
    lines = []
    for point in points:
        if point.found is None:
            continue
        whole, parts = point.found.time_ps * len(point.found.parts), dict[str, int]()
        for one in point.found.parts:
            for kind, time in one.items():
                parts[kind] = parts.get(kind, 0) + time
        rest = sorted(((time, kind) for kind, time in parts.items() if kind != "compute"), reverse=True)
        told_ = ", ".join(f"{kind} {time / whole:.1%}" for time, kind in rest if time >= whole / 100)
        lines.append((point.row["id"], f"{parts['compute'] / whole:.1%}", told_ or "-"))
    return md_table(("run", "compute", "all else from 1 % on"), lines)


def _constants() -> list[str]:
    lines: list[tuple[Any, ...]] = []
    for name in stacks():
        lines += [(name, key, share, ", ".join(rows or whose))
                  for key, (share, rows, *whose) in stack(name).efficiency.items()]
        lines += [(name, "other constants", "-", ", ".join(stack(name).behind))] * bool(stack(name).behind)
    return md_table(("stack", "device and precision", "share", "fitted on"), lines)


def draw(out: Path, points: Sequence[Point]) -> None:
    """Write the error of every run, by stack, and one iteration."""
    def family(point: Point) -> str:
        return stack_of(point.row).name.removesuffix("-2023")

    names = list(dict.fromkeys(map(family, points)))
    with figure(out / "training.png", NARROW, 3.0) as drawn:
        axes = drawn.add_subplot()
        for name, line in zip(names, (*CYCLE, *CYCLE), strict=False):
            mine = [point for point in points if point.found and family(point) == name]
            axes.plot([point.published_s for point in mine], [1 + point.error for point in mine], label=name,
                      **line.points())
        for level in (0.92, 1.0, 1.08):
            axes.axhline(level, **REFERENCE)
        axes.set_xscale("log")
        axes.set_xlabel("published time of an iteration, s")
        axes.set_ylabel("predicted over published")
        legend(drawn)
    piped = [point.found for point in points if point.found and 1 < point.found.plan.pp <= 16]
    if piped:
        draw_passes(min(piped, key=lambda one: len(one.pipeline.ranks[0])), out / "training-iteration.png")
