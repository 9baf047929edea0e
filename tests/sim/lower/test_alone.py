"""A program that is cut otherwise, or of another size, is the one that is assembled anew, column by column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from collectives import build, ring_rounds
from collectives.core.schedule import Schedule
from sim.lower import alone, shape
from sim.lower.job import lower
from sim.program.contract import Program
from sim.program.model import SWING_PAPER, Model, Nic
from topologies import WeftError, from_spec

CASES = [
    ("swing", "all-reduce", "torus:4x4"), ("ring", "all-reduce", "ring:7"),
    ("bucket", "all-reduce", "torus:3x2"), ("direct", "all-to-all", "mesh:2x3"),
    ("recursive-multiplying", "all-reduce", "ring:5"), ("themis", "all-reduce", "torus:3x5"),
    ("ring", "all-gather", "ring:2"), ("in-network", "all-reduce", "fat-tree:4"),
    ("", "all-reduce", "ring:9"),
]
MODELS = {
    "plain": Model(chunks=3), "by size": Model(chunks=None, chunk_bytes=4096), "packets": SWING_PAPER,
    "in turn": Model(chunks=2, discipline="round-robin-flow"), "by priority": Model(discipline="priority"),
    "buffers": Model(chunks=64, buffer_bytes=65536), "NICs": Model(nic=Nic(engines=2)), "head": Model(deliver="head"),
    "split": Model(chunks=2, tie="split"), "behind": Model(forwarding="store-and-forward"),
}
CUTS = [(None, 4000), (1, 4000), (5, 4000), (5, 64 * 1024), (700, 64 * 1024), (1, 0), (2, 1)]


def _columns(program: Program) -> dict[str, object]:
    return {name: (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value
            for name, value in program._asdict().items()}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(("algorithm", "kind", "fabric"), CASES)
def test_a_program_that_is_cut_otherwise_is_the_one_that_is_assembled(
    algorithm: str, kind: str, fabric: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name: rounds, which have cuts of their own."""
    topology = from_spec(fabric)
    slower = topology.with_links(bandwidth_Bps=topology.bandwidth_Bps / 3)
    for chunks, size in CUTS:
        cut = model if chunks is None else replace(model, chunks=chunks, chunk_bytes=None)
        for on in (topology, slower):
            rounds = ring_rounds.all_reduce(on, size, jumps=(1, 2)) if not algorithm else None
            schedule = rounds or build(algorithm, kind, on, size)
            found = _lowered(schedule, cut)
            with monkeypatch.context() as anew:
                anew.setattr(shape, "_shapes", WeakKeyDictionary())
                assert found == _lowered(schedule, cut)


def test_of_several_sizes_and_chunks_one_program_is_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another topology of its wiring has one of its own only where other latencies are equal."""
    made, assembled = list[int](), alone._assembled

    def counted(schedule: Schedule, model: Model, *more: Any) -> Any:
        made.append(schedule.size_bytes)
        return assembled(schedule, model, *more)

    monkeypatch.setattr(alone, "_assembled", counted)
    topology = from_spec("torus:5x2")
    for size in (1, 1000, 64 * 1024):
        for chunks in (1, 3, 64):
            lower(build("bucket", "all-reduce", topology, size), Model(chunks=chunks))
    slower = topology.with_links(bandwidth_Bps=topology.bandwidth_Bps / 3)
    lower(build("bucket", "all-reduce", slower, 77), Model(chunks=2))
    assert made == [1]
    lower(build("bucket", "all-reduce", topology.with_links(latency_ps=topology.latency_ps + 1), 77), Model(chunks=2))
    assert made == [1, 77]


def _lowered(schedule: Schedule, model: Model) -> object:
    """The program and its legend, or why there is none."""
    try:
        found = lower(schedule, model)
    except WeftError as refused:
        return str(refused)
    legend = found.server_link, found.server_rank, found.server_stream, found.task_bytes, found.task_operation
    return _columns(found.program), [one.tolist() for one in legend], found.streams, found.symmetry
