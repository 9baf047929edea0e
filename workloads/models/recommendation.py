"""Recommenders: DLRM and neural collaborative filtering, as MLPerf trains them."""

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
