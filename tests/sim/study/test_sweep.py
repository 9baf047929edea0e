"""Sweeps: nothing twice, nothing lost, and the same rows whatever runs them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from sim.study.file import Sweep, make_sweep
from sim.study.key import keyed_sweep, point_key
from sim.study.points import Task
from sim.study.store import Claims, Finished, Store
from sim.study.sweep import Tally, finish, run_sweep, status_of, sweep_rows
from tests.places import ROOT
from topologies import WeftError

SMALL = {
    "topology": {"spec": ["ring:4", "fc:4"]}, "collective": {"algorithms": ["ring", "direct"]},
    "model": {"chunks": [1, 2]}, "sweep": {"begin": "1K", "end": "4K"},
}
"""24 points."""


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return make_sweep(SMALL)


@pytest.fixture(scope="module")
def expected(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Rows of the sweep, one point at a time."""
    with Store(tmp_path_factory.mktemp("expected") / "s.db") as store:
        assert run_sweep(sweep.points, store) == Tally(computed=24)
        return sweep_rows(sweep, store)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def rows_of(sweep: Sweep, file: Path) -> list[dict[str, Any]]:
    with Store(file, read_only=True) as store:
        return sweep_rows(sweep, store)


@pytest.mark.parametrize("in_flight", [1, None])
def test_threads_give_the_same_rows(
    in_flight: int | None, sweep: Sweep, expected: list[dict[str, Any]], file: Path
) -> None:
    with ThreadPoolExecutor(3) as executor:
        tally = run_sweep(sweep.points, file, executor, in_flight=in_flight)
    assert tally == Tally(computed=24)
    assert rows_of(sweep, file) == expected


@pytest.mark.verify
def test_worker_processes_give_the_same_rows(sweep: Sweep, expected: list[dict[str, Any]], file: Path) -> None:
    assert run_sweep(sweep.points, file, workers=2) == Tally(computed=24)
    assert rows_of(sweep, file) == expected


@pytest.mark.parametrize("stop_after", [0, 11, 23])
def test_an_interrupted_sweep_goes_on(
    stop_after: int, sweep: Sweep, expected: list[dict[str, Any]], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.study.sweep.STORE_SECONDS", 0)  # each at once
    seen: list[str] = []

    def interrupt(task: Task, point: Finished | str | None) -> None:
        seen.append(point_key(task))
        if len(seen) > stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep.points, file, done=interrupt)
    kept = len(seen)
    assert run_sweep(sweep.points, file, done=lambda task, _: seen.append(point_key(task))) == Tally(
        stored=kept, computed=24 - kept
    )
    assert sorted(seen) == sorted({point_key(task) for task in sweep.points})
    assert rows_of(sweep, file) == expected


def test_a_finished_sweep_computes_nothing(sweep: Sweep, file: Path) -> None:
    run_sweep(sweep.points, file)
    assert run_sweep(sweep.points, file) == Tally(stored=24)


def test_a_larger_sweep_reuses_the_points_of_a_smaller_one(sweep: Sweep, file: Path) -> None:
    run_sweep(sweep.points, file)
    larger = make_sweep(SMALL | {"sweep": {"begin": 2048, "end": "16K"}})
    assert run_sweep(larger.points, file) == Tally(stored=16, computed=16)


def test_points_named_twice_are_computed_once(sweep: Sweep, file: Path) -> None:
    assert run_sweep([*sweep.points, *sweep.points[:9]], file) == Tally(computed=24)
    assert run_sweep([], file) == Tally()


def test_what_cannot_run_is_stored_with_its_reason(file: Path) -> None:
    sweep = make_sweep({
        "topology": {"spec": ["ring:3", "ring:4"]}, "collective": {"algorithms": ["ring", "pairwise"]},
        "sweep": {"begin": "1K"},
    })
    assert run_sweep(sweep.points, file) == Tally(computed=4, refused=2)
    assert run_sweep(sweep.points, file) == Tally(stored=4, refused=2)
    with Store(file) as store:
        status = status_of(keyed_sweep(sweep), store)
        assert status.left == 0
        assert list(status.refused.values()) == [["pairwise on ring:3", "pairwise on ring:4"]]
        rows = sweep_rows(sweep, store)
    assert [row["refused"] is None for row in rows] == [True, False, True, False]
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert rows[1]["topology"] == "ring:3" and rows[1]["time_s"] is None


def test_a_point_that_can_never_end_is_stored_with_who_waits_for_whom(file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "down.toml"
    plan.write_text('in-flight = "wait"\n[[link-down]]\nlink = "npu0->npu1"\nat = "1us"\n')
    sweep = make_sweep({
        "topology": {"spec": "ring:4"}, "collective": {"algorithms": ["ring"]}, "model": {"faults": str(plan)},
        "sweep": {"begin": "1M"},
    })
    assert run_sweep(sweep.points, file) == Tally(computed=1, refused=1)
    with Store(file) as store:
        (reason,) = status_of(keyed_sweep(sweep), store).refused
    assert "can never finish" in reason


def test_points_that_reach_the_limit_are_not_stored(file: Path) -> None:
    sweep = make_sweep(SMALL | {"model": {"symmetry": "off"}}, max_events=450)
    tally = run_sweep(sweep.points, file)
    assert tally.computed + len(tally.failed) == 12 and tally.failed and tally.computed
    assert all("limit of 450 services" in why for why in tally.failed.values())
    more = make_sweep(SMALL | {"model": {"symmetry": "off"}}, max_events=100_000)
    assert run_sweep(more.points, file) == Tally(stored=tally.computed, computed=len(tally.failed))


def test_points_that_another_process_computes_are_waited_for(sweep: Sweep, file: Path) -> None:
    """The other process holds one claim, stores the point after a while, and ends."""
    first = sweep.points[0]
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(file), point_key(first)], cwd=ROOT, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "claimed\n"
        order: list[str] = []

        def tell(task: Task, point: Finished | str | None) -> None:
            order.append(point_key(task))
            if len(order) == 23:
                store_and_leave(first, file, other)

        assert run_sweep(sweep.points, file, done=tell) == Tally(computed=23, elsewhere=1)
        assert order[-1] == point_key(first)
        assert not file.with_name(f"{file.name}-claims").exists()
    finally:
        other.kill()
        other.communicate(timeout=30)


OTHER = """
import sys
from pathlib import Path
from sim.study.store import Claims
with Claims(Path(sys.argv[1])) as claims:
    print("claimed" if claims.take(sys.argv[2]) else "not claimed", flush=True)
    sys.stdin.readline()
"""


def test_claims_that_another_process_holds_stay_when_one_leaves(file: Path) -> None:
    command = [sys.executable, "-c", OTHER, str(file), "0" * 32]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "claimed\n"
            with Claims(file) as claims:
                assert not claims.take("0" * 32)
            with Claims(file) as claims:
                assert not claims.take("0" * 32)
        finally:
            other.communicate("\n", timeout=30)
    assert not claims.path.exists()


def store_and_leave(task: Task, file: Path, other: subprocess.Popen[str]) -> None:
    point = finish(task)
    assert isinstance(point, Finished)
    with Store(file) as store:
        store.add(point)
    assert other.stdin is not None
    other.stdin.write("\n")
    other.stdin.close()
    other.stdin = None
    other.wait(30)


class Broken(Executor):
    """Has lost its workers: at once, or with the first point."""

    def __init__(self, when: str) -> None:
        self.when = when

    def submit(self, work: Any, /, *given: Any, **named: Any) -> Future[Any]:
        if self.when == "at once":
            raise BrokenProcessPool("a worker was killed")
        future: Future[Any] = Future()
        future.set_exception(BrokenProcessPool("a worker was killed"))
        return future


@pytest.mark.parametrize("when", ["at once", "later"])
def test_lost_workers_are_told(when: str, sweep: Sweep, file: Path) -> None:
    with pytest.raises(WeftError, match=r"the workers are gone .a worker was killed.; finished points are stored"):
        run_sweep(sweep.points, file, Broken(when))


def test_a_result_for_another_experiment_is_refused(sweep: Sweep, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a worker reads another fabric file under the same name."""
    other = finish(sweep.points[1])
    monkeypatch.setattr("sim.study.sweep.finish", lambda *task, progress: other)
    with pytest.raises(WeftError, match="is not the same where the point was computed"):
        run_sweep(sweep.points, file)
    with Store(file) as store:
        assert len(store) == 0


@pytest.mark.parametrize("workers", [0, -1, 1025, 10**9])
def test_numbers_of_workers_that_no_host_runs_are_refused(workers: int, sweep: Sweep, file: Path) -> None:
    with pytest.raises(WeftError, match=f"--workers {workers} is out of range: give 1 to 1024"):
        run_sweep(sweep.points, file, workers=workers)
    assert not file.exists()
