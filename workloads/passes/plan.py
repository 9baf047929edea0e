"""A plan of training: a model, its parallelism, the device, and what the software does."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import Annotated, NamedTuple

from topologies.checks import Choice, Count, Integer, NotNegative, WeftError, checked
from topologies.text.brief import one_line
from topologies.units import counted
from workloads.models.language import LanguageModel
from workloads.passes.device import PRECISIONS, Device, Stack
from workloads.passes.kernels import Kernels
from workloads.passes.orders import ORDERS

RECOMPUTED = ("none", "selective", "full", "core", "products", "layers", "memory")
MASTER = 12
"""Bytes a parameter of the optimizer: master weight and two moments in fp32."""

ATTENTION = ("flash2", "flash3", "unfused")
MOST_PASSES = 5_000_000
"""Of an iteration: about half a minute and 2 GB."""

OVERLAPS = ("none", "pipelined")
ULYSSES = "ulysses"
CONTEXTS = ("ring", "gather", ULYSSES)
"""Context parallelism: keys and values go around, or are gathered; or sequences are whole for a share of the heads."""


class Group(NamedTuple):
    """Ranks that communicate: how many, and how far apart in the order of ranks."""

    size: int
    stride: int


class Again(NamedTuple):
    """What of a forward pass is computed: shares of the products into and out of attention and of both behind it,
    attention, and collectives."""

    inside: float = 1.0
    outside: float = 1.0
    first: float = 1.0
    second: float = 1.0
    core: bool = True
    calls: bool = True

    def share(self, name: str) -> float:
        """Of a product by its name."""
        if name == "projection":
            return self.outside
        return self.second if name.endswith("fc2") else self.first if name.endswith(("fc1", "router")) else self.inside


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Plan:
    """One iteration of training."""

    model: LanguageModel
    device: Device
    stack: Stack
    # of the matrix products of layers; attention and the output projection are in half precision
    precision: Annotated[str, Choice(PRECISIONS)] = "half"
    # efficiency, half_efficiency: share of the peak that products sustain: of `precision`, and of half precision
    efficiency: NotNegative
    half_efficiency: NotNegative
    # tp, pp, vp, dp, cp, ep: tensor, pipeline, virtual stages a rank, data, context and expert parallelism; ranks count
    # tensor parallelism fastest, then context, data, pipeline. Experts are spread over ranks of the first three.
    tp: Count = 1
    pp: Count = 1
    vp: Count = 1
    dp: Count = 1
    cp: Count = 1
    context: Annotated[str, Choice(CONTEXTS)] = "ring"  # how context parallelism attends
    ep: Count = 1
    etp: Count = 1  # ranks that share each expert, which gather the tokens of all of them; they count faster than `ep`
    replicas: Count = 1  # copies of the shards (HSDP), among which gradients are all-reduced; they divide `dp`
    # ZeRO stage: 3 is FSDP whose blocks are gathered anew for each pass, 2 FSDP that gathers once an iteration
    zero: Annotated[int, Integer(0, 3)] = 0
    schedule: Annotated[str, Choice(tuple(ORDERS))] = "1f1b"  # of `workloads.passes.orders`
    # micro_batch, microbatches: sequences of a microbatch, and microbatches of a data-parallel rank
    micro_batch: Count = 1
    microbatches: Count = 1
    sequence: Count
    sequence_parallel: bool = True
    # "full", "none", what the stack calls "selective", or by its own name
    recompute: Annotated[str, Choice(RECOMPUTED)] = "none"
    attention: Annotated[str, Choice(ATTENTION)] = "flash2"
    # data_overlap, send_overlap: whether gradients and weights travel beside computation, and whether a rank goes on
    # while it sends
    data_overlap: bool = True
    send_overlap: bool = False
    # whether collectives of tensor parallelism are cut and run beside the product that makes or takes them
    tensor_overlap: Annotated[str, Choice(OVERLAPS)] = "none"
    # gradient_bytes, optimizer_bytes: of a reduced gradient; of what the optimizer keeps of a parameter, its master
    # weight and two moments
    gradient_bytes: Annotated[int, Integer(1, 8)] = 4
    optimizer_bytes: Annotated[int, Integer(1, 32)] = MASTER
    compiled: bool = True  # whether memory-bound kernels are fused
    node: Count = 8  # ranks that share the links of a node
    kernels: Kernels | None = None  # measured products, instead of a share of the peak

    def __post_init__(self) -> None:
        name, model, order = self.model.name, self.model, ORDERS[self.schedule]
        if model.heads % self.tp or model.feed_forward % self.tp:
            raise WeftError(f"tp={self.tp} does not divide the {model.heads} heads and the width {model.feed_forward} "
                            f"of {name}")
        if self.context == ULYSSES and model.heads % (self.tp * self.cp):
            raise WeftError(f"--context {ULYSSES}: tp={self.tp} x cp={self.cp} do not divide the {model.heads} heads "
                            f"of {name}, which ranks share: choose ring or gather")
        if self.sequence % self.cp:
            raise WeftError(f"cp={self.cp} does not divide sequences of {self.sequence} tokens")
        if self.tokens * self.sequence_parallel % self.tp:
            raise WeftError(f"tp={self.tp} does not divide the {self.tokens} tokens of a rank, as sequence parallelism "
                            "does: --no-sequence-parallel")
        if self.ep * self.etp > 1 and not model.experts:
            raise WeftError(f"{f'ep={self.ep}' if self.ep > 1 else f'etp={self.etp}'}: {name} has no experts")
        if self.ep > 1 and model.experts % self.ep:
            raise WeftError(f"ep={self.ep} does not divide the {model.experts} experts of {name}")
        if model.experts and model.expert_width % self.etp:
            raise WeftError(f"etp={self.etp} does not divide the width {model.expert_width} of an expert of {name}")
        if (self.tp * self.cp * self.dp) % (self.ep * self.etp):
            raise WeftError(f"ep={self.ep} x etp={self.etp} must divide tp x cp x dp = {self.tp * self.cp * self.dp}")
        if self.dp % self.replicas or (self.replicas > 1 and (self.ep > 1 or not self.zero)):
            raise WeftError(f"replicas={self.replicas} are copies of ZeRO's shards: they divide dp={self.dp}, with "
                            "zero 1 to 3 and without ep")
        if order.chunks not in (0, self.vp):
            raise WeftError(f"schedule {self.schedule} has vp={order.chunks}, not {self.vp}"
                            f"{': choose interleaved' if self.vp > 1 else ''}")
        if self.schedule == "interleaved" and self.vp == 1 < self.pp:
            raise WeftError("schedule interleaved needs virtual stages: give vp, 2 or more")
        if self.stages > model.layers + 2:
            raise WeftError(f"pp={self.pp} x vp={self.vp} are {counted(self.stages, 'stage')}; {name} has "
                            f"{counted(model.layers, 'layer')}")
        if 2 * self.stages * self.microbatches > MOST_PASSES:
            raise WeftError(f"pp={self.pp} x vp={self.vp} and {self.microbatches:,} microbatches are more than "
                            f"{MOST_PASSES:,} passes: choose larger microbatches")

    @property
    def constant(self) -> str:
        """Whose share of the peak products sustain: "as given", of another stack or device, "" if it is the stack's."""
        try:
            share, whose = self.stack.constant(self.device.name, self.precision)
        except WeftError:  # nothing is known of the device
            return "as given"
        return whose if share == self.efficiency else "as given"

    @property
    def assumptions(self) -> str:
        """What computation is taken to be."""
        stack = f"{self.stack.name}, {self.constant}" if self.constant else self.stack.name
        rate = (f"by kernels {self.kernels.name} ({self.stack.name})" if self.kernels else
                f"at {self.efficiency:.3g} of the peak ({stack})")
        return (f"{self.device.name}, {self.precision} precision {rate}, "
                f"{self.attention}, recomputation {self.recompute}")

    @property
    def words(self) -> str:
        """Model and parallelism."""
        groups = " ".join(f"{name}={getattr(self, name)}" for name in ("tp", "pp", "vp", "cp", "dp", "ep", "etp")
                          if getattr(self, name) > 1 or name == "dp")
        return f"{self.model.name} {groups}"

    @property
    def n_ranks(self) -> int:
        """Ranks of all groups."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def stages(self) -> int:
        """Parts that the layers are cut into; two directions have the same ones."""
        return self.pp * (1 if ORDERS[self.schedule].ways == 2 else self.vp)

    @property
    def tokens(self) -> int:
        """Of a microbatch on a rank, before sequence parallelism."""
        return self.sequence // self.cp * self.micro_batch

    @property
    def pace(self) -> float:
        """Of the slowest of all devices, over the median: the expected largest of so many normal values."""
        n = self.n_ranks
        return 1 + self.device.spread * max(0.0, NormalDist().inv_cdf((n - 0.375) / (n + 0.25)))

    @property
    def global_batch(self) -> int:
        """Sequences of an iteration."""
        return self.micro_batch * self.microbatches * self.dp

    def figures(self, time_s: float) -> dict[str, float]:
        """Rates of an iteration that takes a time.

        MFU is FLOP of the model, three passes, over what the devices could do in half precision, with half of the
        attention or all of it; HFU also counts what is computed again.
        """
        model, tokens = self.model, self.global_batch * self.sequence
        most = self.n_ranks * self.device.half * time_s
        half, full = (model.token_flops(self.sequence, causal) * tokens / most for causal in (True, False))
        whole, again = model.token_flops(self.sequence, passes=1), self.again
        more = sum(again.core * model.core_flops(layer, self.sequence)
                   + sum(one.flops * again.share(one.name) for one in model.matrices(layer))
                   for layer in range(0, model.layers, 2 if self.recomputed == "layers" else 1))
        return {
            "tokens_per_s": tokens / time_s, "tokens_per_s_per_npu": tokens / time_s / self.n_ranks, "mfu": half,
            "mfu_full_attention": full, "hfu": half * (1 + more / (3 * whole)),
        }

    @property
    def update_bytes(self) -> float:
        """Moved for the update of a parameter: states and gradients are read and written, or read twice."""
        return self.stack.update - 2 * (MASTER - self.optimizer_bytes) - 2 * (4 - self.gradient_bytes)

    @property
    def shards(self) -> int:
        """Ranks that share what sequence parallelism divides."""
        return self.tp if self.sequence_parallel else 1

    @property
    def recomputed(self) -> str:
        """What is computed again, by its own name."""
        found = self.stack.selective if self.recompute == "selective" else self.recompute
        return "none" if found == "core" and self.attention != "unfused" else found

    @property
    def again(self) -> Again:
        """What is computed again; of "products" every second one as PyTorch calls them: keys, projection, gate."""
        how, keys = self.recomputed, self.model.kv_width / 2 / (self.model.query_width + self.model.kv_width)
        if how in ("full", "layers"):
            return Again(second=0.0 if self.stack.stops else 1.0)
        kept = (keys, 1.0, self.model.gated / 2) if how == "products" else (0.0, 0.0, 0.0)
        return Again(*kept, second=0.0, core=how == "core", calls=False)

    @cached_property
    def groups(self) -> dict[str, Group]:
        """The groups by name, and where their ranks are."""
        inner = self.tp * self.cp
        return {
            "tp": Group(self.tp, 1), "cp": Group(self.cp, self.tp),
            "dp": Group(self.dp * self.cp // self.replicas, self.tp),
            "rep": Group(self.replicas, inner * self.dp // self.replicas),
            "etp": Group(self.etp, 1), "ep": Group(self.ep, self.etp),
            "edp": Group(inner * self.dp // (self.ep * self.etp), self.ep * self.etp),
            "pp": Group(min(self.pp, 2), inner * self.dp), "all": Group(self.n_ranks, 1),
            "copies": Group(min(self.pp, 2), inner * self.dp * max(self.pp // 2, 1)),
            "ends": Group(min(self.pp, 2), inner * self.dp * max(self.pp - 1, 1)),
        }

    @cached_property
    def layers(self) -> list[range]:
        """Layers of each stage: whole ones; stages have one less from the last and the first on, where head and
        embedding are."""
        n, total = self.stages, self.model.layers
        most = -(-total // n)
        counts = [most] * n
        for number in range(most * n - total):
            counts[number // 2 if number % 2 else n - 1 - number // 2] -= 1
        return [range(a, b) for a, b in pairwise([0, *accumulate(counts)])]
