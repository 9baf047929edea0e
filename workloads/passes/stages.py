"""Parameters of a rank, of the stages of a pipeline, and of layers: those of all, and those of its experts."""

from typing import NamedTuple

from workloads.passes.orders import order_of
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
