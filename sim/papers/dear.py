"""DeAR (Zhang et al., ICDCS'23): its five models on 64 workers, beside wait-free backpropagation.

The paper's times per model are not available, only its abstract: up to 83 % over the best of its rivals on 10 Gb/s
Ethernet, up to 15 % on 100 Gb/s InfiniBand, 64 GPUs, five models. So the table shows closed form and simulation, and
what can be compared with the paper: that DeAR gains, where, and that it gains more on the slower network.

In the closed forms reductions run one at a time; groups of layers are in forward order, and gradients are ready in the
reverse of it.

References
----------
.. [1] L. Zhang, S. Shi, X. Chu, W. Wang, B. Li, C. Liu, "DeAR: Accelerating Distributed Deep Learning with
   Fine-Grained All-Reduce Pipelining", ICDCS 2023.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

from sim.papers.tables import Left, md_table, read_published
from sim.program.model import Model
from sim.simulation import simulate
from sim.study.tables import aligned
from topologies import bytes_per_s, ring, seconds
from workloads.compute import TERA, Accelerator
from workloads.models import model
from workloads.models.classics import CLASSES, convolution, linear
from workloads.models.model import NeuralNetwork
from workloads.models.transformer import bert
from workloads.training import MIB, Training, gradient_buckets, layer_of, training_job
from workloads.workload import Workload

WORKERS = 64
TOKENS = 64
BYTES = 4
"""Single precision."""

GPU = Accelerator(13.45 * TERA, 0.5)
"""Assumed: an RTX 2080 Ti in single precision at half of its peak. Signs and order hold from 0.2 to 0.8 (test)."""

QUICK = ("resnet-50", "bert-base")


class Interconnect(NamedTuple):
    """Measured cost a + b m of an all-reduce among 64 workers, and the paper's headline gain."""

    name: str
    start_s: float
    s_per_byte: float
    published: str

    @property
    def ring(self) -> "Ring":
        """The ring with that cost: 2 (P-1) steps."""
        steps = 2 * (WORKERS - 1)
        return Ring(WORKERS, self.start_s / steps, self.s_per_byte * WORKERS / steps)


NETWORKS = (
    Interconnect("10 Gb/s Ethernet", 7.04e-3, 9.64e-10, "up to 83 % over the best rival"),
    Interconnect("56 Gb/s InfiniBand", 8.06e-4, 5.89e-10, "-"),
    Interconnect("100 Gb/s InfiniBand", 8.06e-4, 2 * 63 / 64 / 12.5e9, "up to 15 % over the best rival"),
)
"""The first two as MG-WFBP's code has them, DeAR's own baseline; the third at line rate with the second's start-up."""

TUNED = (None, 25 * MIB, *(2**k * MIB for k in range(9)))
FUSIONS: dict[str, tuple[int | None, ...]] = {"none": (None,), "25 MiB": (25 * MIB,), "tuned": TUNED}
"""Thresholds of tensor fusion; of several, each method takes its best, as DeAR's tuner seeks it from 1 to 256 MB."""


@dataclass(frozen=True)
class Subject:
    """A model and its samples for one worker: images, or tokens."""

    model: NeuralNetwork
    samples: int

    def workload(self, gpu: Accelerator = GPU) -> Workload:
        """Layers in forward order; backward takes twice forward."""
        layers = []
        for operator in self.model.operators:
            forward_s = gpu.time_ns(operator.flops * self.samples) / 1e9
            layers.append(layer_of(operator.name, forward_s, 2 * forward_s, operator.parameters * BYTES, "data"))
        return Workload(self.model.name, tuple(layers))


def subjects() -> list[Subject]:
    """The models of the evaluation with their batches."""
    source = "J. Devlin et al., NAACL 2019"
    return [
        Subject(model("resnet-50"), 64), Subject(densenet201(), 32), Subject(inceptionv4(), 64),
        Subject(bert("bert-base", 12, 768, source, TOKENS), 64 * TOKENS),
        Subject(bert("bert-large", 24, 1024, source, TOKENS), 32 * TOKENS),
    ]


def groups_of(workload: Workload, bucket_bytes: int | None) -> "Iterator[Group]":
    """Groups of layers for the closed forms; layers without gradients belong to the group after them."""
    ends = [bucket.layers[-1] + 1 for bucket in gradient_buckets(workload, bucket_bytes)]
    ends[-1] = len(workload.layers)
    for first, last, bucket in zip([0, *ends], ends, gradient_buckets(workload, bucket_bytes), strict=False):
        layers = workload.layers[first:last]
        forward = sum(layer.forward.compute_ns for layer in layers)
        backward = sum(layer.input_grad.compute_ns + layer.weight_grad.compute_ns for layer in layers)
        yield Group(forward / 1e9, backward / 1e9, bucket.call.size_bytes)


@cache
def closed_forms(subject: Subject, network: Interconnect, bucket_bytes: int | None, gpu: Accelerator = GPU) -> (
    tuple[float, float]
):
    """Iteration times of wait-free backpropagation and of DeAR, in seconds."""
    groups = list(groups_of(subject.workload(gpu), bucket_bytes))
    return wfbp_s(groups, network.ring), dear_s(groups, network.ring)


@cache
def simulated_s(subject: Subject, network: Interconnect, loop: str, bucket_bytes: int | None) -> float:
    """The same iteration on a simulated ring: half the bandwidth per direction, a step's start-up on each link.

    Once: the best threshold is often none, or 25 MiB.
    """
    rate, step = bytes_per_s(0.5 / network.ring.s_per_byte), seconds(network.ring.step_s)
    topology = ring(WORKERS, bandwidth=rate, latency=step, hop_latency=0)
    training = Training(loop=loop, bucket_bytes=bucket_bytes, in_order=True, options={"pipeline_chunks": 1})
    job = training_job(topology, subject.workload(), {"data": (WORKERS,)}, training)
    return simulate(job, model=Model(chunks=1)).time_s


def best(subject: Subject, network: Interconnect, fusion: str, gpu: Accelerator = GPU) -> (
    tuple[tuple[float, int | None], tuple[float, int | None]]
):
    """Least closed-form time of WFBP and of DeAR over the thresholds of a fusion, and at which."""
    times = [closed_forms(subject, network, bucket_bytes, gpu) for bucket_bytes in FUSIONS[fusion]]
    slow, fast = (min(range(len(times)), key=[time[k] for time in times].__getitem__) for k in (0, 1))
    return (times[slow][0], FUSIONS[fusion][slow]), (times[fast][1], FUSIONS[fusion][fast])


def table(chosen: Sequence[Subject]) -> Iterator[dict[str, Any]]:
    """Rows of the comparison: gains are WFBP over DeAR, less one, in per cent."""
    for network in NETWORKS:
        for fusion in FUSIONS:
            for subject in chosen:
                (wfbp, slow_at), (dear, fast_at) = best(subject, network, fusion)
                slow = simulated_s(subject, network, "wfbp", slow_at)
                fast = simulated_s(subject, network, "dear", fast_at)
                yield {
                    "network": network.name, "fusion": fusion, "model": subject.model.name,
                    "parameters": subject.model.parameters, "wfbp_s": wfbp, "dear_s": dear,
                    "gain_percent": _gain(wfbp, dear), "simulated_wfbp_s": slow, "simulated_dear_s": fast,
                    "simulated_gain_percent": _gain(slow, fast), "published": network.published,
                }


def mixed_gains(chosen: Sequence[Subject], network: Interconnect) -> dict[str, float]:
    """Per cent by which DeAR with tuned fusion beats wait-free backpropagation without fusion, by model."""
    times = {one.model.name: [closed_forms(one, network, bucket_bytes) for bucket_bytes in TUNED] for one in chosen}
    return {name: _gain(found[0][0], min(dear for _, dear in found)) for name, found in times.items()}


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [row["network"], row["fusion"], row["model"], *(f"{row[key] * 1e3:.1f}" for key in ("wfbp_s", "dear_s")),
            *(f"{row[key]:.1f} %" for key in ("gain_percent", "simulated_gain_percent"))]


def _gain(slow_s: float, fast_s: float) -> float:
    """Per cent, to a millionth of one."""
    return round(100 * (slow_s / fast_s - 1), 6) + 0.0


def run(left: Left, quick: bool) -> None:
    """Print the table, and leave it with its page."""
    chosen = [one for one in subjects() if not quick or one.model.name in QUICK]
    rows = list(table(chosen))
    rate = f"{GPU.peak_flops / TERA:g} Tflop/s at {GPU.efficiency:.0%}"
    print(f"# {WORKERS} workers, computations at {rate} (assumed), gradients in single precision")
    head = ["network", "fusion", "model", "WFBP ms", "DeAR ms", "gain", "simulated", "paper"]
    print(aligned([head, *([*_cells(row), row["published"]] for row in rows)], left=3))
    left.table("dear", rows)
    columns = ("network", "fusion", "model", "WFBP", "DeAR", "gain", "simulated gain")
    left.page(rate=rate, table=md_table(columns, map(_cells, rows), 4), rivals=_rivals(chosen))
    print(
        "Never slower here, and with fusion never a smaller gain on the slower network. Without it DenseNet-201 gains\n"
        "less on Ethernet: 201 start-ups of 7 ms outweigh all else, and both methods pay them. Ideal overlap gives at\n"
        "most 25 % (backward twice forward); the page has the paper's rivals."
    )


class Group(NamedTuple):
    """Layers whose gradients are reduced together."""

    forward_s: float
    backward_s: float
    gradient_bytes: float


class Ring(NamedTuple):
    """A ring of workers: each step takes a start-up time, and its bytes."""

    workers: int
    step_s: float
    s_per_byte: float

    def half_s(self, size_bytes: float) -> float:
        """Time of a reduce-scatter or an all-gather: (P-1)(a + m b / P)."""
        return (self.workers - 1) * (self.step_s + size_bytes * self.s_per_byte / self.workers)


def wfbp_s(groups: Sequence[Group], ring: Ring) -> float:
    """Forward, then backward with the all-reduces behind it, each as soon as its gradients and the link are free."""
    ready = end = 0.0
    for group in reversed(groups):
        ready += group.backward_s
        end = max(end, ready) + 2 * ring.half_s(group.gradient_bytes)
    return sum(group.forward_s for group in groups) + max(ready, end)


PARTITION_BYTES = 4_000_000
"""Of ByteScheduler in the authors' runs."""


def byte_scheduler_s(layers: Sequence[Group], ring: Ring) -> float:
    """Backward with all-reduces of parts, those of earlier layers first, and forward, each layer after its own parts.

    All-reduces of one communicator run one after the other, and each part has a start-up.
    """
    ready, at = list[tuple[float, int, float]](), 0.0
    for number in reversed(range(len(layers))):
        at += layers[number].backward_s
        left = layers[number].gradient_bytes
        while left > 0:
            ready.append((at, number, min(left, PARTITION_BYTES)))
            left -= PARTITION_BYTES
    free, ends = 0.0, dict[int, float]()
    waiting: list[tuple[int, float]] = []
    while ready or waiting:
        if not waiting:
            free = max(free, ready[0][0])
        while ready and ready[0][0] <= free:
            _, number, size = ready.pop(0)
            heappush(waiting, (number, size))
        number, size = heappop(waiting)
        ends[number] = free = free + 2 * ring.half_s(size)
    for number, layer in enumerate(layers):
        at = max(at, ends.get(number, 0.0)) + layer.forward_s
    return at


def rivals_s(subject: Subject, network: Interconnect) -> dict[str, float]:
    """Iterations by the rivals' defaults, and by DeAR with its own threshold and tuned."""
    workload = subject.workload()
    groups = {bucket: list(groups_of(workload, bucket)) for bucket in (None, 64 * MIB, *TUNED)}
    return {
        "WFBP": wfbp_s(groups[None], network.ring), "PyTorch-DDP": wfbp_s(groups[25 * MIB], network.ring),
        "Horovod": wfbp_s(groups[64 * MIB], network.ring),
        "ByteScheduler": byte_scheduler_s(groups[None], network.ring),
        "DeAR, 25 MiB": dear_s(groups[25 * MIB], network.ring),
        "DeAR, tuned": min(dear_s(groups[bucket], network.ring) for bucket in TUNED),
    }


def _rivals(chosen: Sequence[Subject]) -> list[str]:
    """Tables of rivals, and of the gains over the best of them."""
    lines, gains = [], []
    for network in NETWORKS:
        times = {subject.model.name: rivals_s(subject, network) for subject in chosen}
        some = [_gain(min([*each.values()][:-2]), each["DeAR, tuned"]) for each in times.values()]
        gains.append((network.name, f"{sum(some) / len(some):.1f} %", f"{max(some):.1f} %", network.published))
        lines += [(network.name, name, *(f"{time * 1e3:.1f}" for time in each.values()), f"{gain:.1f} %")
                  for (name, each), gain in zip(times.items(), some, strict=True)]
    names = [*rivals_s(chosen[0], NETWORKS[0])]
    return [*md_table(("network", "model", *names, "gain over the best"), lines, len(names) + 1), "",
            *md_table(("network", "mean gain", "largest", "published, up to"), gains, 3)]


def dear_s(groups: Sequence[Group], ring: Ring) -> float:
    """Backward with the reduce-scatters, then forward, each group of layers after its all-gather ([1], section III)."""
    ready = end = 0.0
    for group in reversed(groups):
        ready += group.backward_s
        end = max(end, ready) + ring.half_s(group.gradient_bytes)
    gathered = done = max(ready, end)
    for group in groups:
        gathered += ring.half_s(group.gradient_bytes)
        done = max(done, gathered) + group.forward_s
    return done


def fluid_gain(forward_s: float, backward_s: float, all_reduce_s: float) -> float:
    """WFBP over DeAR with infinitely fine groups and no start-up; at most 1.25 where backward takes twice forward."""
    wfbp = forward_s + max(backward_s, all_reduce_s)
    return wfbp / (max(backward_s, all_reduce_s / 2) + max(forward_s, all_reduce_s / 2))


def densenet201() -> NeuralNetwork:
    """DenseNet-201: blocks of 6, 12, 48 and 32 layers that each add 32 channels."""
    operators = [convolution("conv0", 3, 64, 49, 112)]
    channels, side = 64, 56
    for block, layers in enumerate((6, 12, 48, 32), start=1):
        for layer in range(1, layers + 1):
            name = f"block{block}_{layer}"
            operators.append(convolution(f"{name}_1x1", channels, 128, 1, side, 2 * (channels + 128)))
            operators.append(convolution(f"{name}_3x3", 128, 32, 9, side, 0))
            channels += 32
        if block < 4:
            operators.append(convolution(f"transition{block}", channels, channels // 2, 1, side, 2 * channels))
            channels, side = channels // 2, side // 2
    operators.append(linear("classifier", channels, CLASSES, 2 * channels))
    return NeuralNetwork("densenet-201", "image", tuple(operators), "G. Huang et al., CVPR 2017, table 1")


def inceptionv4() -> NeuralNetwork:
    """Inception-v4: a stem, 4 + 7 + 3 inception blocks with two reductions between."""
    operators = [
        convolution(f"{stage}_{number}", *shape) for alike in read_published("dear")["inception_v4"]
        for stage in alike["stages"] for number, shape in enumerate(alike["convolutions"])
    ]
    operators.append(linear("classifier", 1536, CLASSES))
    return NeuralNetwork("inception-v4", "image", tuple(operators), "C. Szegedy et al., AAAI 2017, figures 3 to 9")
