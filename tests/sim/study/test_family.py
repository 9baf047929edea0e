"""Points of one family: the same words as when each is computed alone, whatever runs them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collectives import ALGORITHMS
from sim.study.family import Group, family_of
from sim.study.file import make_sweep
from sim.study.key import keyed_sweep
from sim.study.keys import AUTO
from sim.study.store import Finished, Store
from sim.study.sweep import finish, run_sweep
from topologies import WeftError

FABRICS = ("ring:5", "torus:4x4", "torus:3x4", "mesh:3x2", "fc:7", "switch:6", "fat-tree:4", "dragonfly:3x2x1",
           "hyperx:3x3", "circulant:8x1x3", "RI(4)_SW(2)", "leaf-spine:2x2x2", "dgx-h100:1")
LINKS: dict[str, Any] = {
    "link_bandwidth": ["1e-3Gb/s", "33.3Gb/s", "99.999GB/s"], "link_latency": ["0s", "713ns"],
}
BY_DIMENSION: dict[str, Any] = {"link_bandwidth": ["3Gb/s,10Gb/s", "10Gb/s,3.3Gb/s", "7Gb/s,7Gb/s", "1.7Gb/s,9Gb/s"]}


def swept(fabric: str, algorithm: str, kind: str, **model: Any) -> Any:
    links = BY_DIMENSION if fabric == "torus:3x4" else LINKS
    sizes = {"begin": "1001B", "end": "3001K", "factor": 3000}
    return make_sweep({
        "topology": {"spec": fabric} | links, "model": {"chunks": 3} | model,
        "collective": {"name": kind, "algorithms": [algorithm]}, "sweep": sizes,
    })


def words(point: Finished | str) -> str:
    """All but the time that it took."""
    return point if isinstance(point, str) else json.dumps(point._replace(wall_s=0.0))


def assert_same_words(sweep: Any, file: Path) -> int:
    """Compare a sweep with its points one by one; returns how many were retimed."""
    alone = {key: words(finish(task)) for key, task in keyed_sweep(sweep).distinct.items()}
    run_sweep(sweep.points, file)
    with Store(file, read_only=True) as store:
        found = {key: words(one) for key in alone if (one := store.get(key)) is not None}
    assert found == alone
    tasks = [task for task in sweep.points if family_of(task) is not None]
    families: dict[Any, list[Any]] = {}
    for task in tasks:
        families.setdefault(family_of(task), []).append(task)
    retimed = 0
    for some in families.values():
        try:
            retimed += sum(row is not None for _, row in Group.of(some).points())
        except WeftError:  # none of them can run
            continue
    return retimed


@pytest.mark.table
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(algorithm: str, fabric: str, tmp_path: Path) -> None:
    for kind in ALGORITHMS[algorithm].functions:
        assert_same_words(swept(fabric, algorithm, kind), tmp_path / f"{kind}.db")


@pytest.mark.parametrize(("algorithm", "fabric"), [
    ("swing", "torus:4x4"), ("ring", "ring:5"), ("bucket", "torus:3x4"), ("ring", "fat-tree:4"),
])
def test_usual_points_are_retimed(algorithm: str, fabric: str, tmp_path: Path) -> None:
    sweep = swept(fabric, algorithm, "all-reduce")
    assert assert_same_words(sweep, tmp_path / "s.db") >= len(sweep.points) // 2


MODELS: tuple[Mapping[str, Any], ...] = (
    {"forwarding": "store-and-forward"}, {"deliver": "head"}, {"discipline": "priority"}, {"nic": "shared"},
    {"buffer": "1MiB"}, {"rank_progress": "free"}, {"engine": "fluid", "chunks": 1}, {"engine": "analytic"},
    {"symmetry": "off"}, {"chunks": AUTO}, {"chunks": None, "chunk": "4KiB"}, {"header": "30B"},
    {"preset": "swing-paper"}, {"endpoint_latency": "1us"},
    {"faults": {"link-down": [{"link": "npu0--npu1", "at": "1us"}]}},
)


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_every_model(model: Mapping[str, Any], tmp_path: Path) -> None:
    given = {key: value for key, value in ({"chunks": 3} | dict(model)).items() if value is not None}
    sweep = make_sweep({
        "topology": {"spec": "torus:4x4", "link_bandwidth": ["1Gb/s", "33.3Gb/s", "7GB/s"]}, "model": given,
        "collective": {"algorithms": ["swing", "ring"]}, "sweep": {"begin": "1001K"},
    })
    assert_same_words(sweep, tmp_path / "s.db")


def test_workers_give_the_same_words(tmp_path: Path) -> None:
    sweep = swept("torus:4x4", "swing", "all-reduce")
    run_sweep(sweep.points, tmp_path / "two.db", workers=2)
    run_sweep(sweep.points, tmp_path / "one.db")
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        for key in keyed_sweep(sweep).keys:
            assert words(one.get(key) or "") == words(two.get(key) or "") != ""
