"""Every field of a fabric, a schedule and an algorithm is in the digests, or is named with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from collectives import ALGORITHMS, Algorithm, Collective, Group, Pattern, Schedule, build
from collectives import schedule as schedule_of
from collectives.core.collective import collective
from collectives.core.pattern import _Owed
from collectives.core.transfers import Pool
from sim.program.model import Model
from sim.study.file import make_sweep
from sim.study.key import (
    ALGORITHM_ELSEWHERE,
    PATTERN_ELSEWHERE,
    TOPOLOGY_ELSEWHERE,
    algorithm_digest,
    fabric_digest,
    schedule_digest,
)
from sim.study.store import Store
from sim.study.sweep import Tally, run_sweep, sweep_rows
from topologies import TOPOLOGIES, Family, Paths, ShortestPathRouter, Topology, from_spec, torus
from topologies.core.topology import Aggregation

FABRIC = torus((4, 2))
PLAIN = build("swing", "all-reduce", FABRIC, "64KiB", form="bandwidth")


class Backward:
    """A user's router: along the last of the shortest ways, without a value of its own."""

    def __init__(self, tie: str) -> None:
        self.tie = tie

    def paths(self, topology: Topology, src: Any, dst: Any, tie: str, seed: int) -> Paths:
        return ShortestPathRouter().paths(topology, src, dst, self.tie, seed)


def other(value: object, **changed: Any) -> Any:
    """A frozen object with fields that it would not accept."""
    copy = object.__new__(type(value))
    vars(copy).update(vars(value) | changed)
    return copy


def emitted_late(ranks: Any) -> Any:
    t = PLAIN.pattern.emit(ranks)
    return t._replace(slot=t.slot + 1)


def by_hand(name: str) -> Collective:
    kind = collective("all-reduce")
    return Collective(name, kind.sources, kind.wanted_by, kind.blocks_multiple, kind.blocks_per_rank, kind.bus_factor)


OF_A_PATTERN: dict[str, Any] = {
    "topology": FABRIC.with_links(bandwidth_Bps=FABRIC.bandwidth_Bps / 50), "kind": by_hand("mine"),
    "algorithm": "other", "form": "other", "n_blocks": 16, "emit": emitted_late, "groups": (Group("other", ()),),
    "root": 1, "n_sources": 7, "pools": (Pool(1),), "note": "other", "progress": "any", "phases": (1,),
    "pipeline": (1,), "is_unnamed": True, "_owed": _Owed(lambda: "other"),
}
OF_A_TOPOLOGY: dict[str, Any] = {
    "name": "other", "kind": FABRIC.kind + 1, "src": FABRIC.src + 1, "dst": FABRIC.dst + 1,
    "bandwidth_Bps": FABRIC.bandwidth_Bps + 1, "latency_ps": FABRIC.latency_ps + 1,
    "hop_latency_ps": FABRIC.hop_latency_ps + 1, "dimension": FABRIC.dimension + 1, "shape": (8,),
    "coords": FABRIC.coords + 1, "router": ShortestPathRouter(1), "node_names": ("a",),
    "aggregation": Aggregation(0.5),
}


def test_every_field_is_tried_or_named_as_no_part_of_a_result() -> None:
    assert {one.name for one in fields(Pattern)} == OF_A_PATTERN.keys() | {"blocks_of", "circuits", "is_part"}
    assert {one.name for one in fields(Topology)} == OF_A_TOPOLOGY.keys() | {"link_ptr", "optics"}
    assert {one.name for one in fields(Algorithm)} == ALGORITHM_ELSEWHERE.keys() | {"discipline", "reducing"}
    assert {one.name for one in fields(Schedule)} == {"pattern", "size_bytes", "element_bytes"}
    for kind, elsewhere in ((Pattern, PATTERN_ELSEWHERE), (Topology, TOPOLOGY_ELSEWHERE)):
        assert elsewhere.keys() <= {one.name for one in fields(kind)}


@pytest.mark.parametrize("name", OF_A_PATTERN)
def test_a_pattern_that_differs_in_one_field_has_another_digest(name: str) -> None:
    changed = other(PLAIN, pattern=other(PLAIN.pattern, **{name: OF_A_PATTERN[name]}))
    assert schedule_digest(changed, Model()) != schedule_digest(PLAIN, Model())


@pytest.mark.parametrize(("name", "value"), [("size_bytes", 1), ("element_bytes", 8)])
def test_a_schedule_that_differs_in_one_field_has_another_digest(name: str, value: int) -> None:
    assert schedule_digest(other(PLAIN, **{name: value}), Model()) != schedule_digest(PLAIN, Model())


@pytest.mark.parametrize("name", OF_A_TOPOLOGY)
def test_a_fabric_that_differs_in_one_field_has_another_digest(name: str) -> None:
    assert fabric_digest(other(FABRIC, **{name: OF_A_TOPOLOGY[name]})) != fabric_digest(FABRIC)


def test_an_algorithm_with_another_discipline_has_another_digest() -> None:
    swing = ALGORITHMS["swing"]
    assert algorithm_digest(replace(swing, discipline="priority")) != algorithm_digest(swing)
    assert algorithm_digest(replace(swing, reducing="all")) != algorithm_digest(swing)


def test_what_is_built_twice_has_one_digest() -> None:
    again = build("swing", "all-reduce", torus((4, 2)), "64KiB", form="bandwidth")
    assert schedule_digest(again, Model()) == schedule_digest(PLAIN, Model())


@pytest.mark.table
@pytest.mark.parametrize("spec", [sample for family in TOPOLOGIES.values() for sample in family.samples])
def test_every_router_of_ours_is_known_by_its_value(spec: str) -> None:
    assert fabric_digest(from_spec(spec)) == fabric_digest(from_spec(spec))


@pytest.mark.parametrize("kind", ["recursive-doubling", "direct"])
def test_the_routes_of_a_users_router_belong_to_the_digest(kind: str) -> None:
    one, same, two = (
        build(kind, "all-reduce", replace(FABRIC, router=Backward(tie)), "64KiB")
        for tie in ("first", "first", "alternating")
    )
    assert schedule_digest(one, Model()) == schedule_digest(same, Model()) != schedule_digest(two, Model())


@dataclass
class Mine:
    """What the user's functions read when they are called."""

    fabric: Topology = FABRIC
    slower: int = 1
    progress: str = "free"


@pytest.fixture
def mine() -> Iterator[Mine]:
    """An algorithm and a fabric of a user."""
    has = Mine()

    def all_reduce(topology: Topology, size: Any, *, element_bytes: int = 4) -> Schedule:
        slow = topology.with_links(bandwidth_Bps=topology.bandwidth_Bps / has.slower)
        pattern = build("recursive-doubling", "all-reduce", slow, size).pattern
        return schedule_of(replace(pattern, algorithm="mine", progress=has.progress), size, element_bytes)

    TOPOLOGIES["mine"] = Family("mine", lambda *_, **__: has.fabric, "for a test", "mine:8", ())
    ALGORITHMS["mine"] = Algorithm("mine", "for a test", "any", {"all-reduce": all_reduce})
    yield has
    del TOPOLOGIES["mine"], ALGORITHMS["mine"]


@pytest.mark.table
@pytest.mark.parametrize(
    ("algorithm", "change"),
    [
        ("mine", {"slower": 50}), ("mine", {"progress": "all"}),
        ("direct", {"fabric": FABRIC.with_links(bandwidth_Bps=FABRIC.bandwidth_Bps / 2)}),
        *((name, {"fabric": replace(FABRIC, router=Backward("alternating"))}) for name in ("mine", "direct")),
    ],
)
def test_a_point_of_ones_own_is_computed_again_when_what_builds_it_has_changed(
    mine: Mine, algorithm: str, change: dict[str, Any], tmp_path: Path
) -> None:
    mine.fabric = replace(FABRIC, router=Backward("first"))
    keys = {
        "topology": {"spec": "mine:8"}, "collective": {"algorithms": [algorithm]}, "sweep": {"begin": "1M"},
        "model": {"chunks": 4, "rank_progress": "authors"},
    }

    def run(store: str) -> tuple[Tally, float]:
        sweep = make_sweep(keys)
        with Store(tmp_path / store) as opened:
            tally = run_sweep(sweep.points, opened)
            return tally, sweep_rows(sweep, opened)[0]["time_s"]

    first = run("s.db")
    assert first[0] == Tally(computed=1) and run("s.db") == (Tally(stored=1), first[1])
    vars(mine).update(change)
    again = run("s.db")
    assert again == (Tally(computed=1), run("fresh.db")[1])
