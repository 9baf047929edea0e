"""The commands of weft: the purpose of each, the keys of a spec that it uses, and its additional flags.

All help texts are here, in `sim.study.keys`, and what the help of a command ends with, in `help/NAME.txt`; the module
of a command, and with it the compiler and the libraries of figures, is loaded when the command runs.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sim.study.keys import KINDS

SHELLS = ("bash", "zsh", "fish")


def parsed(kind: str, text: str) -> Any:
    """The value of a flag, of a kind of `sim.study.keys`."""
    try:
        return KINDS[kind].parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: {KINDS[kind].wanted}") from None


RUNS = ("check", "max_events")
"""Flags of all commands that simulate: how their runs are done; as in `sim.how`."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: a module `sim.cli.NAME` with a function `run(arguments)`, and the end of its help, `help/NAME.txt`."""

    help: str  # one line
    # sections of a spec, or single keys as "section.key", that it takes; "tenant" stands for its tables
    uses: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # keys of these sections that it does not use
    defaults: Mapping[str, Any] = field(default_factory=dict)  # its own, by "section.key"
    # its own help of keys, by "section.key": what stands for the value, and the line, with what it does by default
    helps: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    # without one of each it cannot run, as "key|key"; a name without a dot is a flag of the command line alone
    needs: tuple[str, ...] = ()
    positional: str = ""  # key that is written without a flag
    # `RUNS`, or of these alone what it has, and "workers": how a run is done, not its result
    run_flags: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("json",)  # files that it writes; see `sim.cli.flags`
    figures: tuple[str, ...] = ()  # of `--plot`, the default first
    chooses: bool = False  # whether it chooses chunks, discipline and trees for each point, unless they are given
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # flags of its own, as `argparse` takes them
    more_of: str = ""  # title of these flags in the help
    notes: str = ""  # end of the help, behind that of its file


WARM_PARTS = {
    "fifo": (4.1, "events in fifo order: the first command of nearly everybody"),
    "rounds": (3.4, "all-reduces in rounds: topoopt, its search"),
    "fabrics": (1.1, "shortest routes through any fabric, and what is true of all of it, such as its diameter"),
    "flows": (2.1, "flows that share links: --engine fluid, validate"),
    "proofs": (2.2, "proofs of large schedules"),
    "trees": (1.0, "packed trees and exact bounds"),
    "search": (1.1, "searches for schedules: tacos"),
    "ordered": (2.9, "links that serve by priority, tasks that share a resource: training, optimize"),
    "nics": (4.5, "NICs in front of fifo links"),
    "turns": (6.0, "links that serve in turn, buffers, virtual channels"),
    "faults": (6.5, "links that are slow or down, NPUs that are late"),
    "late-nics": (7.1, "the same with NICs, buffers, virtual channels or turns"),
    "losses": (1.8, "links that only lose chunks or jitter"),
    "why": (3.4, "critical paths: --why, train, share, optimize"),
    "large": (2.0, "passes over programs of more than a million tasks or services"),
    "integers": (9.4, "compression of integers: workloads.compression"),
    "floats": (7.5, "compression of floats"),
}
"""Parts of what is compiled, what the commands of README need first: CPU seconds, and what needs it."""


def _told_parts() -> str:
    """For the help of `weft warm`."""
    whole = sum(seconds for seconds, _ in WARM_PARTS.values())
    lines = [f"  {name:<9} {seconds:3.1f} s  {what}" for name, (seconds, what) in WARM_PARTS.items()]
    head = f"parts, and what each takes of a core where nothing is compiled, {whole:.0f} s in all:"
    return "\n".join(["\n", head, *lines])


SIZES = ("sweep.end", "sweep.factor", "sweep.step")
"""Keys of a sweep over sizes, not used by commands that take one size."""

FABRIC = "topology.spec|topology.machine"

LINKS = ("topology.link_bandwidth", "topology.link_latency", "topology.hop_latency")

_OF_JOBS = {"model.engine": ("NAME", "chunk or reference (default: chunk)")}
"""Help of keys of which jobs take fewer values."""

COMMANDS: dict[str, Command] = {
    "compare": Command(
        help="time algorithms of a collective on a fabric, over sizes",
        needs=(FABRIC,),
        uses=("topology", "collective", "model", "sweep", "account", "library", "workload", "training"),
        run_flags=("workers", *RUNS),
        outputs=("json", "csv", "plot", "nccl_json", "tuner"), figures=("comparison", "speed-up", "roofline"),
        chooses=True, more={"--all": {
            "action": "store_true", "help": "simulate every point; else, where no algorithms are named and no file is "
            "written, those are left out whose lower bound exceeds the times of two others of their size"}},
    ),
    "validate": Command(
        help="compare simulated times with closed forms and lower bounds, and explain the difference",
        needs=(FABRIC,),
        uses=("topology", "collective", "model", "sweep", "account.spread", "measured.file", "measured.placement"),
        without=("model.engine",), run_flags=RUNS,
        outputs=("json", "csv", "plot", "heatmap", "links"),
        figures=("account", "roofline", "timeline", "critical-path", "heatmap"), chooses=True,
    ),
    "judge": Command(
        help="is a measured table what the machine or fabric can do, and if not, what limits it?",
        needs=("judge.files",),
        uses=("judge", "measured.placement", "bound.reducing_switches", "topology", "collective", "model", "library"),
        without=("model.engine", "model.faults"), positional="judge.files", run_flags=RUNS,
        outputs=("json", "csv", "plot", "tuner"), figures=("judged",),
    ),
    "calibrate": Command(
        help="fit the constants of a machine to tables of nccl-tests, and print its profile for --machine",
        needs=("calibrate.files", FABRIC),
        uses=("calibrate", "measured.placement", "topology.spec", "topology.machine", "collective.name", "library"),
        positional="calibrate.files",
    ),
    "sweep": Command(
        help="run every combination in a file, store each point as it ends, and resume after an interruption",
        uses=("topology", "collective", "model", "sweep", "account", "library.name", "workload", "training",
              "iteration"),
        positional="spec",
        run_flags=("workers", *RUNS), outputs=("json", "export"), chooses=True,
        more={
            "--store": {"type": Path, "metavar": "FILE",
                        "help": "database of finished points (default: FILE with the suffix .db)"},
            "--status": {"action": "store_true", "help": "only report progress; compute nothing"},
            "--retry": {"action": "store_true", "help": "retry points that could not run"},
            "--dask": {"metavar": "ADDRESS", "help": "compute on the Dask cluster whose scheduler has this address "
                       "(default: this machine)"},
        },
    ),
    "bound": Command(
        help="print the least time of a collective on a fabric, an exact fraction, and the bottleneck that proves it",
        needs=(FABRIC,),
        uses=("topology", "collective.name", "collective.root", "collective.pairs", "bound"), outputs=("json", "csv"),
    ),
    "train": Command(
        help="simulate a training iteration: of a language model and its plan (--model), by passes, with memory; or of "
        "the layers of a workload, operation by operation, without memory limits, recomputation and gradient clipping",
        needs=(FABRIC, "workload.name|workload.job|iteration.model"),
        uses=("topology", "collective.algorithms", "model", "account", "library.name", "iteration", "workload",
              "training"),
        run_flags=RUNS,
        helps={
            **_OF_JOBS,
            "collective.algorithms": ("NAME[,NAME]", "of all collectives (default: of layers hierarchical, of --model "
                                      "ring); of traces each takes the first that has it (default: ring, of "
                                      "all-to-all, gather, scatter direct, of broadcast and reduce tree)"),
            "account.spread": ("N", "perturbed runs, for the range of the time: rates and starts by 0.1 %, other ties "
                               "(default: 0)"),
            "account.why": ("", "report what the critical path of the iteration was spent on"),
            "library.name": ("NAME[:VERSION]", "with --model: the library of the machine times collectives, and no "
                             "--algorithm: nccl, nccl:2.27 or rccl"),
            "workload.efficiency": ("X", "share of the peak that computation reaches; with --model that of products "
                                    "(default: as measured)"),
            "model.chunks": ("N", "chunks per transfer of all collectives at once, so that none is tried alone: auto "
                             "is for compare (default: 1, for hierarchical cuts by itself)"),
        },
        outputs=("json", "csv", "plot", "perfetto"),
    ),
    "share": Command(
        help="run several collectives and training iterations on one fabric at once: the time of each, and alone",
        needs=(FABRIC, "tenant"),
        uses=("topology", "model", "workload.npu_bandwidth", "tenant"),
        run_flags=RUNS,
        helps={
            **_OF_JOBS,
            "model.discipline": ("NAME", "of links: one of those of compare (default: fifo; priority where tenants "
                                 "differ in it)"),
            "model.chunks": ("N", "chunks per transfer of all tenants at once, so that none is tried alone: auto is "
                             "for compare (default: 16; 1 where none is a collective, as in weft train)"),
        },
        outputs=("json", "csv", "perfetto"), more_of="tenants", more={"--tenant": {
            "action": "append", "default": [], "metavar": "TEXT", "help": '"COLLECTIVE ALGORITHM SIZE", '
            '"workload=NAME", "model=NAME" or "job=FILE", then NAME=VALUE: name, start, priority (lower is served '
            "first), npus or place, form, options; repeatable, added to the tables [[tenant]] of --spec"}},
    ),
    "trace": Command(
        help="write every chunk on every link, and every computation, as a timeline for Perfetto",
        uses=("topology", "collective", "model", "sweep", "account.spread", "workload", "training", "iteration"),
        without=("iteration.inline", *SIZES), run_flags=RUNS, outputs=("json", "perfetto"),
        needs=(FABRIC, "collective.algorithms|workload.name|workload.job|iteration.model"),
        helps={
            "collective.algorithms": ("NAME|FILE", "name of one algorithm, or a schedule file; of a workload as in "
                                      "weft train"),
            "model.chunks": ("N", "chunks per transfer (default: for a schedule what compare chooses, 1 for a workload "
                             "or job)"),
            "model.symmetry": ("auto|off", "auto: simulate one rank per orbit; off: simulate all ranks (default: off, "
                               "and auto for a workload)"),
        },
    ),
    "optimize": Command(
        help="split a bandwidth budget across the dimensions of a network",
        needs=("optimize.network", "optimize.workload|collective.name|iteration.model",
               "optimize.budget|optimize.budget_cost|optimize.constraint"),
        uses=(
            "optimize", "topology.link_latency", "topology.hop_latency", "collective.name", "collective.algorithms",
            "collective.form", "sweep.begin", "model.symmetry", "workload.samples", "workload.peak",
            "workload.efficiency", "workload.compute_scale", "training.loop", "training.microbatches",
            "training.activation", "training.pipeline_order", "iteration",
        ),
        run_flags=RUNS,
        helps={
            "workload.peak": ("TFLOPS", "peak rate of an NPU in TFLOP/s, for models of --workload (default: 312)"),
            "workload.efficiency": ("X", "share of the peak that computation reaches (default: 0.75; of --model as "
                                    "measured)"),
            "training.loop": ("NAME", "no-overlap, wfbp, dear, or with --evaluator analytic overlap (default: "
                              "no-overlap)"),
        },
        outputs=("json", "csv", "plot"),
    ),
    "topoopt": Command(
        help="find optical circuits for a training job, and optionally search its placement with them",
        uses=(
            "workload.name", "topology.link_bandwidth", "topology.link_latency", "model.seed", "circuits.servers",
            "circuits.degree", "circuits.simplex", "circuits.rule", "circuits.rings_only", "circuits.routes",
            "circuits.budget",
        ),
        defaults={"workload.name": "DLRM", "topology.link_bandwidth": "100Gb/s", "topology.link_latency": "1us",
                  "model.seed": 1},
        run_flags=RUNS,
        helps={"workload.name": ("NAME", "a model of the paper: DLRM, CANDLE, BERT, VGG16, ResNet50 or NCF")},
    ),
    "reconfigure": Command(
        help="the best static circuits for a collective, every policy of switching them, and a bound on all",
        uses=("topology", "collective", "model", "sweep.begin"), without=("model.engine",),
        run_flags=RUNS, defaults={"topology.spec": "ocs:16x2", "sweep.begin": "1M"}, chooses=True,
    ),
    "topology": Command(
        help="describe, draw or export a fabric; without one, list the families",
        uses=("topology",), outputs=("json", "plot", "output"),
    ),
    "schedule": Command(
        help="describe the transfers of an algorithm; --list shows all algorithms",
        uses=("topology", "collective", "sweep", "schedule"), without=SIZES, needs=(FABRIC, "collective.algorithms"),
        outputs=("json", "plot", "goal", "htsim", "ocs_plan", "chakra", "msccl", "mscclpp", "forestcoll", "teccl"),
        figures=("trees", "steps"),
        more={"--goal-chunks": {"type": partial(parsed, "integer"), "default": 1, "metavar": "C",
                                "help": "messages per transfer in GOAL (default: 1)"}},
    ),
    "pool": Command(
        help="stream an array through the slots of an aggregating switch: windows, stragglers, loss, shared slots",
        uses=("pool", *LINKS), run_flags=RUNS,
        defaults={"topology.link_bandwidth": "100Gb/s", "topology.link_latency": "2us",
                  "topology.hop_latency": "0.8us"},
        outputs=("json", "csv", "plot"),
    ),
    "paper": Command(
        help="reproduce a paper's figures and print every published point beside ours",
        needs=("paper.name",),
        uses=("paper",), positional="paper.name",
        more={"--out": {"type": Path, "metavar": "DIR", "help": "folder for the results (default: out/NAME)"}},
    ),
    "report": Command(
        help="write one HTML page, readable offline, from the JSON results of a folder",
        needs=("report.folder",),
        uses=("report",), positional="report.folder", outputs=("json",),
    ),
    "plot": Command(
        help="draw a figure for a paper from JSON results",
        needs=("plot.files", "plot|json"),
        uses=("plot",), positional="plot.files", outputs=("plot", "json"),
        figures=("comparison", "speed-up", "scaling", "roofline", "account"),
    ),
    "astra": Command(
        help="run ASTRA-sim's inputs by ASTRA-sim's own rules: the same summary lines, and what it changes silently",
        needs=("workload.name|workload.job", "workload.system", "astra.network"),
        uses=("astra", "workload.name", "workload.job", "workload.system", "workload.communicator",
              "workload.remote_memory"),
        run_flags=("max_events",),
        helps={"workload.name": ("PREFIX", "Chakra traces PREFIX.<rank>.et")},
    ),
    "warm": Command(
        help="compile the engine, once for each version and machine; any command does so if needed",
        outputs=(), notes=_told_parts(), more={
            "parts": {"nargs": "*", "metavar": "PART", "help": "one of the parts below; several may follow"},
            "--jobs": {"type": partial(parsed, "integer"), "metavar": "N",
                       "help": "processes that compile (default: as many as there are cores)"},
        },
    ),
    "completion": Command(
        help="print a script that completes commands, flags and names in a shell",
        outputs=(),
        more={"shell": {"choices": SHELLS, "metavar": "SHELL", "help": f"one of {', '.join(SHELLS)}"}},
    ),
}
"""All commands, in the order of the help. A new command is one entry here, one module, and examples."""
