"""Memory of a rank by part, and what would fit where a plan does not.

References
----------
.. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198,
   section 4: bytes of activations; figure 1: 18 bytes of states a parameter.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from topologies.checks import WeftError
from topologies.units import format_size
from workloads.models.language import WORD
from workloads.passes.orders import order_of, slots_of
from workloads.passes.plan import Plan


class Parameters(NamedTuple):
    """On a rank: those that its data-parallel group has as well, and those of its experts."""

    dense: float
    experts: float

    @property
    def all(self) -> float:
        """Those of experts and the others."""
        return self.dense + self.experts

    def times(self, share: float) -> "Parameters":
        """A share of each."""
        return Parameters(self.dense * share, self.experts * share)


def layer_parameters(plan: Plan, layer: int) -> Parameters:
    """Of a layer."""
    model = plan.model
    experts = model.expert_parameters(layer) if model.is_mixture(layer) else 0
    return Parameters((model.layer_parameters(layer) - experts) / plan.tp, experts / (plan.ep * plan.etp))


def outer_parameters(plan: Plan, stage: int) -> float:
    """Of the embedding on the first stage and the head on the last; tied ones are on both."""
    model, last = plan.model, plan.stages - 1
    ends = model.embedding_parameters if stage == 0 else 0
    if stage == last and (last or not model.tied):
        ends += model.vocabulary * model.hidden
    return ends / plan.tp


def stage_parameters(plan: Plan, stage: int) -> Parameters:
    """Of a stage, with embedding and head."""
    layers = [layer_parameters(plan, layer) for layer in plan.layers[stage]]
    return Parameters(sum(one.dense for one in layers) + outer_parameters(plan, stage),
                      sum(one.experts for one in layers))


def rank_parameters(plan: Plan, rank: int) -> Parameters:
    """Of all stages of a rank of the pipeline."""
    stages = order_of(plan.schedule).stages(plan.pp, plan.vp)
    each = [stage_parameters(plan, stage) for stage in stages[rank]]
    return Parameters(sum(one.dense for one in each), sum(one.experts for one in each))


def layer_activations(plan: Plan, layer: int) -> float:
    """Bytes that a layer keeps of a microbatch for its backward pass ([1], equations 1 to 5)."""
    model, t, shards = plan.model, plan.tp, plan.shards
    h, dropout = model.hidden, model.biases
    kept = plan.tokens * WORD * h / shards
    if plan.recomputed == "full" or (plan.recomputed == "layers" and layer % 2 == 0):
        return kept
    whole = float((10 if dropout else 8) * h)
    split = float(WORD * (model.query_width + model.kv_width + model.attended_width))
    widths, copies = [model.feed_forward], 0
    if model.is_mixture(layer):
        widths, copies = [model.expert_width * (model.active + model.shared)], model.active
    split += sum(widths) * (6 if model.gated else 4) + 2 * copies * plan.etp * h * WORD
    split *= (0.5 if plan.precision == "fp8" else 1.0) * (0.5 if plan.recomputed == "products" else 1.0)
    if plan.recomputed == "memory":  # outputs of matrices are kept, and no others
        whole, split = 0.0, split * 2 / 3
    scores = 4 * model.heads  # logarithms of sums
    if plan.attention == "unfused":
        scores = 0 if plan.recomputed == "core" else 5 * model.heads * plan.sequence
    return plan.tokens * (whole / shards + (split + scores) / t)


def activations(plan: Plan, rank: int) -> float:
    """The most that a rank of the pipeline keeps at one time, in the order of its passes."""
    order = order_of(plan.schedule)
    stages = order.stages(plan.pp, plan.vp)
    each = [sum(layer_activations(plan, layer) for layer in plan.layers[stage]) for stage in stages[rank]]
    now = most = 0.0
    for slot in slots_of(plan.schedule, plan.pp, plan.vp, plan.microbatches)[rank]:
        now += sum(each[one.chunk] for one in slot if one.kind == "F")
        most = max(most, now)
        now -= sum(each[one.chunk] for one in slot if one.kind == ("W" if order.splits else "BW") or one.kind == "BW")
    if plan.stages - 1 in stages[rank]:  # logits in fp32, and what enters head and loss
        most += 4 * plan.tokens * (plan.model.hidden + plan.model.vocabulary) / plan.tp
    return most


def memory_of(plan: Plan, rank: int = 0) -> dict[str, float]:
    """Bytes by part of a rank of the pipeline; buffers of libraries and fragmentation are not counted."""
    own = rank_parameters(plan, rank)
    total, width = own.dense + own.experts, plan.gradient_bytes
    n, e = plan.groups["dp"].size, plan.groups["edp"].size
    shared = own.dense / n + own.experts / e
    found = {
        "weights": WORD * (shared if plan.zero == 3 else total),
        "gradients": width * (shared if plan.zero >= 2 else total),
        "optimizer": plan.optimizer_bytes * (shared if plan.zero else total),
        "activations": activations(plan, rank),
    }
    if plan.zero == 3:  # weights are the master's; two blocks gathered, gradients of one
        unit = max(sum(layer_parameters(plan, layer)) for layer in range(plan.model.layers))
        found["weights"] = 2.0 * WORD * unit
        found["gradients"] += width * unit
    return found


def check_fits(plan: Plan) -> None:
    """Refuse a plan that needs more than the device has.

    WeftError: names the parts, and changes that would fit.
    """
    need, rank = max((sum(memory_of(plan, rank).values()), rank) for rank in range(plan.pp))
    room = plan.device.memory_bytes
    if need <= room:
        return
    parts = ", ".join(f"{name} {format_size(round(size))}" for name, size in memory_of(plan, rank).items())
    fits = [text for text, other in _others(plan)
            if all(sum(memory_of(other, one).values()) <= room for one in range(plan.pp))]
    advice = f"; {' or '.join(fits)} would fit" if fits else "; choose more tp or pp"
    raise WeftError(f"{plan.model.name} needs {format_size(round(need))} on rank {rank} of the pipeline ({parts}); "
                    f"{plan.device.name} has {format_size(room)}{advice}")


def _others(plan: Plan) -> Iterator[tuple[str, Plan]]:
    if plan.recompute != "full":
        yield "--recompute full", replace(plan, recompute="full")
    for zero in range(plan.zero + 1, 3):
        yield f"--zero {zero}", replace(plan, zero=zero)
    if plan.micro_batch > 1:
        yield "--micro-batch 1", replace(plan, micro_batch=1, microbatches=plan.microbatches * plan.micro_batch)
    if plan.recompute != "full" and plan.zero == 0:
        yield "--recompute full --zero 1", replace(plan, recompute="full", zero=1)
    if plan.pp == 1 and plan.zero < 3:
        yield "--zero 3 --recompute full", replace(plan, zero=3, recompute="full")
