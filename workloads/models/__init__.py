"""Parametric models by name: the one place to register a new model.

Imports `topologies` only.
"""

from collections.abc import Callable
from functools import partial

from topologies.checks import checked, choice
from topologies.lazy import later
from topologies.text.brief import Registry
from workloads.models.classics import dlrm, lstm, ncf, resnet50, vgg
from workloads.models.model import NeuralNetwork, Operator

bert, decoder = later("workloads.models.transformer:bert"), later("workloads.models.transformer:decoder")

DECODERS = ("gpt-3", "turing-nlg", "msft-1t", "llama-2-7b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b")

MODELS: Registry[Callable[[], NeuralNetwork]] = Registry("models", {
    **{name: partial(decoder, name) for name in DECODERS},
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

JOB_FILES = (".toml", ".sh", ".txt", ".args", ".yaml", ".yml")
"""Suffixes of files that launch a training: `workloads.models.job_files`."""


@checked
def model(name: str) -> NeuralNetwork:
    """The model of that name; WeftError: there is none."""
    return MODELS[choice(name, MODELS, "model")]()


__all__ = ["JOB_FILES", "MODELS", "NeuralNetwork", "Operator", "model"]
