"""The optimizer against a long Nelder-Mead search on the same simulated objective, on random cases.

    python -m benchmarks.optimize_random [--cases 24] [--evaluations 2000] [--out docs/reference/optimizer-benchmark.md]

A case draws a network, a workload (one or two collectives with weights, on whole or partial groups), a budget, the
latency of wires and the chunks of the pipeline. Nelder-Mead starts from the analytic optimum, from the equal split and
then from random points until its evaluations are used up. Evaluations of ours are engine runs;
both count a collective that is simulated as one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.blackbox import minimize_black_box
from sim.analytic.constraints import Feasible, budget
from sim.analytic.libra import Placed
from sim.analytic.traffic import F64
from sim.optimizer.cuts import optimize
from sim.optimizer.objective import Simulated
from sim.optimizer.programs import collective_objective, iteration_objective
from sim.program.model import Model
from topologies import from_spec
from workloads.training import Training
from workloads.workload import Call, Layer, Phase, Workload

NETWORKS = {
    "RI(4)_FC(8)_RI(4)_SW(32)": ((4, 8, 4, 32), (4, 4, 1, 1), (1, 2, 4, 32)),
    "RI(16)_FC(8)_SW(32)": ((16, 8, 32), (16, 1, 1), (1, 8, 32)),
    "RI(8)_SW(128)": ((8, 128), (8, 1), (1, 128)),
    "RI(8)_FC(8)_SW(16)": ((8, 8, 16), (8, 2, 1), (1, 4, 16)),
    "RI(2)_FC(8)_RI(8)_SW(8)": ((2, 8, 8, 8), (2, 8, 1, 1), (1, 1, 8, 8)),
    "SW(8)_SW(8)_SW(8)": ((8, 8, 8), (8, 1, 1), (1, 8, 8)),
}
"""Network, and the extents of all NPUs, of a tensor-parallel and of a data-parallel group."""

TORI = {"torus:64x16": ("swing", "bucket"), "torus:8x4x4": ("bucket", "swing"), "torus:16x4": ("swing", "bucket")}


class Case(NamedTuple):
    """One problem."""

    name: str
    objective: Simulated
    feasible: Feasible


class Row(NamedTuple):
    """One line of the table; times in us."""

    name: str
    start_us: float
    ours_us: float
    reference_us: float
    ours: int
    reference: int
    ended: str

    @property
    def ratio(self) -> float:
        """Our time over the reference's."""
        return self.ours_us / self.reference_us

    @property
    def fewer(self) -> float:
        """How many times fewer evaluations."""
        return self.reference / self.ours


def cases(count: int, seed: int = 2024) -> Iterator[Case]:
    """Random problems; every fourth is a torus with an algorithm of its own."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        latency = f"{rng.choice([0, 100, 500])}ns"
        total = int(rng.choice([100, 200, 500, 1000]))
        chunks = int(rng.choice([1, 2, 4, 8, 16, 32]))
        if number % 4 == 3:
            yield _torus_case(rng, latency, total, chunks)
        else:
            yield _network_case(rng, latency, total, chunks)


def _torus_case(rng: np.random.Generator, latency: str, total: int, chunks: int) -> Case:
    network = str(rng.choice(list(TORI)))
    algorithm = str(rng.choice(TORI[network]))
    size = int(2 ** rng.uniform(18, 28))
    topology = from_spec(network, latency=latency)
    objective = collective_objective(topology, "all-reduce", algorithm, size, model=Model(chunks=min(chunks, 8)))
    name = f"{network} {algorithm} {size >> 10} KiB, {min(chunks, 8)} chunks, {latency}, {total} GB/s"
    return Case(name, objective, _spent(total, len(topology.shape)))


def _network_case(rng: np.random.Generator, latency: str, total: int, chunks: int) -> Case:
    network = str(rng.choice(list(NETWORKS)))
    whole, tensor, data = NETWORKS[network]
    groups = {"all": whole, "tp": tensor, "dp": data}
    names = [["all"], ["tp", "dp"], ["tp", "all"]][rng.integers(3)]
    calls = [Call("all-reduce", float(int(2 ** rng.uniform(20, 30))), name) for name in names]
    repeats = [int(rng.integers(1, 9)) for _ in calls]
    layers = [Layer(call.group, Phase(0.0, (call,) * times)) for call, times in zip(calls, repeats, strict=True)]
    placed = Placed(Workload("random", tuple(layers)), groups)
    topology = from_spec(network, latency=latency, hop_latency="0ns")
    training = Training(loop="no-overlap", bucket_bytes=None, options={"pipeline_chunks": chunks})
    objective = iteration_objective(topology, [placed], training)
    sizes = " + ".join(
        f"{times} x {call.group} {int(call.size_bytes) >> 20} MiB" for call, times in zip(calls, repeats, strict=True)
    )
    return Case(f"{network} {sizes}, {chunks} chunks, {latency}, {total} GB/s", objective, _spent(total, len(whole)))


def _spent(total: int, n_dims: int) -> Feasible:
    return Feasible([budget(total, n_dims, spent=True)], n_dims)


def solve(case: Case, evaluations: int) -> Row:
    """Ours, then a long search."""
    found = optimize(case.objective, case.feasible)
    parts = len(case.objective.parts)
    reference = long_search(case, evaluations, found.starts[0].bandwidth_GBps)
    return Row(
        case.name,
        found.starts[0].time_ns / 1e3,
        found.best.time_ns / 1e3,
        reference / 1e3,
        found.runs,
        evaluations * parts,
        found.ended,
    )


def long_search(case: Case, evaluations: int, start: F64) -> float:
    """The best of Nelder-Mead runs from many starts, ns."""
    rng = np.random.default_rng(0)
    left, best = evaluations, np.inf
    total, n_dims = float(case.feasible.bound[0]), case.feasible.n_dims
    starts = [start, np.full(n_dims, total / n_dims)]
    while left > n_dims:
        if starts:
            point = starts.pop(0)
        else:
            point = start * np.exp(rng.normal(0.0, 0.5, n_dims))
            point *= total / point.sum()
        found = minimize_black_box(case.objective.time_ns, case.feasible, start=point, max_evaluations=left)
        best, left = min(best, found.value), left - found.evaluations
    return best


def table(rows: list[Row], evaluations: int) -> str:
    """The page."""
    worst = max(row.ratio for row in rows)
    lines = [
        "# The optimizer against a long black-box search",
        "",
        f"{len(rows)} random cases; made by `python -m benchmarks.optimize_random`. *start* is the simulated time at "
        "the analytic optimum, *ours* that of `sim.optimize`, *reference* the best of restarted Nelder-Mead "
        f"runs of {evaluations} evaluations together on the same simulated objective. Evaluations are engine runs; a "
        "case of two collectives simulates each.",
        "",
        f"Ours over reference: worst {worst:.4f}, mean {np.mean([row.ratio for row in rows]):.4f}; within 0.5 % in "
        f"{sum(row.ratio <= 1.005 for row in rows)} of {len(rows)} cases; never worse than the start "
        f"({sum(row.ours_us <= row.start_us for row in rows)} of {len(rows)}); at least ten times fewer evaluations in "
        f"{sum(row.fewer >= 10 for row in rows)} of {len(rows)} (fewest {min(row.fewer for row in rows):.1f}).",
        "",
        "| case | start (us) | ours (us) | reference (us) | ours / reference | evaluations | reference's | fewer |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {row.start_us:.2f} | {row.ours_us:.2f} | {row.reference_us:.2f} | {row.ratio:.4f} | "
            f"{row.ours} | {row.reference} | {row.fewer:.0f}x |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--evaluations", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("docs/reference/optimizer-benchmark.md"))
    arguments = parser.parse_args()
    rows = []
    for case in cases(arguments.cases):
        rows.append(solve(case, arguments.evaluations))
        last = rows[-1]
        print(f"{last.ratio:.4f} {last.ours:4d} {last.fewer:6.1f}x {last.ended}: {case.name}", flush=True)
    arguments.out.write_text(table(rows, arguments.evaluations), encoding="utf-8")


if __name__ == "__main__":
    main()
