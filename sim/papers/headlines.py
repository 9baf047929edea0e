"""What the abstracts promise, in one table: published, ours, the error, and the conditions that ours needs.

A published value is quoted from a text that was read; "-" is one that no text at hand gives. Ours is computed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from sim.analytic.constraints import Feasible, budget
from sim.analytic.libra import iteration_time
from sim.optimizer.design import design_analytic
from sim.papers import dear, lhc, libra, topoopt
from sim.papers.tables import Left
from sim.scenarios.topoopt_search import optical_fabric
from sim.study.keys import ModelKeys, TopologyKeys
from sim.study.points import Task, compute
from sim.study.spec import Spec
from topologies.units import format_size
from workloads.compression.gains import GRADIENTS, Compression, compressed_all_reduce
from workloads.compression.rates import INSTANT


class Headline(NamedTuple):
    """One promise; gains are ratios of times."""

    paper: str
    what: str
    published: float | None
    source: str
    ours: float
    conditions: str

    def row(self) -> dict[str, object]:
        """As the table has it."""
        error = None if self.published is None else self.ours / self.published - 1
        return {
            "paper": self.paper, "headline": self.what, "published": self.published, "ours": self.ours, "error": error,
            "conditions": self.conditions, "source": self.source,
        }


def run(left: Left, quick: bool) -> None:
    """Compute every headline and leave the table and the page; `quick` leaves out the cluster of TopoOpt."""
    rows = [one.row() for make in EVERY if not quick or make is not of_topoopt for one in make()]
    left.table("headlines", rows)
    columns = ("paper", "headline", "published", "ours", "error", "conditions", "source")
    cells = [{name: _cell(name, row[name]) for name in columns} for row in rows]
    lines = [f"| {' | '.join(one.values())} |" for one in cells]
    left.page(table=[f"| {' | '.join(columns)} |", "|---|---|--:|--:|--:|---|---|", *lines])
    for one in cells:
        told = "{paper}: {headline}: published {published} ({source}); ours {ours}, error {error}: {conditions}"
        print(told.format(**one))


def _cell(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:+.1%}" if name == "error" else f"{value:.2f}x"
    return "-" if value is None else str(value)


SIZES = (2**19, 2**21, 2**23, 2**25)


def of_swing() -> Iterator[Headline]:
    """The largest gain over the best of the others, on the longest of the published rectangles."""
    spec = Spec(topology=TopologyKeys(spec="torus:128x8"), model=ModelKeys(preset="swing-paper"))
    gains = {}
    for size in SIZES:
        swing, *others = (
            compute(Task(spec, name, size))["time_s"] for name in ("swing", "recursive-doubling", "bucket", "ring")
        )
        gains[size] = min(others) / swing
    best = max(gains, key=lambda size: gains[size])
    yield Headline(
        "Swing", "all-reduce, up to, over the best other algorithm", 3.0, "abstract, 32 B to 128 MiB", gains[best],
        f"{format_size(best)} on torus:128x8, 400 Gb/s, preset swing-paper; of {', '.join(map(format_size, SIZES))}",
    )


def of_topoopt() -> Iterator[Headline]:
    """Mean iteration of the jobs of figure 16 on ideal switches, over that on circuits."""
    jobs, _ = topoopt.cluster_jobs(topoopt.LOAD, 432)
    optics = np.mean(topoopt.alone_ps(jobs, optical_fabric(topoopt.SIZE, 4)))
    for rate, published in ((100, 2.1), (200, 1.02)):
        yield Headline(
            "TopoOpt", f"{topoopt.LOAD} jobs, mean on ideal {rate} Gb/s switches", published,
            "data of figure 16, another draw of jobs",
            float(np.mean(topoopt.alone_ps(jobs, topoopt.ideal(rate))) / optics),
            "d=4 x 100 Gb/s, one draw of the mix 35/30/25/10 %, data parallel, one ring on switches",
        )


def of_libra() -> Iterator[Headline]:
    """The ratio of figure 12 of 2022: the 2D network split equally over the split of each, at the same budget."""
    gains: dict[int, list[float]] = {2: [], 3: [], 4: []}
    for name in libra.TRANSFORMERS:
        for total in libra.BUDGETS_GBPS:
            base = libra.network_of("2D-1K")
            placed = libra.place(name, base, libra.A100_SCALE)
            equal_ns = iteration_time(placed, checkpointed=True).time_ns(np.full(2, total / 2))
            for dims, found in gains.items():
                network = libra.network_of(f"{dims}D-1K")
                time = iteration_time(libra.place(name, network, libra.A100_SCALE), checkpointed=True)
                feasible = Feasible([budget(total, dims, spent=True)], dims)
                found.append(equal_ns / design_analytic(time, feasible).time_ns)
    for dims, found in gains.items():
        for word, gain in (("mean", np.mean(found)), ("up to", max(found))):
            yield Headline(
                "LIBRA", f"best split of {dims}D, {word}, over 2D split equally", None,
                "the ratio of figure 12 (2022 artifact); its values are not at hand", float(gain),
                f"1,024 NPUs, three transformers, 100 to 1000 GB/s, compute x {libra.A100_SCALE:.4g}, by formula",
            )


def of_dear() -> Iterator[Headline]:
    """The largest gain over wait-free backpropagation, with the same fusion and against none."""
    for network, published in (("10 Gb/s Ethernet", 1.83), ("100 Gb/s InfiniBand", 1.15)):
        rates = next(one for one in dear.NETWORKS if one.name == network)
        same = {}
        for fusion in dear.FUSIONS:
            for subject in dear.subjects():
                (slow, _), (fast, _) = dear.best(subject, rates, fusion)
                same[f"{subject.model.name}, fusion {fusion}"] = slow / fast
        best = max(same, key=lambda key: same[key])
        mixed = dear.mixed_gains(dear.subjects(), rates)
        other = max(mixed, key=lambda key: mixed[key])
        yield Headline(
            "DeAR", f"iteration, {network}, up to", published, "abstract: over the state of the art, 64 GPUs",
            same[best],
            f"over wait-free backpropagation: {best}; {1 + mixed[other] / 100:.2f}x tuned against none ({other})",
        )


WORKERS, ELEMENTS, UNION = 8, 10**8, 0.05
"""Of the ring that sums 400 MB; 5 % of nonzeros, those of the published demo, at the same positions."""


def of_compression() -> Iterator[Headline]:
    """6.33x of an all-reduce and 3.74x of an iteration, with the densities, codec rates and shares that they need."""
    ring = partial(lhc.all_reduce_s, "ring", WORKERS)
    throughput, whole = lhc.HEADLINE_THROUGHPUT, lhc.HEADLINE_ITERATION
    for bits in (1, 4):
        one = Compression(1.23, bits)
        line = compressed_all_reduce(ring, ELEMENTS, UNION, one)
        most = (1 / throughput - bits / 32) / one.cells_per_item
        left_s = line.dense_s / throughput - line.total_s
        rate = f"codec at {4e-9 * ELEMENTS / left_s:.3g} GB/s or more" if left_s > 0 else "no codec is fast enough"
        yield Headline(
            "LHC", f"throughput, up to, {bits}-bit index", throughput, "abstract", line.speed_up,
            f"ring of {WORKERS} at 100 Gb/s, union of {UNION:.0%}, codec for free; {throughput}x needs a union of at "
            f"most {most:.1%}, and here {rate}",
        )
    share = (1 - 1 / whole) / (1 - 1 / throughput)
    gains = {one.name: lhc.model_times("ring", one.n_elements, UNION, INSTANT)["iteration_speed_up"]
             for one in GRADIENTS.values()}
    best = max(gains, key=lambda name: gains[name])
    yield Headline(
        "LHC", "iteration, up to", whole, "abstract", gains[best],
        f"{best}, {lhc.COMPUTE_S * 1e3:g} ms of compute (assumed), nothing overlapped, the same ring, union and 1-bit "
        f"index; {whole}x needs {throughput}x where communication is {share:.0%} of an iteration",
    )


EVERY: tuple[Callable[[], Iterator[Headline]], ...] = (of_swing, of_topoopt, of_libra, of_dear, of_compression)
