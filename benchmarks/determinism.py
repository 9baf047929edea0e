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
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives import build
from sim import simulate
from sim.engine.run import run
from sim.faults.apply import add_faults
from sim.faults.plan import FaultPlan, Jitter, LinkDown, Loss, Repair, Straggler
from sim.lower.job import lower
from sim.lower.tenants import Tenant, merge
from sim.optimizer.circuits import planned
from sim.program import ORDERS, PER_CHUNK, PER_TASK, Cutting, Program, ProgramBuilder
from sim.program.model import PRESETS, Model, make_model
from sim.program.outcome import Outcome
from sim.scenarios.optical import ClusterJob, contended_ps
from sim.study.spec import Spec
from sim.version import RESULTS_VERSION
from sim.whole_file import write_text_whole
from topologies import fat_tree, from_spec, torus
from workloads.job import Job
from workloads.topoopt import Carriage, Iteration
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
    runs = {name: partial(logged, program, run) for name, program in programs().items()}
    return {name: partial(_run_spec, name, keys) for name, keys in named.items()} | JOBS | runs


def programs() -> dict[str, Callable[[], Program]]:
    """The programs of those entries that are runs of the engine."""
    lines = tomllib.loads(BOOK.read_text(encoding="utf-8"))["run"]
    return {name: partial(_lowered, **keys) for name, keys in lines.items()} | PROGRAMS


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


def _lowered(
    schedule: str, *, build_with: dict[str, Any] | None = None, fabric: dict[str, Any] | None = None,
    faults: dict[str, Any] | None = None, preset: str | None = None, **of_model: Any,
) -> Program:
    """The program of a line of the book."""
    name, kind, topology, size, *form = schedule.split()
    base = Model() if preset is None else PRESETS[preset]
    made = build(name, kind, from_spec(topology, **fabric or {}), size, *form, **build_with or {})
    lowered = lower(made, make_model(base, **of_model), "off")
    return (lowered if faults is None else add_faults(lowered, FaultPlan.from_dict(faults))).program


def logged(program: Callable[[], Program], engine: Callable[..., Outcome]) -> Entry:
    """As `outcome_entry`, and when every service starts, and how long after that before it; or the journal."""
    outcome = engine(program(), log=True)
    numbers = np.array([outcome.makespan_ps, outcome.events], np.int64)
    found = [numbers, np.sort(outcome.finish_ps), np.sort(outcome.busy_ps)]
    if outcome.log is not None:
        start_ps, before = outcome.log.start_ps, outcome.log.before
        found += [np.sort(start_ps), np.sort(np.where(before < 0, start_ps, start_ps - start_ps[before]))]
    if outcome.journal is not None:
        found += [np.sort(np.asarray(column, np.int64)) for column in outcome.journal]
    return _entry(outcome.makespan_ps, *found)


def _entry(time_ps: int, *arrays: npt.NDArray[np.int64]) -> Entry:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.size}:".encode())
        digest.update(np.ascontiguousarray(array, "<i8").tobytes())
    return {"time_ps": int(time_ps), "sha256": digest.hexdigest()[:HASH_LETTERS]}


def _training(loop: str) -> Job:
    tensor, data = (Call("all-reduce", 65_536, "tp"),), (Call("all-reduce", 9_600, "dp"),)
    phases = Phase(2000.0, tensor), Phase(2000.0, tensor), Phase(2000.0, data)
    workload = Workload("small", tuple(Layer(f"{layer}", *phases, 50.0) for layer in range(4)))
    groups: Groups = {"tp": (4, 2, 1), "dp": (1, 2, 2)}
    training = Training(loop=loop, bucket_bytes=20_000, updates=True, options={"pipeline_chunks": 2})
    return training_job(from_spec("RI(4)_FC(4)_SW(2)"), workload, groups, training)


def _trained(loop: str) -> Entry:
    return outcome_entry(simulate(_training(loop), chunks=1).outcome)


def _lowered_job(work: Callable[[Model], Job], **of_model: Any) -> Program:
    model = make_model(**of_model)
    return lower(work(model), model, "off").program


def _tenants(model: Model) -> Job:
    fabric = torus((4, 3))
    priority = int(model.discipline == "priority")
    one = Tenant(name="a", work=build("bucket", "all-reduce", fabric, "99991B"), priority=priority)
    other = Tenant(name="b", work=build("direct", "all-to-all", fabric, "30011B"), arrival="777ns")
    return merge([one, other], model)


def _circuits(model: Model) -> Job:
    fabric = from_spec("ocs:16x2,duplex,single,circuits=16")
    return Job.of(planned(build("recursive-doubling", "all-reduce", fabric, "99991B", "bandwidth"), model))


def _pools(discipline: str, per: int) -> Program:
    """Tasks of unequal chunks that share three units of a pool, and a server beside others of their own."""
    builder = ProgramBuilder()
    shared, pool = builder.server(Fraction(10**12, 3)), builder.pool(3, discipline)
    for task in range(9):
        path = [(builder.server(Fraction(10**12, 2 + task % 3)), 5 - task % 4), (shared, 2)]
        work, cutting, after = 7 * task + 3, Cutting(1 + task % 5), [task - 4] if task > 4 else []
        builder.task(work, path[task % 4 == 3 :], cutting, after=after, tie_class=task % 2, priority=task % 3)
        units = 1 + task % 2
        builder.ask(task, pool, units, per)
        builder.give(task, pool, units, per)
    return builder.build()


def _two_steps(to: Carriage) -> None:
    last = to.compute("b", 10**9, after=[to.compute("a", 10**9)])
    to.gradients("b", 40_000_000, last)


def _shared_tree() -> Entry:
    job = Iteration("job", 4, _two_steps)
    jobs = [ClusterJob(job, (0, 5, 10, 15)), ClusterJob(job, (1, 4, 9, 12), 10**8), ClusterJob(job, (2, 3, 6, 7))]
    tree = fat_tree(4, bandwidth=["12.5GB/s", "3GB/s", "3GB/s"], latency="1us", hop_latency=0)
    times = np.array(contended_ps(jobs, tree), np.int64)
    return _entry(int(times.max()), times)


def _reconfigured() -> Entry:
    fabric, model = from_spec("ocs:16x2,duplex,single,circuits=16"), Model(chunks=1, forwarding="store-and-forward")
    result = simulate(
        planned(build("recursive-doubling", "all-reduce", fabric, "256KiB", "bandwidth"), model), model=model
    )
    outcome = result.outcome
    numbers = np.array([outcome.makespan_ps, outcome.events], np.int64)
    return _entry(outcome.makespan_ps, numbers, np.sort(outcome.finish_ps), np.sort(outcome.busy_ps))


def _faulty(algorithm: str, plan: FaultPlan) -> Entry:
    schedule = build(algorithm, "all-reduce", torus((4, 4)), "256KiB")
    result = simulate(schedule, chunks=4, faults=plan)
    assert result.outcome is not None
    return outcome_entry(result.outcome)


DOWN = LinkDown(link="npu0->npu1", at="5us")
SHAKEN = (Straggler(npu="npu3", delay="10us"), Jitter(mean="100ns", link="*"), Loss(link="*", probability=0.001))

JOBS: dict[str, Callable[[], Entry]] = {
    "iteration without overlap": lambda: _trained("no-overlap"),
    "iteration with wait-free backward passes": lambda: _trained("wfbp"),
    "iteration with DeAR": lambda: _trained("dear"),
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

PROGRAMS: dict[str, Callable[[], Program]] = {
    "iteration, links by priority": partial(
        _lowered_job, lambda _: _training("wfbp"), chunks=3, discipline="priority", forwarding="store-and-forward"
    ),
    "iteration, 64 chunks": partial(_lowered_job, lambda _: _training("dear"), chunks=64),
    "two tenants": partial(_lowered_job, _tenants, chunks=5),
    "two tenants by priority": partial(_lowered_job, _tenants, chunk="1500B", discipline="priority"),
    "circuits, switched between steps": partial(_lowered_job, _circuits, chunks=3),
    **{
        f"units of pools {'by task' if per else 'by chunk'}, {discipline}": partial(_pools, discipline, per)
        for discipline in ORDERS for per in (PER_CHUNK, PER_TASK)
    },
}
"""Programs of runs as those of the book, and no line of it."""


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
