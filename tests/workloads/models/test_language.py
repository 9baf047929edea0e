"""Decoders by hyper-parameters: parameters and FLOP as published, and config.json of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.producers import absent_of
from topologies import WeftError
from topologies.text.schema import Absent, InputNote
from workloads.models.language import LanguageModel, from_hugging_face, language_model, language_models

PARAMETERS = {
    "gpt-1.7b": 1.7, "gpt-3.6b": 3.6, "gpt-7.5b": 7.5, "gpt-18.4b": 18.4, "gpt-39.1b": 39.1, "gpt-76.1b": 76.1,
    "gpt-145.6b": 145.6, "gpt-310b": 310.1, "gpt-530b": 529.6, "gpt-1t": 1008.0, "gpt-22b": 22.0, "gpt-175b": 174.6,
    "gpt-3": 174.6, "turing-nlg": 17.2, "msft-1t": 1008.0, "llama-2-7b": 6.74, "llama-2-13b": 13.02,
    "llama-2-70b": 68.98, "llama-3-8b": 8.03, "llama-3-70b": 70.55, "llama-3-405b": 405.85, "code-llama-34b": 33.74,
    "mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6, "deepseek-v3": 671.0, "deepseek-v3-mtp": 682.6,
    "qwen-2.5-7b": 7.62, "qwen-2.5-72b": 72.71, "llama-moe-6.7b": 6.74, "qwen-moe-14.3b": 14.32,
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


UNKNOWN: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6}, "dots1": {"n_routed_experts": 128, "num_experts_per_tok": 6},
    "internlm2": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100},
    "any type": CONFIGS["llama-3-8b"],
}
"""What the class of a type has no number for."""


@pytest.mark.parametrize("row", absent_of("Hugging Face"), ids=lambda row: f"{row.where} {row.name}"[:40])
@pytest.mark.filterwarnings("ignore::topologies.text.schema.InputNote")
def test_absent_equals_explicit(row: Absent, tmp_path: Path) -> None:
    """Each key of a type, one at a time, and all."""
    own = dict(zip(row.name.split(", "), json.loads(f"[{row.value}]"), strict=True))
    kind = {} if row.where == "any type" else {"model_type": row.where}
    explicit = UNKNOWN.get(row.where, {}) | kind | own
    found = config(tmp_path, explicit)
    for gone in (*([key] for key in own), list(own)):
        assert config(tmp_path, {key: value for key, value in explicit.items() if key not in gone}) == found


OF_CLASSES = {
    "llama": 6_738_415_616, "mistral": 7_241_732_096, "mixtral": 46_702_792_704, "qwen2": 12_049_846_272,
    "qwen2_moe": 14_315_784_192, "qwen3": 12_049_461_248, "qwen3_moe": 15_350_731_776, "gemma": 8_537_680_896,
    "gemma2": 2_614_341_888, "gemma3_text": 2_628_658_432, "phi3": 3_821_079_552, "phimoe": 41_872_793_600,
    "olmo": 6_888_095_744, "olmo2": 6_888_624_128, "olmoe": 13_361_612_800, "granite": 6_738_415_616,
    "granitemoe": 37_039_116_288, "cohere": 34_980_831_232, "cohere2": 34_980_831_232, "stablelm": 2_795_443_200,
    "glm": 9_399_951_360, "glm4": 9_400_279_040, "glm4_moe": 103_481_200_640, "deepseek_v2": 38_612_307_968,
    "deepseek_v3": 671_026_404_352, "gpt_oss": 116_829_156_672, "bitnet": 2_741_155_840, "ernie4_5": 360_748_032,
    "ernie4_5_moe": 21_825_437_888, "exaone4": 9_429_069_824, "helium": 2_172_643_840, "llama4_text": 107_769_861_120,
    "seed_oss": 28_921_040_896, "smollm3": 3_075_098_624, "apertus": 6_979_596_352, "arcee": 4_022_766_080,
    "falcon": 6_921_720_704, "persimmon": 9_397_175_296, "phi": 1_418_270_720, "starcoder2": 3_030_371_328,
    "gpt_neox": 20_554_567_680, "gptj": 6_050_882_784, "codegen": 6_050_882_784, "bloom": 16_156_544,
    "gpt2": 124_439_808, "gpt_neo": 1_315_575_808, "gpt_bigcode": 111_446_784, "opt": 125_239_296, "mpt": 1_311_213_568,
    "apertus1p5_text": 8_091_086_912, "cwm": 32_581_097_472, "exaone": 7_818_448_896, "hyperclovax": 6_738_677_760,
    "internlm3": 8_804_241_408, "iquestcoder": 39_794_283_520, "ministral3": 8_489_553_920, "olmo3": 6_888_624_128,
    "vaultgemma": 2_614_222_080, "granite_swa": 2_144_463_840, "nanochat": 256_573_440, "jais2": 8_090_401_280,
    "axk1": 518_983_052_288, "exaone_moe": 28_550_639_616, "flex_olmo": 33_270_665_216, "glm4_moe_lite": 29_943_390_976,
    "hy_v3": 295_033_528_320, "granitemoeshared": 37_039_116_288, "granitemoe_swa": 37_039_117_312,
    "minimax_m2": 228_689_748_992, "mellum": 12_149_923_072, "kolibri1": 78_103_055_360, "sarvam_mla": 106_031_763_456,
    "sarvam_moe": 32_152_648_064, "solar_open": 102_651_793_408, "youtu": 1_961_560_064, "minicpm3": 4_073_875_968,
    "biogpt": 346_763_264, "xglm": 564_463_616, "aria_text": 18_517_069_824,
}
"""Parameters of the model that transformers 5.24.0 makes of a type alone."""


@pytest.mark.parametrize("kind", OF_CLASSES)
@pytest.mark.filterwarnings("ignore::topologies.text.schema.InputNote")
def test_a_type_alone_is_the_model_of_its_class(kind: str, tmp_path: Path) -> None:
    """Up to norms inside of attention, sinks and biases of some matrices, which are not counted."""
    found = config(tmp_path, UNKNOWN.get(kind, {}) | {"model_type": kind})
    assert found.parameters == pytest.approx(OF_CLASSES[kind], rel=4e-4)


@pytest.mark.parametrize(("name", "key"), [
    ("mixtral-8x7b", "num_local_experts"), ("qwen-3-30b-a3b", "moe_intermediate_size"),
    ("deepseek-v3", "kv_lora_rank")])
def test_what_the_class_of_a_model_fills_in_is_told(name: str, key: str, tmp_path: Path) -> None:
    own = {one: value for one, value in CONFIGS[name].items() if one != key}
    with pytest.warns(InputNote, match=f"{key} {CONFIGS[name][key]}: not there, and as the class of"):
        assert config(tmp_path, own).parameters == language_model(name).parameters


def test_experts_that_a_type_does_not_have_are_passed_over_with_a_note(tmp_path: Path) -> None:
    with pytest.warns(InputNote, match="experts are passed over, as llama has none"):
        assert config(tmp_path, CONFIGS["llama-3-8b"], num_local_experts=8) == config(tmp_path, CONFIGS["llama-3-8b"])


def test_groups_of_experts_limit_nodes_where_there_are_several(tmp_path: Path) -> None:
    """Kimi-K2 and GLM-4.5 have one group, of which a token takes one: any expert."""
    own = CONFIGS["deepseek-v3"]
    limits = [config(tmp_path, own, **more).nodes_per_token for more in (
        {}, {"n_group": 1, "topk_group": 1}, {"n_group": 8, "topk_group": 8}, {"n_group": 8, "topk_group": 3})]
    assert limits == [4, 0, 0, 3]


@pytest.mark.parametrize(("kind", "kv_heads"), [("falcon", 1), ("gpt_bigcode", 1)])
def test_keys_and_values_are_shared_where_a_type_shares_them(kind: str, kv_heads: int, tmp_path: Path) -> None:
    own = {"model_type": kind, "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    assert [config(tmp_path, own, **more).kv_heads for more in ({}, {"multi_query": False})] == [kv_heads, 4]


@pytest.mark.parametrize("inner", ["text_config", "llm_config", "language_config"])
def test_the_text_of_a_model_of_several_media_is_read(inner: str, tmp_path: Path) -> None:
    """With what its own class has where it says nothing, as Gemma 3 does of its heads."""
    with pytest.warns(InputNote, match=f"the model of its text is read, which {inner} has"):
        found = config(tmp_path, {"model_type": "gemma3", "vision_config": {"hidden_size": 1152}, inner: {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}})
    assert (found.heads, found.kv_heads, found.head_size, found.vocabulary, found.tied) == (8, 4, 256, 262208, True)
    assert found.windows[4:7] == (4096, 0, 4096)


def test_layers_that_are_mixtures_may_be_listed(tmp_path: Path) -> None:
    own = {"model_type": "exaone_moe", "num_hidden_layers": 4}
    assert config(tmp_path, own, mlp_layer_types=["sparse", "dense", "sparse", "dense"]).mixtures == (1, 0, 1, 0)
    with pytest.raises(WeftError, match="mlp_layer_types: sparse or dense is expected for each of 4 layers"):
        config(tmp_path, own, mlp_layer_types=["sparse"])


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
    ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 20}, "20 active of 8 experts"),
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
