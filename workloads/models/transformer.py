"""Transformers operator by operator: decoders as GPT and Llama, mixtures of experts, and BERT's encoder."""

from workloads.models.language import LanguageModel, language_model
from workloads.models.model import NeuralNetwork, Operator


def decoder(name: str) -> NeuralNetwork:
    """A decoder of `language.toml`: embedding, layers, final norm and output projection."""
    of = language_model(name)
    table = Operator("embedding", of.embedding_parameters, 0.0, 1, of.hidden, sharded=True)
    norm = Operator("final norm", of.norm, 2 * of.hidden, of.hidden, of.hidden)
    head = Operator("output", 0 if of.tied else of.vocabulary * of.hidden, 2 * of.vocabulary * of.hidden, of.hidden,
                    of.vocabulary, sharded=True)
    layers = [operator for number in range(1, of.layers + 1) for operator in layer(of, number)]
    return NeuralNetwork(name, "token", (table, *layers, norm, head), of.source, of.layers)


def bert(name: str, layers: int, hidden: int, source: str, sequence: int = 512) -> NeuralNetwork:
    """BERT: embeddings with a norm, layers, and a pooler; the masked-language head is left out, as usual."""
    of = LanguageModel(name=name, layers=layers, hidden=hidden, heads=hidden // 64, vocabulary=30522, sequence=sequence)
    rows = 30522 + 512 + 2  # tokens, positions, segments
    table = Operator("embedding", rows * hidden + of.norm, 0.0, 1, hidden)
    flops = 2 * hidden**2 / sequence  # one token of a sequence
    pooler = Operator("pooler", hidden * (hidden + 1), flops, hidden, hidden)
    each = [operator for number in range(1, layers + 1) for operator in layer(of, number, causal=False)]
    return NeuralNetwork(name, "token", (table, *each, pooler), source, layers)


def layer(of: LanguageModel, number: int, causal: bool = True) -> tuple[Operator, ...]:
    """The nine operators of a layer, named as in LIBRA's workloads; two norms make one row.

    `causal`: whether a token attends to half of the sequence on average.
    """
    h, kv, mixture = of.hidden, of.kv_heads * of.head_size, of.is_mixture(number - 1)
    f, experts = (of.expert_width, of.experts) if mixture else (of.feed_forward, 1)
    sent = of.active * mixture
    attention = 2 * h * (of.attended(number - 1, of.sequence) if causal else of.sequence)

    def matrix(name: str, rows: int, columns: int, copies: int = 1, **more: bool | int) -> Operator:
        copied = int(more.get("experts", 1))
        parameters = copied * copies * (rows * columns + (columns if of.biases else 0))
        flops = 2.0 * copies * rows * columns * (of.active if copied > 1 else 1)
        called = f"{name}{number}"
        return Operator(called, parameters, flops, rows, columns, sharded=True, **more)  # type: ignore[arg-type]  # its fields

    rows = of.experts * mixture
    router = Operator(f"router{number}", h * rows, 2 * h * rows, h, rows)
    return (
        matrix("Q", h, h, reduces_input=True),
        matrix("K", h, kv),
        matrix("V", h, kv),
        Operator(f"QK{number}", 0, attention, h, 0, sharded=True, of_activations=True),
        Operator(f"softmax{number}", 0, attention, 0, h, sharded=True, of_activations=True),
        matrix("concat", h, h, reduces_output=True, keeps_checkpoint=True),
        *([router] if of.experts else []),
        matrix("W1_", h, f, 2 if of.gated else 1, reduces_input=True, experts=experts, sends_tokens=sent),
        matrix("W2_", f, h, reduces_output=True, experts=experts, sends_tokens=sent),
        Operator(f"layerNorm{number}", 2 * of.norm, 2 * h, h, h),
    )
