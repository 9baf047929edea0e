"""The commands of weft: the purpose of each, the keys of a spec that it uses, and its additional flags.

All help texts are here and in `sim.study.keys`; the module of a command, and with it the compiler and the
libraries of figures, is loaded when the command runs.
"""

import argparse
from collections.abc import Callable, Mapping
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
    """A command: a module `sim.cli.NAME` with a function `run(arguments)`, and its help."""

    help: str  # one line
    examples: tuple[str, ...]
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
    more: Callable[[argparse.ArgumentParser], None] = lambda parser: None  # adds flags of its own
    notes: str = ""  # end of the help


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true",
                        help="simulate every point; else, where no algorithms are named and no file is written, those "
                             "are left out whose lower bound exceeds the times of two others of their size")


def _sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, metavar="FILE",
                        help="database of finished points (default: FILE with the suffix .db)")
    parser.add_argument("--status", action="store_true", help="only report progress; compute nothing")
    parser.add_argument("--retry", action="store_true", help="retry points that could not run")
    parser.add_argument("--dask", metavar="ADDRESS",
                        help="compute on the Dask cluster whose scheduler has this address (default: this machine)")


_JUDGE = """

A machine (--machine, a --topology that is one, or the GPUs that the header lists) is judged by what NCCL or RCCL runs
on it; any other fabric by simulated algorithms, ring and tree unless --algorithms names others.
The collective is that of the file; one that names none needs --collective.

verdicts:
  good          as such machines do
  too-small     as expected, but the messages say nothing of the links
  tree-2n       two nodes, busbw beyond the NICs: a tree; force Ring to test the NICs
  wrong-config  sockets, NVLS, SHARP or LL128 off, a slower algorithm, protocol or path
  slow-hw       a missing NIC, a path through the CPU, a shared link, other nodes, packets lost
  slow-unknown  slower than expected, and like none of these
  cannot-say    faster than every candidate, and not than the links
  impossible    faster than any algorithm on these links
  corrupt       results are wrong: no time matters
"""


def _schedule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--goal-chunks", type=partial(parsed, "integer"), default=1, metavar="C",
                        help="messages per transfer in GOAL (default: 1)")


def _share(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("tenants").add_argument(
        "--tenant", action="append", default=[], metavar="TEXT",
        help='"COLLECTIVE ALGORITHM SIZE", "workload=NAME", "model=NAME" or "job=FILE", then NAME=VALUE: name, start, '
        "priority (lower is served first), npus or place, form, options; repeatable, added to the tables [[tenant]] of "
        "--spec",
    )


def _paper(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the results (default: out/NAME)")


WARM_PARTS = {
    "fifo": (2.4, "events in fifo order: the first command of nearly everybody"),
    "fabrics": (0.3, "what is true of a whole fabric, such as its diameter"),
    "flows": (1.0, "flows that share links: --engine fluid, validate"),
    "proofs": (1.9, "proofs of large schedules"),
    "trees": (1.1, "packed trees and exact bounds"),
    "search": (1.1, "searches for schedules: tacos"),
    "ordered": (1.7, "links that serve by priority, tasks that share a resource: training, optimize"),
    "nics": (3.2, "NICs in front of fifo links"),
    "turns": (3.4, "links that serve in turn, buffers, virtual channels"),
    "faults": (1.7, "links that are slow, down or lossy"),
    "why": (2.5, "critical paths: --why, train, share, optimize"),
    "integers": (8.1, "compression of integers: workloads.compression"),
    "floats": (6.1, "compression of floats"),
}
"""Parts of what is compiled, what the commands of README need first: CPU seconds, and what needs it."""


def _warm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="PART", help="one of the parts below; several may follow")
    parser.add_argument("--jobs", type=partial(parsed, "integer"), metavar="N",
                        help="processes that compile (default: as many as there are cores)")


def _told_parts() -> str:
    """For the help of `weft warm`."""
    whole = sum(seconds for seconds, _ in WARM_PARTS.values())
    lines = [f"  {name:<9} {seconds:3.1f} s  {what}" for name, (seconds, what) in WARM_PARTS.items()]
    head = f"parts, and what each takes of a core where nothing is compiled, {whole:.0f} s in all:"
    return "\n".join(["\n", head, *lines])


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


SWEEP_FORMAT = """

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

With [iteration] its points are plans of training, as of weft train --model; those that do not fit say why:

  [topology]
  machine = "dgx-h100:8"
  [library]
  name = "nccl"
  [iteration]
  model = ["llama-3-8b", "llama-3-70b"]
  tp = [1, 2, 4, 8]
  pp = [1, 2, 4]
  global_batch = 256

With [workload] they are runs of a workload, as of weft train --workload, by each algorithm that is named:

  [topology]
  spec = ["ring:8", "torus:2x4"]
  [workload]
  name = "traces/step"
  [collective]
  algorithms = ["ring", "bucket"]
"""

SIZES = ("sweep.end", "sweep.factor", "sweep.step")
"""Keys of a sweep over sizes, not used by commands that take one size."""

FABRIC = "topology.spec|topology.machine"

LINKS = ("topology.link_bandwidth", "topology.link_latency", "topology.hop_latency")

_OF_JOBS = {"model.engine": ("NAME", "chunk or reference (default: chunk)")}
"""Help of keys of which jobs take fewer values."""

COMMANDS: dict[str, Command] = {
    "compare": Command(
        help="time algorithms of a collective on a fabric, over sizes",
        examples=(
            "weft compare --topology torus:8x8 --collective all-reduce -b 1K -e 16M -f 128",
            "weft compare --topology torus:8x8 --algorithms swing,ring -b 1K -e 256M -f 4 --preset swing-paper "
            "--plot swing.png",
            "weft compare --topology torus:8x8 --algorithms swing,ring,bucket -b 1K -e 256M -f 16 --figure roofline "
            "--columns 1 --plot roofline.pdf",
            "weft compare --topology switch:8 --collective all-gather -b 1M --forwarding store-and-forward --json -",
            "weft compare --topology dgx-a100:2 --collective all-gather -b 1M -e 64M -f 8 --algorithms "
            "examples/all_gather.xml,nccl-rings",
            "weft compare --topology torus:4x4 --faults examples/faults.toml --algorithms swing,ring -b 1M -e 16M -f 4",
            "weft compare --topology random-regular:48x4 --collective all-to-all -b 1M --engine fluid",
            "weft compare --topology dgx-h100:4 --library nccl:2.27 -b 1K -e 8G",
            "weft compare --machine dgx-a100:16 --library nccl -b 1K -e 8G --tuner tuner.csv",
            "weft compare --topology examples/astra/ring_16.yml --workload examples/astra/grouped --comm-group "
            "examples/astra/groups.json --algorithms ring,swing,recursive-doubling",
        ),
        needs=(FABRIC,),
        uses=("topology", "collective", "model", "sweep", "account", "library", "workload", "training"),
        run_flags=("workers", *RUNS),
        outputs=("json", "csv", "plot", "nccl_json", "tuner"), figures=("comparison", "speed-up", "roofline"),
        chooses=True, more=_compare,
    ),
    "validate": Command(
        help="compare simulated times with closed forms and lower bounds, and explain the difference",
        examples=(
            "weft validate --topology torus:8x8 --algorithm swing -b 32 -e 512M -f 16",
            "weft validate --topology switch:8 --algorithms ring,direct -b 1M --forwarding store-and-forward",
            "weft validate --topology torus:8x8 --algorithm bucket -b 2M --heatmap links.png --links links.csv",
            "weft validate --topology torus:4x4 --algorithm bucket -b 64K --figure critical-path --plot path.png",
            "weft validate --topology torus:4x4 --algorithm ring -b 64K --figure timeline --plot links-over-time.pdf",
            "weft validate --topology switch:8 --algorithm ring --endpoint-latency 2us --measured "
            "examples/measured.json",
        ),
        needs=(FABRIC,),
        uses=("topology", "collective", "model", "sweep", "account.spread", "measured.file", "measured.placement"),
        without=("model.engine",), run_flags=RUNS,
        outputs=("json", "csv", "plot", "heatmap", "links"),
        figures=("account", "roofline", "timeline", "critical-path", "heatmap"), chooses=True,
    ),
    "judge": Command(
        help="is a measured table what the machine or fabric can do, and if not, what limits it?",
        examples=(
            "weft judge examples/nccl.txt",
            "weft judge examples/nccl.txt --machine dgx-h100:2 --library nccl:2.21 --plot judged.pdf",
            "weft judge examples/all_reduce.txt examples/all_gather.txt --machine dgx-h100:1",
            "weft judge examples/p4de.json --baseline examples/p4de_before.json --machine p4de:2 --json -",
            "weft judge examples/all_reduce.txt examples/all_gather.txt --machine dgx-h100:1 --tuner tuner.csv",
            "weft judge examples/osu.txt --topology switch:16 --link-bandwidth 200Gb/s --algorithms ring,direct "
            "--known latency",
        ),
        needs=("judge.files",),
        uses=("judge", "measured.placement", "bound.reducing_switches", "topology", "collective", "model", "library"),
        without=("model.engine", "model.faults"), positional="judge.files", run_flags=RUNS,
        outputs=("json", "csv", "plot", "tuner"), figures=("judged",), notes=_JUDGE,
    ),
    "calibrate": Command(
        help="fit the constants of a machine to tables of nccl-tests, and print its profile for --machine",
        examples=(
            "weft calibrate examples/all_reduce.txt examples/all_gather.txt --machine dgx-h100:1 > mine.toml",
            "weft calibrate examples/p4de.json --machine p4de:2 --library nccl:2.18 --gpus-per-process 8 --json -",
        ),
        needs=("calibrate.files", FABRIC),
        uses=("calibrate", "measured.placement", "topology.spec", "topology.machine", "collective.name", "library"),
        positional="calibrate.files",
    ),
    "sweep": Command(
        help="run every combination in a file, store each point as it ends, and resume after an interruption",
        examples=(
            "weft sweep examples/scaling.toml --store out/scaling.db --workers 2",
            "weft sweep examples/scaling.toml --store out/scaling.db && "
            "weft sweep examples/scaling.toml --store out/scaling.db --status",
            "weft sweep examples/chunks.toml --store out/chunks.db --export chunks.csv",
            "weft sweep examples/scaling.toml --dask tcp://head:8786 --export scaling.parquet",
        ),
        uses=("topology", "collective", "model", "sweep", "account", "library.name", "workload", "training",
              "iteration"),
        positional="spec",
        run_flags=("workers", *RUNS), outputs=("json", "export"), chooses=True,
        more=_sweep,
        notes=SWEEP_FORMAT,
    ),
    "bound": Command(
        help="print the least time of a collective on a fabric, an exact fraction, and the bottleneck that proves it",
        examples=(
            "weft bound --topology dgx-a100:2 --collective all-gather",
            "weft bound --topology mesh:4x4 --link-bandwidth 1GB/s --collective all-reduce --program",
            "weft bound --topology torus:8x8 --collective all-to-all --program --json -",
        ),
        needs=(FABRIC,),
        uses=("topology", "collective.name", "collective.root", "collective.pairs", "bound"), outputs=("json", "csv"),
    ),
    "train": Command(
        help="simulate a training iteration: of a language model and its plan (--model), by passes, with memory; or of "
        "the layers of a workload, operation by operation, without memory limits, recomputation and gradient clipping",
        examples=(
            "weft train --machine dgx-h100:64 --library nccl --model llama-3-70b --tp 8 --pp 4 --global-batch 1024",
            "weft train --topology torus:8x8x4 --model llama-3-8b --device h100 --tp 8 --global-batch 64",
            "weft train --machine dgx-h100:2 --model llama-3-8b --tp 8 --global-batch 16 --inline --nic shared",
            'weft train --topology "RI(16)_FC(8)_SW(32)" --workload gpt-3 --parallelism tp=16 --samples 32768 '
            "--peak 312 --efficiency 0.5",
            'weft train --topology "RI(4)_FC(8)_RI(4)_SW(32)" --workload examples/layers.txt '
            "--communicator examples/groups_4d.yml --npu-bandwidth 338GB/s,85GB/s,58GB/s,19GB/s",
            'weft train --topology "RI(4)_FC(4)_SW(8)" --workload bert-large --parallelism tp=4,pp=4 --microbatches 8 '
            "--samples 4096 --peak 312 --efficiency 0.5 --pipeline-chunks 2",
            'weft train --topology "SW(8)_SW(16)" --workload examples/layers.txt --loop dear --plot timeline.png '
            '--groups "forward=8,-1;input_grad=8,-1;weight_grad=-1,16"',
        ),
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
        examples=(
            'weft share --topology torus:4x4 --tenant "all-reduce swing 16MiB" --tenant "all-to-all direct 1MiB '
            'start=50us"',
            'weft share --topology torus:8x8 --tenant "all-reduce hierarchical 64MiB group=8,4 npus=0-31 name=left" '
            '--tenant "all-reduce ring 64MiB priority=1"',
            'weft share --topology ring:8 --tenant "workload=resnet-50 samples=16 peak=312 efficiency=0.5" '
            '--tenant "all-to-all direct 8MiB start=1ms" --json -',
            'weft share --machine dgx-h100:2 --tenant "model=llama-3-8b device=h100 tp=8 global_batch=8 npus=0-7" '
            '--tenant "all-reduce nccl-rings 256MiB start=100ms" --chunks 1',
            'weft share --topology torus:8x8 --tenant "all-to-all direct 4MiB place=random:20" '
            '--tenant "all-reduce ring 4MiB place=contention:50 start=1us"',
            "weft share --spec examples/tenants.toml --faults examples/faults.toml --check --csv shares.csv",
        ),
        needs=(FABRIC, "tenant"),
        uses=("topology", "model", "tenant"),
        run_flags=RUNS,
        helps={
            **_OF_JOBS,
            "model.discipline": ("NAME", "of links: one of those of compare (default: fifo; priority where tenants "
                                 "differ in it)"),
            "model.chunks": ("N", "chunks per transfer of all tenants at once, so that none is tried alone: auto is "
                             "for compare (default: 16)"),
        },
        outputs=("json", "csv", "perfetto"), more=_share,
    ),
    "trace": Command(
        help="write every chunk on every link, and every computation, as a timeline for Perfetto",
        examples=(
            "weft trace --topology torus:4x4 --algorithm swing --form bandwidth -b 1M --perfetto swing.json.gz",
            'weft trace --topology "SW(8)_SW(4)" --workload examples/layers.txt --groups '
            '"forward=8,-1;input_grad=8,-1;weight_grad=-1,4" --perfetto iteration.json.gz',
            "weft trace --topology torus:4x4 --algorithm ring -b 1M --faults examples/faults.toml --perfetto "
            "faulty.json.gz",
            "weft trace --topology switch:32 --job examples/broadcast_32.goal --perfetto tree.json.gz",
            "weft trace --topology examples/astra/ring_16.yml --job examples/astra/gather --perfetto gather.json.gz",
        ),
        uses=("topology", "collective", "model", "sweep", "account.spread", "workload", "training", "iteration"),
        without=("model.preset", "iteration.inline", *SIZES), run_flags=RUNS, outputs=("json", "perfetto"),
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
        examples=(
            'weft optimize --network "RI(4)_FC(8)_RI(4)_SW(32)" --workload gpt-3 --budget 500GB/s',
            "weft optimize --network examples/4d_network.yml --workload examples/layers.txt --communicator "
            "examples/groups_4d.yml --cost examples/4d_cost.yml --budget 500GB/s --objective time-cost",
            "weft optimize --topology torus:64x16 --collective all-reduce --algorithms swing,bucket -b 64M "
            "--budget 200GB/s --chunks 4",
            "weft optimize --topology leaf-spine:8x4x4 --collective all-reduce --algorithm in-network "
            '--option "trees=1;4" -b 64M --budget 200GB/s',
            "weft optimize --topology circulant:64 --degrees 2,4,8 --collective all-to-all --algorithms "
            "pairwise,direct -b 64M --budget 200GB/s --chunks 4",
            'weft optimize --network "RI(4)_FC(8)_SW(4)" --collective all-reduce -b 64M --budget 300GB/s '
            "--orders all",
            'weft optimize --network "RI(4)_FC(4)_SW(8)" --workload bert-large --parallelism tp=4,pp=4 '
            "--microbatches 8 --budget 300GB/s --chunks 2 --evaluations 40",
            "weft optimize --network examples/3d_network.yml --workload llama-3-70b --budget 900GB/s "
            '--constraint "B1 >= B2"',
        ),
        needs=("optimize.network", "optimize.workload|collective.name",
               "optimize.budget|optimize.budget_cost|optimize.constraint"),
        uses=(
            "optimize", "topology.link_latency", "topology.hop_latency", "collective.name", "collective.algorithms",
            "collective.form", "sweep.begin", "model.symmetry", "workload.samples", "workload.peak",
            "workload.efficiency", "workload.compute_scale", "training.loop", "training.microbatches",
            "training.activation", "training.pipeline_order",
        ),
        defaults={"workload.peak": 312.0, "workload.efficiency": 0.75, "training.loop": "no-overlap"}, run_flags=RUNS,
        outputs=("json", "csv", "plot"),
    ),
    "topoopt": Command(
        help="find optical circuits for a training job, and optionally search its placement with them",
        examples=(
            "weft topoopt --workload VGG16 --servers 16 --degree 4",
            "weft topoopt --workload DLRM --servers 128 --degree 8 --link-bandwidth 200Gb/s --budget 100 --json -",
        ),
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
        examples=(
            "weft reconfigure --topology ocs:16x2,delay=10us --algorithms recursive-doubling,totient-rings -b 1M",
            "weft reconfigure --topology ocs:8x2,delay=1us,per-port --collective all-to-all --algorithm pairwise "
            "-b 16M --json -",
        ),
        uses=("topology", "collective", "model", "sweep.begin"), without=("model.engine", "model.faults"),
        run_flags=RUNS, defaults={"topology.spec": "ocs:16x2", "sweep.begin": "1M"}, chooses=True,
    ),
    "topology": Command(
        help="describe, draw or export a fabric; without one, list the families",
        examples=(
            "weft topology",
            "weft topology --topology torus:8x8",
            'weft topology --topology "RI(4)_FC(8)_SW(32)" --link-bandwidth 400Gb/s,200Gb/s,100Gb/s',
            "weft topology --topology hx2mesh:4x4 --plot fabric.png --output fabric.graphml",
        ),
        uses=("topology",), outputs=("json", "plot", "output"),
    ),
    "schedule": Command(
        help="describe the transfers of an algorithm; --list shows all algorithms",
        examples=(
            "weft schedule --list",
            "weft schedule --topology torus:4x4 --algorithm swing --form bandwidth -b 1M",
            "weft schedule --topology torus:4x4 --algorithm ring -b 1M --rank 5",
            "weft schedule --topology dgx-a100:2 --collective all-gather --algorithm pipelined --plot trees.png",
            "weft schedule --topology torus:8x8 --algorithm swing --form bandwidth --figure steps --plot steps.png",
            "weft schedule --topology dgx-a100:2 --collective all-gather --algorithm pipelined --option k=1 "
            "--msccl a.xml",
            "weft schedule --topology dgx-a100:1 --algorithm direct -b 1M --mscclpp plan.json",
            "weft schedule --topology torus:4x4 --algorithm ring -b 1M --goal ring.goal --htsim ring.cm",
            "weft schedule --topology ocs:8x2 --algorithm swing --form bandwidth -b 1M --ocs-plan plan.json",
        ),
        uses=("topology", "collective", "sweep", "schedule"), without=SIZES, needs=(FABRIC, "collective.algorithms"),
        outputs=("json", "plot", "goal", "htsim", "ocs_plan", "chakra", "msccl", "mscclpp", "forestcoll", "teccl"),
        figures=("trees", "steps"),
        more=_schedule,
    ),
    "pool": Command(
        help="stream an array through the slots of an aggregating switch: windows, stragglers, loss, shared slots",
        examples=(
            "weft pool --size 100MiB --slots 8,16,57,64",
            "weft pool --size 4MiB --late 3=5ms --slow 0=0.5",
            "weft pool --size 16MiB --slots 64,512 --loss 1e-4 --timeout 1ms --seeds 50 --json -",
            "weft pool --size 4MiB --slots 64 --jobs 4 --switch-slots 128 --rule static,hashed",
            "weft pool --slots 16,256 --late 0=1ms --partial-timeout 10us",
        ),
        uses=("pool", *LINKS), run_flags=RUNS,
        defaults={"topology.link_bandwidth": "100Gb/s", "topology.link_latency": "2us",
                  "topology.hop_latency": "0.8us"},
        outputs=("json", "csv", "plot"),
    ),
    "paper": Command(
        help="reproduce a paper's figures and print every published point beside ours",
        examples=(
            "weft paper swing",
            "weft paper swing --quick --out out/swing",
            "weft paper libra --quick --json - > libra.json",
        ),
        needs=("paper.name",),
        uses=("paper",), positional="paper.name", more=_paper,
    ),
    "report": Command(
        help="write one HTML page, readable offline, from the JSON results of a folder",
        examples=(
            "weft compare --topology torus:8x8 --algorithms swing,ring -b 1K -e 64M -f 16 --json out/all-reduce.json "
            "&& weft report out",
            "weft report examples/results --page report.html --title 'Swing on tori' --frames 120",
            "weft report examples/results --page - > report.html",
        ),
        needs=("report.folder",),
        uses=("report",), positional="report.folder", outputs=("json",),
    ),
    "plot": Command(
        help="draw a figure for a paper from JSON results",
        examples=(
            "weft plot examples/results/torus-8x8.json --figure speed-up --baseline ring --columns 1 --plot "
            "speed-up.pdf",
            "weft plot examples/results/torus-4x4.json examples/results/torus-8x8.json "
            "examples/results/torus-16x16.json --figure scaling --size 64M --plot scaling.pdf",
            "weft plot examples/results/torus-8x8.json --figure roofline --plot roofline.png",
        ),
        needs=("plot.files", "plot|json"),
        uses=("plot",), positional="plot.files", outputs=("plot", "json"),
        figures=("comparison", "speed-up", "scaling", "roofline", "account"),
    ),
    "astra": Command(
        help="run ASTRA-sim's inputs by ASTRA-sim's own rules: the same summary lines, and what it changes silently",
        examples=(
            "weft astra --workload examples/astra/gather --system examples/astra/system.json --network "
            "examples/astra/ring_16.yml",
            "weft astra --workload examples/astra/grouped --system examples/astra/system.json --network "
            "examples/astra/ring_16.yml --comm-group examples/astra/groups.json --json -",
            "weft astra --workload examples/astra/gather --system examples/astra/system.json --network "
            "examples/astra/ring_16.yml --backend unaware",
        ),
        needs=("workload.name|workload.job", "workload.system", "astra.network"),
        uses=("astra", "workload.name", "workload.job", "workload.system", "workload.communicator",
              "workload.remote_memory"),
        run_flags=("max_events",),
        helps={"workload.name": ("PREFIX", "Chakra traces PREFIX.<rank>.et")},
    ),
    "warm": Command(
        help="compile the engine, once for each version and machine; any command does so if needed",
        examples=(
            "weft warm",
            "weft warm fifo ordered --jobs 1",
        ),
        outputs=(), more=_warm, notes=_told_parts(),
    ),
    "completion": Command(
        help="print a script that completes commands, flags and names in a shell",
        examples=(
            "source <(weft completion bash)                                  # in ~/.bashrc",
            "weft completion zsh > ~/.zfunc/_weft                            # a folder of fpath",
            "weft completion fish > ~/.config/fish/completions/weft.fish",
        ),
        outputs=(), more=_completion,
    ),
}
"""All commands, in the order of the help. A new command is one entry here and one module."""
