"""Keys of workloads, for commands that may have none: what reads their files is loaded where there is one."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from sim.study.keys import LibraryKeys, TrainingKeys, WorkloadKeys, flags_of, keys_of
from sim.study.spec import Spec
from topologies.checks import WeftError


def named(work: WorkloadKeys) -> str | None:
    """The model or file; WeftError: two."""
    if work.name and work.job:
        raise WeftError("--workload and --job are two jobs: give one of them")
    return work.job or work.name


def works(spec: Spec) -> bool:
    """Whether a plan or a workload is run, or a network designed, which have no sizes, and not a collective."""
    return spec.iteration.model is not None or named(spec.workload) is not None or designs(spec)


def designs(spec: Spec) -> bool:
    """Whether bandwidths of a network are asked for."""
    return spec.optimize.network is not None


OF_WORKLOADS: Mapping[type, tuple[str, ...]] = {
    keys: tuple(one.name for one in fields(keys)) for keys in (WorkloadKeys, TrainingKeys)
}


def check_no_workload(work: WorkloadKeys, training: TrainingKeys) -> None:
    """Reject keys of a workload where none is given."""
    for keys in (work, training):
        for name in OF_WORKLOADS[type(keys)]:
            if (value := getattr(keys, name)) != getattr(type(keys)(), name):
                raise WeftError(f"{said(name, value)} is of a workload: give --workload FILE, or omit it")


def check_no_library(spec: Spec) -> None:
    """Reject keys of a library that is not named."""
    if spec.library != LibraryKeys():
        raise WeftError("[library] says what a library does, but names none: add --library nccl")


def label_of_workload(spec: Spec) -> str:
    """A workload, what is asked of it, and the algorithm of its collectives, in a few words."""
    given = [said(name, value).removeprefix("--") for keys in (spec.workload, spec.training)
             for name in OF_WORKLOADS[type(keys)]
             if (value := getattr(keys, name)) != getattr(type(keys)(), name) and name not in ("name", "job")]
    by = [f"by {','.join(spec.collective.algorithms)}"] if spec.collective.algorithms else []
    return " ".join([Path(str(named(spec.workload))).name, *given, *by])


def by_each(spec: Spec) -> Mapping[str, Spec]:
    """A spec by each of its algorithms; of several joined by "+" each collective takes the first that has it.
    """
    return {name: replace(spec, collective=replace(spec.collective, algorithms=tuple(name.split("+"))))
            for name in spec.collective.algorithms or ()}


OF_COLLECTIVES = ("sweep", "library", "collective")
"""Sections whose keys, but for the algorithms, have a use for a collective alone."""

OF_JOBS = "collective", "algorithms"


def check_no_collective(spec: Spec) -> None:
    """Reject what says what a collective is and how it is looked into, where a workload is given."""
    for section in OF_COLLECTIVES:
        for name, key in keys_of(section).items():
            if getattr(getattr(spec, section), name) != key.default and (section, name) != OF_JOBS:
                raise WeftError(f"{flags_of(key)[0]} is of a collective: a workload says what it moves; omit it")


def said(name: str, value: Any) -> str:
    """A key as a flag, with its value."""
    return f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
