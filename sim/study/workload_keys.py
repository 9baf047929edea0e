"""Keys of workloads, for commands that may have none: what reads their files is loaded where there is one."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sim.study.keys import TrainingKeys, WorkloadKeys
from topologies.checks import WeftError


def named(work: WorkloadKeys) -> str | None:
    """The model or file; WeftError: two."""
    if work.name and work.job:
        raise WeftError("--workload and --job are two jobs: give one of them")
    return work.job or work.name


OF_WORKLOADS: Mapping[type, tuple[str, ...]] = {
    keys: tuple(one.name for one in fields(keys)) for keys in (WorkloadKeys, TrainingKeys)
}


def check_no_workload(work: WorkloadKeys, training: TrainingKeys) -> None:
    """Reject keys of a workload where none is given."""
    for keys in (work, training):
        for name in OF_WORKLOADS[type(keys)]:
            if (value := getattr(keys, name)) != getattr(type(keys)(), name):
                raise WeftError(f"{said(name, value)} is of a workload: give --workload FILE, or omit it")


def said(name: str, value: Any) -> str:
    """A key as a flag, with its value."""
    return f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
