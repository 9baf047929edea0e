"""Is what a comparison leaves out never among the two fastest of its size, and what it says of it true?"""

from __future__ import annotations

from typing import Any

import pytest

from collectives import Schedule, build
from sim import Model, simulate
from sim.engine.run import Known, known_again
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program.outcome import Outrun
from sim.study import choice
from sim.study import points as points_module
from sim.study.points import Row, Task, refusals
from sim.study.ranked import compute_all
from sim.study.spec import Spec
from topologies import WeftError, from_spec
from topologies.units import PS_PER_S, parse_size

FABRICS = ("ring:5", "torus:3x5", "torus:4x4", "fat-tree:4", "dragonfly:3x2x2", "switch:7", "dgx-h100:2", "hypercube:3")
SIZES = ("20B", "333KB", "5.5MB")
CHUNK_BY_CHUNK = {"double-binary-tree", "nccl-trees", "parameter-server"}


MODELS = ({}, {"deliver": "head"}, {"buffer": "16KiB"}, {"deliver": "head", "forwarding": "store-and-forward"})


def points(fabric: str, kind: str, model: dict[str, str], spread: int | None) -> list[Task]:
    """Of every algorithm that can run."""
    spec = Spec.from_dict({"topology": {"spec": fabric}, "collective": {"name": kind}, "model": model}).choosing()
    refused = refusals(spec, spec.algorithms, parse_size(SIZES[-1]))
    return [Task(spec, name, parse_size(size), spread=spread) for name in spec.algorithms if name not in refused
            for size in SIZES]


def computed(tasks: list[Task], left: dict[Task, int] | None) -> tuple[dict[Task, Row], set[Task]]:
    """Rows, and what can never end or does not fit; `left` has what is left out."""
    rows, stuck = dict[Task, Row](), dict[Task, WeftError]()
    compute_all(tasks, rows=rows, stuck=stuck.__setitem__, left_out=None if left is None else left.__setitem__)
    return rows, {*stuck}


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS, ids=lambda one: "-".join(one.values()))
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "all-to-all"])
@pytest.mark.parametrize("fabric", FABRICS)
def test_the_two_fastest_of_each_size_are_those_of_all(fabric: str, kind: str, model: dict[str, str]) -> None:
    tasks, left = points(fabric, kind, model, 0), dict[Task, int]()
    every, never = computed(tasks, None)
    rows, stuck = computed(tasks, left)
    assert {*rows, *left, *stuck} == {*tasks}
    assert stuck <= never
    for size in {task.size_bytes for task in tasks}:
        fastest = sorted(row["time_s"] for task, row in every.items() if task.size_bytes == size)[:2]
        assert sorted(row["time_s"] for task, row in rows.items() if task.size_bytes == size)[:2] == fastest
    assert all(row["time_s"] == every[task]["time_s"] for task, row in rows.items())
    assert all(left[task] <= every[task]["time_s"] * PS_PER_S * (1 + 1e-12) for task in left if task not in never)


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS, ids=lambda one: "-".join(one.values()))
@pytest.mark.parametrize("fabric", ["ring:5", "torus:3x5", "switch:7", "fat-tree:4"])
def test_what_ties_with_the_fastest_is_not_left_out(fabric: str, model: dict[str, str]) -> None:
    tasks, left = points(fabric, "all-gather", model, None), dict[Task, int]()
    every, _ = computed(tasks, None)
    rows, _ = computed(tasks, left)
    for size in {task.size_bytes for task in tasks}:
        of_size = [row for task, row in every.items() if task.size_bytes == size]
        fastest = min(of_size, key=lambda row: float(row["time_s"]))
        high_s = fastest["spread_high_s"] or fastest["time_s"]
        tied = {row["algorithm"] for row in of_size if (row["spread_low_s"] or row["time_s"]) <= high_s}
        assert tied <= {row["algorithm"] for task, row in rows.items() if task.size_bytes == size}


@pytest.mark.parametrize("options", [
    {}, {"chunks": 3}, {"discipline": "round-robin-flow"}, {"symmetry": "off"}, {"deliver": "head"},
    {"forwarding": "store-and-forward", "chunks": 1}, {"rank_progress": "free", "nic": "shared"}, {"buffer": "64KiB"},
], ids=str)
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


def test_what_its_transfers_exclude_is_not_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one size nothing else is lowered than what may be among the two fastest, or follows chunk by chunk."""
    spec = Spec.from_dict({"topology": {"spec": "torus:3x5"}, "collective": {"name": "all-reduce"}}).choosing()
    lowered = set[str]()

    def noted(one: Schedule, *how: Any) -> Lowered:
        lowered.add(one.name)
        return lower(one, *how)

    for module in (choice, points_module):
        monkeypatch.setattr(module, "lower", noted)
    size = parse_size("5.5MB")
    cost = points_module.Cost(spec, None, 2)
    refused = refusals(spec, spec.algorithms, size, cost=cost)
    tasks = [Task(spec, name, size, spread=0) for name in spec.algorithms if name not in refused]
    left = dict[Task, int]()
    rows, _ = computed(tasks, left)
    far_ps = 1.5 * sorted(row["time_s"] for row in rows.values())[1] * PS_PER_S
    excluded = {task.algorithm for task, floor_ps in left.items() if floor_ps > far_ps}
    assert len(excluded - CHUNK_BY_CHUNK) > 5
    assert not {name.partition(" ")[0] for name in lowered} & excluded - CHUNK_BY_CHUNK
