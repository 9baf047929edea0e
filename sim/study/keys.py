"""All keys of a spec: one dataclass per section; each field has what a file, a flag and a reader need to know of it.

A key `link_bandwidth` of the section `[topology]` is the flag `--link-bandwidth` and the attribute
`spec.topology.link_bandwidth`. Options of the model have their table in `sim.program.model_options`. No library is
imported: the command line builds its help from here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields, make_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sim.program.model_options import OPTIONS

if TYPE_CHECKING:
    from sim.faults.plan import FaultPlan

AUTO = "auto"
"""Of `chunks`: chosen for each point; see `sim.study.choice`."""

REPEATED = ("options", "texts", "files", "numbers")
"""Kinds whose flag is repeated for another value."""


class Kind(NamedTuple):
    """The values that a key takes."""

    accepts: Callable[[Any], bool]  # whether a value of a file is of this kind
    wanted: str  # what to write, for error messages
    parse: Callable[[str], Any] = str  # of the text after a flag, or of one of several flags; raises ValueError


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _all(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and bool(value) and all(check(one) for one in value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def split_names(text: str) -> tuple[str, ...]:
    """Names joined by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(text)
    return names


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


KINDS: dict[str, Kind] = {
    "text": Kind(_is_name, "give text, with a unit where it is a quantity"),
    "integer": Kind(_is_integer, "give an integer", int),
    "chunks": Kind(lambda value: value == AUTO or _is_integer(value), f"give an integer, or {AUTO}",
                   lambda text: text if text == AUTO else int(text)),
    "scheme": Kind(lambda value: _is_integer(value) or _is_name(value), "give an integer, or the name of a scheme",
                   lambda text: int(text) if text.isdecimal() else text),
    "number": Kind(_is_number, "give a number", float),
    "flag": Kind(lambda value: isinstance(value, bool), "give true or false", _boolean),
    "size": Kind(lambda value: isinstance(value, str) or _is_integer(value),
                 'give a number of bytes, or text such as "8M"'),
    "names": Kind(_all(_is_name), "give a list of names, none of them empty", split_names),
    "integers": Kind(_all(_is_integer), "give a list of integers",
                     lambda text: tuple(int(part) for part in text.split(","))),
    "options": Kind(_all(_is_name), 'give a list of texts such as "trees=2"'),
    "texts": Kind(_all(_is_name), "give a list of texts"),
    "files": Kind(lambda value: _all(_is_name)(value) and len(set(value)) == len(value),
                  "give a list of files, none of them twice"),
    "numbers": Kind(_all(_is_number), "give a list of numbers", float),
    "plan": Kind(lambda value: isinstance(value, str) or hasattr(value, "moves_routes"),
                 "give the name of a file, or a table [model.faults]"),
}
"""Kinds of values by name."""


def key(
    kind: str, help: str, metavar: str = "", flags: Sequence[str] = (), *, value: Any = None, default: str = "",
    choices: Sequence[str] = (),
) -> Any:
    """Define a field of a section.

    `kind`: of `KINDS`.
    `help`: one line, without the default.
    `metavar`: what follows the flag.
    `flags`: default: `--name-of-the-field`.
    `value`: if the key is not given; None if that must be distinguishable from any value.
    `default`: as shown to people; default: `value`.
    `choices`: the accepted values, if they are a fixed set.
    """
    shown = default or _shown(value)
    return field(default=value, metadata={
        "kind": kind, "help": help, "metavar": metavar, "flags": tuple(flags), "default": shown,
        "choices": tuple(choices),
    })


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def flags_of(field: Field[Any]) -> tuple[str, ...]:
    """The flags of the command line that give a key."""
    named: tuple[str, ...] = field.metadata["flags"]
    return named or (f"--{field.name.replace('_', '-')}",)


def shown_default(field: Field[Any], value: Any = None) -> str:
    """The default of a key as shown to people: its own, or `value` if a command has another; "" if there is none."""
    return _shown(value) if value is not None else str(field.metadata["default"])


class Section:
    """What all sections have: they are equal by their keys, never change, and are shown by `sim.study.spec`.

    In one place: that `dataclass` compiles it for each takes a tenth of the time of `weft --help`.
    """

    __slots__ = ("_hash",)
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _hash: int

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        vars(self)[name] = value

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:  # the first time; a point of a sweep is looked up fifty times
            object.__setattr__(self, "_hash", hash(tuple(vars(self).values())))
            return self._hash

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)  # hashes of text are other ones in another process


@dataclass(eq=False, repr=False, kw_only=True)
class TopologyKeys(Section):
    """Section `[topology]`: the fabric."""

    spec: str | None = key("text", "the fabric: torus:8x8, RI(4)_SW(8), ..., or a file (docs/guides/formats.md)",
                           "SPEC|FILE", ("--topology",))
    machine: str | None = key("text", "instead of --topology: a machine by name or profile, and its nodes "
                              "(docs/guides/machines.md)", "NAME|FILE.toml|FILE.xml[:NODES]")
    link_bandwidth: str | None = key("text", "of one direction of every cable, or one per dimension", "RATE[,RATE]",
                                     default="400Gb/s")
    link_latency: str | None = key("text", "of every cable, or one per dimension", "TIME[,TIME]", default="100ns")
    hop_latency: str | None = key("text", "of every switch or router on the path", "TIME", default="300ns")
    trace_latency: str | None = key("text", "of the links on the boards of a HammingMesh, or one per dimension",
                                    "TIME[,TIME]", default="0ns")
    switch_latency: str | None = key("text", "of the switches of a HammingMesh, instead of the hop latency", "TIME",
                                     default="the hop latency")
    boxes: int | None = key("integer", "copies of the box of an NCCL topology file, joined by a switch per NIC", "N",
                            default="1")
    nvlink: str | None = key("text", "generation of NVLink, 1 to 5, for a table of nvidia-smi topo -m, or, also none, "
                             "for an NCCL topology without GPUs", "GEN")
    nic_bandwidth: str | None = key("text", "of each NIC, for an NCCL topology that says nothing of its NICs", "RATE")
    aggregation_rate: str | None = key("text", "at which switches, or routers where there are none, reduce", "RATE",
                                       default="unlimited")
    aggregation_per: str | None = key("text", "what has that rate: switch or port", "WHAT", default="switch")
    aggregation_latency: str | None = key("text", "of a reduction in a switch; needs --aggregation-rate", "TIME",
                                          default="0s")


@dataclass(eq=False, repr=False, kw_only=True)
class CollectiveKeys(Section):
    """Section `[collective]`: the collective and its algorithms."""

    name: str | None = key("text", "all-reduce, reduce-scatter, all-gather, ...", "NAME", ("--collective",),
                           default="that of a file, or all-reduce")
    algorithms: tuple[str, ...] | None = key("names", "comma-separated names of algorithms, or schedule files",
                                             "NAME|FILE[,...]", ("--algorithms", "--algorithm"),
                                             default="all that can run; of weft optimize --workload hierarchical, "
                                             "--model ring")
    form: str | None = key("text", "form of algorithms that have several", "NAME",
                           default="the faster one at each size")
    options: tuple[str, ...] | None = key(
        "options", "for the algorithms that take it (docs/reference/algorithms.md), such as trees=2; repeatable",
        "NAME=VALUE", ("--option",))
    root: int | None = key("integer", "root of a broadcast or reduce", "RANK", default="0")
    pairs: str | None = key(
        "text", "sizes per pair of an all-to-all, whose size is what a rank sends on average: moe:1.2 or moe:1.2:7 "
        "(destinations skewed by that exponent; a seed), zipf:1.2 (pairs), or a CSV, a row of numbers for each rank",
        "SKEW|FILE.csv", default="equal")
    element_bytes: int | None = key("integer", "blocks are padded to a multiple of it", "BYTES", default="4")


if TYPE_CHECKING:
    class ModelKeys(Section):
        """Its keys are those of the table, which a type checker does not read."""

        preset: str | None
        engine: str | None
        symmetry: str | None
        faults: "str | FaultPlan | None"

        def __init__(self, **keys: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
else:
    _of_table = {name: key(row.kind, row.help, row.metavar, default=row.default) for name, row in OPTIONS.items()}
    _of_seed = _of_table.pop("seed")
    _model = {
        "preset": key("text", "start from the parameters of a published evaluation: swing-paper, swing-sst or swing-hx",
                      "NAME"),
        **_of_table,
        "engine": key("text", "chunk, reference, analytic or fluid", "NAME", default="chunk"),
        "symmetry": key("text", "auto: simulate one rank per orbit; off: simulate all ranks", "auto|off",
                        default="auto"),
        "seed": _of_seed,
        "faults": key("plan", "fault plan in TOML: what fails, and when (docs/guides/faults.md)", "FILE",
                      default="no faults"),
    }
    ModelKeys = make_dataclass(
        "ModelKeys", [(name, Any, one) for name, one in _model.items()], bases=(Section,), eq=False,
        repr=False, kw_only=True,
        namespace={"__doc__": "Section `[model]`: what the simulation assumes; see `sim.program.model_options`.",
                   "__module__": __name__},
    )


@dataclass(eq=False, repr=False, kw_only=True)
class SweepKeys(Section):
    """Section `[sweep]`: sizes, as nccl-tests writes and counts them."""

    begin: str | int | None = key("size", "first size, suffix K, M or G (base 2); the only one without -e", "SIZE",
                                  ("-b", "--begin", "--size"), default="32M")
    end: str | int | None = key("size", "last size", "SIZE", ("-e", "--end"), default="the first size")
    factor: int | None = key("integer", "from one size to the next", "N", ("-f", "--factor"), default="2")
    step: str | int | None = key("size", "from one size to the next, instead of a factor", "SIZE", ("-i", "--step"))


@dataclass(eq=False, repr=False, kw_only=True)
class AccountKeys(Section):
    """Section `[account]`: what is reported of a run besides its time."""

    why: bool = key("flag", "report what the critical path of every point was spent on", value=False)
    spread: int | None = key("integer", "perturbed runs of every point, for the range of its time: rates and starts by "
                             "0.1 %, other ties, chunk counts nearby", "N", default="4 where cheap; 0 in sweep")


@dataclass(eq=False, repr=False, kw_only=True)
class LibraryKeys(Section):
    """Section `[library]`: a collective library that runs on a machine, instead of algorithms."""

    name: str | None = key("text", "what the library would choose and take: nccl, nccl:2.27 or rccl", "NAME[:VERSION]",
                           ("--library",))
    algorithms: tuple[str, ...] | None = key("names", "algorithms that the library chooses among (NCCL_ALGO)",
                                             "NAME[,NAME]", ("--library-algorithms",), default="all")
    protocols: tuple[str, ...] | None = key("names", "protocols that it chooses among (NCCL_PROTO)", "NAME[,NAME]",
                                            ("--library-protocols",), default="all")
    gpus_per_process: int | None = key("integer", "GPUs that a process drives (-g of nccl-tests)", "N", default="1")


@dataclass(eq=False, repr=False, kw_only=True)
class WorkloadKeys(Section):
    """Section `[workload]`: a model, its layers in a file, or a foreign trace; and the NPU that computes it."""

    name: str | None = key("text", "a model (gpt-3, ...), a file of layers in the format of ASTRA-sim 1.0, LIBRA and "
                           "SimAI, a GOAL file, a connection matrix of htsim, a task graph of FlexFlow, a plan of "
                           "circuits; or of all ranks, by what their names begin with, Chakra traces, dumps of the "
                           "flight recorder or Kineto profiles (or the folder of these)", "NAME|FILE",
                           ("--workload",))
    job: str | None = key("text", "the same as --workload, of a file", "FILE")
    parallelism: str | None = key("text", "of a model, such as tp=16,dp=256,pp=1,ep=1,zero=0, or fsdp (zero=3)", "TEXT",
                                  default="data-parallel")
    samples: float | None = key("number", "per tensor-parallel group and iteration, or microbatch: tokens, images or "
                                "rows", "N")
    peak: float | None = key("number", "peak rate of an NPU in TFLOP/s", "TFLOPS")
    efficiency: float | None = key("number", "share of the peak that computation reaches", "X")
    memory_bandwidth: str | None = key("text", "of an NPU's memory, for the updates of a model (--updates): Adam moves "
                                       "34 B a parameter; for operations of traces that have no duration", "RATE")
    system: str | None = key("text", "system file of ASTRA-sim; in a job its peak-perf and local-mem-bw, which time "
                             "operations of traces that have no duration", "FILE")
    remote_memory: str | None = key("text", "remote memory of ASTRA-sim, for memory nodes of traces", "FILE")
    communicator: str | None = key("text", "process groups of layers or traces: NPUs by name, as ASTRA-sim has them "
                                   "(JSON), or extents of dimensions, as LIBRA has them (YAML)", "FILE",
                                   ("--communicator", "--comm-group"))
    groups: str | None = key("text", 'process groups by name, such as "forward=16,-1;weight_grad=-1,32"; -1: unused',
                             "TEXT")
    repeat: int | None = key("integer", "repetitions of the layers", "N", default="1")
    compute_scale: float | None = key("number", "factor on all compute times", "X", default="1")
    npu_bandwidth: str | None = key("text", "total bandwidth of an NPU in each dimension, instead of per link",
                                    "RATE,RATE")


@dataclass(eq=False, repr=False, kw_only=True)
class TrainingKeys(Section):
    """Section `[training]`: how an iteration is run."""

    loop: str | None = key("text", "no-overlap, wfbp or dear", "NAME", default="wfbp")
    bucket: str | None = key("text", "gradients are fused into buckets of this size; off: never", "SIZE|off",
                             default="25MiB")
    in_order: bool = key("flag", "reduce gradients one after the other", value=False)
    first_layers_first: bool = key("flag", "give priority to the gradients of earlier layers", value=False)
    updates: bool = key("flag", "include the time of weight updates: of a model by --memory-bandwidth, of a file by "
                        "column 12; gradient clipping is not modeled", value=False)
    pipeline_chunks: int | None = key("integer", "chunks of a hierarchical collective", "C", default="16")
    active_chunks: str | None = key("text", "chunks in flight per dimension of an NPU; off: no limit", "N|off",
                                    default="1")
    microbatches: int | None = key("integer", "microbatches of a pipeline, whose stages are the group 'pp'", "M",
                                   default="no pipeline")
    activation: str | None = key("text", "sent to the next stage per microbatch", "SIZE",
                                 default="from the model; 0B for files")
    pipeline_order: str | None = key("text", "1f1b or gpipe", "NAME", default="1f1b")


@dataclass(eq=False, repr=False, kw_only=True)
class IterationKeys(Section):
    """Section `[iteration]`: a language model and its plan, whose iteration is made of passes."""

    model: str | None = key("text", "a decoder by name (llama-3-70b, ...), a Hugging Face config.json, or what "
                            "launches a training: a job file of torchtitan (.toml), or arguments of Megatron-LM "
                            "(.sh, .txt)", "NAME|FILE.json|FILE.toml|FILE.sh")
    sequence: int | None = key("integer", "tokens of a sequence", "N", default="that of the model")
    global_batch: int | None = key("integer", "sequences of an iteration", "N")
    micro_batch: int | None = key("integer", "sequences of a microbatch", "N", default="1")
    tp: int | None = key("integer", "tensor parallelism", "N", default="1")
    pp: int | None = key("integer", "stages of the pipeline", "N", default="1")
    vp: int | None = key("integer", "virtual stages of a rank", "N", default="1, or 2 where the schedule has two")
    cp: int | None = key("integer", "context parallelism", "N", default="1")
    context: str | None = key("text", "how context parallelism attends: ring, gather or ulysses (all-to-all)", "NAME",
                              default="that of the stack")
    ep: int | None = key("integer", "expert parallelism", "N", default="1")
    etp: int | None = key("integer", "ranks that share each expert (expert tensor parallelism)", "N", default="1")
    replicas: int | None = key("integer", "copies of the shards of ZeRO (HSDP); of a torus of accelerators each is a "
                               "slice", "N", default="1")
    zero: int | str | None = key("scheme", "ZeRO stage; 3 is FSDP, 2 FSDP that gathers once an iteration; or ddp, "
                                 "zero1, zero2, zero3, fsdp, hsdp (with --replicas)", "N|NAME", default="1")
    schedule: str | None = key("text", "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v or dualpipe", "NAME",
                               default="1f1b; interleaved with --vp")
    recompute: str | None = key("text", "none, selective or full", "NAME", default="none")
    attention: str | None = key("text", "flash2, flash3 or unfused", "NAME", default="the newest of the device")
    precision: str | None = key("text", "of matrix products: half or fp8", "NAME", default="half")
    gradient_bytes: int | None = key("integer", "of a gradient, as it is reduced and kept: 4, or 2 in half precision",
                                     "BYTES", default="4")
    optimizer_bytes: int | None = key("integer", "that the optimizer keeps of a parameter: master weight and two "
                                      "moments", "BYTES", default="12")
    device: str | None = key("text", "accelerator by name, such as h100", "NAME", default="that of the machine")
    stack: str | None = key("text", "software, whose efficiency was measured: megatron, torchtitan, ...", "NAME",
                            default="megatron; maxtext on TPU")
    kernels: str | None = key("text", "measured matrix products, m, n, k and time, instead of a share of the peak: as "
                              "of aiconfigurator or Vidur", "FILE.csv|FILE.parquet")
    overlap_tp: bool | None = key("flag", "collectives of tensor parallelism run in pieces beside products")
    sequence_parallel: bool | None = key("flag", "norms and residuals are split over tensor ranks", default="yes")
    overlap: bool | None = key("flag", "gradients, weights and messages are sent beside computation", default="yes")
    inline: bool = key("flag", "one simulation of all kernels and collectives, which share links, instead of "
                       "collectives alone and an iteration composed of them", value=False)


USUAL: dict[str, Any] = {
    "repeat": 1, "compute_scale": 1.0, "loop": "wfbp", "pipeline_order": "1f1b",
    "micro_batch": 1, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "etp": 1, "replicas": 1, "zero": 1, "recompute": "none",
    "precision": "half", "gradient_bytes": 4, "optimizer_bytes": 12, "overlap_tp": False, "sequence_parallel": True,
    "overlap": True, "placement": "out-of-place",
}
"""What keys of workloads are that are not given: None tells whether they are. Of a plan a job file may say others."""


def filled(keys: Any, values: Mapping[str, Any] | None = None) -> Any:
    """Keys of a section with values where none is given, and usual ones where these say nothing either."""
    known = {name: value for name, value in {**USUAL, **(values or {})}.items() if hasattr(keys, name)}
    return replace(keys, **{name: value for name, value in known.items() if getattr(keys, name) is None})


@dataclass(eq=False, repr=False, kw_only=True)
class OptimizeKeys(Section):
    """Section `[optimize]`: a design problem, its limits, and how it is searched."""

    network: tuple[str, ...] | None = key(
        "texts", "RI(4)_FC(8)_SW(32), torus:64x16, ..., or a LIBRA network file (.yml); repeatable", "SPEC|FILE",
        ("--network", "--topology"))
    degrees: str | None = key("text", "numbers of ports per NPU to try for circulant:N", "N[,N]")
    workload: tuple[str, ...] | None = key(
        "texts", "a model (gpt-3, resnet-50, ...) or a text workload file; repeatable", "NAME|FILE")
    communicator: tuple[str, ...] | None = key("texts", "process groups, one file per text workload", "FILE",
                                               ("--communicator", "--comm-group"), default="those that it says")
    weight: tuple[float, ...] | None = key("numbers", "weight of a workload's time, one per workload", "W", default="1")
    parallelism: tuple[str, ...] | None = key(
        "texts", "tp, dp, pp, ep, zero of a model, one per model", "tp=N,...",
        default="LIBRA's tp, and dp for the rest")
    checkpointed: bool = key("flag", "forward collectives run twice (activation checkpointing)", value=False)
    budget: str | None = key("text", "total bandwidth of an NPU over all dimensions, such as 500GB/s", "RATE")
    budget_rule: str = key("text", "spent: use the whole budget, as LIBRA does; at-most: less if that is better",
                           "RULE", value="spent")
    budget_cost: float | None = key("number", "upper limit of the network's cost in dollars", "$")
    constraint: tuple[str, ...] | None = key(
        "texts", '"B1 >= B2", "B3 + B4 = 200GB/s"; B1 is the innermost dimension; repeatable', "TEXT")
    cost: str | None = key("text", "LIBRA cost file", "FILE", default="published prices")
    counting: str = key("text", "2024: both directions of a direct link are charged; 2022: one", "YEAR", value="2024")
    fixed_cost: float = key("number", "cost in dollars of what has no bandwidth", "$", value=0.0)
    objective: str = key("text", "time, or time-cost: time x cost", "NAME", value="time", choices=("time", "time-cost"))
    evaluator: str = key("text", "simulated: the chunk simulation; analytic: formulas alone, LIBRA's for a workload",
                         "NAME", value="simulated", choices=("analytic", "simulated"))
    chunks: tuple[int, ...] | None = key("integers", "chunks in the pipeline; the best of several is taken", "N[,N]",
                                         default="16; of --model 1")
    orders: str | None = key(
        "text", 'orders of the dimensions in hierarchical collectives, 0 the innermost, such as "0,1,2;2,1,0"; all: '
        "every order, for each collective of a workload separately", "all|ORDER[;ORDER]", default="innermost first")
    dimension_algorithms: str | None = key(
        "text", 'algorithm per dimension of hierarchical collectives, such as "ring,direct,direct"; several by ";"',
        "all|NAMES[;NAMES]")
    option: tuple[str, ...] | None = key(
        "texts", 'option of the algorithms, such as "trees=1;2;4"; the best of several is taken; repeatable',
        "NAME=V[;V]")
    lane: str | None = key("text", "bandwidths are integer multiples of this rate", "RATE", default="any bandwidth")
    evaluations: int = key("integer", "limit of evaluations per choice", "N", value=150)
    sensitivity: bool = key("flag", "report the time saved by one more GB/s in each dimension", value=False)


@dataclass(eq=False, repr=False, kw_only=True)
class PoolKeys(Section):
    """Section `[pool]`: an array streamed through the slots of an aggregating switch."""

    size: str = key("text", "of the array of each worker", "SIZE", value="1MiB")
    slots: tuple[int, ...] = key("integers", "slots of the job, one row each", "N[,N]", value=(8, 16, 32, 64, 128))
    workers: int = key("integer", "workers of the job", "N", value=8)
    payload: str = key("text", "of a packet", "SIZE", value="1KiB")
    header: str = key("text", "of a packet", "SIZE", value="66B")
    late: tuple[str, ...] | None = key("texts", "a worker that starts later; repeatable", "WORKER=TIME")
    slow: tuple[str, ...] | None = key(
        "texts", "a worker whose links have this share of the bandwidth, such as 0.5 or 1/2; repeatable",
        "WORKER=FACTOR")
    loss: float | None = key(
        "number", "probability that a packet is lost, per link and direction; what is sent again arrives", "P",
        default="0",
    )
    timeout: str | None = key("text", "after which a lost packet is sent again; needs --loss", "TIME")
    seeds: int | None = key("integer", "seeds of the loss: mean, 5th and 95th percentile", "N", default="10")
    jobs: int | None = key("integer", "identical jobs that share the switch, each with its own links", "N", default="1")
    rule: tuple[str, ...] | None = key("names", "how jobs share slots: static, shared, locked, port-locked, hashed",
                                       "RULE[,RULE]", default="all")
    switch_slots: int | None = key("integer", "slots of the switch", "N", default="128")
    partial_timeout: str | None = key(
        "text", "after which a leaf switch sends its partial sum; needs one --late", "TIME")
    leaves: int | None = key("integer", "leaf switches that the workers are divided among", "N", default="2")


@dataclass(eq=False, repr=False, kw_only=True)
class CircuitsKeys(Section):
    """Section `[circuits]`: optical circuits for a training job."""

    servers: int = key("integer", "servers of 4 GPUs", "N", value=16)
    degree: int = key("integer", "optical interfaces per server", "D", value=4)
    simplex: bool = key("flag", "patch the two fibers of an interface separately", value=False)
    rule: str = key("text", "progression of the jumps of rings: paper or code", "NAME", value="paper",
                    choices=("paper", "code"))
    rings_only: bool = key("flag", "no matchings, as in the released code", value=False)
    routes: int = key("integer", "shortest paths that a message between operations is split across", "K", value=1)
    budget: int = key("integer", "moves of the search of placements; 0: no search", "MOVES", value=0)


@dataclass(eq=False, repr=False, kw_only=True)
class AstraKeys(Section):
    """Section `[astra]`: inputs of ASTRA-sim."""

    network: str | None = key("text", "network file of the analytical backends, YAML", "FILE")
    backend: str = key("text", "congestion of links: aware or unaware", "WORD", value="aware")
    num_queues_per_dim: int = key("integer", "queues per dimension, as in ASTRA-sim", "N", value=1)


@dataclass(eq=False, repr=False, kw_only=True)
class MeasuredKeys(Section):
    """Section `[measured]`: times of a machine."""

    file: str | None = key("text", "nccl-tests text or JSON, OSU, IMB or HCCL text, or JSON of weft compare", "FILE",
                           ("--measured",))
    placement: str | None = key("text", "of nccl-tests: out-of-place or in-place", "WORD", default="out-of-place")


@dataclass(eq=False, repr=False, kw_only=True)
class JudgeKeys(Section):
    """Section `[judge]`: tables of one machine or fabric, and an earlier run of it."""

    files: tuple[str, ...] | None = key(
        "files", "tables of nccl-tests, rccl-tests, OSU or hccl_test, or the JSON of weft compare; several of one "
        "machine are judged together", "FILE")
    baseline: tuple[str, ...] | None = key("files", "an earlier run: what has become slower since; repeatable", "FILE")
    known: tuple[str, ...] | None = key(
        "names", "taken from a custom fabric, not fitted: latency, bandwidth, or both", "WORD[,WORD]",
        default="neither")


@dataclass(eq=False, repr=False, kw_only=True)
class CalibrateKeys(Section):
    """Section `[calibrate]`: tables of one machine."""

    files: tuple[str, ...] | None = key("files", "tables of nccl-tests or OSU, measured on the machine", "FILE")


@dataclass(eq=False, repr=False, kw_only=True)
class BoundKeys(Section):
    """Section `[bound]`: what a lower bound covers."""

    program: bool = key("flag", "also solve the linear programs of an all-to-all, and of an all-reduce with chosen "
                        "roots", value=False)
    reducing_switches: bool | None = key("flag", "switches may multicast and reduce (default: as the fabric says)")


@dataclass(eq=False, repr=False, kw_only=True)
class ScheduleKeys(Section):
    """Section `[schedule]`: what is shown of schedules."""

    rank: int | None = key("integer", "show the transfers that this rank sends", "R")
    list: bool = key("flag", "list algorithms by collective, with their limits", value=False)


@dataclass(eq=False, repr=False, kw_only=True)
class PlotKeys(Section):
    """Section `[plot]`: which results a figure shows."""

    files: tuple[str, ...] | None = key("files", "results, as --json writes them", "FILE")
    algorithms: tuple[str, ...] | None = key("names", "draw only these", "NAME[,NAME]", default="all")
    size: str | None = key("text", "of a scaling figure", "SIZE", default="the largest that all fabrics have")


@dataclass(eq=False, repr=False, kw_only=True)
class ReportKeys(Section):
    """Section `[report]`: a page of a folder of results."""

    folder: str | None = key("text", "folder of results, as --json writes them", "DIR")
    title: str | None = key("text", "of the page", "TEXT", default="Results in DIR")
    frames: int = key("integer", "points in time that the slider shows", "N", value=60)
    page: str | None = key("text", "the page ('-': standard output)", "FILE", default="DIR/report.html")


@dataclass(eq=False, repr=False, kw_only=True)
class PaperKeys(Section):
    """Section `[paper]`: a published evaluation."""

    name: str | None = key(
        "text", "swing, pipeline, lhc, dear, libra, topoopt, optics, hardware, training, seeds or headlines", "NAME",
        choices=("swing", "pipeline", "lhc", "dear", "libra", "topoopt", "optics", "hardware", "training", "seeds",
                 "headlines"),
    )
    data: str | None = key("text", "of hardware and training: other measurements, in the columns of its own; of "
                           "topoopt: a folder with its released task graphs", "FILE.csv|FOLDER")
    quick: bool = key("flag", "a part that takes less than a minute", value=False)


@dataclass(frozen=True, kw_only=True)
class Sections:
    """All sections of a spec, in their order; beside them stand the tables `[[tenant]]`."""

    topology: TopologyKeys = TopologyKeys()
    collective: CollectiveKeys = CollectiveKeys()
    model: ModelKeys = ModelKeys()
    sweep: SweepKeys = SweepKeys()
    account: AccountKeys = AccountKeys()
    library: LibraryKeys = LibraryKeys()
    workload: WorkloadKeys = WorkloadKeys()
    training: TrainingKeys = TrainingKeys()
    iteration: IterationKeys = IterationKeys()
    optimize: OptimizeKeys = OptimizeKeys()
    pool: PoolKeys = PoolKeys()
    circuits: CircuitsKeys = CircuitsKeys()
    astra: AstraKeys = AstraKeys()
    measured: MeasuredKeys = MeasuredKeys()
    judge: JudgeKeys = JudgeKeys()
    calibrate: CalibrateKeys = CalibrateKeys()
    bound: BoundKeys = BoundKeys()
    schedule: ScheduleKeys = ScheduleKeys()
    plot: PlotKeys = PlotKeys()
    report: ReportKeys = ReportKeys()
    paper: PaperKeys = PaperKeys()


SECTIONS: dict[str, type[Any]] = {one.name: type(one.default) for one in fields(Sections)}

EXPERIMENT = {name: SECTIONS[name] for name in ("topology", "collective", "model", "sweep")}
"""Sections of a comparison, in their order; a sweep goes through lists of their values."""

SWEPT = EXPERIMENT | {name: SECTIONS[name] for name in ("library", "workload", "training", "iteration", "optimize")}
"""Sections of a sweep: of an experiment, of plans of training, of workloads, or of designs."""

TENANT = "tenant"
"""Name of these tables."""


@cache
def keys_of(section: str) -> Mapping[str, Field[Any]]:
    """The keys of a section of a file, by their names."""
    return {one.name: one for one in fields(SECTIONS[section])}
