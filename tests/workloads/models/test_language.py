"""Decoders by hyper-parameters: parameters and FLOP as published, and config.json of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topologies import WeftError
from topologies.text.schema import InputNote
from workloads.models.language import LanguageModel, from_hugging_face, language_model, language_models

PARAMETERS = {
    "gpt-1.7b": 1.7, "gpt-3.6b": 3.6, "gpt-7.5b": 7.5, "gpt-18.4b": 18.4, "gpt-39.1b": 39.1, "gpt-76.1b": 76.1,
    "gpt-145.6b": 145.6, "gpt-310b": 310.1, "gpt-530b": 529.6, "gpt-1t": 1008.0, "gpt-22b": 22.0, "gpt-175b": 174.6,
    "gpt-3": 174.6, "turing-nlg": 17.2, "msft-1t": 1008.0, "llama-2-7b": 6.74, "llama-2-13b": 13.02,
    "llama-2-70b": 68.98, "llama-3-8b": 8.03, "llama-3-70b": 70.55, "llama-3-405b": 405.85, "code-llama-34b": 33.74,
    "mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6, "deepseek-v3": 671.0, "deepseek-v3-mtp": 682.6,
    "qwen-2.5-7b": 7.62, "qwen-2.5-72b": 72.71,
    "qwen-3-0.6b": 0.6, "qwen-3-1.7b": 1.72, "qwen-3-4b": 4.02, "qwen-3-8b": 8.19, "qwen-3-14b": 14.77,
    "qwen-3-32b": 32.76, "qwen-3-30b-a3b": 30.5, "qwen-3-235b-a22b": 235.1, "deepseek-v3-16b": 15.71,
    "deepseek-v3-236b": 235.74, "mpt-7b": 6.65, "mpt-30b": 29.96,
    "llama-3-1b": 1.236, "llama-3-3b": 3.213, "llama-3-debugmodel": 0.00614, "qwen-3-debugmodel": 0.032,
    "qwen-3-debugmodel-moe": 0.316, "deepseek-v3-debugmodel": 0.033,
    "llama-4-17bx16e": 107.77, "llama-4-17bx128e": 400.71, "llama-4-debugmodel": 0.015, "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83, "gpt-oss-debugmodel": 0.0813,
}
"""Published, in billions."""

FLOPS = [("llama-3-70b", 8192, True, 449.2), ("llama-3-70b", 8192, False, 481.4), ("gpt-22b", 2048, False, 139.6),
         ("gpt-1t", 2048, False, 6128.2), ("deepseek-v3", 4096, True, 250.4), ("deepseek-v3", 4096, False, 281.2),
         ("deepseek-v3-mtp", 4096, True, 260.6),
         ("mixtral-8x7b", 4096, False, 82.9), ("llama-3-405b", 8192, True, 2524.0),
         ("llama-2-70b", 4096, False, 444.5)]
"""GFLOP of a trained token behind published TFLOP/s, by whether half of the attention is counted."""


@pytest.mark.table
@pytest.mark.parametrize("name", language_models())
def test_parameters_are_the_published_ones(name: str) -> None:
    found = language_model(name)
    assert found.parameters / 1e9 == pytest.approx(PARAMETERS[name], rel=5e-3, abs=0.05)
    assert found.source


@pytest.mark.table
@pytest.mark.parametrize(("name", "sequence", "causal", "giga"), FLOPS)
def test_flop_of_a_token(name: str, sequence: int, causal: bool, giga: float) -> None:
    assert language_model(name).token_flops(sequence, causal) / 1e9 == pytest.approx(giga, rel=5e-3)


CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3-8b": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2, "tie_word_embeddings": False, "max_position_embeddings": 32768,
    },
    "qwen-3-30b-a3b": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32,
        "num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "tie_word_embeddings": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 128,
        "num_hidden_layers": 61, "num_key_value_heads": 128, "vocab_size": 129280, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
        "topk_group": 4, "tie_word_embeddings": False, "max_position_embeddings": 163840,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_the_model_of_that_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]))
    found, known = from_hugging_face(str(file)), language_model(name)
    assert found.parameters == known.parameters
    assert found.token_flops(4096) == known.token_flops(4096)
    assert language_model(str(file)) == found


MATTER = [(name, key) for name, keys in {
    "llama-3-8b": ("intermediate_size",),
    "mixtral-8x7b": ("num_local_experts", "num_experts_per_tok", "num_key_value_heads", "intermediate_size"),
    "qwen-3-30b-a3b": ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_key_value_heads",
                       "head_dim"),
    "deepseek-v3": ("n_routed_experts", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace",
                    "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
}.items() for key in keys]


@pytest.mark.parametrize(("name", "key"), MATTER)
def test_what_the_class_of_a_model_would_fill_in_is_asked_for(name: str, key: str, tmp_path: Path) -> None:
    """A mixture without its number of experts is no dense model; `num_routed_experts` is none of its keys."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({("x_" if one == key else "") + one: value for one, value in CONFIGS[name].items()}))
    with pytest.raises(WeftError, match=f"{key}.* is not there, for which a model of type"):
        from_hugging_face(str(file))


def test_gpt_2_is_tied_and_has_positions(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
                                "n_positions": 1024}))
    found = from_hugging_face(str(file))
    assert found.tied and not found.gated and found.parameters == pytest.approx(124.4e6, rel=1e-3)
    file.write_text(json.dumps(CONFIGS["llama-3-8b"] | {"tie_word_embeddings": True}))
    assert from_hugging_face(str(file)).parameters == (
        language_model("llama-3-8b").parameters - 128256 * 4096)


@pytest.mark.parametrize(("more", "why"), [
    ({"model_type": "mamba"}, "is of type 'mamba': known are the decoders llama"),
    ({"is_encoder_decoder": True}, "known are the decoders"),
    ({"num_local_experts": 8, "num_experts_per_tok": 20}, "20 active of 8 experts"),
])
def test_another_kind_of_model_is_named(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS["llama-3-8b"] | more))
    with pytest.raises(WeftError, match=why):
        from_hugging_face(str(file))


@pytest.mark.parametrize(("text", "why"), [
    ("{}", "lacks num_hidden_layers"), ("[]", "an object"), ('{"num_hidden_layers": "many"}', "num_hidden_layers is"),
])
def test_a_bad_config_is_named(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(WeftError, match=why):
        from_hugging_face(str(file))


def test_shapes_that_cannot_be_are_refused() -> None:
    one: dict[str, Any] = {"layers": 2, "hidden": 64, "vocabulary": 100, "sequence": 16}
    with pytest.raises(WeftError, match="6 heads do not share 4"):
        LanguageModel(name="x", heads=6, kv_heads=4, **one)
    with pytest.raises(WeftError, match="4 experts need active"):
        LanguageModel(name="x", heads=4, experts=4, **one)
    with pytest.raises(WeftError, match="llama-3-8b"):
        language_model("llama-3-8")


def _sizes(kind: str, layers: int, hidden: int, heads: int, wide: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {"model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "intermediate_size": wide, "vocab_size": vocabulary, "max_position_embeddings": 2048, **more}


PUBLISHED = {
    "gpt-neox-20b": (_sizes("gpt_neox", 44, 6144, 64, 24576, 50432, tie_word_embeddings=False), 20.55),
    "gpt-j-6b": ({"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_positions": 2048,
                  "vocab_size": 50400, "tie_word_embeddings": False}, 6.05),
    "gpt-oss-120b": (_sizes("gpt_oss", 36, 2880, 64, 2880, 201088, num_key_value_heads=8, head_dim=64,
                            num_local_experts=128, num_experts_per_tok=4, tie_word_embeddings=False), 116.83),
    "falcon-7b": ({"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71,
                   "num_kv_heads": 71, "multi_query": True, "vocab_size": 65024}, 6.92),
    "starcoder2-3b": (_sizes("starcoder2", 30, 3072, 24, 12288, 49152, num_key_value_heads=2), 3.03),
    "qwen1.5-moe-a2.7b": (_sizes("qwen2_moe", 24, 2048, 16, 5632, 151936, num_key_value_heads=16, num_experts=60,
                                 num_experts_per_tok=4, moe_intermediate_size=1408, decoder_sparse_step=1,
                                 shared_expert_intermediate_size=5632, tie_word_embeddings=False), 14.32),
    "ernie-4.5-21b-a3b": (_sizes("ernie4_5_moe", 28, 2560, 20, 12288, 103424, num_key_value_heads=4, moe_k=6,
                                 moe_num_experts=64, moe_num_shared_experts=2, moe_intermediate_size=1536,
                                 moe_layer_start_index=1, tie_word_embeddings=True), 21.83),
    "smollm3-3b": (_sizes("smollm3", 36, 2048, 16, 11008, 128256, num_key_value_heads=4), 3.08),
    "olmoe-1b-7b": (_sizes("olmoe", 16, 2048, 16, 1024, 50304, num_key_value_heads=16, num_experts=64,
                           num_experts_per_tok=8, tie_word_embeddings=False), 6.92),
    "phi-1.5": (_sizes("phi", 24, 2048, 32, 8192, 51200, tie_word_embeddings=False), 1.42),
    "phi-3.5-moe": (_sizes("phimoe", 32, 4096, 32, 6400, 32064, num_key_value_heads=8, num_local_experts=16,
                           num_experts_per_tok=2, tie_word_embeddings=False), 41.87),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_configurations_of_other_kinds_have_their_published_parameters(name: str, tmp_path: Path) -> None:
    table, billions = PUBLISHED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    assert language_model(str(path)).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


def config(folder: Path, table: dict[str, Any], **more: Any) -> LanguageModel:
    path = folder / "config.json"
    path.write_text(json.dumps(table | more), encoding="utf-8")
    return language_model(str(path))


def test_shared_experts_are_counted_in_whole_ones(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="shared_expert_intermediate_size 1000 is no multiple"):
        config(tmp_path, PUBLISHED["qwen1.5-moe-a2.7b"][0], shared_expert_intermediate_size=1000)


@pytest.mark.parametrize(("name", "more", "dense"), [
    ("qwen1.5-moe-a2.7b", {"decoder_sparse_step": 2}, range(0, 24, 2)),
    ("qwen1.5-moe-a2.7b", {"decoder_sparse_step": 3, "mlp_only_layers": [2, 5]}, {*range(24)} - {*range(8, 24, 3)}),
    ("ernie-4.5-21b-a3b", {"moe_layer_end_index": 20}, [0, *range(21, 28)]),
    ("ernie-4.5-21b-a3b", {"moe_layer_end_index": -1, "moe_layer_interval": 1}, [0]),
])
def test_layers_that_are_no_mixtures(name: str, more: dict[str, Any], dense: Iterable[int], tmp_path: Path) -> None:
    found = config(tmp_path, PUBLISHED[name][0], **more)
    assert [layer for layer in range(found.layers) if not found.is_mixture(layer)] == sorted(dense)


GEMMA = _sizes("gemma2", 26, 2304, 8, 9216, 256000, num_key_value_heads=4, head_dim=256)
QWEN = _sizes("qwen2", 28, 3584, 28, 18944, 152064, num_key_value_heads=4)
SCOUT = _sizes("llama4_text", 8, 5120, 40, 8192, 202048, num_key_value_heads=8, num_local_experts=16,
               num_experts_per_tok=1, intermediate_size_mlp=16384)
NEO = {"model_type": "gpt_neo", "num_layers": 6, "hidden_size": 2048, "num_heads": 16, "vocab_size": 50257}
WINDOWS: list[tuple[dict[str, Any], dict[str, Any], list[int]]] = [
    (GEMMA, {}, [4096, 0] * 13), (GEMMA, {"sliding_window": 100}, [100, 0] * 13),
    (GEMMA, {"sliding_window": None}, [0] * 26),
    (GEMMA, {"model_type": "gemma3_text"}, ([4096] * 5 + [0]) * 4 + [4096] * 2),
    (GEMMA, {"layer_types": ["full_attention", "sliding_attention"] * 13}, [0, 4096] * 13),
    (QWEN, {"sliding_window": 4096, "use_sliding_window": False}, [0] * 28), (QWEN, {"sliding_window": 4096}, [0] * 28),
    (QWEN, {"sliding_window": 70, "use_sliding_window": True, "max_window_layers": 20}, [0] * 20 + [70] * 8),
    (PUBLISHED["gpt-oss-120b"][0], {}, [128, 0] * 18), (PUBLISHED["smollm3-3b"][0], {"sliding_window": 9}, [0] * 36),
    (SCOUT, {}, [8192, 8192, 8192, 0] * 2),
    (SCOUT, {"attention_chunk_size": 50, "no_rope_layers": [1, 0] * 4}, [50, 0] * 4),
    (_sizes("exaone4", 6, 1024, 8, 4096, 1000, num_key_value_heads=8), {"sliding_window_pattern": "LLG"},
     [4096, 4096, 0] * 2),
    (NEO, {}, [0, 256] * 3), (NEO, {"attention_types": [[["local"], 6]], "window_size": 7}, [7] * 6),
    (CONFIGS["mixtral-8x7b"], {"sliding_window": None}, [0] * 32),
    (CONFIGS["mixtral-8x7b"], {"model_type": "mistral", "num_local_experts": None}, [4096] * 32),
]


@pytest.mark.parametrize(("table", "more", "expected"), WINDOWS)
def test_windows_are_those_of_the_class_of_a_type(
    table: dict[str, Any], more: dict[str, Any], expected: list[int], tmp_path: Path
) -> None:
    found = config(tmp_path, table, **more)
    assert [found.window(layer) for layer in range(found.layers)] == expected
    assert found.chunked == (table is SCOUT)


@pytest.mark.parametrize(("table", "more", "why"), [
    (GEMMA, {"layer_types": ["linear_attention"] * 26}, "attention 'linear_attention' is unknown"),
    (GEMMA, {"layer_types": ["full_attention"] * 3}, "its 26 layers have 3 kinds of attention"),
    (GEMMA, {"sliding_window": "many"}, "sliding_window is 'many'"),
    (GEMMA, {"sliding_window_pattern": -1}, "sliding_window_pattern is -1"),
    (GEMMA, {"sliding_window_pattern": ""}, "sliding_window_pattern is ''"),
    (GEMMA, {"num_hidden_layers": 0}, "layers is 0"), (GEMMA, {"num_hidden_layers": 10**9}, "layers is 1000000000"),
    (GEMMA, {"layer_types": "full"}, "layer_types is 'full': a list is expected"),
    (SCOUT, {"no_rope_layers": 7}, "no_rope_layers is 7: a list"),
    (SCOUT, {"moe_layers": 5}, "moe_layers is 5: a list"),
    (SCOUT, {"mlp_only_layers": "3"}, "mlp_only_layers is '3': a list"),
    (NEO, {"attention_types": [["local", "x"]]}, "kinds of layers and their number"),
    (NEO, {"attention_types": [[["local"], 2]]}, "its 6 layers have 2 kinds of attention"),
    (PUBLISHED["qwen1.5-moe-a2.7b"][0], {"decoder_sparse_step": 0}, "a mixture in every 0 layers"),
])
def test_layers_that_are_unknown_are_named(
    table: dict[str, Any], more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(WeftError, match=why):
        config(tmp_path, table, **more)


def test_windows_that_a_type_does_not_have_are_passed_over_with_a_note(tmp_path: Path) -> None:
    with pytest.warns(InputNote, match="sliding_window is passed over, as llama has no windows"):
        assert config(tmp_path, CONFIGS["llama-3-8b"], sliding_window=128).windows == ()


@pytest.mark.parametrize("context", [1, 7, 64, 100])
@pytest.mark.parametrize("window", [0, 1, 5, 64, 99, 200])
@pytest.mark.parametrize("chunked", [False, True])
def test_attended_tokens_are_those_of_a_mask(context: int, window: int, chunked: bool) -> None:
    """Of a matrix of queries and keys, of which the one on the border counts half."""
    one = LanguageModel(name="one", layers=4, hidden=64, heads=4, vocabulary=100, sequence=64, windows=(window, 0),
                        chunked=chunked)
    query, key = np.indices((context, context))
    near = query // window == key // window if chunked and window else query - key < (window or context)
    mask = (key <= query) & near
    for layer, pairs in ((2, mask), (3, key <= query)):
        assert abs(one.attended(layer, context) - pairs.sum() / context) <= 0.5
        assert one.core_flops(layer, context, causal=False) == 2 * context * 4 * 32


def test_a_window_of_all_is_none() -> None:
    shape: dict[str, Any] = {"name": "x", "layers": 6, "hidden": 64, "heads": 4, "vocabulary": 100, "sequence": 64}
    plain = LanguageModel(**shape)
    for chunked in (False, True):
        wide = LanguageModel(**shape, windows=(64, 1000), chunked=chunked)
        assert wide.token_flops(64) == plain.token_flops(64)
        assert LanguageModel(**shape, windows=(8,), chunked=chunked).token_flops(64) < plain.token_flops(64)
