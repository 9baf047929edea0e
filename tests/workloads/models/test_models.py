"""Parameter counts and operations of the models, and LIBRA's transformer rows made from hyper-parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topologies import WeftError
from workloads.compute import LIBRA_AS_SHIPPED, Accelerator
from workloads.model_workload import training_workload
from workloads.models import MODELS, NeuralNetwork, model
from workloads.models.language import LanguageModel
from workloads.models.transformer import layer
from workloads.parallelism import Parallelism
from workloads.workload import Call, Workload

PARAMETERS = {
    "gpt-3": 174_604_259_328,  # 12 L h^2 + 13 L h + (V + s) h + 2 h
    "turing-nlg": 17_176_845_728,
    "msft-1t": 1_008_038_758_400,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mixtral-8x7b": 46_702_792_704,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "resnet-50": 25_557_032,
    "vgg-16": 138_357_544,
    "vgg-19": 143_667_240,
    "dlrm": 24_036_595_969,
    "ncf": 31_832_577,
    "lstm": 66_034_000,
}
FORWARD_GFLOP = {"resnet-50": 2 * 4.089, "vgg-16": 2 * 15.47, "vgg-19": 2 * 19.63}
"""Multiply-adds of one image, published with the torchvision models."""

LIBRA = {"GPT-3": (12288, 2048, 32768, 16), "MSFT-1T": (24576, 2048, 16384, 128), "T-NLG": (4256, 512, 8192, 1)}
COMPUTE_NS = {"GPT-3": 684_448_242, "MSFT-1T": 169_995_114, "T-NLG": 327_148_662}


def two_layers(name: str, **changes: int) -> Workload:
    """LIBRA's two layers: no biases, no parameters in norms, gradients bundled, checkpoints gathered."""
    hidden, sequence, tokens, tp = LIBRA[name]
    shape = LanguageModel(name=name, layers=2, hidden=hidden, heads=1, vocabulary=1, sequence=sequence, biases=False)
    rows = [replace(row, parameters=0) if row.name.startswith("layerNorm") else row
            for number in (1, 2) for row in layer(shape, number)]
    how = Parallelism(**{"tp": tp, "dp": 4096 // tp, **changes})
    network = NeuralNetwork(name, "token", tuple(rows), "", 2)
    return training_workload(network, how, LIBRA_AS_SHIPPED, tokens, bundled=True, gather_checkpoints=True)


def test_every_model_is_counted() -> None:
    assert set(PARAMETERS) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_parameters(name: str) -> None:
    assert model(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", FORWARD_GFLOP)
def test_operations_of_an_image(name: str) -> None:
    flops = sum(operator.flops for operator in model(name).operators)
    assert flops / 1e9 == pytest.approx(FORWARD_GFLOP[name], rel=2e-3)


@pytest.mark.parametrize("name", ["gpt-3", "turing-nlg", "llama-2-7b"])
def test_a_token_costs_two_operations_a_parameter(name: str) -> None:
    """Attention and the embedding aside, the rule of thumb of 2 N operations a token (within 3 %)."""
    one = model(name)
    matrices = sum(row.flops for row in one.operators if not row.name.startswith(("QK", "softmax", "layerNorm")))
    assert matrices == pytest.approx(2 * one.parameters, rel=0.03)


@pytest.mark.parametrize("name", LIBRA)
def test_compute_of_the_published_files(name: str) -> None:
    """60 x 2^40 operations a second give the published nanoseconds, but for their cutting to whole ones."""
    assert two_layers(name).compute_ns == pytest.approx(COMPUTE_NS[name], abs=18 * 3)


@pytest.mark.parametrize("name", ["GPT-3", "MSFT-1T"])
def test_collectives_of_the_published_files(name: str) -> None:
    """All-reduces of tokens x h, shards of checkpoints, one all-reduce of 24 h^2 / TP for two layers."""
    hidden, _, tokens, tp = LIBRA[name]
    found = list(two_layers(name).calls())
    activations = Call("all-reduce", tokens * hidden * 2.0, "tp")
    assert found.count(activations) == 8
    assert found.count(Call("all-gather", tokens * hidden * 2.0 / tp, "tp")) == 2
    assert found.count(Call("all-reduce", 2 * 12 * hidden**2 * 2.0 / tp, "dp")) == 1
    assert len(found) == 11


def test_published_sizes() -> None:
    """The bytes that the files name (libra.md section 5.2)."""
    sizes = {name: sorted({call.size_bytes for call in two_layers(name).calls()}) for name in LIBRA}
    assert sizes == {
        "GPT-3": [50331648, 452984832, 805306368],
        "MSFT-1T": [6291456, 226492416, 805306368],
        "T-NLG": [869449728],
    }


def test_zero_moves_what_an_all_reduce_moves() -> None:
    """ZeRO 1 and 2: reduce-scatter and all-gather of the same bytes; ZeRO 3 gathers the weights twice."""
    plain = [call for call in two_layers("GPT-3").calls() if call.group == "dp"]
    split = [call for call in two_layers("GPT-3", zero=2).calls() if call.group == "dp"]
    thrice = [call for call in two_layers("GPT-3", zero=3).calls() if call.group == "dp"]
    assert [call.kind for call in plain] == ["all-reduce"]
    assert [call.kind for call in split] == ["reduce-scatter", "all-gather"]
    assert {call.array_bytes(256) for call in split} == {plain[0].size_bytes}
    assert sum(call.array_bytes(256) for call in thrice if call.kind == "all-gather") == 2 * plain[0].size_bytes


def test_experts_exchange_tokens() -> None:
    """A mixture of experts: four all-to-alls a layer of two copies of each token, and gradients in two groups."""
    how = Parallelism(tp=1, dp=16, ep=8)
    found = training_workload(model("mixtral-8x7b"), how, Accelerator(1e15, 0.5), 4096)
    exchanges = [call for call in found.calls() if call.kind == "all-to-all"]
    assert len(exchanges) == 4 * 32
    assert {call.size_bytes for call in exchanges} == {4096 * 4096 * 2 * 2.0}
    assert {call.group for call in found.calls()} == {"ep", "edp", "dp"}
    wide = training_workload(model("mixtral-8x7b"), Parallelism(tp=4, dp=16, ep=8), Accelerator(1e15, 0.5), 4096)
    assert {call.size_bytes for call in wide.calls() if call.kind == "all-to-all"} == {4096 / 4 * 4096 * 2 * 2.0}


def test_tables_are_spread_not_reduced() -> None:
    """DLRM: rows travel all-to-all, and only the perceptrons' gradients are reduced."""
    found = list(training_workload(model("dlrm"), Parallelism(dp=64), Accelerator(1e15, 0.5), 2048).calls())
    assert sum(call.size_bytes for call in found if call.kind == "all-reduce") == 2 * 2_368_897
    assert [call.size_bytes for call in found if call.kind == "all-to-all"] == [2048 * 26 * 128 * 2.0] * 2


def test_one_npu_communicates_nothing() -> None:
    for name in MODELS:
        assert not list(training_workload(model(name), Parallelism(), Accelerator(1e15, 1.0), 1.0).calls())


def test_a_stage_of_a_pipeline() -> None:
    """Half of the layers, with the embedding."""
    found = training_workload(model("bert-base"), Parallelism(pp=2), Accelerator(1e15, 1.0), 512)
    assert found.layers[0].name == "embedding"
    assert len(found.layers) == 1 + 6 * 9
    with pytest.raises(WeftError, match="12 layers cannot be shared evenly by pp=5"):
        training_workload(model("bert-base"), Parallelism(pp=5), Accelerator(1e15, 1.0), 512)


def test_what_is_refused() -> None:
    with pytest.raises(WeftError, match="model 'gpt-5' is unknown: choose one of gpt-3"):
        model("gpt-5")
    with pytest.raises(WeftError, match=r"efficiency is 1\.5"):
        Accelerator(1e12, 1.5)
    with pytest.raises(WeftError, match="samples is 0"):
        training_workload(model("lstm"), Parallelism(), Accelerator(1e12, 1.0), 0)
