"""Decoders by their published hyper-parameters, and what a token costs in each part of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from topologies.checks import Count, Integer, WeftError, checked, choice, integer, told
from topologies.text.brief import one_line
from topologies.text.input_text import read_input
from topologies.text.kinds import MODEL
from topologies.text.plain_data import parse_toml, read_json_object
from topologies.text.schema import note

Whole = Annotated[int, Integer(0, 2**40)]
MOST_LAYERS = 10_000
WORD = 2
"""Bytes of an activation in half precision."""


class Matrix(NamedTuple):
    """A matrix product: columns in, columns out, and copies that a token goes through of those that there are."""

    name: str
    rows: int
    columns: int
    active: int = 1
    copies: int = 1

    @property
    def flops(self) -> int:
        """Of the forward pass of a token; a multiply-add is two."""
        return 2 * self.rows * self.columns * self.active

    @property
    def parameters(self) -> int:
        """Weights of all copies."""
        return self.rows * self.columns * self.copies


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """Hyper-parameters of a decoder; see `language.toml`."""

    name: str
    source: str = ""
    layers: Annotated[int, Integer(1, MOST_LAYERS)]
    hidden: Count
    heads: Count
    vocabulary: Count
    sequence: Count
    # of the layers, the last ones: each predicts one more token, by a product of its own and the head (MTP)
    ahead: Whole = 0
    kv_heads: Whole = 0  # heads of keys and values; 0: as many as heads
    # head_size, value_size: of queries and keys, and of values; 0: hidden / heads, and that of queries
    head_size: Whole = 0
    value_size: Whole = 0
    feed_forward: Whole = 0  # width between the matrices of the feed-forward part; 0: four times `hidden`
    gated: bool = False  # whether a third matrix gates it (SwiGLU)
    tied: bool = True  # whether the output projection is the embedding
    # positions, biases: learned positions; biases of matrices and norms
    positions: bool = True
    biases: bool = True
    # q_rank, kv_rank, rotary: of multi-head latent attention: ranks of queries and of keys and values, rotary part of a
    # head; 0: none
    q_rank: Whole = 0
    kv_rank: Whole = 0
    rotary: Whole = 0
    # experts, active, shared, expert_width, dense_layers, nodes_per_token: of a mixture: routed experts, those of a
    # token, those of every token, their width, leading layers without, and nodes that a token may go to (0: any)
    experts: Whole = 0
    active: Whole = 0
    shared: Whole = 0
    expert_width: Whole = 0
    dense_layers: Whole = 0
    nodes_per_token: Whole = 0
    # which layers behind those are mixtures, 1 or 0, counted from the first of all and then over again; none: all
    mixtures: tuple[Annotated[int, Integer(0, 1)], ...] = ()
    # tokens before it that one of a layer attends to, by layer and then over again; 0, or none: all
    windows: tuple[Whole, ...] = ()
    # whether a window is that part of the sequence in which the token is, instead of the last tokens
    chunked: bool = False

    def __post_init__(self) -> None:
        for key, value in (("kv_heads", self.heads), ("feed_forward", 4 * self.hidden),
                           ("head_size", self.hidden // self.heads)):
            if not getattr(self, key):
                object.__setattr__(self, key, value)
        if not self.value_size:
            object.__setattr__(self, "value_size", self.head_size)
        if self.ahead >= self.layers:
            raise WeftError(f"model {self.name}: {self.ahead} of {self.layers} layers predict further tokens")
        if self.heads % self.kv_heads:
            raise WeftError(f"model {self.name}: {self.heads} heads do not share {self.kv_heads} of keys and values")
        if self.experts < self.active:
            raise WeftError(f"model {self.name}: {self.active} active of {self.experts} experts")
        if self.experts and not (self.active and self.expert_width):
            raise WeftError(f"model {self.name}: {self.experts} experts need active and expert_width")

    def is_mixture(self, layer: int) -> bool:
        """Whether the feed-forward part of a layer is a mixture of experts."""
        return (bool(self.experts) and layer >= self.dense_layers
                and bool(not self.mixtures or self.mixtures[layer % len(self.mixtures)]))

    def window(self, layer: int) -> int:
        """Tokens that one of a layer attends to, 0: all before."""
        return self.windows[layer % len(self.windows)] if self.windows else 0

    def attended(self, layer: int, context: int) -> float:
        """Tokens that one of a sequence attends to, on average."""
        window = min(self.window(layer) or context, context)
        if self.chunked:
            whole, rest = divmod(context, window)
            return (whole * window**2 + rest**2) / (2 * context)
        return window * (1 - window / (2 * context))

    @property
    def query_width(self) -> int:
        """Width of the queries of all heads."""
        return self.heads * self.head_size

    @property
    def attended_width(self) -> int:
        """Of what attention leaves."""
        return self.heads * self.value_size

    @property
    def kv_width(self) -> int:
        """Of keys and values together, that context parallelism sends."""
        return self.kv_rank + self.rotary if self.kv_rank else self.kv_heads * (self.head_size + self.value_size)

    def is_ahead(self, layer: int) -> bool:
        """Whether a layer predicts a further token."""
        return layer >= self.layers - self.ahead

    def attention_in(self, layer: int) -> tuple[Matrix, ...]:
        """What makes queries, keys and values of a token; before, a further token is joined to what is known."""
        h, a = self.hidden, self.heads
        joined = (Matrix("joined", 2 * h, h),) * self.is_ahead(layer)
        if not self.kv_rank:
            return (*joined, Matrix("qkv", h, self.query_width + self.kv_width))
        nope = self.head_size - self.rotary
        queries = (
            (Matrix("q down", h, self.q_rank), Matrix("q up", self.q_rank, a * self.head_size)) if self.q_rank
            else (Matrix("q", h, a * self.head_size),)
        )
        return (
            *joined, *queries, Matrix("kv down", h, self.kv_rank + self.rotary),
            Matrix("kv up", self.kv_rank, a * (nope + self.value_size)),
        )

    @property
    def attention_out(self) -> Matrix:
        """The projection behind attention."""
        return Matrix("projection", self.attended_width, self.hidden)

    def core_flops(self, layer: int, context: int, causal: bool = True) -> float:
        """Of a token's forward attention to a sequence of a length; `causal`: what a mask hides is left out."""
        found = self.attended(layer, context) if causal else context
        return 2.0 * found * self.heads * (self.head_size + self.value_size)

    def feed_forward_of(self, layer: int) -> tuple[Matrix, ...]:
        """The matrices of the feed-forward part; routed experts are called "expert"."""
        h, wide = self.hidden, 2 if self.gated else 1
        if not self.is_mixture(layer):
            return Matrix("fc1", h, wide * self.feed_forward), Matrix("fc2", self.feed_forward, h)
        f, k, n = self.expert_width, self.active, self.experts
        found = (Matrix("router", h, n), Matrix("expert fc1", h, wide * f, k, n), Matrix("expert fc2", f, h, k, n))
        if not self.shared:
            return found
        both = self.shared
        return (*found, Matrix("shared fc1", h, wide * f, both, both), Matrix("shared fc2", f, h, both, both))

    def matrices(self, layer: int) -> tuple[Matrix, ...]:
        """The products of one layer."""
        return (*self.attention_in(layer), self.attention_out, *self.feed_forward_of(layer))

    @property
    def norm(self) -> int:
        """Parameters of one norm."""
        return self.hidden * (2 if self.biases else 1)

    def norms(self) -> int:
        """Parameters of the norms and biases of a layer."""
        bias = sum(m.columns for m in self.matrices(0)) if self.biases else 0
        return 2 * self.norm + self.q_rank + self.kv_rank + bias

    def layer_parameters(self, layer: int) -> int:
        """Parameters of one layer, all experts included."""
        return sum(one.parameters for one in self.matrices(layer)) + self.norms()

    def expert_parameters(self, layer: int) -> int:
        """Parameters of the experts of one layer."""
        return sum(one.parameters for one in self.matrices(layer) if one.name.startswith("expert"))

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the tables that turn tokens into vectors and back."""
        return (self.vocabulary + (self.sequence if self.positions else 0)) * self.hidden

    @property
    def parameters(self) -> int:
        """All trained weights."""
        head = 0 if self.tied else self.vocabulary * self.hidden
        return sum(map(self.layer_parameters, range(self.layers))) + self.embedding_parameters + head + self.norm

    def layer_flops(self, layer: int, context: int, causal: bool = True) -> float:
        """Of a token's forward pass of a layer."""
        return self.core_flops(layer, context, causal) + sum(one.flops for one in self.matrices(layer))

    def token_flops(self, context: int, causal: bool = True, passes: int = 3) -> float:
        """Model FLOP of a trained token: forward times `passes`; without the embedding, with the logits."""
        inside = sum(self.layer_flops(layer, context, causal) for layer in range(self.layers))
        return passes * (inside + 2 * self.hidden * self.vocabulary * (1 + self.ahead))


@cache
def language_models() -> dict[str, Mapping[str, Any]]:
    """Tables of `language.toml` by name, with what they take from another (`like`)."""
    found: dict[str, Mapping[str, Any]] = {}
    path = Path(__file__).parent / "language.toml"
    for name, table in parse_toml(path.read_text(encoding="utf-8"), path.name).items():
        own = {**(found[table["like"]] if "like" in table else {}), **table}
        found[name] = {key: value for key, value in own.items() if key != "like"}
    return found


@checked
def language_model(name: str) -> LanguageModel:
    """The decoder of a name, or of a Hugging Face config.json.

    WeftError: no such name, or a file that lacks a key or is of another kind of model.
    """
    if name.endswith(".json"):
        return from_hugging_face(name)
    if Path(name).is_file():
        read_input(name, MODEL)
    known, name = language_models(), name.replace("llama-3.1-", "llama-3-")  # of the same shape
    return LanguageModel(name=name, **known[choice(name, known, "model", ", or a Hugging Face config.json")])


HUGGING_FACE = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "vocabulary": ("vocab_size",),
    "sequence": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"), "head_size": ("head_dim",),
    "feed_forward": ("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "tied": ("tie_word_embeddings",),
    "q_rank": ("q_lora_rank",), "kv_rank": ("kv_lora_rank",), "rotary": ("qk_rope_head_dim",),
    "value_size": ("v_head_dim",),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "active": ("num_experts_per_tok", "moe_k", "moe_topk"),
    "shared": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "expert_width": ("moe_intermediate_size", "intermediate_size"),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index"), "nodes_per_token": ("topk_group",),
}
"""Keys of a config.json for each hyper-parameter; the first that is there counts."""

_FORMS: dict[str, Mapping[str, Any]] = {
    "gpt": {}, "gated": {"gated": True, "positions": False, "biases": False},
    "plain": {"positions": False, "biases": False}, "biased": {"positions": False},
}
"""What a form of `hugging_face.toml` is: with or without a gate, learned positions and biases."""

_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_size", "vocabulary", "feed_forward", "experts", "active",
          "expert_width", "q_rank", "kv_rank")
OF_READER = ("form", "full_at", "like")
_SAME = ("intermediate_size", "intermediate_size_mlp", "moe_intermediate_size")
"""Keys of two hyper-parameters: neither stands for the other where it is absent."""

_OF_MIXTURES = ("active", "shared", "expert_width", "dense_layers", "nodes_per_token")
_WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")
_TEXT = ("text_config", "llm_config", "language_config")
"""Of a model of several media, where its decoder is."""

_KINDS = {"sliding_attention": 1, "chunked_attention": 1, "local": 1, "L": 1, "full_attention": 0, "global": 0, "G": 0}
"""Whether a layer of a kind has a window: of `layer_types`, of GPT-Neo, of EXAONE."""


@cache
def hugging_face_types() -> dict[str, Mapping[str, Any]]:
    """Tables of `hugging_face.toml` by model_type, with what they take from another (`like`)."""
    found: dict[str, Mapping[str, Any]] = {}
    path = Path(__file__).parent / "hugging_face.toml"
    for name, table in parse_toml(path.read_text(encoding="utf-8"), path.name).items():
        found[name] = {**(found[table["like"]] if "like" in table else {}), **table}
    return found


def from_hugging_face(path: str) -> LanguageModel:
    """A decoder from the config.json of a Hugging Face model: dense or mixture, GQA or MLA, tied or not.

    What is absent has the value of the class of its type; of a model of several media the text is read.
    WeftError: unreadable, of a type that is not known, or without what a decoder needs.
    """
    table = read_json_object(path, "model")
    inner = next((name for name in _TEXT if isinstance(table.get(name), Mapping)), None)
    if any(name in table for name in HUGGING_FACE["layers"]):
        inner = None
    if inner or "vision_config" in table:
        note(f"model {path}: the model of its text is read{f', which {inner} has,' if inner else ''} and nothing else")
    if inner:
        table = {**{key: table[key] for key in ("tie_word_embeddings",) if key in table}, **table[inner]}
    kind, types = table.get("model_type", "llama"), hugging_face_types()
    if not isinstance(kind, str) or kind not in types or table.get("is_encoder_decoder"):
        some = get_close_matches(str(kind), types, 3, 0.5) or list(types)[:3]
        raise WeftError(f"model {path} is of type {told(kind)}: known are the decoders {', '.join(some)} and "
                        f"{len(types) - len(some)} others, all of attention and none of states")
    usual = types[kind] if "model_type" in table else {"form": "gated"}
    named = {name for names in HUGGING_FACE.values() if set(names) & set(table) for name in names if name not in _SAME}
    taken = {key: value for key, value in usual.items() if key not in named and key not in (*OF_READER, *table)}
    told_of = [f"{name} {taken[name]}" for key in _SIZES for name in HUGGING_FACE[key] if name in taken]
    if told_of:
        note(f"model {path}: {', '.join(told_of)}: not there, and as the class of {kind} has them")
    table = {**taken, **table}
    found: dict[str, Any] = {}
    for key, names in HUGGING_FACE.items():
        value = next((table[name] for name in names if table.get(name) is not None), None)
        if value is not None:
            wanted = bool if key == "tied" else int
            if type(value) is not wanted:
                raise WeftError(f"model {path}: {names[0]} is {told(value)}: expected is {wanted.__name__}")
            found[key] = value
    for key in ("layers", "hidden", "heads", "vocabulary"):
        if key not in found:
            raise WeftError(f"model {path} lacks {' or '.join(HUGGING_FACE[key])}: is it a decoder's config.json?")
    integer(found["layers"], f"model {path}: layers", 1, MOST_LAYERS)
    if found.get("rotary"):
        nope = integer(table.get("qk_nope_head_dim", 0), f"model {path}: qk_nope_head_dim", 0)
        found["head_size"] = found["rotary"] + nope
        found["kv_heads"] = found["heads"]
    else:
        found = {key: value for key, value in found.items() if key not in ("q_rank", "kv_rank", "value_size")}
    mixture = "moe_intermediate_size" in usual or any(name in usual for name in HUGGING_FACE["experts"])
    if not mixture and len(usual) > 1 and found.pop("experts", None):
        note(f"model {path}: experts are passed over, as {kind} has none")
    experts = found.get("experts", 0)
    for key in ("experts", "active") if mixture else ():
        if not any(name in table for name in HUGGING_FACE[key]):
            raise WeftError(f"model {path}: {' or '.join(HUGGING_FACE[key])} is not there, for which type {kind} has "
                            "no number: write it")
    width = table.get("shared_expert_intermediate_size") or table.get("shared_intermediate_size")
    if experts and width:
        width = integer(width, f"model {path}: shared_expert_intermediate_size", 1)
        found["shared"], left = divmod(width, found.get("expert_width", width))
        if left:
            raise WeftError(f"model {path}: shared_expert_intermediate_size {told(width)} is no multiple of the width "
                            "of an expert, as which shared experts are counted")
    if found.get("nodes_per_token", 0) >= integer(table.get("n_group") or 1, f"model {path}: n_group", 1):
        found.pop("nodes_per_token", None)  # any group
    if not experts:
        found = {key: value for key, value in found.items() if key not in _OF_MIXTURES}
    if table.get("multi_query") and not table.get("new_decoder_architecture"):
        found["kv_heads"] = 1
    if kind == "llama4_text":
        found["shared"] = 1
    if experts:
        found["mixtures"] = _mixtures(path, table, found["layers"])
    found["windows"], found["chunked"] = _windows(path, table, kind, usual, found["layers"])
    return LanguageModel(name=str(table.get("_name_or_path") or table.get("model_type") or "model"), source=path, **{
        **_FORMS[usual.get("form", "gated")], "tied": False, "sequence": 2048, **found})


def _mixtures(path: str, table: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Layers that are mixtures, by the keys of Qwen, DeepSeek, ERNIE and Llama 4."""
    def whole(key: str, default: int) -> int:
        return integer(default if table.get(key) is None else table[key], f"model {path}: {key}")

    if kinds := _listed(path, table, "mlp_layer_types"):
        if len(kinds) < layers or not set(kinds) <= {"sparse", "dense"}:
            raise WeftError(f"model {path}: mlp_layer_types: sparse or dense is expected for each of {layers} layers")
        return tuple(int(one == "sparse") for one in kinds[:layers])
    last, first = whole("moe_layer_end_index", -1) % layers, whole("moe_layer_freq", 1)
    steps = [whole(key, 1) for key in ("decoder_sparse_step", "moe_layer_interval", "interleave_moe_layer_step")]
    if min(first, *steps) < 1:
        raise WeftError(f"model {path}: a mixture in every {min(first, *steps)} layers: expected is 1 or more")
    dense, only = _listed(path, table, "mlp_only_layers") or (), _listed(path, table, "moe_layers") or range(layers)
    return tuple(int(layer in only and layer % first == 0 and layer <= last and layer not in dense
                     and all((layer + 1) % step == 0 for step in steps)) for layer in range(layers))


def _listed(path: str, table: Mapping[str, Any], key: str) -> list[Any] | None:
    """A list of layers, if it is there."""
    found = table.get(key)
    if found is not None and not isinstance(found, list):
        raise WeftError(f"model {path}: {key} is {told(found)}: a list is expected")
    return found


def _windows(
    path: str, table: Mapping[str, Any], kind: str, usual: Mapping[str, Any], layers: int
) -> tuple[tuple[int, ...], bool]:
    """Windows of layers, as the class of a type has them, and whether they are chunks."""
    key = next((one for one in _WINDOWS if one in usual), None)
    if key is None:
        over = [one for one in _WINDOWS if table.get(one)]
        if over:
            note(f"model {path}: {over[0]} is passed over, as {kind} has no windows")
        return (), False
    window = integer(table[key] or 0, f"model {path}: {key}", 0)
    types, pattern = _listed(path, table, "layer_types"), table.get("sliding_window_pattern")
    if not window or not table.get("use_sliding_window", True):
        return (), False
    if types is None and kind == "gpt_neo":
        try:
            types = [one for some, times in _listed(path, table, "attention_types") or [[["global", "local"], layers]]
                     for one in [*some] * min(times, layers)]
        except (TypeError, ValueError):
            raise WeftError(f"model {path}: attention_types: kinds of layers and their number are expected") from None
    if types is None and (rotary := _listed(path, table, "no_rope_layers")):
        types = ["L" if one else "G" for one in rotary]
    if types is None and isinstance(pattern, str) and pattern:
        types = [pattern[layer % len(pattern)] for layer in range(layers)]
    if types is None:
        every = integer(0 if pattern is None else pattern, f"model {path}: sliding_window_pattern", 0)
        first = integer(table.get("max_window_layers") or 0, f"model {path}: max_window_layers", 0)
        full = usual.get("full_at", every - 1)
        types = ["L" if at >= first and not (every and at % every == full) else "G" for at in range(layers)]
    if len(types) < layers:
        raise WeftError(f"model {path}: its {layers} layers have {len(types)} kinds of attention")
    return tuple(window * _KINDS[choice(one, _KINDS, f"model {path}: attention")] for one in types[:layers]), (
        kind == "llama4_text")
