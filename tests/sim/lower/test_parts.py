"""Is a large program, made and looked at in parts, the same as in one piece?"""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from collectives.core import transfers
from sim.analytic import bounds, estimate
from sim.lower import shape
from sim.lower.shape import _shapes
from sim.program import I64, columns
from sim.program.columns import numbered, unique_rows
from sim.simulation import simulate
from topologies import from_spec


@pytest.mark.parametrize(("fabric", "algorithm", "kind"), [
    ("random-regular:12x3x1", "ring", "all-reduce"), ("torus:4x4", "swing", "all-reduce"),
    ("torus:4x4", "direct", "all-to-all"), ("torus:4x4", "bucket", "all-reduce"),
])
def test_parts_of_any_size_make_one_program(
    monkeypatch: pytest.MonkeyPatch, fabric: str, algorithm: str, kind: str
) -> None:
    schedule = build(algorithm, kind, from_spec(fabric), "1MiB")

    def found() -> tuple[object, ...]:
        result = simulate(schedule, chunks=3, symmetry="off")
        program = [one.tolist() if isinstance(one, np.ndarray) else one for one in result.lowered.program]
        return *program, result.time_ps, result.estimate_ps, result.lower_bound_ps, result.wire_bytes

    whole = found()
    few = (columns, "BLOCK"), (shape, "BLOCK"), (bounds, "BLOCK"), (estimate, "BLOCK"), (estimate, "PART"), (
        transfers, "MANY")
    for module, name in few:
        monkeypatch.setattr(module, name, 7)
    _shapes.clear()
    assert found() == whole
    _shapes.clear()


@pytest.mark.parametrize("values", [
    np.array([5, 3, 5, 9, 3, 3, 8, 5]), np.array([10**12, 3, -(10**12), 3, 7]), np.zeros(9, np.int64),
], ids=["close", "far apart", "alike"])
def test_numbers_found_in_blocks(monkeypatch: pytest.MonkeyPatch, values: I64) -> None:
    distinct, row = unique_rows(values)
    monkeypatch.setattr(columns, "BLOCK", 2)
    found = numbered(values.size, lambda some: values[some])
    assert np.array_equal(found[0], distinct) and np.array_equal(found[1], row)
