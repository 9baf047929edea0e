"""Arrays of a program have one type each, whatever it is made of: the engine is compiled once."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from collectives import ALGORITHMS, build, in_network
from sim.lower.job import lower
from sim.program import Program
from sim.program.model import Model
from topologies import WeftError, from_spec

CASES = [(name, kind) for name, one in ALGORITHMS.items() for kind in one.functions]


@pytest.mark.table
@pytest.mark.parametrize("spec", ["ring:4", "torus:3x2", "switch:4", "dgx-h100:1"])
@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.parametrize("symmetry", ["auto", "off"])
def test_columns_are_those_of_the_contract(case: tuple[str, str], spec: str, symmetry: str) -> None:
    """A read-only view, or a column of stride 0, would be another type to the compiler."""
    try:
        schedule = build(*case, from_spec(spec), "64KiB")
    except WeftError:
        return
    _has_the_types(lower(schedule, Model(chunks=3), symmetry).program)


@pytest.mark.parametrize("progress", ["free", "all"])
@pytest.mark.parametrize("symmetry", ["auto", "off"])
def test_columns_of_windows_are_too(progress: str, symmetry: str) -> None:
    """Waits that lag chunks are the columns that the registry's own defaults leave empty."""
    windowed = in_network.all_reduce(from_spec("switch:4"), "64KiB", slots=3)
    program = lower(windowed, Model(chunks=8, rank_progress=progress), symmetry).program
    assert len(program.parent_lag) + len(program.stream_lag) > 0
    _has_the_types(program)


def _has_the_types(program: Program) -> None:
    for name, kind in get_type_hints(Program).items():
        value = getattr(program, name)
        if kind is int:
            assert type(value) is int, name
        else:
            number = get_args(kind)[-1]  # of NDArray, an alias by `type` from Python 3.12 on
            [dtype] = get_args(number) or [number]
            assert value.dtype == dtype and value.flags.c_contiguous and value.flags.writeable, name
