"""Three systems for slow or odd networks, from the pieces of weft: FusionLLM, DEFER and DistGNN beside what is public.

Of FusionLLM and DEFER only abstracts are public; DistGNN has tables and figures. What cannot be known is said first, on
the page and here: nothing that is published is both taken in and compared.

References
----------
.. [1] Z. Tang et al., "FusionLLM: A Decentralized LLM Training System on Geo-distributed GPUs with Adaptive
   Compression", arXiv 2410.12707.
.. [2] A. Parthasarathy, B. Krishnamachari, "DEFER: Distributed Edge Inference for Deep Neural Networks", COMSNETS
   workshops 2022; the chain as in ANRGUSC/DEFER.
.. [3] V. Md et al., "DistGNN: Scalable Distributed Training for Large-Scale Graph Neural Networks", SC 2021, table 4,
   figures 5 and 6.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from collectives import build
from sim.papers.tables import Left, as_text, md_table, read_published
from sim.simulation import simulate
from topologies import ring, switch
from topologies.units import bytes_per_s, format_rate
from workloads.job import Job
from workloads.passes.timeline import timeline

PS = 1e12


def run(left: Left, quick: bool) -> None:
    """Simulate the three studies, and leave a table of each and the page."""
    tables = {"fusionllm": list(fusion()), "defer": list(defer()), "distgnn": list(distgnn(quick))}
    for name, rows in tables.items():
        left.table(name, rows)
        print(f"{name}\n{as_text(rows)}")
    left.page(
        stages=FUSION_STAGES, microbatches=FUSION_MICROBATCHES, stage_s=STAGE_S, overhead=overhead_s() * max(OUTPUTS),
        exchange_GBps=EXCHANGE_BPS / 1e9, packing_GBps=PACKING_BPS / 1e9, errors=_errors(tables["distgnn"]),
        largest=_largest(tables["distgnn"]), **{name: _table(rows) for name, rows in tables.items()},
    )


def chain_s(
    schedule: str, stages: int, microbatches: int, compute_s: Callable[[str, int], float], bytes_of: Sequence[float],
    rates_Bps: Sequence[float],
) -> float:
    """Time of a pipeline whose stages are joined in a row.

    `compute_s`: of a pass, by its kind (F, BW) and stage.
    `bytes_of`, `rates_Bps`: of the message from each stage to the next and back, and of their link.
    """
    def message_ps(src: int, dst: int) -> int:
        return round(bytes_of[min(src, dst)] / rates_Bps[min(src, dst)] * PS)

    found = timeline(schedule, stages, 1, microbatches,
                     lambda rank, slot: round(compute_s(slot[0].kind, rank) * PS), message_ps)
    return found.end / PS


# --- FusionLLM: a pipeline over links of the Internet, of which the slowest are compressed


FUSION_STAGES, FUSION_MICROBATCHES = 6, 8
ACTIVATION_BYTES = 1_600_000.0  # GPT-2: 1,024 tokens of 768 in half precision
STAGE_S = 0.05  # forward, assumed; backward twice
KEPT_BYTES, DENSE_BYTES = 12, 4  # value and index of a kept element, and an element
RATIOS = (10, 30, 100)


def fusion() -> Iterator[dict[str, Any]]:
    """A slow link in the middle of 10 Gb/s: nothing compressed, everything alike, and the slowest most (AdaTopK)."""
    for slow_bps in (8e6, 1e8, 1e9, 1e10):
        rates = [slow_bps / 8 if link == FUSION_STAGES // 2 else 10e9 / 8 for link in range(FUSION_STAGES - 1)]

        def time_s(ratios: Sequence[float], rates: Sequence[float] = rates) -> float:
            sizes = [ACTIVATION_BYTES * min(1.0, KEPT_BYTES / DENSE_BYTES / ratio) for ratio in ratios]
            return chain_s("gpipe", FUSION_STAGES, FUSION_MICROBATCHES,
                           lambda kind, stage: STAGE_S * (1 if kind == "F" else 2), sizes, rates)

        dense = time_s([1.0] * len(rates))
        for ratio in RATIOS:
            slowest = max(1 / rate for rate in rates)
            adaptive = [max(1.0, 3 * ratio / rate / slowest) for rate in rates]
            alike, adapted = time_s([float(ratio)] * len(rates)), time_s(adaptive)
            yield {"slow_link": format_rate(slow_bps / 8), "ratio": ratio, "dense_s": dense, "uniform_s": alike,
                   "adaptive_s": adapted, "gain": dense / adapted, "gain_over_uniform": alike / adapted}


# --- DEFER: a chain of devices, each with a part of ResNet-50


MACS = (786.0, 513.9, 436.8, 513.9, 436.8, 436.8, 513.9, 220.4)  # millions of a part, ResNet-50 cut at eight additions
OUTPUTS = (3_211_264, 1_605_632, 1_605_632, 802_816, 802_816, 802_816, 401_408, 4_000)  # bytes before coding
DEFER_PUBLISHED = 1.53  # times the throughput of one device, 8 nodes
IMAGES = 40


def overhead_s() -> float:
    """Seconds a byte of coding and sending in units of an inference on one device, fitted on the one published gain.

    A node predicts, encodes and sends in sequence, so that the slowest node, the first, has 1 / 1.53.
    """
    return (1 / DEFER_PUBLISHED - MACS[0] / sum(MACS)) / OUTPUTS[0]


def defer() -> Iterator[dict[str, Any]]:
    """Throughput over one device's, without and with the overhead, of parts that are joined."""
    whole, a_byte = sum(MACS), overhead_s()
    for nodes in (2, 4, 8):
        each = len(MACS) // nodes
        macs = [sum(MACS[first:first + each]) for first in range(0, len(MACS), each)]
        sizes = [OUTPUTS[first + each - 1] for first in range(0, len(MACS), each)]
        row: dict[str, Any] = {"nodes": nodes}
        for name, cost in (("compute_alone", 0.0), ("with_overhead", a_byte)):
            job, arrived = Job(ring(nodes, bandwidth="1TB/s", latency="0s")), [list[int]() for _ in range(IMAGES)]
            for node in range(nodes):
                last: list[int] = []
                busy = round((macs[node] / whole + cost * sizes[node]) * PS)
                for image in range(IMAGES):
                    last = [job.compute("part", busy, npus=[node], after=[*last, *arrived[image]])]
                    arrived[image] = [] if node == nodes - 1 else [
                        job.send("output", 1, [node], [node + 1], after=last, detached=True)]
            row[name] = _steady(job, nodes)
        yield row | {"published": DEFER_PUBLISHED if nodes == len(MACS) else None}


def _steady(job: Job, nodes: int) -> float:
    """Images a unit of time behind the first."""
    result = simulate(job, chunks=1)
    ends = sorted(span.end_ps for span in result.spans()
                  if span.rank == nodes - 1 and job.operations[span.operation].kind == "part")
    return (len(ends) - 1) / (ends[-1] - ends[0]) * PS


# --- DistGNN: full-batch training of a graph that is cut at vertices


class Graph(NamedTuple):
    """A data set: millions of vertices, widths of what is aggregated, classes, and the epoch of one socket, s."""

    vertices_M: float
    widths: tuple[int, ...]
    classes: int
    alone_s: float
    replication: Mapping[int, float]  # by sockets: copies of a vertex
    published: Mapping[str, Mapping[int, float]]  # by algorithm and sockets, s


def _by_sockets(times: Mapping[str, float]) -> dict[int, float]:
    return {int(sockets): time for sockets, time in times.items()}


GRAPHS = {
    name: Graph(**one | {
        "widths": tuple(one["widths"]), "replication": _by_sockets(one["replication"]),
        "published": {algorithm: _by_sockets(times) for algorithm, times in one["published"].items()}})
    for name, one in read_published("seeds")["graphs"].items()
}
EXCHANGE_BPS, PACKING_BPS = 0.89e9 / 0.7, 0.89e9 / 0.48
"""Of a socket, which sends 0.89 GB of Products on 64 sockets: in 0.7 s, packed and unpacked in 0.48 s (figure 6)."""

DENSE_FLOPS = 1.5e12  # of a socket of 28 cores: a third of the peak, assumed
DELAYS = {"0c": 0, "cd-0": 1, "cd-5": 5}  # epochs that share the exchange; 0: none


def vertex_share(graph: Graph) -> float:
    """Share of the epoch of one socket that is work on vertices: matrix products, which copies repeat."""
    weights = sum(a * b for a, b in pairwise((*graph.widths, graph.classes)))
    return 6e6 * graph.vertices_M * weights / DENSE_FLOPS / graph.alone_s


def sent_bytes(graph: Graph, sockets: int, width: int) -> float:
    """Of a socket to the roots: what it has of each copied vertex, and its degree; as much comes back."""
    return (graph.replication[sockets] - 1) * graph.vertices_M * 1e6 * 4 * (width + 1) / sockets


def epoch_s(graph: Graph, sockets: int, algorithm: str) -> float:
    """An epoch: each layer aggregates, then leaves send to roots and these back; backward nothing is exchanged."""
    job = Job(switch(sockets, bandwidth=bytes_per_s(EXCHANGE_BPS), latency="0s"))
    copies, share, delay = graph.replication[sockets], vertex_share(graph), DELAYS[algorithm]
    local = graph.alone_s / sockets * (1 - share + share * copies)
    at, late = list[int](), list[int]()
    for width in graph.widths:
        at = [job.compute("forward", round(local / 3 * width / sum(graph.widths) * PS), after=at)]
        sent = sent_bytes(graph, sockets, width)
        for way in ("to roots", "to leaves") if delay else ():
            at = [job.compute("packing", round(sent / delay / PACKING_BPS * PS), after=at)]
            size = round(sent * sockets / (sockets - 1) / delay)
            exchange = build("direct", "all-to-all", job.topology, size)
            number = job.collective(way, exchange, after=[*at, *late])
            at, late = ([number], late) if algorithm == "cd-0" else (at, [number])
    job.compute("backward", round(local * 2 / 3 * PS), after=at)
    return simulate(job, chunks=1).time_s


def distgnn(quick: bool) -> Iterator[dict[str, Any]]:
    """Every cell of figure 5."""
    for name, graph in GRAPHS.items():
        for algorithm, cells in graph.published.items():
            for sockets, published in cells.items():
                if quick and sockets > 16:
                    continue
                found = epoch_s(graph, sockets, algorithm)
                yield {"graph": name, "algorithm": algorithm, "sockets": sockets, "published_s": published,
                       "simulated_s": found, "ratio": found / published, "published_speedup": graph.alone_s / published,
                       "simulated_speedup": graph.alone_s / found}


# --- the page


def _errors(rows: Sequence[Mapping[str, Any]]) -> str:
    by = {name: [abs(row["ratio"] - 1) for row in rows if row["algorithm"] == name] for name in DELAYS}
    return ", ".join(f"{name} {sum(some) / len(some):.0%}, {max(some):.0%}" for name, some in by.items() if some)


def _largest(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    last = {(row["graph"], row["algorithm"]): row for row in rows}
    columns = ("graph", "algorithm", "sockets", "published_speedup", "simulated_speedup")
    return _table([{column: row[column] for column in columns} for row in last.values()])


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return md_table([name.replace("_", " ") for name in rows[0]], [[*row.values()] for row in rows], len(rows[0]))
