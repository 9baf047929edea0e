"""The kernels and collectives of layers, head and embedding: forward, backward, and what is computed again.

Sizes per rank and microbatch; A is a full activation of T tokens, T x h x 2 bytes.

- A matrix product takes what FLOP / (peak x efficiency) and bytes / memory's rate take together (`beside`), and a
  kernel's fixed time.
- Memory-bound work takes its bytes over the memory's rate.
- Tensor parallelism all-reduces A after the projection and fc2, and the gradient of A into QKV and fc1 beside the
  weight gradient of that matrix; sequence parallelism has an all-gather before and a reduce-scatter after instead, and
  gathers the kept input of QKV and fc1 again, beside the input gradient.
- Experts: tokens travel before fc1 and back after fc2; T / tp tokens of each rank, which the `etp` ranks of an expert
  gather from each other.

References
----------
.. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198.
.. [2] NVIDIA/Megatron-LM d98e8a64, `linear_with_grad_accumulation_and_async_allreduce`.
"""

from workloads.models.language import WORD, Matrix
from workloads.passes.plan import ULYSSES, Again, Plan
from workloads.passes.tape import Tape

EAGER = 2.8
"""Factor on the bytes of memory-bound work where kernels are not fused: each elementwise step reads and writes."""

UNFUSED = 13
"""Bytes of an unfused attention for each pair of tokens and head: scores, mask and softmax, dropout, and reads."""

TOGETHER = 1.5
"""Exponent of `beside`: of 1, 1.25, 1.5, 1.75, 2 and more that which is nearest to the products of microsoft/vidur
7d47513 (`mlp.csv`, 256 tokens or more) on A100, 36,516, and on H100, 21,924."""

NARROW = 4 / 3
"""Bytes of an element that products in fp8 read or write, of three of them: each reads one, and writes two."""

NODE_LIMIT_WIDTH = 1
"""Bytes of a dispatched element in fp8; combined ones are in half precision."""


def beside(computed: float, moved: float) -> float:
    """Seconds of a kernel that computes and moves: less than one after the other, more than the longer alone."""
    return float((computed**TOGETHER + moved**TOGETHER) ** (1 / TOGETHER))


WHOLE = Again()


class Layers:
    """Writes passes of layers on tapes."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.model, device = plan, plan.model, plan.device
        self.tokens, self.device = plan.tokens, device
        self.rate = device.peak(plan.precision) * plan.efficiency
        self.half_rate = device.peak("half") * plan.half_efficiency
        self.factor = plan.stack.eager if plan.compiled else EAGER
        self.activation = plan.tokens * self.model.hidden * WORD
        self.gathers = self.activation / (2 if plan.precision == "fp8" else 1)  # fp8 products take what is fp8

    # --- kernels

    def product_s(self, one: Matrix, *, half: bool = False) -> float:
        """A matrix product of a microbatch, with a third of the casts of all three; its gradients take as long."""
        plan, model, routed = self.plan, self.model, one.name.startswith("expert")
        row, parts = one.name.endswith(("projection", "fc2")), plan.etp if routed else plan.tp
        rows, columns = (one.rows / parts, one.columns) if row else (one.rows, one.columns / parts)
        m = self.tokens * one.active * (plan.etp / plan.tp if routed else 1)
        fp8 = plan.precision == "fp8" and not half
        apart = [1.0]  # linears of one input
        if plan.stack.dtensor and one.name in ("qkv", "fc1"):
            keys = model.kv_width / 2 / one.columns
            apart = [1 - 2 * keys, keys, keys] if one.name == "qkv" else [1 / (1 + model.gated)] * (1 + model.gated)
        weights = one.parameters / (parts * (plan.ep if routed else 1))
        found = self.cast_s(m, rows, columns, row, weights, parts) if fp8 else 0.0
        for share in apart:
            n, flops = columns * share, one.flops * share * self.tokens / plan.tp
            if plan.kernels:
                found += plan.kernels.product_s(m, max(n, 1), max(rows, 1), "fp8" if fp8 else "half")
                continue
            moved = weights * share + (m if routed else self.tokens) * (rows + n)
            moved *= NARROW if fp8 else WORD
            found += beside(flops / (self.rate if fp8 else self.half_rate), moved / self.device.hbm)
            found += self.device.kernel_s
        return found

    def cast_s(self, m: float, rows: float, columns: float, row: bool, weights: float, parts: int) -> float:
        """Casts to fp8 for one of the three products: of the input, its transpose, and the gradient in both orders;
        weights are transposed.

        What travels is cast before, and transposed behind.
        """
        whole = 2 + 3 / (self.plan.shards if parts > 1 else 1)  # read and written again; read, written
        moved = 5 * rows + whole * columns if row else whole * rows + 5 * columns
        return (moved * m + 2 * weights) / 3 / self.device.hbm

    def memory_s(self, element_bytes: float, *, kernels: int = 1) -> float:
        """Memory-bound work on so many bytes a token."""
        return element_bytes * self.tokens * self.factor / self.device.hbm + kernels * self.device.kernel_s

    def core_s(self, layer: int, backward: bool = False) -> float:
        """Attention of a microbatch; without fused kernels what a mask hides is computed as well."""
        plan, model = self.plan, self.model
        if plan.attention == "unfused":
            flops = model.core_flops(layer, plan.sequence, causal=False) * self.tokens / plan.tp
            moved = UNFUSED * model.heads * plan.sequence * self.tokens / plan.tp
            once = flops / self.half_rate + moved / self.device.hbm + 3 * self.device.kernel_s
            return once * (2 if backward else 1)
        rates = self.device.attention(3 if plan.attention == "flash3" else 2)
        flops = model.core_flops(layer, plan.sequence) * self.tokens / plan.tp * (2.5 if backward else 1)
        others = 0 if plan.context == ULYSSES else plan.cp - 1  # of the parts, of which the first is a rank's own
        pieces = (1 + others / plan.stack.context_share) / (1 + others)
        return pieces * flops / (rates[backward] * plan.stack.attention_share) + self.device.kernel_s

    @property
    def norm(self) -> float:
        """Bytes a token of a norm and of the residual behind it, with dropout in old models."""
        return (4 + (7 if self.model.biases else 6)) * self.model.hidden / self.plan.shards

    @property
    def rotary(self) -> float:
        """Bytes that rotary embedding moves for a token; 0 with learned positions."""
        model = self.model
        return 0.0 if model.positions else 4 * (model.query_width + model.kv_width / 2) / self.plan.tp

    @property
    def of_heads(self) -> float:
        """Bytes of queries, keys and values that a rank sends for whole sequences of fewer heads; keys of too few heads
        go to several ranks."""
        model, ranks = self.model, self.plan.tp * self.plan.cp
        keys = max(model.kv_heads, ranks) * (model.head_size + model.value_size)
        return self.tokens * (model.query_width + keys) * WORD / self.plan.tp

    @property
    def of_output(self) -> float:
        """Of what attention leaves."""
        return self.tokens * self.model.attended_width * WORD / self.plan.tp

    def activated(self, width: float) -> float:
        """Bytes that an activation of a width moves for a token."""
        return (6 if self.model.gated else 4) * width / self.plan.tp

    # --- collectives

    def enter(self, tape: Tape) -> None:
        """Gather what sequence parallelism has split."""
        if self.plan.sequence_parallel:
            tape.call("all-gather", self.gathers, "tp")

    def leave(self, tape: Tape) -> None:
        """Sum over the tensor group."""
        tape.call(self.reduction, self.activation, "tp")

    @property
    def reduction(self) -> str:
        """What sums over the tensor group."""
        return "reduce-scatter" if self.plan.sequence_parallel else "all-reduce"

    def gathered(self, tape: Tape, kind: str, seconds: float, calls: bool = True) -> None:
        """A product behind an all-gather of its input, in pieces where these are pipelined."""
        t = self.plan.tp
        if calls and self.plan.sequence_parallel and self.plan.tensor_overlap == "pipelined" and t > 1:
            tape.work(kind, 2 * self.gathers / t / self.device.hbm)  # into a buffer that the others read
            tape.call("all-gather", self.gathers / t, "tp")
            rest = tape.begin("all-gather", self.gathers * (t - 1) / t, "tp")
            tape.work(kind, seconds + (t - 1) * self.device.kernel_s)
            tape.wait(rest)
            return
        if calls:
            self.enter(tape)
        tape.work(kind, seconds)

    def scattered(self, tape: Tape, kind: str, seconds: float, calls: bool = True) -> None:
        """A product before the reduction of its output, in pieces where these are pipelined."""
        t = self.plan.tp
        if calls and self.plan.sequence_parallel and self.plan.tensor_overlap == "pipelined" and t > 1:
            tape.work(kind, seconds / t)
            rest = tape.begin("reduce-scatter", self.activation * (t - 1) / t, "tp")
            tape.work(kind, seconds * (t - 1) / t + (t - 1) * self.device.kernel_s)
            tape.wait(rest)
            tape.call("reduce-scatter", self.activation / t, "tp")
            tape.work(kind, (1 + 1 / t) * self.activation / self.device.hbm)  # pieces of all ranks are added up
            return
        tape.work(kind, seconds)
        if calls:
            self.leave(tape)

    def route(self, tape: Tape, out: bool) -> None:
        """Tokens to their experts, whose ranks gather them, or back; a token goes once to each node."""
        model, etp = self.model, self.plan.etp
        copies = min(model.active, model.nodes_per_token or model.active)
        width = NODE_LIMIT_WIDTH if out and self.plan.precision == "fp8" else WORD
        sent = self.tokens / self.plan.tp * model.hidden * width
        if not out:
            tape.call("reduce-scatter", sent * model.active * etp, "etp")
        tape.call("all-to-all", sent * copies, "ep")
        if out:
            tape.call("all-gather", sent * model.active * etp, "etp")

    # --- forward

    def forward(self, tape: Tape, layer: int, again: Again = WHOLE, kind: str = "forward") -> None:
        """The forward pass of a layer, or the parts that run again."""
        tape.work(kind, self.memory_s(self.norm, kernels=2))
        gathers = again.calls or self.plan.stack.dtensor
        self.gathered(tape, kind, again.inside * sum(map(self.product_s, self.model.attention_in(layer))), gathers)
        if self.rotary:
            tape.work(kind, self.memory_s(self.rotary))
        if again.core:
            self.core(tape, layer, kind)
        self.scattered(tape, kind, again.outside * self.product_s(self.model.attention_out), again.calls)
        tape.work(kind, self.memory_s(self.norm, kernels=2))
        if self.model.is_mixture(layer):
            self.mixture(tape, layer, again, kind)
            return
        first, second = map(self.product_s, self.model.feed_forward_of(layer))
        self.gathered(tape, kind, again.first * first, gathers)
        tape.work(kind, self.memory_s(self.activated(self.model.feed_forward)))
        self.scattered(tape, kind, again.second * second, again.calls and again.second > 0)

    def core(self, tape: Tape, layer: int, kind: str, backward: bool = False) -> None:
        """Attention, with keys and values from the other ranks of context parallelism, or backward."""
        plan, seconds = self.plan, self.core_s(layer, backward)
        shard = self.tokens * self.model.kv_width * WORD / plan.tp
        if plan.context == ULYSSES:
            before, behind = (self.of_output, self.of_heads) if backward else (self.of_heads, self.of_output)
            tape.call("all-to-all", before, "cp")
            tape.work(kind, seconds)
            tape.call("all-to-all", behind, "cp")
        elif plan.context == "gather":
            tape.call("all-gather", shard * plan.cp, "cp")
            tape.work(kind, seconds)
            if backward:
                tape.call("reduce-scatter", shard * plan.cp, "cp")
        else:
            for _ in range(plan.cp - 1):
                sent = tape.begin("send", (2 if backward else 1) * shard, "cp")
                tape.work(kind, seconds / plan.cp)
                tape.wait(sent)
            tape.work(kind, seconds / plan.cp)

    def mixture(self, tape: Tape, layer: int, again: Again, kind: str) -> None:
        """The experts of a layer, forward."""
        model, width = self.model, self.model.expert_width
        for one in model.feed_forward_of(layer):
            if one.name == "expert fc1":
                tape.work(kind, self.memory_s(4 * model.active * model.hidden / self.plan.tp))
                if again.calls:
                    self.route(tape, out=True)
            tape.work(kind, (again.second if one.name.endswith("fc2") else again.first) * self.product_s(one))
            if one.name.endswith("fc1"):
                tape.work(kind, self.memory_s(self.activated(width * one.active)))
            if one.name == "expert fc2" and again.second:
                if again.calls:
                    self.route(tape, out=False)
                tape.work(kind, self.memory_s(4 * model.active * model.hidden / self.plan.tp))

    # --- backward

    def backward(self, tape: Tape, layer: int, kind: str) -> None:
        """`kind`: BW, B or W."""
        if kind != "W":
            self.again(tape, layer)
        if self.model.is_mixture(layer):
            self.mixture_backward(tape, layer, kind)
        else:
            first, second = map(self.product_s, self.model.feed_forward_of(layer))
            between = 2 * self.memory_s(self.activated(self.model.feed_forward))
            self.block_backward(tape, layer, kind, first, second, between)
        inside = sum(map(self.product_s, self.model.attention_in(layer)))
        self.block_backward(tape, layer, kind, inside, self.product_s(self.model.attention_out), None)

    def again(self, tape: Tape, layer: int) -> None:
        """What is computed again before the backward pass of a layer."""
        how = self.plan.recomputed
        if how == "core":
            tape.work("recomputation", self.core_s(layer))
        elif how != "none" and (how != "layers" or layer % 2 == 0):
            self.forward(tape, layer, self.plan.again, "recomputation")

    def block_backward(
        self, tape: Tape, layer: int, kind: str, first: float, second: float, middle: float | None
    ) -> None:
        """Attention or feed-forward part; `middle`: of what is between its matrices, None for attention."""
        given, weights = kind != "W", kind != "B"
        sequence = self.plan.sequence_parallel
        if given:
            self.gathered(tape, "backward", second)
        if weights:
            tape.work("weight gradient", second)
        if given:
            if middle is None:
                self.core(tape, layer, "backward", backward=True)
                if self.rotary:
                    tape.work("backward", 2 * self.memory_s(self.rotary))
            else:
                tape.work("backward", middle)
            plain = self.plan.stack.dtensor
            kept = tape.begin("all-gather", self.gathers, "tp") if weights and sequence and not plain else None
            tape.work("backward", first)
            if kept:
                tape.wait(kept)
            if plain:  # gradients of the input from each of the linears
                parts = 3 if middle is None else 1 + self.model.gated
                tape.work("backward", self.memory_s(WORD * (parts + 1) * self.model.hidden) if parts > 1 else 0.0)
            else:
                reduced = tape.begin(self.reduction, self.activation, "tp")
            if weights:
                tape.work("weight gradient", first)
            if plain:
                reduced = tape.begin(self.reduction, self.activation, "tp")
            tape.wait(reduced)
            tape.work("backward", 2 * self.memory_s(self.norm, kernels=2))
        elif weights:
            if sequence:
                self.enter(tape)
            tape.work("weight gradient", first)

    def mixture_backward(self, tape: Tape, layer: int, kind: str) -> None:
        """The experts of a layer, backward."""
        model = self.model
        permuted = self.memory_s(4 * model.active * model.hidden / self.plan.tp)
        for one in reversed(model.feed_forward_of(layer)):
            if one.name == "expert fc2" and kind != "W":
                tape.work("backward", permuted)
                self.route(tape, out=True)
            if kind != "W":
                if one.name.endswith("fc1"):
                    tape.work("backward", 2 * self.memory_s(self.activated(model.expert_width * one.active)))
                tape.work("backward", self.product_s(one))
            if kind != "B":
                tape.work("weight gradient", self.product_s(one))
            if one.name == "expert fc1" and kind != "W":
                self.route(tape, out=False)
                tape.work("backward", permuted)
        if kind != "W":
            tape.work("backward", 2 * self.memory_s(self.norm, kernels=2))

    # --- ends

    @property
    def head(self) -> Matrix:
        """The matrix that gives the logits."""
        return Matrix("output", self.model.hidden, self.model.vocabulary)

    def embed(self, tape: Tape, kind: str) -> None:
        """The embedding in a pass of a kind."""
        if kind == "F":
            tape.work("forward", self.memory_s(4 * self.model.hidden))
            self.leave(tape)
        elif kind != "B":
            tape.work("weight gradient", self.memory_s(6 * self.model.hidden))

    def losses(self, tape: Tape, kind: str) -> None:
        """Of every token that is predicted."""
        for _ in range(1 + self.model.ahead):
            self.loss(tape, kind)

    def loss(self, tape: Tape, kind: str) -> None:
        """Final norm, output projection and cross entropy; of the logits in half precision one copy is in fp32."""
        logits = self.model.vocabulary / self.plan.tp / self.factor
        forward, backward = (14, 22) if self.factor > 1 else (12, 8)  # casts and gradients of their own, not fused
        if kind == "F":
            tape.work("forward", self.memory_s(self.norm))
            self.gathered(tape, "forward", self.product_s(self.head, half=True))
            tape.work("forward", self.memory_s(forward * logits))
            return
        if kind != "W":
            tape.work("backward", self.memory_s(backward * logits))
            tape.work("backward", self.product_s(self.head, half=True))
            reduced = tape.begin(self.reduction, self.activation, "tp")
            if kind == "BW":
                tape.work("weight gradient", self.product_s(self.head, half=True))
            tape.wait(reduced)
            tape.work("backward", 2 * self.memory_s(self.norm))
        else:
            tape.work("weight gradient", self.product_s(self.head, half=True))
