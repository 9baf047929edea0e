"""Convolutional networks for images of 224 x 224: ResNet-50, VGG-16 and VGG-19."""

from workloads.models.model import NeuralNetwork, Operator

CLASSES = 1000
IMAGE = 224


def resnet50() -> NeuralNetwork:
    """ResNet-50: a stem, 3 + 4 + 6 + 3 bottleneck blocks, one linear layer; convolutions without biases."""
    operators = [_convolution("conv1", 3, 64, 7, IMAGE // 2)]
    channels, side = 64, IMAGE // 4
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            name = f"conv{stage + 2}_{block + 1}"
            inner = side // 2 if stage and not block else side
            operators.append(_convolution(f"{name}_1x1a", channels, width, 1, side))
            operators.append(_convolution(f"{name}_3x3", width, width, 3, inner))
            operators.append(_convolution(f"{name}_1x1b", width, 4 * width, 1, inner))
            if not block:
                operators.append(_convolution(f"{name}_shortcut", channels, 4 * width, 1, inner))
            channels, side = 4 * width, inner
    operators.append(_linear("fc", channels, CLASSES))
    return NeuralNetwork("resnet-50", "image", tuple(operators), "K. He et al., CVPR 2016, table 1 (stride in the 3x3)")


def vgg(depth: int) -> NeuralNetwork:
    """VGG-16 or VGG-19: 3x3 convolutions with biases, no batch normalization, three linear layers."""
    repeats = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}[depth]
    operators, channels, side = [], 3, IMAGE
    for stage, (count, width) in enumerate(zip(repeats, (64, 128, 256, 512, 512), strict=True)):
        for number in range(count):
            operators.append(_convolution(f"conv{stage + 1}_{number + 1}", channels, width, 3, side, norm=False))
            channels = width
        side //= 2
    for name, rows, columns in (("fc6", channels * side**2, 4096), ("fc7", 4096, 4096), ("fc8", 4096, CLASSES)):
        operators.append(_linear(name, rows, columns))
    return NeuralNetwork(f"vgg-{depth}", "image", tuple(operators), "K. Simonyan and A. Zisserman, ICLR 2015, table 1")


def _convolution(name: str, into: int, out: int, kernel: int, side: int, norm: bool = True) -> Operator:
    """A convolution of `side` x `side` outputs, with a batch normalization (scale, offset) or a bias."""
    weights = into * out * kernel**2
    return Operator(name, weights + (2 * out if norm else out), 2.0 * weights * side**2, into * side**2, out * side**2)


def _linear(name: str, rows: int, columns: int) -> Operator:
    return Operator(name, (rows + 1) * columns, 2.0 * rows * columns, rows, columns)
