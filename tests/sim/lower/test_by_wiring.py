"""What topologies of one wiring share, and what they must not: each gives what a build of its own gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import collectives.core.builders
import sim.lower.alone
import sim.lower.shape
from collectives import ALGORITHMS, build
from collectives.core import emission, pattern
from sim import simulate
from sim.lower import quotient, templates
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program.model import Model
from sim.result import Result
from topologies import Paths, ShortestPathRouter, Topology, WeftError, from_spec
from topologies.core.rateless import alike, wiring_of
from topologies.core.ties import TIES
from topologies.core.topology import NeedsRates
from workloads.job import Job
from workloads.topoopt.models import model
from workloads.topoopt.strategy import data_parallel, iteration_of

FABRICS = ("ring:6", "torus:4x4", "mesh:3x3", "RI(4)_SW(2)", "fat-tree:4")
BUILT_FROM_RATES = {name for name, one in ALGORITHMS.items() if one.built_from_rates} - {"themis"}
"""The orders of themis do not change where all bandwidths change in proportion, as they do here."""
MODEL = Model(chunks=3)


def _per_link(values: Callable[[np.random.Generator, int], Any], seed: int = 0) -> Callable[[Topology], Topology]:
    return lambda t: t.with_links(bandwidth_Bps=1e9 * values(np.random.default_rng(seed), t.n_links))


def _dimension(t: Topology) -> Topology:
    """The first dimension faster than the others, and of another latency."""
    first = t.dimension == t.dimension[0]
    return t.with_links(np.where(first, 3e10, 2e10), np.where(first, 70_000, 50_000))


VARIANTS: dict[str, Callable[[Topology], Topology]] = {
    "as built": lambda t: t,
    "faster": lambda t: t.with_links(bandwidth_Bps=3 * t.bandwidth_Bps),
    "farther": lambda t: t.with_links(latency_ps=t.latency_ps + 12_345),
    "dimensions apart": _dimension,
    "every link apart": _per_link(lambda rng, n: 20 + rng.permutation(n)),
    "some links slow": _per_link(lambda rng, n: rng.choice([20.0, 30.0], n)),
    "faster once more": lambda t: t.with_links(bandwidth_Bps=4 * t.bandwidth_Bps),
}
"""Changes one after the other, so that each finds what the ones before it have left."""


def _seen(result: Result) -> tuple[object, ...]:
    return (result.time_ps, result.events, result.symmetry, result.wire_bytes, result.lower_bound_ps,
            result.estimate_ps, result.schedule.name, result.link_busy_ps.tolist())


def _run(t: Topology, name: str, kind: str, size: str, model: Model = MODEL) -> tuple[object, ...]:
    try:
        return _seen(simulate(build(name, kind, t, size), model=model))
    except WeftError as refused:
        return (str(refused),)


@pytest.mark.table
@pytest.mark.parametrize(("name", "kind", "fabric"), [
    (name, kind, fabric) for name in ALGORITHMS for at, kind in enumerate(ALGORITHMS[name].functions)
    for fabric in (FABRICS if at == 0 else FABRICS[1:2])
])
def test_a_shared_structure_gives_what_a_build_of_its_own_gives(
    name: str, kind: str, fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the picosecond, link by link, with the same group and the same form, whatever came before."""
    for at, change in enumerate(VARIANTS.values()):
        topology = change(from_spec(fabric))
        size, model = f"{64 * (1 + at % 2)}KiB", Model(chunks=2 + at % 2)
        shared = _run(topology, name, kind, size, model)
        with monkeypatch.context() as alone:
            alone.setattr(collectives.core.builders, "wiring_of", lambda t: t)
            assert shared == _run(change(from_spec(fabric)), name, kind, size, model)


@pytest.mark.parametrize("fabric", ["torus:4x2", "switch:8"])
def test_templates_that_are_kept_give_what_new_ones_give(fabric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages and all-reduces of an iteration; at the end there is no more than may be kept."""
    operators = model("DLRM", 8)
    iteration = iteration_of(operators, data_parallel(operators))
    monkeypatch.setattr(templates, "MOST_KEPT", 3)
    monkeypatch.setattr(templates, "_known", {})
    for change in list(VARIANTS.values())[:5]:
        job = iteration.job(change(from_spec(fabric)))
        kept = simulate(job, chunks=2)
        with monkeypatch.context() as alone:
            alone.setattr(templates, "_known", {})
            new = simulate(job, chunks=2)
        assert (kept.time_ps, kept.events, kept.symmetry) == (new.time_ps, new.events, new.symmetry)
    assert len(templates._known) == 3


@pytest.mark.parametrize("tie", TIES)
def test_messages_of_a_job_are_routed_together_as_they_are_alone(tie: str) -> None:
    """Jobs of one send each, detached or not, over the routes that it has in a job of all of them."""
    fabric = from_spec("torus:4x4")
    sends: list[tuple[Any, list[int], list[int], int, bool]] = [
        (5000, list(range(16)), [(at + 6) % 16 for at in range(16)], 1, False),
        ([1, 0, 7000, 20], [3, 3, 0, 9], [5, 5, 0, 11], 2, True), ([40], [2], [8], 3, False),
    ]
    together = Job(fabric)
    for numbers in (range(3), (1,)):
        for at in numbers:
            size, src, dst, laps, detached = sends[at]
            together.send(f"send {at}", size, src, dst, laps=laps, detached=detached)
    found = lower(together, Model(tie=tie), "off")
    routes = _crossed(found)
    for number, at in enumerate((0, 1, 2, 1)):
        size, src, dst, laps, detached = sends[at]
        alone = Job(fabric)
        alone.send("alone", size, src, dst, laps=laps, detached=detached)
        assert _crossed(lower(alone, Model(tie=tie), "off"))[0] == routes[number]


def _crossed(lowered: Lowered) -> dict[int, list[object]]:
    """Of each operation: links, latencies and bytes of its tasks."""
    program = lowered.program
    found: dict[int, list[object]] = {}
    for task, number in enumerate(lowered.task_operation.tolist()):
        hops = slice(*program.route_ptr[program.task_route[task] :][:2].tolist())
        links = lowered.server_link[program.route_server[hops]].tolist()
        latency = program.hop_latency_ps[program.route_hop[hops]].tolist()
        what = links, latency, int(lowered.task_bytes[task]), int(lowered.task_rank[task])
        found.setdefault(number, []).append(what)
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often transfers are proved, generated and routed, and symmetries checked."""
    counts: Counter[str] = Counter()

    def count(where: Any, name: str) -> None:
        original = getattr(where, name)

        def counted(*args: Any, **named: Any) -> Any:
            counts[name] += 1
            return original(*args, **named)

        monkeypatch.setattr(where, name, counted)

    for where, name in ((pattern, "prove_carried"), (pattern, "digest_of"), (emission.Emission, "_checked"),
                        (Topology, "paths"), (quotient, "check"), (sim.lower.shape, "make_shape"),
                        (sim.lower.alone, "assemble")):
        count(where, name)
    return counts


@pytest.mark.parametrize(("name", "fabric"), [
    *((name, "torus:4x4") for name in ALGORITHMS if name not in BUILT_FROM_RATES), ("ring", "fat-tree:4"),
    ("in-network", "fat-tree:4"), ("direct", "switch:8"),
])
def test_another_bandwidth_proves_emits_routes_and_checks_nothing(
    name: str, fabric: str, calls: Counter[str]
) -> None:
    kind = next(iter(ALGORITHMS[name].functions))
    schedules = [build(name, kind, from_spec(fabric, bandwidth=rate), "1MiB") for rate in ("100Gb/s", "200Gb/s")]
    simulate(schedules[0])
    calls.clear()
    simulate(schedules[1])
    assert not calls
    slow = schedules[1].topology.with_links(latency_ps=schedules[1].topology.latency_ps + 1)
    simulate(build(name, kind, slow, "1MiB"))
    assert calls == {"assemble": 1}  # the routes have other latencies


def test_a_wiring_has_no_rates() -> None:
    fabric = from_spec("torus:4x4")
    wiring = wiring_of(fabric)
    assert wiring is wiring_of(VARIANTS["every link apart"](fabric)) is wiring_of(wiring)
    assert wiring is not wiring_of(from_spec("torus:2x8"))
    for name in ("bandwidth_Bps", "latency_ps", "hop_latency_ps"):
        with pytest.raises(NeedsRates):
            getattr(wiring, name)


def test_a_router_that_reads_rates_shares_nothing() -> None:
    @dataclass(frozen=True)
    class Widest:
        def paths(self, topology: Topology, src: Any, dst: Any, tie: str, seed: int) -> Paths:
            assert topology.bandwidth_Bps.size
            return ShortestPathRouter().paths(topology, src, dst, tie, seed)

    fabric = replace(from_spec("ring:6"), router=Widest())
    faster = VARIANTS["faster"](fabric)
    assert wiring_of(fabric) is fabric
    patterns = [build("ring", "all-reduce", one, "1MiB").pattern for one in (fabric, faster)]
    assert patterns[0].emit is not patterns[1].emit
    assert [one.topology for one in patterns] == [fabric, faster]


def test_links_are_alike_whatever_their_rates() -> None:
    fabric = from_spec("torus:4x4")
    same, other = [alike(VARIANTS[name](fabric)) for name in ("faster", "farther")], alike(_dimension(fabric))
    assert set(same) == {alike(fabric)} != {other}


def test_what_is_kept_of_shapes_is_bounded() -> None:
    fabric = from_spec("torus:4x4")
    for seed in range(2 * sim.lower.shape.MOST_SHAPES):
        simulate(build("swing", "all-reduce", fabric, "64KiB"), tie="ecmp", seed=seed)
    shared = build("swing", "all-reduce", fabric, "64KiB").pattern.emit
    assert len(sim.lower.shape._shapes[shared]) <= sim.lower.shape.MOST_SHAPES
