"""Parametric models by name: the one place to register a new model.

Imports `topologies` only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topologies.checks import checked, choice
from topologies.text.brief import Registry
from workloads.models.convolution import resnet50, vgg
from workloads.models.model import NeuralNetwork, Operator
from workloads.models.recommendation import dlrm, ncf
from workloads.models.recurrent import lstm
from workloads.models.transformer import Shape, bert, decoder, gpt, layer, llama

GPT_VOCABULARY = 50257

MODELS: Registry[Callable[[], NeuralNetwork]] = Registry("models", {
    "gpt-3": partial(gpt, "gpt-3", 96, 12288, 2048, GPT_VOCABULARY, "T. Brown et al., NeurIPS 2020, table 2.1"),
    "turing-nlg": partial(
        gpt, "turing-nlg", 78, 4256, 1024, GPT_VOCABULARY, "C. Rosset, Microsoft, February 2020; GPT-2 vocabulary"
    ),
    "msft-1t": partial(gpt, "msft-1t", 128, 25600, 2048, 51200, "S. Rajbhandari et al., SC'21; vocabulary padded"),
    "llama-2-7b": partial(
        llama, "llama-2-7b", "H. Touvron et al., arXiv 2307.09288", layers=32, hidden=4096, vocabulary=32000,
        sequence=4096, feed_forward=11008, key_value=4096,
    ),
    "llama-3-8b": partial(
        llama, "llama-3-8b", "Llama team, arXiv 2407.21783, table 3", layers=32, hidden=4096, vocabulary=128256,
        sequence=8192, feed_forward=14336, key_value=1024,
    ),
    "llama-3-70b": partial(
        llama, "llama-3-70b", "Llama team, arXiv 2407.21783, table 3", layers=80, hidden=8192, vocabulary=128256,
        sequence=8192, feed_forward=28672, key_value=1024,
    ),
    "mixtral-8x7b": partial(
        llama, "mixtral-8x7b", "A. Jiang et al., arXiv 2401.04088, table 1", layers=32, hidden=4096, vocabulary=32000,
        sequence=32768, feed_forward=14336, key_value=1024, experts=8, active=2,
    ),
    "bert-base": partial(bert, "bert-base", 12, 768, "J. Devlin et al., NAACL 2019, section 3"),
    "bert-large": partial(bert, "bert-large", 24, 1024, "J. Devlin et al., NAACL 2019, section 3"),
    "resnet-50": resnet50,
    "vgg-16": partial(vgg, 16),
    "vgg-19": partial(vgg, 19),
    "dlrm": dlrm,
    "ncf": ncf,
    "lstm": lstm,
})
"""A model added here appears on the command line and in the tests."""


@checked
def model(name: str) -> NeuralNetwork:
    """The model of that name; WeftError: there is none."""
    return MODELS[choice(name, MODELS, "model")]()


__all__ = ["MODELS", "NeuralNetwork", "Operator", "Shape", "decoder", "layer", "model"]
