"""What many transfers do not keep: their table is emitted again, and their times are found by another run."""

import numpy as np
import pytest

from collectives import build
from sim import simulate
from sim.engine.reference.engine import run_reference
from sim.lower import shape
from sim.lower.lowered import task_names
from topologies import WeftError, from_spec

CASES = [
    (spec, algorithm, kind)
    for spec in ("ring:7", "torus:4x4", "random-regular:10x3x1")
    for algorithm, kind in (
        ("ring", "all-gather"), ("ring", "all-reduce"), ("direct", "all-to-all"), ("swing", "all-reduce")
    )
    if algorithm != "swing" or spec == "torus:4x4"
]


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few transfers be many."""
    shape._shapes.clear()
    for name in ("shape.LAID", "shape.BLOCK"):
        monkeypatch.setattr(f"sim.lower.{name}", 8)
    monkeypatch.setattr("sim.simulation.BLOCK", 8)
    monkeypatch.setattr("sim.analytic.estimate.PART", 4)


@pytest.mark.table
@pytest.mark.parametrize(("spec", "algorithm", "kind"), CASES)
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_run_that_keeps_little_finds_the_same(
    spec: str, algorithm: str, kind: str, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is there when somebody asks."""
    made = [build(algorithm, kind, from_spec(spec), 10_007) for _ in range(2)]
    kept = simulate(made[0], symmetry="off", chunks=chunks, rank_progress="free")
    small(monkeypatch)
    few = simulate(made[1], symmetry="off", chunks=chunks, rank_progress="free")
    assert few.ran is not None and few.ran.start_ps.size == few.ran.finish_ps.size == 0
    assert isinstance(few.lowered.transfers[0], shape.Again) and few.lowered.row is None
    names = [task_names(one.lowered) for one in (few, kept)]
    for task in range(few.program.n_tasks):
        assert names[0](task) == names[1](task)
    for column in ("task_row", "task_rank", "task_step", "task_bytes"):
        assert np.array_equal(getattr(few.lowered, column), getattr(kept.lowered, column)), column
    for mine, theirs in zip(few.program, kept.program, strict=True):
        assert np.array_equal(mine, theirs)
    outcome, reference = few.outcome, run_reference(few.program)
    assert outcome is not None and kept.outcome is not None
    for name in ("start_ps", "finish_ps", "busy_ps"):
        assert np.array_equal(getattr(outcome, name), getattr(kept.outcome, name)), name
        assert np.array_equal(getattr(outcome, name), getattr(reference, name)), name
    assert few.row() | {"wall_s": 0} == kept.row() | {"wall_s": 0}
    assert few.why().parts == kept.why().parts
    assert simulate(made[1], symmetry="off", chunks=chunks, rank_progress="free", check=True).time_ps == kept.time_ps


@pytest.mark.table
@pytest.mark.parametrize("spec", ["ring:2", "ring:7", "torus:3x3", "torus:4x5", "torus:2x3x4", "torus:4x4"])
@pytest.mark.parametrize(("algorithm", "kind"), [
    ("bucket", "all-reduce"), ("bucket", "all-gather"), ("ring", "all-reduce"), ("direct", "all-reduce"),
    ("swing", "all-reduce"), ("pairwise", "all-to-all"),
])
@pytest.mark.parametrize("progress", ["authors", "all"])
def test_ranks_that_wait_with_all_ports_are_lowered_the_same_without_rows(
    spec: str, algorithm: str, kind: str, progress: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Program, bounds and estimate; what slots do not tell has rows as well."""
    try:
        made = [build(algorithm, kind, from_spec(spec), 10_007) for _ in range(2)]
        kept = simulate(made[0], symmetry="off", rank_progress=progress)
    except WeftError:
        return
    small(monkeypatch)
    few = simulate(made[1], symmetry="off", rank_progress=progress)
    for name, mine, theirs in zip(kept.program._fields, few.program, kept.program, strict=True):
        assert np.array_equal(mine, theirs), name
    assert few.row() | {"wall_s": 0} == kept.row() | {"wall_s": 0}
    assert few.estimate_ps == kept.estimate_ps and few.lower_bound_ps == kept.lower_bound_ps


def test_what_is_waited_for_and_sent_by_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever way its rows are looked for."""
    small(monkeypatch)
    q = shape.quotient(build("ring", "all-gather", from_spec("ring:5"), 100).pattern, "first", 0, "off")
    t = q.transfers
    for slot, source in ((99, 0), (0, 99), (-1, 0)):
        wrong = t.dep_slot.copy(), t.dep_src.copy()
        wrong[0][-1], wrong[1][-1] = slot, source
        broken = q._replace(transfers=t._replace(dep_slot=wrong[0], dep_src=wrong[1]))
        with pytest.raises(shape.WeftError, match="no rank sends"):
            _ = shape.make_shape(broken).waits
