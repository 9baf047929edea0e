"""Is the load over time what a plain count of picoseconds says, and does it sum to the busy time of every link?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collectives import build
from sim import simulate
from sim.engine.run import run
from sim.faults.plan import Fault, FaultPlan, Loss, SlowLink, Straggler
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.plots.critical_path import draw_critical_path
from sim.plots.timeline import draw_link_timeline
from sim.program.model import make_model
from sim.program.outcome import Outcome
from sim.timeline.timeline import Services, link_load, server_load, services
from topologies import WeftError, from_spec

CASES = [
    ("torus:4x4", "swing", "all-reduce", {}),
    ("torus:4x2", "swing", "all-reduce", {"symmetry": "off", "chunks": 2}),
    ("leaf-spine:2x3x2", "direct", "all-gather", {"chunks": 2}),
    ("switch:4", "ring", "reduce-scatter", {"forwarding": "store-and-forward"}),
    ("mesh:2x3", "pipelined", "all-gather", {"chunks": 5}),
]


def logged(spec: str, algorithm: str, kind: str, how: dict[str, object]) -> tuple[Lowered, Outcome]:
    options = dict(how)
    symmetry = str(options.pop("symmetry", "auto"))
    schedule = build(algorithm, kind, from_spec(spec), "10KiB")
    lowered = lower(schedule, make_model(**options), symmetry)  # type: ignore[arg-type]  # checked there
    return lowered, run(lowered.program, log=True)


def counted(done: Services, n_servers: int, makespan_ps: int, frames: int) -> np.ndarray:
    """Service by service, interval by interval."""
    load = np.zeros((n_servers, frames))
    for server, start, end in zip(done.server, done.start_ps, done.end_ps, strict=True):
        for frame in range(frames):
            low, high = frame * makespan_ps / frames, (frame + 1) * makespan_ps / frames
            load[server, frame] += max(0.0, min(high, end) - max(low, start)) * frames / makespan_ps
    return load


@pytest.mark.parametrize(("spec", "algorithm", "kind", "how"), CASES)
@pytest.mark.parametrize("frames", [1, 7, 24])
def test_it_is_what_a_plain_count_says(
    spec: str, algorithm: str, kind: str, how: dict[str, object], frames: int
) -> None:
    lowered, outcome = logged(spec, algorithm, kind, how)
    done, n_servers = services(lowered.program, outcome), lowered.program.n_servers
    load = server_load(done, n_servers, outcome.makespan_ps, frames)
    np.testing.assert_allclose(load, counted(done, n_servers, outcome.makespan_ps, frames), atol=1e-9)


@pytest.mark.parametrize(("spec", "algorithm", "kind", "how"), CASES)
def test_it_sums_to_the_busy_time_of_every_link(
    spec: str, algorithm: str, kind: str, how: dict[str, object]
) -> None:
    lowered, outcome = logged(spec, algorithm, kind, how)
    load = link_load(lowered, outcome, 13)
    assert load.shape == (13, lowered.schedule.topology.n_links)
    busy = lowered.link_busy_ps(outcome.busy_ps) / outcome.makespan_ps
    np.testing.assert_allclose(load.mean(axis=0), busy, atol=1e-9)


@pytest.mark.parametrize(
    "faults",
    [
        (Straggler(npu="npu1", delay="3us"),),
        (Loss(link="*", probability=0.05),),
        (SlowLink(link="npu0->npu1", at="1us", share=0.2),),
    ],
)
def test_with_faults_it_is_the_run_with_faults(faults: tuple[Fault, ...], tmp_path: Path) -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:6"), "64KiB")
    result = simulate(schedule, chunks=4, faults=FaultPlan(faults=faults))
    assert result.faults is not None
    program = result.lowered.program
    done = services(program, result.logged)
    load = server_load(done, program.n_servers, result.time_ps, 9)
    np.testing.assert_allclose(load, counted(done, program.n_servers, result.time_ps, 9), atol=1e-9)
    of_links = link_load(result.lowered, result.logged, 9)
    np.testing.assert_allclose(of_links.mean(axis=0), result.link_utilization, atol=1e-9)
    draw_link_timeline(result, tmp_path / "timeline.svg")
    draw_critical_path(result, tmp_path / "path.svg")


def test_services_end_before_the_run_does_and_never_overlap() -> None:
    done = services(*(lambda pair: (pair[0].program, pair[1]))(logged(*CASES[0])))
    order = np.lexsort((done.start_ps, done.server))
    same = np.diff(done.server[order]) == 0
    assert np.all(done.end_ps[order][:-1][same] <= done.start_ps[order][1:][same])


def test_an_empty_run_loads_nothing() -> None:
    lowered = lower(build("ring", "all-reduce", from_spec("torus:1"), "1KiB"))
    assert not link_load(lowered, run(lowered.program, log=True), 5).any()


def test_without_a_log_there_is_no_load() -> None:
    result = simulate(build("ring", "all-reduce", from_spec("torus:4"), "1KiB"))
    assert result.outcome is not None
    with pytest.raises(WeftError, match="needs a run with log=True"):
        link_load(result.lowered, result.outcome, 5)
    with pytest.raises(WeftError, match="0 frames"):
        server_load(Services(*np.zeros((5, 0), np.int64)), 1, 1, 0)


def test_frames_beyond_memory_are_told_before_anything_is_built() -> None:
    with pytest.raises(WeftError, match="100000000 frames of 8 servers: at most 16777216 frames"):
        server_load(Services(*(np.zeros(0, np.int64) for _ in Services._fields)), 8, 1, 10**8)
