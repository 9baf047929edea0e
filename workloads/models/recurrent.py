"""The large LSTM language model on Penn Treebank."""

from workloads.models.model import NeuralNetwork, Operator


def lstm(layers: int = 2, hidden: int = 1500, vocabulary: int = 10000) -> NeuralNetwork:
    """Embedding, LSTM layers with two biases for each of four gates, and a linear output."""
    gates = 4 * hidden * (2 * hidden + 2)
    operators = (
        Operator("embedding", vocabulary * hidden, 0.0, 1, hidden),
        *(Operator(f"lstm_{number}", gates, 16.0 * hidden**2, hidden, hidden) for number in range(layers)),
        Operator("output", (hidden + 1) * vocabulary, 2.0 * hidden * vocabulary, hidden, vocabulary),
    )
    return NeuralNetwork("lstm", "token", operators, "W. Zaremba et al., arXiv 1409.2329, the large model")
