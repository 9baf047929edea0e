"""Networks that are no transformers: ResNet-50, VGG-16 and VGG-19 for images of 224 x 224; the recommenders DLRM and
neural collaborative filtering, as MLPerf trains them; the large LSTM language model on Penn Treebank.
"""

from itertools import pairwise

from workloads.models.model import NeuralNetwork, Operator

DLRM_ROWS = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14,
    39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)
"""Rows of the 26 tables of Criteo Terabyte, at most 40 million each (MLPerf Training, DLRM)."""


def dlrm(rows: tuple[int, ...] = DLRM_ROWS, width: int = 128) -> NeuralNetwork:
    """DLRM: tables spread over the NPUs, a bottom and a top perceptron on every one of them."""
    features = len(rows) + 1
    bottom = (13, 512, 256, width)
    top = (width + features * (features - 1) // 2, 1024, 1024, 512, 256, 1)
    tables = Operator("embedding", sum(rows) * width, 0.0, len(rows), len(rows) * width, sharded=True, sends_tokens=1)
    operators = (tables, *_perceptron("bottom", bottom), *_perceptron("top", top))
    source = "M. Naumov et al., arXiv 1906.00091; MLPerf Training, Criteo Terabyte"
    return NeuralNetwork("dlrm", "row", operators, source)


def ncf(users: int = 138493, items: int = 26744) -> NeuralNetwork:
    """Neural collaborative filtering (NeuMF): factors of 64 and a perceptron 256-256-128-64 on MovieLens-20M."""
    operators = (
        Operator("factors", (users + items) * 64, 0.0, 2, 128),
        Operator("embedding", (users + items) * 128, 0.0, 2, 256),
        *_perceptron("mlp", (256, 256, 128, 64)),
        Operator("predict", 128 + 1, 256.0, 128, 1),
    )
    return NeuralNetwork("ncf", "row", operators, "X. He et al., WWW 2017; MLPerf Training, MovieLens-20M")


def _perceptron(name: str, widths: tuple[int, ...]) -> list[Operator]:
    return [
        Operator(f"{name}_{number}", (rows + 1) * columns, 2.0 * rows * columns, rows, columns)
        for number, (rows, columns) in enumerate(pairwise(widths))
    ]


def lstm(layers: int = 2, hidden: int = 1500, vocabulary: int = 10000) -> NeuralNetwork:
    """Embedding, LSTM layers with two biases for each of four gates, and a linear output."""
    gates = 4 * hidden * (2 * hidden + 2)
    operators = (
        Operator("embedding", vocabulary * hidden, 0.0, 1, hidden),
        *(Operator(f"lstm_{number}", gates, 16.0 * hidden**2, hidden, hidden) for number in range(layers)),
        Operator("output", (hidden + 1) * vocabulary, 2.0 * hidden * vocabulary, hidden, vocabulary),
    )
    return NeuralNetwork("lstm", "token", operators, "W. Zaremba et al., arXiv 1409.2329, the large model")


CLASSES = 1000
IMAGE = 224


def resnet50() -> NeuralNetwork:
    """ResNet-50: a stem, 3 + 4 + 6 + 3 bottleneck blocks, one linear layer; convolutions without biases."""
    operators = [convolution("conv1", 3, 64, 49, IMAGE // 2)]
    channels, side = 64, IMAGE // 4
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            name = f"conv{stage + 2}_{block + 1}"
            inner = side // 2 if stage and not block else side
            operators.append(convolution(f"{name}_1x1a", channels, width, 1, side))
            operators.append(convolution(f"{name}_3x3", width, width, 9, inner))
            operators.append(convolution(f"{name}_1x1b", width, 4 * width, 1, inner))
            if not block:
                operators.append(convolution(f"{name}_shortcut", channels, 4 * width, 1, inner))
            channels, side = 4 * width, inner
    operators.append(linear("fc", channels, CLASSES))
    return NeuralNetwork("resnet-50", "image", tuple(operators), "K. He et al., CVPR 2016, table 1 (stride in the 3x3)")


def vgg(depth: int) -> NeuralNetwork:
    """VGG-16 or VGG-19: 3x3 convolutions with biases, no batch normalization, three linear layers."""
    repeats = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}[depth]
    operators, channels, side = [], 3, IMAGE
    for stage, (count, width) in enumerate(zip(repeats, (64, 128, 256, 512, 512), strict=True)):
        for number in range(count):
            operators.append(convolution(f"conv{stage + 1}_{number + 1}", channels, width, 9, side, width))
            channels = width
        side //= 2
    for name, rows, columns in (("fc6", channels * side**2, 4096), ("fc7", 4096, 4096), ("fc8", 4096, CLASSES)):
        operators.append(linear(name, rows, columns))
    return NeuralNetwork(f"vgg-{depth}", "image", tuple(operators), "K. Simonyan and A. Zisserman, ICLR 2015, table 1")


def convolution(name: str, into: int, out: int, kernel: int, side: int, more: int | None = None) -> Operator:
    """`kernel` positions, `side` x `side` outputs; `more` parameters than weights (default: a batch normalization)."""
    weights = into * out * kernel
    return Operator(name, weights + (2 * out if more is None else more), 2.0 * weights * side**2, into * side**2,
                    out * side**2)


def linear(name: str, rows: int, columns: int, more: int = 0) -> Operator:
    """A matrix with a bias, and so many parameters more."""
    return Operator(name, (rows + 1) * columns + more, 2.0 * rows * columns, rows, columns)
