"""A workload: the computation and communication of every layer of a training iteration, and their groups.

Sizes are the buffer of one NPU before the collective, as ASTRA-sim 1.0 and LIBRA count them: the shard that an
all-gather starts from, the full array of every other collective.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from topologies.checks import NotNegative, WeftError, checked
from topologies.text.brief import one_line
from topologies.units import counted, from_nanoseconds

PHASES = ("forward", "input_grad", "weight_grad")
"""Phases of a layer; a text workload names its groups after them."""

Groups = Mapping[str, tuple[int, ...]]
"""NPUs of each group in each dimension, by group name; 1 for an unused dimension."""


@checked
@one_line
@dataclass(frozen=True)
class Call:
    """A collective of one layer.

    Attributes
    ----------
    kind : str
        "all-reduce", "reduce-scatter", "all-gather" or "all-to-all".
    size_bytes : float
        Buffer of one NPU before it.
    group : str
        Participants: a key of `Groups`.
    before : bool
        Whether the computation of its phase waits for it, as for weights that are gathered; otherwise it follows.
    """

    kind: str
    size_bytes: NotNegative
    group: str
    before: bool = False

    def array_bytes(self, p: int) -> float:
        """Size as nccl-tests counts it: for an all-gather among `p` the total output."""
        return self.size_bytes * p if self.kind == "all-gather" else self.size_bytes


@checked
@one_line
@dataclass(frozen=True)
class Phase:
    """A computation, and the collectives around it."""

    compute_ns: NotNegative = 0.0
    calls: tuple[Call, ...] = ()


@checked
@one_line
@dataclass(frozen=True)
class Layer:
    """Forward pass, gradient by the input, gradient by the weights, and the update of the weights."""

    name: str
    forward: Phase = Phase()
    input_grad: Phase = Phase()
    weight_grad: Phase = Phase()
    update_ns: NotNegative = 0.0

    @property
    def phases(self) -> tuple[Phase, Phase, Phase]:
        """Forward, gradient of the input, gradient of the weights."""
        return self.forward, self.input_grad, self.weight_grad


@checked
@one_line
@dataclass(frozen=True)
class Workload:
    """The layers of one training iteration, first to last.

    Attributes
    ----------
    name : str
    layers : tuple of Layer
    policy : str
        Parallelism keyword of an ASTRA-sim 1.0 file; empty where there is none.
    header : tuple of (str, int)
        What SimAI says after it (`workloads.formats.simai`).
    cuts : tuple of int, optional
        Layers that a pipeline stage may begin with, besides the first, where those between belong together; None: any.
    """

    name: str
    layers: tuple[Layer, ...]
    policy: str = ""
    header: tuple[tuple[str, int], ...] = ()
    cuts: tuple[int, ...] | None = None

    def repeated(self, times: int) -> "Workload":
        """The layers so many times."""
        n = len(self.layers)
        cuts = None if self.cuts is None else [turn * n + at for turn in range(times) for at in (0, *self.cuts)][1:]
        return replace(self, layers=self.layers * times, cuts=None if cuts is None else tuple(cuts))

    @property
    def compute_ns(self) -> float:
        """Compute of all phases of all layers, updates left out as LIBRA does."""
        return sum(phase.compute_ns for layer in self.layers for phase in layer.phases)

    def calls(self) -> Iterator[Call]:
        """Every collective, layer by layer."""
        return (call for layer in self.layers for phase in layer.phases for call in phase.calls)

    @checked
    def scaled(self, compute: NotNegative) -> "Workload":
        """The same workload with every compute time multiplied.

        Raises
        ------
        WeftError
            A factor that is negative or not finite, or makes a computation longer than the clock runs.
        """

        def times(time_ns: float, one: Layer) -> float:
            from_nanoseconds(time_ns * compute, f"layer {one.name} of {self.name}, {compute:g} times as long,")
            return time_ns * compute

        def faster_layer(one: Layer) -> Layer:
            forward, input_grad, weight_grad = (
                replace(phase, compute_ns=times(phase.compute_ns, one)) for phase in one.phases
            )
            return Layer(one.name, forward, input_grad, weight_grad, times(one.update_ns, one))

        return replace(self, layers=tuple(map(faster_layer, self.layers)))


def check_groups(workload: Workload, groups: Groups, extents: tuple[int, ...]) -> None:
    """Reject groups that do not fit the network, and calls in groups that are not given.

    WeftError: names the group, the dimension and both sizes.
    """
    for name, sizes in groups.items():
        check_group(sizes, extents, f"group {name}")
    for call in workload.calls():
        if call.group not in groups:
            raise WeftError(
                f"workload {workload.name}: a {call.kind} runs in group {call.group!r}; groups are {', '.join(groups)}"
            )


def check_group(sizes: tuple[int, ...], extents: tuple[int, ...], what: str) -> None:
    """Reject sizes unless there is one divisor per extent of the network."""
    if len(sizes) != len(extents):
        raise WeftError(f"{what} has {counted(len(sizes), 'size')} {list(sizes)}; the network has "
                        f"{counted(len(extents), 'dimension')}")
    for dim, (size, extent) in enumerate(zip(sizes, extents, strict=True), start=1):
        if size < 1 or extent % size:
            raise WeftError(
                f"{what} takes {size} NPUs of dimension {dim}, which has {extent}: give a divisor of {extent}, or -1"
            )
