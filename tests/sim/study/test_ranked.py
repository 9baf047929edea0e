"""Is what a comparison leaves out never among the two fastest of its size, and what it says of it true?"""

from __future__ import annotations

from typing import Any

import pytest

from collectives import build
from sim import Model, simulate
from sim.engine.run import Known, known_again
from sim.program.outcome import Outrun
from sim.study.points import Row, Task
from sim.study.ranked import compute_all
from sim.study.spec import Spec
from topologies import WeftError, from_spec
from topologies.units import PS_PER_S, parse_size

FABRICS = ("ring:5", "torus:3x5", "torus:4x4", "fat-tree:4", "dragonfly:3x2x2", "switch:7", "dgx-h100:2", "hypercube:3")
SIZES = ("20B", "333KB", "5.5MB")


def points(fabric: str, kind: str) -> list[Task]:
    """Of every algorithm that can run."""
    spec = Spec.from_dict({"topology": {"spec": fabric}, "collective": {"name": kind}}).choosing()
    can: list[Task] = []
    for name in spec.algorithms:
        some = [Task(spec, name, parse_size(size)) for size in SIZES]
        try:
            compute_all(some[-1:])
        except WeftError:
            continue
        can += some
    return can


@pytest.mark.table
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "all-to-all"])
@pytest.mark.parametrize("fabric", FABRICS)
def test_the_two_fastest_of_each_size_are_those_of_all(fabric: str, kind: str) -> None:
    tasks, left = points(fabric, kind), dict[Task, int]()
    every = {task: row["time_s"] for task, row in zip(tasks, compute_all(tasks), strict=True)}
    rows: dict[Task, Row] = {}
    compute_all(tasks, left_out=left.__setitem__, rows=rows)
    assert {*rows, *left} == {*tasks}
    for size in {task.size_bytes for task in tasks}:
        fastest = sorted(every[task] for task in tasks if task.size_bytes == size)[:2]
        assert sorted(row["time_s"] for task, row in rows.items() if task.size_bytes == size)[:2] == fastest
    assert all(row["time_s"] == every[task] for task, row in rows.items())
    assert all(least_ps <= every[task] * PS_PER_S * (1 + 1e-12) for task, least_ps in left.items())
    assert left or len(tasks) < 4 * len(SIZES)


@pytest.mark.parametrize("options", [{}, {"chunks": 3}, {"discipline": "round-robin-flow"}, {"symmetry": "off"}])
@pytest.mark.parametrize(("fabric", "name"), [
    ("ring:5", "ring"), ("torus:3x5", "bucket"), ("torus:4x4", "swing"), ("fat-tree:4", "direct"),
    ("dgx-h100:2", "nccl-rings"),
])
def test_a_run_ends_at_its_limit_and_not_a_picosecond_before(fabric: str, name: str, options: dict[str, Any]) -> None:
    schedule = build(name, "all-reduce", from_spec(fabric), "333KB")
    found = simulate(schedule, **options)
    again = simulate(schedule, limit_ps=found.time_ps, **options)
    assert (again.time_ps, again.events) == (found.time_ps, found.events)
    with pytest.raises(Outrun) as outrun:
        simulate(schedule, limit_ps=found.time_ps - 1, **options)
    assert outrun.value.limit_ps == found.time_ps - 1


@pytest.mark.parametrize(("fabric", "more"), [("ocs:4x1", {}), ("ring:5", {"engine": "reference"})])
def test_what_has_no_limit_says_so(fabric: str, more: dict[str, Any]) -> None:
    schedule = build("ring", "all-reduce", from_spec(fabric), "1MiB")
    with pytest.raises(WeftError, match="needs the chunk engine, circuits that stay, and no faults"):
        simulate(schedule, limit_ps=5, **more)


def test_equal_programs_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.engine.run.FEWEST_KNOWN", 0)
    monkeypatch.setattr("sim.engine.run.MOST_KNOWN", 2)
    ring, other = (build(name, "all-reduce", from_spec("ring:7"), "1MiB") for name in ("ring", "direct"))
    runs = Known()
    with known_again(runs):
        first = simulate(ring)
        assert simulate(ring).ran is first.ran
        assert simulate(other).ran is not first.ran
        assert len(runs) == 2
        with pytest.raises(Outrun):
            simulate(ring, model=Model(chunks=5), limit_ps=first.time_ps // 2)
        with pytest.raises(Outrun):  # known: it ran further
            simulate(ring, model=Model(chunks=5), limit_ps=first.time_ps // 3)
        assert len(runs) == 2, "the first has left"
        assert simulate(ring, model=Model(chunks=5)).time_ps == simulate(ring, chunks=5).time_ps
    assert simulate(ring).ran is not first.ran, "outside, every run is one"
