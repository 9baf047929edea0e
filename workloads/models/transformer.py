"""Transformers: decoders as GPT and Llama, mixtures of experts, and BERT's encoder."""

from dataclasses import dataclass

from workloads.models.language import language_model
from workloads.models.model import NeuralNetwork, Operator


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Hyper-parameters."""

    layers: int
    hidden: int
    vocabulary: int
    sequence: int
    feed_forward: int  # width between the two (or three) matrices of the feed-forward part
    key_value: int  # width of keys and values: `hidden`, or less where heads share them
    gated: bool = False  # a third matrix gates the feed-forward part (SwiGLU)
    biases: bool = True  # every matrix has a bias, and every norm an offset
    positions: int = 0  # learned position embeddings
    tied: bool = True  # the output projection is the embedding
    causal: bool = True  # a token attends to half of the sequence on average
    experts: int = 1  # of the feed-forward part
    active: int = 1  # experts that see a token


def decoder(name: str, shape: Shape, source: str) -> NeuralNetwork:
    """A decoder: embedding, layers, final norm and output projection."""
    rows = shape.vocabulary + shape.positions
    table = Operator("embedding", rows * shape.hidden, 0.0, 1, shape.hidden, sharded=True)
    norm = Operator("final norm", _norm(shape), 2 * shape.hidden, shape.hidden, shape.hidden)
    head = Operator(
        "output", 0 if shape.tied else shape.vocabulary * shape.hidden, 2 * shape.vocabulary * shape.hidden,
        shape.hidden, shape.vocabulary, sharded=True,
    )
    layers = [operator for number in range(1, shape.layers + 1) for operator in layer(shape, number)]
    return NeuralNetwork(name, "token", (table, *layers, norm, head), source, shape.layers)


def encoder(name: str, shape: Shape, source: str, segments: int = 2) -> NeuralNetwork:
    """BERT: embeddings with a norm, layers, and a pooler; the masked-language head is left out, as usual."""
    rows = shape.vocabulary + shape.positions + segments
    table = Operator("embedding", rows * shape.hidden + _norm(shape), 0.0, 1, shape.hidden)
    flops = 2 * shape.hidden**2 / shape.sequence  # one token of a sequence
    pooler = Operator("pooler", shape.hidden * (shape.hidden + 1), flops, shape.hidden, shape.hidden)
    layers = [operator for number in range(1, shape.layers + 1) for operator in layer(shape, number)]
    return NeuralNetwork(name, "token", (table, *layers, pooler), source, shape.layers)


def layer(shape: Shape, number: int) -> tuple[Operator, ...]:
    """The nine operators of a layer, named as in LIBRA's workloads; two norms make one row."""
    h, kv, f = shape.hidden, shape.key_value, shape.feed_forward
    attention = shape.sequence * h * (1 if shape.causal else 2)
    first = 2 if shape.gated else 1

    def matrix(name: str, rows: int, columns: int, copies: int = 1, **more: bool | int) -> Operator:
        experts = int(more.get("experts", 1))
        bias = columns if shape.biases else 0
        parameters = experts * copies * (rows * columns + bias)
        flops = 2.0 * copies * rows * columns * (shape.active if experts > 1 else 1)
        called = f"{name}{number}"
        return Operator(called, parameters, flops, rows, columns, sharded=True, **more)  # type: ignore[arg-type]  # its fields

    sends = shape.active if shape.experts > 1 else 0
    router = Operator(f"router{number}", h * shape.experts, 2 * h * shape.experts, h, shape.experts)
    return (
        matrix("Q", h, h, reduces_input=True),
        matrix("K", h, kv),
        matrix("V", h, kv),
        Operator(f"QK{number}", 0, attention, h, 0, sharded=True, of_activations=True),
        Operator(f"softmax{number}", 0, attention, 0, h, sharded=True, of_activations=True),
        matrix("concat", h, h, reduces_output=True, keeps_checkpoint=True),
        *([router] if shape.experts > 1 else []),
        matrix("W1_", h, f, first, reduces_input=True, experts=shape.experts, sends_tokens=sends),
        matrix("W2_", f, h, reduces_output=True, experts=shape.experts, sends_tokens=sends),
        Operator(f"layerNorm{number}", 2 * _norm(shape), 2 * h, h, h),
    )


def _norm(shape: Shape) -> int:
    return shape.hidden * (2 if shape.biases else 1)


def decoder_of(name: str) -> NeuralNetwork:
    """A decoder of `language.toml`."""
    one = language_model(name)
    shape = Shape(
        layers=one.layers, hidden=one.hidden, vocabulary=one.vocabulary, sequence=one.sequence,
        feed_forward=one.expert_width or one.feed_forward, key_value=one.kv_heads * one.head_size, gated=one.gated,
        biases=one.biases, positions=one.sequence if one.positions else 0, tied=one.tied, experts=one.experts or 1,
        active=one.active or 1,
    )
    return decoder(name, shape, one.source)


def bert(name: str, layers: int, hidden: int, source: str, sequence: int = 512) -> NeuralNetwork:
    """A BERT with the uncased vocabulary."""
    return encoder(
        name,
        Shape(layers=layers, hidden=hidden, vocabulary=30522, sequence=sequence, feed_forward=4 * hidden,
              key_value=hidden, positions=512, causal=False),
        source,
    )
