"""Any algorithm on any topology, at any size, under any model: the chunk engine is the reference, above every bound."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import Schedule, build
from collectives.registry import ALGORITHMS
from sim import simulate
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import DELIVERY, DISCIPLINES, FORWARDING
from sim.program.model import Model, Nic
from sim.program.model_options import OPTIONS
from sim.program.outcome import Deadlock
from tests.fabrics import random_fabric
from topologies import Topology, WeftError, from_spec
from topologies.core.ties import TIES
from topologies.registry import TOPOLOGIES

SPECS = (
    "ring:1", "ring:2", "ring:5", "ring:8", "mesh:3x2", "torus:2x2", "torus:4x4", "torus:3x4", "torus:4x2x1",
    "hypercube:3", "fc:4", "switch:4", "hyperx:3x3", "twisted-torus:2x2x4", "leaf-spine:2x2x2",
    "circulant:7x1x2", "fat-tree:2", "multidim:RI(2)_FC(3)", "random", "random", "random",
)
CASES = [(name, kind, form) for name, one in ALGORITHMS.items() for kind in one.functions
         for form in one.forms_of(kind) or (None,)]
SIZES = st.sampled_from((0, 1, 3, 4, 7, 63, 64, 4097, 2**20, 2**20 + 1, 10**6 + 3, 2**33 - 1, 2**40, 2**50 + 1, 2**60))
MOST_SERVICES = 20_000
"""Larger runs are left out: the reference takes them in seconds."""


@lru_cache(maxsize=256)
def topology_of(spec: str, seed: int) -> Topology:
    return random_fabric(seed, 6) if spec == "random" else from_spec(spec, bandwidth="1e15B/s" if seed % 2 else None)


@st.composite
def models(draw: st.DrawFn) -> Model:
    cut = draw(st.sampled_from(({"chunks": 1}, {"chunks": 2}, {"chunks": 3}, {"chunks": 7}, {"bytes": 1000})))
    return Model(
        forwarding=draw(st.sampled_from(FORWARDING)), deliver=draw(st.sampled_from(DELIVERY)),
        chunks=cut.get("chunks"), chunk_bytes=cut.get("bytes"), discipline=draw(st.sampled_from(DISCIPLINES)),
        header_bytes=draw(st.sampled_from((0, 0, 26))), packet_header_bytes=draw(st.sampled_from((0, 0, 40))),
        endpoint_latency_ps=draw(st.sampled_from((0, 0, 1, 750_000))), tie=draw(st.sampled_from(TIES)),
        seed=draw(st.integers(0, 9)),
    )


@st.composite
def models_with_ranks(draw: st.DrawFn) -> Model:
    """Models with NICs, or ranks that wait for all their ports, or both; and buffers."""
    rate, model = st.sampled_from((None, 10.0**9, 10.0**11, 1e15)), draw(models())
    nic = draw(st.one_of(st.none(), st.builds(
        Nic, injection_Bps=rate, ejection_Bps=rate, engines=st.sampled_from((None, 1, 3)),
        post_ps=st.sampled_from((0, 1000, 10**6)), push_ps=st.sampled_from((0, 1000, 10**6)),
        queue_bytes=st.sampled_from((1, 5000, 2**26)), order=st.sampled_from(OPTIONS["nic_order"].choices),
        send_complete=st.sampled_from(OPTIONS["send_complete"].choices),
    )))
    progress = draw(st.sampled_from(("free", "any", "all", "authors") if nic else ("all", "authors")))
    tie = "first" if model.tie == "split" else model.tie
    buffer = draw(st.sampled_from((None, None, 5000, 2**20)))
    return replace(model, nic=nic, rank_progress=progress, tie=tie, buffer_bytes=buffer)


def check(case: tuple[str, str, str | None], spec: str, seed: int, size: int, model: Model, symmetry: str) -> None:
    name, kind, form = case
    try:
        schedule: Schedule = build(name, kind, topology_of(spec, seed), size, form)
        lowered: Lowered = lower(schedule, model, symmetry)
    except WeftError:
        event("refused")
        return
    if lowered.program.chunk_hops() > MOST_SERVICES:
        event("left out: too large for the reference")
        return
    try:
        found = simulate(schedule, model=model, check=True, symmetry=symmetry)
    except Deadlock:
        event("ports or full buffers wait for each other")
        assert model.rank_progress in ("any", "authors") or model.buffer_bytes is not None
        with pytest.raises(Deadlock):
            simulate(schedule, model=model, engine="reference", symmetry="off")
        return
    event("compared")
    oracle = simulate(schedule, model=model, engine="reference", symmetry="off")
    assert found.outcome is not None
    assert oracle.outcome is not None
    assert found.time_ps == oracle.time_ps
    if symmetry == "off":
        for array in ("start_ps", "finish_ps", "busy_ps"):
            np.testing.assert_array_equal(getattr(found.outcome, array), getattr(oracle.outcome, array))
    assert 0 <= found.lower_bound_ps <= found.time_ps
    assert (found.time_ps == 0) == (lowered.program.chunk_hops() == 0)


ANY = {
    "case": st.sampled_from(CASES), "spec": st.sampled_from(SPECS), "seed": st.integers(0, 39), "size": SIZES,
    "model": models(), "symmetry": st.sampled_from(("auto", "off")),
}


@settings(max_examples=25, deadline=None)
@given(**ANY)
def test_random_schedules(
    case: tuple[str, str, str | None], spec: str, seed: int, size: int, model: Model, symmetry: str
) -> None:
    check(case, spec, seed, size, model, symmetry)


@settings(max_examples=25, deadline=None)
@given(**ANY | {"model": models_with_ranks()})
def test_random_schedules_with_nics(
    case: tuple[str, str, str | None], spec: str, seed: int, size: int, model: Model, symmetry: str
) -> None:
    check(case, spec, seed, size, model, symmetry)


@pytest.mark.verify
@settings(max_examples=3000, deadline=None)
@given(**ANY | {"model": models_with_ranks()})
def test_thousands_of_random_schedules_with_nics(
    case: tuple[str, str, str | None], spec: str, seed: int, size: int, model: Model, symmetry: str
) -> None:
    check(case, spec, seed, size, model, symmetry)


@pytest.mark.verify
@settings(max_examples=2500, deadline=None)
@given(**ANY)
def test_thousands_of_random_schedules(
    case: tuple[str, str, str | None], spec: str, seed: int, size: int, model: Model, symmetry: str
) -> None:
    check(case, spec, seed, size, model, symmetry)


def test_the_specs_are_of_the_registry() -> None:
    assert {spec.partition(":")[0] for spec in SPECS} - {"random"} <= TOPOLOGIES.keys()
