"""Is a run that would not fit refused before it is built, and only such a run?"""

from __future__ import annotations

import tracemalloc

import pytest

from collectives import build
from collectives.core.routes import paths_of
from collectives.core.transfers import Transfers
from sim.lower.capacity import check_capacity, lowering_bytes
from sim.lower.job import lower
from sim.program.model import Model
from topologies import Paths, Topology, WeftError, from_spec
from topologies.core import extents


@pytest.mark.parametrize(("spec", "algorithm", "kind"), [
    ("torus:16x16", "ring", "all-reduce"), ("torus:16x16", "bucket", "all-reduce"),
    ("torus:16x16", "direct", "all-to-all"),
])
def test_the_estimate_is_near_the_memory_taken(spec: str, algorithm: str, kind: str) -> None:
    schedule = build(algorithm, kind, from_spec(spec), "1MiB")
    estimate, transfers = lowering_bytes(schedule.pattern, schedule.pattern.p)
    tracemalloc.start()
    lowered = lower(schedule, Model(), "off")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert transfers == lowered.program.n_tasks
    assert 0.5 < peak / estimate < 2


def test_a_full_hamiltonian_ring_of_4096_nodes_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "physical_memory", lambda: 3 * 2**32)
    pattern = build("ring", "all-reduce", from_spec("torus:64x64"), "1MiB").pattern
    check_capacity(pattern, 1)
    with pytest.raises(WeftError, match=r"134,184,960 transfers and .* GiB of memory; the limit is 8 GiB"):
        check_capacity(pattern, pattern.p)


def test_one_rank_needs_nothing() -> None:
    assert lowering_bytes(build("ring", "all-reduce", from_spec("torus:1"), "1MiB").pattern, 1) == (0, 0)


def test_long_routes_are_sampled_sparsely(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand routes of this ring are two gigabytes of hops, and the refusal came after a minute."""
    found: list[int] = []

    def counted(transfers: Transfers, topology: Topology) -> Paths:
        paths = paths_of(transfers, topology)
        found.append(paths.links.size)
        return paths

    monkeypatch.setattr("sim.lower.capacity.paths_of", counted)
    pattern = build("direct", "all-reduce", from_spec("ring:100000"), "1MiB").pattern
    lowering_bytes(pattern, 1)
    assert 0 < sum(found) < 5_000_000
