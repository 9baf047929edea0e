"""Are the bounds that transfers alone give those of the program that they are lowered to?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives import ALGORITHMS, Schedule, build
from collectives.core.schedule import schedule
from collectives.core.sends import SendList
from sim.analytic.bounds import bounds
from sim.analytic.unlowered import whole_of
from sim.lower.job import lower
from sim.program.model import Model, Nic
from sim.study.choice import LADDER
from tests.oracles import lone_route
from tests.sim.analytic.test_bounds import lopsided
from topologies import Topology, WeftError, from_spec

MODELS = (
    Model(), Model(rank_progress="free"), Model(rank_progress="all", endpoint_latency_ps=520_000),
    Model(tie="ecmp", seed=3, chunks=5, discipline="round-robin-flow"),
)


def schedules(name: str, topology: Topology) -> list[Schedule]:
    """Those of an algorithm, of all its collectives and forms, at a size that no number of blocks divides."""
    found = []
    for kind in ALGORITHMS[name].functions:
        for form in ALGORITHMS[name].forms_of(kind) or (None,):
            try:
                found.append(build(name, kind, topology, "1000003B", form))
            except WeftError:
                continue  # what it cannot do is the subject of the registry's own tests
    return found


def check(one: Schedule, model: Model) -> bool:
    """Whether there are bounds; those of the oracle then, which no number of chunks falls below."""
    found = whole_of(one, model)
    if found is None:
        return False
    program = lower(one, replace(model, chunks=1), "off").program
    assert found.load_ps == lone_route.busiest(program)
    assert found.path_ps == lone_route.longest_chain(program)
    assert found.hops == program.chunk_hops()
    assert found.load_ps - found.hops <= found.unrounded_ps <= found.load_ps
    for chunks in LADDER:
        cut = bounds(lower(one, replace(model, chunks=chunks)))
        assert cut.load_ps >= found.load_ps
        assert max(found[:2]) <= cut.best_ps
    return True


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("spec", ["ring:1", "ring:2", "torus:4x4", "torus:3x5", "switch:7", "mesh:2x3", "dgx-h100:2"])
def test_bounds_are_those_of_the_lowered_program(spec: str, name: str, model: Model) -> None:
    try:
        found = [check(one, model) for one in schedules(name, from_spec(spec))]
    except WeftError as refused:
        assert "rank progress" in str(refused)  # noqa: PT017  # of ports that wait for each other
        return
    known = name in ("bruck", "bucket", "direct", "pairwise", "swing") and spec != "ring:1"
    assert not known or any(found)


@pytest.mark.table
@pytest.mark.parametrize("seed", range(16))
def test_every_link_counts_at_its_own_rate(seed: int) -> None:
    topology = lopsided(seed)
    every = [one for name in ("direct", "ring", "pairwise", "bruck") for one in schedules(name, topology)]
    assert sum(check(one, Model()) for one in every) > 0


def test_what_is_waited_for_may_come_later_in_the_table() -> None:
    """Rank 0 sends to rank 1 last, in a slot behind that in which rank 1 hands it on."""
    sends = SendList()
    sends.add(0, 3, [0])
    there = sends.add(0, 1, [0])
    sends.add(1, 2, [0], step=1, after=[there])
    assert check(schedule(sends.pattern(from_spec("ring:4"), "broadcast", "late", 1), 999), Model())


def test_transfers_in_no_order_of_steps_have_to_be_lowered() -> None:
    sends = SendList()
    sends.add(0, 3, [0])
    there = sends.add(0, 1, [0])
    sends.add(1, 2, [0], after=[there])
    assert whole_of(schedule(sends.pattern(from_spec("ring:4"), "broadcast", "late", 1), 999), Model()) is None


def test_bounds_follow_rates_and_sizes_of_one_wiring() -> None:
    """What is kept of a pattern is found again on another fabric of its wiring, and is not that of another size."""
    rates = [(rate, late) for rate in ("7GB/s", "50GB/s") for late in ("0s", "1us")]
    fabrics = [from_spec("torus:3x3", bandwidth=rate, latency=late) for rate, late in rates]
    every = [build("bucket", "all-reduce", one, size) for one in (*fabrics, fabrics[0]) for size in (7, "1MiB")]
    assert all(check(one, Model()) for one in every)
    assert len({whole_of(one, Model()) for one in every}) == len(every) - 2


@pytest.mark.parametrize("model", [
    Model(forwarding="store-and-forward"), Model(deliver="head"), Model(tie="split"), Model(header_bytes=1),
    Model(packet_header_bytes=1), Model(buffer_bytes=2**30), Model(vcs=2), Model(nic=Nic()),
    Model(chunks=None, chunk_bytes=4096),
], ids=str)
def test_models_of_more_than_links_have_to_be_lowered(model: Model) -> None:
    assert whole_of(build("bucket", "all-reduce", from_spec("torus:4x4"), "1MiB"), model) is None


@pytest.mark.parametrize(("name", "kind", "spec", "size"), [
    ("bucket", "all-reduce", "torus:4x4", 0), ("double-binary-tree", "all-reduce", "ring:5", 99),
    ("direct", "all-reduce", "ocs:4x2", 99), ("direct", "all-to-all", "ring:300", 99),
    ("bucket", "all-reduce", "torus:4x4", 2**60),
])
def test_schedules_that_have_to_be_lowered(name: str, kind: str, spec: str, size: int) -> None:
    """Empty, chunk by chunk, on circuits, of many ranks, and too long for the clock."""
    assert whole_of(build(name, kind, from_spec(spec), size), Model()) is None
