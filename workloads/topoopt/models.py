"""The six models of TopoOpt's evaluation as operators: compute, parameters, activations.

Shapes are those of the released scripts. Times: measured A100 profiles where the scripts have them; other dense layers
by a line through two of those profiles, ResNet50 at the rate at which VGG16 runs. All are for servers of 4 GPUs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from topologies import WeftError
from topologies.checks import choice
from topologies.text.brief import Registry
from topologies.units import counted
from workloads.topoopt.measured import BERT_BACKWARD, BERT_FORWARD_MS, VGG16_BACKWARD, VGG16_FORWARD_MS

GPUS = 4
FLOAT = 4

DENSE_FORWARD_MS = (0.169, 170e9)
DENSE_BACKWARD_MS = (0.220, 114e9)
"""Start-up, and floating-point operations a ms, of a dense layer on a server: DLRM's profiles at 2048 and 4096 wide."""


@dataclass(frozen=True)
class Operator:
    """A layer; times and activations are those of the whole batch, on one server."""

    name: str
    forward_ms: float
    backward_ms: float
    parameter_bytes: int
    output_bytes: int  # activations
    inputs: tuple[int, ...] = ()  # operators before it
    table: bool = False  # an embedding table, which starts on one server


@dataclass(frozen=True)
class OperatorModel:
    """A model at its batch size on n servers."""

    name: str
    n: int
    operators: tuple[Operator, ...]


def _dense(name: str, n: int, batch: int, width_in: int, width: int, inputs: tuple[int, ...]) -> Operator:
    """A dense layer for a whole batch; times as if each of n servers took its part."""
    work = 2.0 * batch / n * width_in * width
    forward = DENSE_FORWARD_MS[0] + work / DENSE_FORWARD_MS[1]
    backward = DENSE_BACKWARD_MS[0] + 2 * work / DENSE_BACKWARD_MS[1]
    return Operator(name, forward * n, backward * n, (width_in + 1) * width * FLOAT, batch * width * FLOAT, inputs)


def _stack(operators: list[Operator], name: str, n: int, batch: int, widths: list[int], first: tuple[int, ...]) -> int:
    """Dense layers one after the other; returns the number of the last."""
    before = first
    for at, (width_in, width) in enumerate(pairwise(widths)):
        operators.append(_dense(f"{name}{at}", n, batch, width_in, width, before))
        before = (len(operators) - 1,)
    return before[0]


def dlrm(n: int, tables: int | None = None, batch_per_gpu: int | None = None) -> OperatorModel:
    """Deep learning recommendation: embedding tables, and two stacks of dense layers."""
    small = n <= 16
    tables = tables or (16 if small else 64)
    rows, dim = 10**7, 256 if small else 128
    per_gpu = batch_per_gpu or (256 if small else 128)
    batch = per_gpu * GPUS * n
    bottom, top = ([1024] * 8, [2048] * 15 + [1]) if small else ([2048] * 8, [4096] * 15 + [1])
    # Profile: 4.31 ms forward for 65,536 samples of a table 128 wide; lookups are bound by memory.
    scale = batch * dim / (65536 * 128)
    operators = [
        Operator(f"table{i}", 4.31 * scale, 8.62 * scale, rows * dim * FLOAT, batch * dim * FLOAT, (), True)
        for i in range(tables)
    ]
    low = _stack(operators, "bottom", n, batch, bottom, ())
    _stack(operators, "top", n, batch, [tables * dim + bottom[-1], *top], (*range(tables), low))
    return OperatorModel("DLRM", n, tuple(operators))


CANDLE_INPUTS = {
    "rnaseq": 942, "descriptors1": 5270, "descriptors2": 5270, "fingerprints1": 2048, "fingerprints2": 2048,
}
"""Width of the input of each tower: a cell, and the descriptors and fingerprints of two drugs."""


def candle(n: int) -> OperatorModel:
    """CANDLE Uno: five towers of feature layers, concatenated with two doses, and dense layers."""
    small = n <= 16
    features, width = (12, 4096) if small else (16, 16384)
    batch = 256 * GPUS * n
    operators: list[Operator] = []
    towers = tuple(
        _stack(operators, f"{name}-", n, batch, [inputs, *[width] * features], ())
        for name, inputs in CANDLE_INPUTS.items()
    )
    _stack(operators, "dense", n, batch, [5 * width + 2] + [width] * 8 + [1], towers)
    if not small:
        measured = {width: (7.79, 15.01), 5 * width + 2: (43.6, 73.2)}
        for at, operator in enumerate(operators):
            width_in = operator.parameter_bytes // (FLOAT * width) - 1
            if operator.output_bytes == batch * width * FLOAT and width_in in measured:
                forward, backward = measured[width_in]
                operators[at] = replace(operator, forward_ms=forward * n, backward_ms=backward * n)
    return OperatorModel("CANDLE", n, tuple(operators))


def bert(n: int) -> OperatorModel:
    """Encoder and decoder layers: three attentions and four dense layers each."""
    small = n <= 16
    layers, sequence, hidden = (6, 256, 768) if small else (12, 64, 1024)
    batch = 16 * GPUS * n
    back_m, back_d = BERT_BACKWARD["M"][0], BERT_BACKWARD["D"][0]
    half = BERT_FORWARD_MS / (18 * back_m + 24 * back_d)
    times = {"M": (half * back_m, back_m), "D": (half * back_d, back_d)} if small else {
        "M": (0.301, 0.603), "D": (0.147, 0.279)}
    operators: list[Operator] = []
    for kind in "MDMDMDD" * layers:
        parameters = (4 if kind == "M" else 1) * hidden**2 * FLOAT
        forward, backward = (time * n for time in times[kind])
        before = (len(operators) - 1,) if operators else ()
        operators.append(Operator(f"{kind}{len(operators)}", forward, backward, parameters,
                                  batch * sequence * hidden * FLOAT, before))
    return OperatorModel("BERT", n, tuple(operators))


def vgg(n: int) -> OperatorModel:
    """VGG16, 64 images per GPU; times of the profile on 16 servers, whose servers have the same batch."""
    layers = [(ms, sum(sizes)) for times, ms, sizes in VGG16_BACKWARD for _ in range(times)][::-1]
    half = VGG16_FORWARD_MS / sum(ms for ms, _ in layers)
    batch = 64 * GPUS * n
    # Activations halve with every pooling, which is a layer without parameters among the convolutions.
    output, operators = 64 * 224 * 224, list[Operator]()
    for at, (ms, parameters) in enumerate(layers):
        if not parameters and output > 4096:
            output //= 2
        if parameters > 10**7:
            output = 1000 if parameters < 2 * 10**7 else 4096
        before = (at - 1,) if at else ()
        operators.append(Operator(f"layer{at}", half * ms * n, ms * n, parameters, batch * output * FLOAT, before))
    return OperatorModel("VGG16", n, tuple(operators))


def resnet(n: int) -> OperatorModel:
    """ResNet50, 128 images per GPU: 16 blocks and the classifier."""
    batch = 128 * GPUS * n
    # 8.2 GFLOP an image forward at the 268 TFLOP/s at which a server runs VGG16.
    forward = 8.2e9 * batch / n / 268e12 * 1e3
    stages = [(3, 75_000, 256 * 56 * 56), (4, 305_000, 512 * 28 * 28), (6, 1_180_000, 1024 * 14 * 14),
              (3, 5_000_000, 2048 * 7 * 7)]
    operators: list[Operator] = []
    for blocks, parameters, output in stages:
        for _ in range(blocks):
            before = (len(operators) - 1,) if operators else ()
            operators.append(Operator(f"block{len(operators)}", forward / 16 * n, forward / 8 * n, parameters * FLOAT,
                                      batch * output * FLOAT, before))
    operators.append(_dense("classifier", n, batch, 2048, 1000, (len(operators) - 1,)))
    return OperatorModel("ResNet50", n, tuple(operators))


def ncf(n: int) -> OperatorModel:
    """Neural collaborative filtering: 32 tables 64 wide for factors, 32 tables 128 wide for the dense layers."""
    batch = 128 * GPUS * n
    scale = batch / 65536
    operators = [
        Operator(f"{name}{i}", forward * scale, 2 * forward * scale, 10**6 * dim * FLOAT, batch * dim * FLOAT, (), True)
        for name, dim, forward in (("factor", 64, 6.29), ("embedding", 128, 4.36)) for i in range(32)
    ]
    _stack(operators, "dense", n, batch, [32 * 128] + [4096] * 8 + [1], tuple(range(64)))
    return OperatorModel("NCF", n, tuple(operators))


MODELS: Registry[Callable[[int], OperatorModel]] = Registry("models", {
    "DLRM": dlrm, "CANDLE": candle, "BERT": bert, "VGG16": vgg, "ResNet50": resnet, "NCF": ncf,
})


def model(name: str, n: int) -> OperatorModel:
    """The model of that name on n servers.

    WeftError: no such model, or fewer than two servers.
    """
    choice(name, MODELS, "model")
    if n < 2:
        raise WeftError(f"{name} on {counted(n, 'server')}: at least 2")
    return MODELS[name](n)
