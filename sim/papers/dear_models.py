"""Two more networks of the DeAR evaluation, operator by operator, for images of 224 x 224."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.models.model import NeuralNetwork, Operator

CLASSES = 1000


def densenet201() -> NeuralNetwork:
    """DenseNet-201: blocks of 6, 12, 48 and 32 layers that each add 32 channels."""
    operators = [_convolution("conv0", 3, 64, 49, 112)]
    channels, side = 64, 56
    for block, layers in enumerate((6, 12, 48, 32), start=1):
        for layer in range(1, layers + 1):
            name = f"block{block}_{layer}"
            operators.append(_convolution(f"{name}_1x1", channels, 128, 1, side, norms=channels + 128))
            operators.append(_convolution(f"{name}_3x3", 128, 32, 9, side, norms=0))
            channels += 32
        if block < 4:
            operators.append(_convolution(f"transition{block}", channels, channels // 2, 1, side, norms=channels))
            channels, side = channels // 2, side // 2
    operators.append(_linear("classifier", channels, norms=channels))
    return NeuralNetwork("densenet-201", "image", tuple(operators), "G. Huang et al., CVPR 2017, table 1")


def inceptionv4() -> NeuralNetwork:
    """Inception-v4: a stem, 4 + 7 + 3 inception blocks with two reductions between."""
    operators = [
        _convolution(f"{stage}_{number}", *shape) for stage, shapes in _inception_stages()
        for number, shape in enumerate(shapes)
    ]
    operators.append(_linear("classifier", 1536))
    return NeuralNetwork("inception-v4", "image", tuple(operators), "C. Szegedy et al., AAAI 2017, figures 3 to 9")


_Shape = tuple[int, int, int, int]
"""Channels in and out, positions of the kernel, side of the output."""


def _inception_stages() -> Iterator[tuple[str, list[_Shape]]]:
    yield "stem", [
        (3, 32, 9, 111), (32, 32, 9, 109), (32, 64, 9, 109), (64, 96, 9, 54),
        (160, 64, 1, 54), (64, 96, 9, 52),
        (160, 64, 1, 54), (64, 64, 7, 54), (64, 64, 7, 54), (64, 96, 9, 52),
        (192, 192, 9, 25),
    ]
    for block in range(1, 5):
        yield f"a{block}", [
            (384, 96, 1, 25), (384, 64, 1, 25), (64, 96, 9, 25),
            (384, 64, 1, 25), (64, 96, 9, 25), (96, 96, 9, 25), (384, 96, 1, 25),
        ]
    yield "reduction_a", [(384, 384, 9, 12), (384, 192, 1, 25), (192, 224, 9, 25), (224, 256, 9, 12)]
    for block in range(1, 8):
        yield f"b{block}", [
            (1024, 384, 1, 12), (1024, 192, 1, 12), (192, 224, 7, 12), (224, 256, 7, 12),
            (1024, 192, 1, 12), (192, 192, 7, 12), (192, 224, 7, 12), (224, 224, 7, 12), (224, 256, 7, 12),
            (1024, 128, 1, 12),
        ]
    yield "reduction_b", [
        (1024, 192, 1, 12), (192, 192, 9, 5),
        (1024, 256, 1, 12), (256, 256, 7, 12), (256, 320, 7, 12), (320, 320, 9, 5),
    ]
    for block in range(1, 4):
        yield f"c{block}", [
            (1536, 256, 1, 5), (1536, 384, 1, 5), (384, 256, 3, 5), (384, 256, 3, 5),
            (1536, 384, 1, 5), (384, 448, 3, 5), (448, 512, 3, 5), (512, 256, 3, 5), (512, 256, 3, 5),
            (1536, 256, 1, 5),
        ]


def _convolution(name: str, into: int, out: int, kernel: int, side: int, norms: int | None = None) -> Operator:
    """A convolution without bias, and batch normalizations of so many channels; default: its outputs."""
    weights, normed = into * out * kernel, out if norms is None else norms
    return Operator(name, weights + 2 * normed, 2.0 * weights * side**2, into * side**2, out * side**2)


def _linear(name: str, rows: int, norms: int = 0) -> Operator:
    return Operator(name, (rows + 1) * CLASSES + 2 * norms, 2.0 * rows * CLASSES, rows, CLASSES)
