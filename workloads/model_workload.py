"""A model under a parallelism as a workload: computations and collectives of one training iteration."""

from dataclasses import replace

from topologies.checks import Positive, WeftError, checked
from workloads.compute import Accelerator
from workloads.models.model import NeuralNetwork, Operator
from workloads.parallelism import DATA, EXPERT, EXPERT_DATA, TENSOR, Parallelism
from workloads.workload import Call, Layer, Phase, Workload

BYTES = 2
"""Of an element in half precision: weights, gradients and activations."""


@checked
def training_workload(
    model: NeuralNetwork, parallelism: Parallelism, accelerator: Accelerator, samples: Positive, *,
    bundled: bool = False, gather_checkpoints: bool = False,
) -> Workload:
    """One iteration of the first pipeline stage.

    Parameters
    ----------
    model : NeuralNetwork
    parallelism : Parallelism
        Messages and bubbles between pipeline stages are not part of it.
    accelerator : Accelerator
    samples : float
        Of one tensor-parallel group in the iteration: tokens, images or rows.
    bundled : bool
        All gradients are reduced by the first operator of the list, as in LIBRA's 2024 files, which is the last to
        finish its backward pass; otherwise each operator reduces its own.
    gather_checkpoints : bool
        An all-gather restores checkpoints that the tensor-parallel group shares out, once a layer.

    Raises
    ------
    WeftError
        No samples, or layers that the pipeline stages cannot share evenly.
    """
    if model.layers % parallelism.pp:
        raise WeftError(f"model {model.name}: {model.layers} layers cannot be shared evenly by pp={parallelism.pp}")
    cuts = _whole_layers(model)
    end = cuts[model.layers // parallelism.pp - 1] if parallelism.pp > 1 else None  # of the first stage
    make = _Rows(parallelism, accelerator, samples, gather_checkpoints)
    layers = [make.layer(operator) for operator in model.operators[:end]]
    return Workload(model.name, tuple(_bundle(layers) if bundled else layers), cuts=cuts or None)


def _whole_layers(model: NeuralNetwork) -> tuple[int, ...]:
    """Where layers begin, but for the first, which the embedding is before; none where a model has no equal ones."""
    outside = 1 if model.operators[0].name == "embedding" else 0
    each = (len(model.operators) - outside) // model.layers
    return tuple(outside + each * number for number in range(1, model.layers))


class _Rows:
    """Turns operators into layers of a workload."""

    def __init__(self, parallelism: Parallelism, accelerator: Accelerator, samples: float, checkpoints: bool) -> None:
        self.how, self.accelerator, self.samples, self.checkpoints = parallelism, accelerator, samples, checkpoints

    def layer(self, operator: Operator) -> Layer:
        shards = self.how.tp if operator.sharded else 1
        compute_ns = self.accelerator.time_ns(operator.flops * self.samples / shards)
        expert, spread = operator.experts > 1, operator.experts == 1 and operator.sends_tokens
        weights = operator.parameters * BYTES / shards / (self.how.ep if expert else 1)
        if spread and self.how.dp > 1:
            weights = 0.0  # each NPU has tables of its own, whose gradients arrive with the all-to-all
        group = EXPERT_DATA if expert and self.how.ep > 1 else DATA
        gathers, tokens = self._weight_gathers(weights, group), self._tokens(operator)
        forward, backward = [*gathers, *tokens], [*gathers, *tokens]
        if self.how.tp > 1 and operator.reduces_output:
            forward.append(Call("all-reduce", self.samples * operator.out_elements * BYTES, TENSOR))
        if self.how.tp > 1 and operator.reduces_input:
            backward.append(Call("all-reduce", self.samples * operator.in_elements * BYTES, TENSOR))
        if self.how.tp > 1 and operator.keeps_checkpoint and self.checkpoints:
            shard = self.samples * operator.out_elements * BYTES / self.how.tp
            backward.append(Call("all-gather", shard, TENSOR))
        mine = weights / BYTES / (self._size(group) if self.how.zero else 1)  # ZeRO shares out what Adam updates
        return Layer(
            operator.name,
            Phase(compute_ns, tuple(forward)),
            Phase(compute_ns * (2 if operator.of_activations else 1), tuple(backward)),
            Phase(0.0 if operator.of_activations else compute_ns, self._gradients(weights, group)),
            self.accelerator.update_ns(mine),
        )

    def _tokens(self, operator: Operator) -> tuple[Call, ...]:
        """The all-to-all that takes tokens to their experts or back, or rows of tables to the NPUs that want them."""
        group, size = (EXPERT, self.how.ep) if operator.experts > 1 else (DATA, self.how.dp)
        if not operator.sends_tokens or size == 1:
            return ()
        to_experts = operator.reduces_input  # the first matrix of an expert: what enters it has traveled
        width = operator.in_elements if to_experts else operator.out_elements
        share = self.how.tp if operator.experts > 1 else 1  # every tensor rank sends the tokens that it has
        return (Call("all-to-all", self.samples / share * width * operator.sends_tokens * BYTES, group),)

    def _weight_gathers(self, weights: float, group: str) -> tuple[Call, ...]:
        if self.how.zero < 3 or not weights or self._size(group) == 1:
            return ()
        return (Call("all-gather", weights / self._size(group), group, before=True),)

    def _gradients(self, weights: float, group: str) -> tuple[Call, ...]:
        size = self._size(group)
        if not weights or size == 1:
            return ()
        if self.how.zero == 0:
            return (Call("all-reduce", weights, group),)
        scatter = Call("reduce-scatter", weights, group)
        return (scatter,) if self.how.zero == 3 else (scatter, Call("all-gather", weights / size, group))

    def _size(self, group: str) -> int:
        return self.how.dp // self.how.ep if group == EXPERT_DATA else self.how.dp


def _bundle(layers: list[Layer]) -> list[Layer]:
    """All reductions of gradients on the first layer, one for each kind and group."""
    total: dict[tuple[str, str], float] = {}
    for layer in layers:
        for call in layer.weight_grad.calls:
            total[call.kind, call.group] = total.get((call.kind, call.group), 0.0) + call.size_bytes
    calls = tuple(Call(kind, size, group) for (kind, group), size in total.items())
    bare = [Layer(one.name, one.forward, one.input_grad, Phase(one.weight_grad.compute_ns)) for one in layers]
    weight_grad = replace(bare[0].weight_grad, calls=calls)
    bare[0] = replace(bare[0], weight_grad=weight_grad, update_ns=sum(one.update_ns for one in layers))
    return bare
