"""`python -m benchmarks.determinism [--write]`: the fixed book of specs and jobs, and the hashes of their results.

The book is tests/determinism/book.toml, and the jobs below; tests/determinism/hashes.json has a hash for each. A change
of any is a change of results: it takes an entry under "changed results" in CHANGELOG.md and the next
`sim.version.RESULTS_VERSION`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives import build
from collectives.reconfigured import menu
from sim import simulate
from sim.circuits.plans import simulate_plan
from sim.circuits.shared_cluster import ClusterJob, contended_ps
from sim.faults.plan import FaultPlan, Jitter, LinkDown, Loss, Repair, Straggler
from sim.program.model import Model
from sim.program.outcome import Outcome
from sim.study.spec import Spec
from sim.version import RESULTS_VERSION
from sim.whole_file import write_text_whole
from topologies import fat_tree, from_spec, ring, torus
from workloads.reconfigured import plan_job
from workloads.topoopt import AllReduce, Iteration, Op
from workloads.training import Training, training_job
from workloads.workload import Call, Groups, Layer, Phase, Workload

FOLDER = Path(__file__).parents[1] / "tests" / "determinism"
BOOK, HASHES = FOLDER / "book.toml", FOLDER / "hashes.json"
HASH_LETTERS = 16

Entry = dict[str, int | str]
"""`time_ps` for people, and `sha256` of all that was simulated."""


def book() -> dict[str, Callable[[], Entry]]:
    """Every entry of the book by name, to be run."""
    specs = tomllib.loads(BOOK.read_text(encoding="utf-8"))["spec"]
    named = {str(keys.pop("name")): keys for keys in specs}
    assert len(named) == len(specs), "two specs have one name"
    return {name: partial(_run_spec, name, keys) for name, keys in named.items()} | JOBS


def _run_spec(name: str, keys: dict[str, Any]) -> Entry:
    return spec_entry(Spec.from_dict(keys, name))


def spec_entry(spec: Spec) -> Entry:
    """One algorithm at one size: its time, services, bounds, finishing times of transfers, and busy time of links."""
    (schedule,) = spec.schedules()
    result = simulate(schedule, model=spec.build_model(), engine=spec.engine, symmetry=spec.symmetry)
    numbers = result.time_ps, result.events, result.lower_bound_ps, result.estimate_ps, result.wire_bytes
    finish = np.zeros(0, np.int64) if result.outcome is None else np.sort(result.outcome.finish_ps)
    return _entry(result.time_ps, np.array(numbers, np.int64), finish, result.link_busy_ps)


def outcome_entry(outcome: Outcome) -> Entry:
    """A program: its time, services, finishing times of tasks, and busy time of servers."""
    numbers = np.array([outcome.makespan_ps, outcome.events], np.int64)
    return _entry(outcome.makespan_ps, numbers, np.sort(outcome.finish_ps), np.sort(outcome.busy_ps))


def _entry(time_ps: int, *arrays: npt.NDArray[np.int64]) -> Entry:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.size}:".encode())
        digest.update(np.ascontiguousarray(array, "<i8").tobytes())
    return {"time_ps": int(time_ps), "sha256": digest.hexdigest()[:HASH_LETTERS]}


def _training(loop: str) -> Entry:
    tensor, data = (Call("all-reduce", 65_536, "tp"),), (Call("all-reduce", 9_600, "dp"),)
    phases = Phase(2000.0, tensor), Phase(2000.0, tensor), Phase(2000.0, data)
    workload = Workload("small", tuple(Layer(f"{layer}", *phases, 50.0) for layer in range(4)))
    groups: Groups = {"tp": (4, 2, 1), "dp": (1, 2, 2)}
    training = Training(loop=loop, bucket_bytes=20_000, updates=True, options={"pipeline_chunks": 2})
    job = training_job(from_spec("RI(4)_FC(4)_SW(2)"), workload, groups, training)
    return outcome_entry(simulate(job, chunks=1).outcome)


def _shared_tree() -> Entry:
    job = Iteration("job", 4, (Op("a", 10**9), Op("b", 10**9, None, (0,), (), (AllReduce(40_000_000),))))
    jobs = [ClusterJob(job, (0, 5, 10, 15)), ClusterJob(job, (1, 4, 9, 12), 10**8), ClusterJob(job, (2, 3, 6, 7))]
    tree = fat_tree(4, bandwidth=["12.5GB/s", "3GB/s", "3GB/s"], latency="1us", hop_latency=0)
    times = np.array(contended_ps(jobs, tree), np.int64)
    return _entry(int(times.max()), times)


def _reconfigured() -> Entry:
    choice = menu(build("recursive-doubling", "all-reduce", ring(16), "256KiB", "bandwidth"), interfaces=2)
    job = plan_job(choice, choice.best("10us"), "10us")
    result = simulate_plan(job, choice.start_up_ps, Model(chunks=1, forwarding="store-and-forward"))
    outcome, lowered = result.outcome, result.lowered
    numbers = np.array([outcome.makespan_ps, outcome.events], np.int64)
    # What begins and ends the collective on each rank only joins; circuits that nothing crosses are no servers.
    joins = [task for (operation, _), task in (*lowered.begin_task.items(), *lowered.end_task.items()) if not operation]
    unused = job.topology.n_links - np.count_nonzero(lowered.server_link >= 0)
    finish, busy = np.delete(outcome.finish_ps, joins), np.append(outcome.busy_ps, np.zeros(unused, np.int64))
    return _entry(outcome.makespan_ps, numbers, np.sort(finish), np.sort(busy))


def _faulty(algorithm: str, plan: FaultPlan) -> Entry:
    schedule = build(algorithm, "all-reduce", torus((4, 4)), "256KiB")
    result = simulate(schedule, chunks=4, faults=plan)
    assert result.outcome is not None
    return outcome_entry(result.outcome)


DOWN = LinkDown(link="npu0->npu1", at="5us")
SHAKEN = (Straggler(npu="npu3", delay="10us"), Jitter(mean="100ns", link="*"), Loss(link="*", probability=0.001))

JOBS: dict[str, Callable[[], Entry]] = {
    "iteration without overlap": lambda: _training("no-overlap"),
    "iteration with wait-free backward passes": lambda: _training("wfbp"),
    "iteration with DeAR": lambda: _training("dear"),
    "three jobs on a thin fat-tree": _shared_tree,
    "circuits switched between steps": _reconfigured,
    "a link fails and is repaired": lambda: _faulty(
        "ring", FaultPlan(faults=(DOWN, Repair(link="npu0->npu1", at="60us")))
    ),
    "a link fails and is passed by": lambda: _faulty("swing", FaultPlan(faults=(DOWN,), reroute="1us")),
    "a link fails while chunks wait at their sources": lambda: _faulty(
        "direct", FaultPlan(faults=(DOWN,), timeout="5us", reroute="1us")
    ),
    "a link is repaired and fails at one time": lambda: _faulty(
        "ring",
        FaultPlan(
            faults=(
                DOWN,
                Repair(link="npu0->npu1", at="9us"),
                LinkDown(link="npu0->npu1", at="9us"),
                Repair(link="npu0->npu1", at="60us"),
            ),
        ),
    ),
    "a straggler, jitter and loss": lambda: _faulty("swing", FaultPlan(faults=SHAKEN, seed=7)),
}
"""Programs that are no single collective."""


def read_hashes() -> dict[str, Any]:
    """What is committed."""
    found: dict[str, Any] = json.loads(HASHES.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Run the book; say what differs from the committed hashes, or write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.determinism", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="write the hashes, for a change of results that is meant")
    found = {name: run() for name, run in book().items()}
    if parser.parse_args().write:
        data = {"results_version": RESULTS_VERSION, "results": found}
        write_text_whole(HASHES, json.dumps(data, indent=1) + "\n")
        print(f"wrote {len(found)} hashes to {HASHES.name}")
        return
    known = read_hashes()["results"]
    changed = [name for name in known.keys() | found.keys() if known.get(name) != found.get(name)]
    for name in changed:
        print(f"{name}: {known.get(name)} is now {found.get(name)}")
    print(f"{len(found)} results, {len(changed)} differ")
    raise SystemExit(bool(changed))


if __name__ == "__main__":
    main()
