"""A model: its operators with their parameters, operations and activations, for one sample."""

from dataclasses import dataclass

from topologies.checks import checked
from topologies.text.brief import one_line


@checked
@one_line
@dataclass(frozen=True)
class Operator:
    """One operator of the forward pass.

    Attributes
    ----------
    name : str
    parameters : int
        Trained weights; of an expert layer those of all its experts.
    flops : float
        Of the forward pass of one sample; a multiply-add is two.
    in_elements, out_elements : float
        Activations that enter and leave it, for one sample.
    sharded : bool
        Whether tensor parallelism divides its parameters and operations.
    reduces_output, reduces_input : bool
        Whether tensor parallelism reduces its output in the forward pass (split by rows), or the gradient of its
        input in the backward pass (the first of several split by columns).
    keeps_checkpoint : bool
        Whether activation checkpointing keeps its output.
    experts : int
        Experts that share the parameters; 1 for a dense operator.
    sends_tokens : int
        Copies of each sample that an all-to-all takes to where it is worked on: tokens to experts and back, rows of
        tables to the NPUs that want them.
    of_activations : bool
        Whether both factors are activations, as in attention's core: their gradients are the whole backward pass.
    """

    name: str
    parameters: int = 0
    flops: float = 0.0
    in_elements: float = 0.0
    out_elements: float = 0.0
    sharded: bool = False
    reduces_output: bool = False
    reduces_input: bool = False
    keeps_checkpoint: bool = False
    experts: int = 1
    sends_tokens: int = 0
    of_activations: bool = False


@checked
@one_line
@dataclass(frozen=True)
class NeuralNetwork:
    """Operators in the order of the forward pass.

    Attributes
    ----------
    name : str
    sample : str
        What operations are counted for: "token", "image", "row".
    operators : tuple of Operator
    source : str
        Where its shape is published.
    layers : int
        Equal layers that pipeline stages share out; 1 for a model without.
    """

    name: str
    sample: str
    operators: tuple[Operator, ...]
    source: str
    layers: int = 1

    @property
    def parameters(self) -> int:
        """Trained weights of the model."""
        return sum(operator.parameters for operator in self.operators)
