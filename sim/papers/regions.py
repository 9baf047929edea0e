"""Iterations of mixtures of experts on regions of MixNet (SIGCOMM 2025), beside a fat-tree, rails and patch panels.

One layer of one region is simulated: tokens to their experts and back, forward and backward, and the computation
between. Regions are alike, and a microbatch passes all layers one after the other; more microbatches change no ratio.
The shared switch of a server is quicker than its interfaces by so much that tensor parallelism is left out, as are data
and pipeline parallelism, less than 6 % of the bytes [1]_.

References
----------
.. [1] X. Liao et al., "MixNet: A Runtime Reconfigurable Optical-Electrical Fabric for Distributed Mixture-of-Experts
   Training", SIGCOMM 2025: models and plans, four all-to-alls a layer, 25 ms of switching, the greedy choice.
.. [2] Its simulator as copied to Gabriel-Yoon/mixnet-htsim c94bae3 (src/clos/ffapp.cpp): pairs of ranks have shares by
   a matrix of 8 x 8, taken modulo 8, whose rows are 32,768 tokens; NVLink of 600 GB/s, which is that of A100.
.. [3] Task graphs of its generator (experiments/taskgraphs there): experts of two matrices, four bytes an element. Its
   dispatches have no bytes (Gabriel-Yoon/mixnet-sim 9e14b34, thermal_pic/results_consolidated.md), so that two
   all-to-alls have what four have in half precision. Its command (mixnet-project/mixnet-sim, README) has attention of
   width 1,024.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.papers.tables import Row, read_published
from sim.simulation import simulate
from topologies import Topology, from_spec
from topologies.boxes import boxes_apart
from topologies.optics import between
from topologies.units import bytes_per_s, parse_time
from workloads.job import Job
from workloads.models.language import WORD, language_model
from workloads.passes.device import device, stack
from workloads.passes.layers import Layers
from workloads.passes.plan import Plan
from workloads.passes.tape import Tape
from workloads.topoopt import Demand, find_topology

Floats = npt.NDArray[np.float64]

SERVERS, EACH, CIRCUITS = 128, 8, 6
"""Servers, interfaces of each, and those on the circuits of its region."""

MICRO_BATCH, SEQUENCE = 8, 4096
TABLE = 8
"""Rows of the simulator's matrix, which repeats where there are more ranks: each repetition adds the bytes again."""

TF32 = 156e12
"""FLOP/s of A100 in matrix products of four bytes (NVIDIA A100 data sheet)."""

SKEW, DRAWS, SWITCHING_S = 0.6, 8, 0.025
"""Of a rank's tokens its k-th expert, in an order of its own, has a share in k^-0.6; gates that are drawn."""

Skew = float | None
"""An exponent; None: what the simulator has as an example, below."""

EXAMPLE: list[list[int]] = read_published("regions")["example"]
"""Tokens of eight ranks for eight experts (src/clos/datacenter/mixnet.cpp of [2]_, in a function without a call)."""

RATES = (100, 200, 400, 800)
FABRICS = ("fat-tree", "regions", "rails", "patch panels")


class Mixture(NamedTuple):
    """A model by its name, experts that it is simulated with, and its plan."""

    model: str
    experts: int
    ep: int
    tp: int
    pp: int


MIXTURES = {
    "Mixtral 8x22B": Mixture("mixtral-8x22b", 8, 8, 8, 8), "Mixtral 8x7B": Mixture("mixtral-8x7b", 8, 8, 4, 4),
    "LLaMA-MoE": Mixture("llama-moe-6.7b", 16, 16, 1, 4), "Qwen-MoE": Mixture("qwen-moe-14.3b", 64, 32, 1, 4),
}


@cache
def computed_s(name: str, own: bool) -> tuple[float, float]:
    """A layer's forward and backward computation on A100: as MixNet's task graphs have it, or by `weft train`."""
    one = MIXTURES[name]
    model, share = language_model(one.model), stack("megatron").constant("a100", "half")[0]
    if own:
        plan = Plan(model=replace(model, experts=one.experts), device=device("a100"), stack=stack("megatron"),
                    efficiency=share, half_efficiency=share, tp=one.tp, dp=one.ep, ep=one.ep, pp=one.pp,
                    micro_batch=MICRO_BATCH, sequence=SEQUENCE)
        forward, backward = (Tape(lambda kind, size_bytes, group: 0) for _ in range(2))
        Layers(plan).forward(forward, 0)
        Layers(plan).backward(backward, 0, "BW")
        return forward.now / 1e12, backward.now / 1e12
    theirs = replace(model, experts=one.experts, shared=0, gated=False, heads=8, kv_heads=8, head_size=128,
                     value_size=128)
    once = theirs.layer_flops(0, SEQUENCE, causal=False) * MICRO_BATCH * SEQUENCE / one.tp / (TF32 * share)
    return once, 2 * once


def demand(name: str, skew: Skew, draw: int, own: bool) -> Floats:
    """Bytes from each rank to each of an expert group in one all-to-all; `own`: each token counts once."""
    one, rng = MIXTURES[name], np.random.default_rng(draw)
    model = language_model(one.model)
    ranks = one.ep if own else TABLE
    if skew is None:
        table = np.array(EXAMPLE) / (MICRO_BATCH * SEQUENCE)
    else:
        wanted = np.arange(1.0, ranks + 1) ** -skew
        table = np.array([rng.permutation(wanted / wanted.sum()) for _ in range(ranks)])
    again = one.ep // ranks
    return np.tile(table, (again, again)) * (MICRO_BATCH * SEQUENCE * model.active * model.hidden * WORD)


def circuits(bytes_of: Floats, ports: int) -> list[tuple[int, int]]:
    """Duplex circuits as MixNet chooses them, one at a time: for the largest pair without any, then that with most
    bytes a circuit, of those whose ends both have a port left. (As printed it ends where one of them has none.)"""
    left, both, chosen = [ports] * len(bytes_of), bytes_of + bytes_of.T, dict[tuple[int, int], int]()
    while some := [(a, b) for a, b in combinations(range(len(left)), 2) if left[a] and left[b] and both[a, b]]:
        a, b = max(some, key=lambda pair: (pair not in chosen, both[pair] / chosen.get(pair, 1)))
        chosen[a, b] = chosen.get((a, b), 0) + 1
        left[a], left[b] = left[a] - 1, left[b] - 1
    return [pair for pair, times in chosen.items() for _ in range(times)]


@lru_cache(maxsize=64)
def _patched(region: int, rate: str) -> Topology:
    """Patch panels by TopoOpt, for regions whose servers all send each other as much; rings carry the little rest."""
    flows = np.kron(np.eye(SERVERS // region), np.ones((region, region)))
    return find_topology(SERVERS, EACH, Demand({SERVERS: 1.0}, flows - np.eye(SERVERS)), bandwidth=rate).topology


def on_fabric(name: str, rate_Gbps: int, fabric: str, sent: Floats) -> tuple[Topology, Floats]:
    """A fabric of a region, and what its NPUs send each other: servers, or on rails the ranks of servers."""
    tp, ranks = MIXTURES[name].tp, len(sent)
    per, rate = EACH // tp, rate_Gbps * 1e9 / 8
    region = ranks // per
    apart = sent.reshape(region, per, region, per) * (1 - np.eye(region))[:, None, :, None]
    if fabric == "rails":  # a server's tokens leave on the rails of the rank that they go to
        matrix = np.zeros((per, region, per, region))
        for at in range(per):
            matrix[at, :, at] = apart[:, :, :, at].sum(axis=1)
        return (boxes_apart(per, region, bandwidth=bytes_per_s(rate * tp), latency="1us", hop_latency=0),
                matrix.reshape(ranks, ranks))
    servers = apart.sum(axis=(1, 3))
    if fabric == "patch panels":
        return _patched(region, bytes_per_s(rate)), servers
    if fabric == "fat-tree":
        return from_spec(f"switch:{region}", bytes_per_s(rate * EACH), "1us", 0), servers
    rates = f"{bytes_per_s(rate * (EACH - CIRCUITS))},{bytes_per_s(rate)}"
    beside = from_spec(f"hybrid:{region}x{CIRCUITS},duplex", rates, "1us", 0)
    return between(beside, circuits(servers, CIRCUITS)), servers


def _direct(topology: Topology, fabric: str, src: list[int], dst: list[int]) -> list[tuple[int, ...]]:
    """In a region the circuit of each pair, or the packet switch: servers pass nothing on; elsewhere nothing."""
    if fabric != "regions":
        return []
    link, switch = {ends: at for at, ends in enumerate(zip(topology.src, topology.dst, strict=True))}, topology.n_npus
    return [(link[pair],) if pair in link else (link[pair[0], switch], link[switch, pair[1]])
            for pair in zip(src, dst, strict=True)]


@cache
def layer_s(name: str, rate_Gbps: int, fabric: str, skew: Skew = SKEW, own: bool = False) -> float:
    """A layer forward and backward, simulated; the mean over gates."""
    total, draws = 0, 1 if skew is None else DRAWS
    for draw in range(draws):
        topology, sent = on_fabric(name, rate_Gbps, fabric, demand(name, skew, draw, own))
        src, dst = (one.tolist() for one in np.nonzero(sent))
        sizes = np.rint(sent[src, dst]).astype(int).tolist()
        job, last = Job(topology), list[int]()
        out, back = (_direct(topology, fabric, *ends) for ends in ((src, dst), (dst, src)))
        for seconds in computed_s(name, own):
            last = [job.send("dispatch", sizes, src, dst, after=last, via=out)]
            last = [job.compute("layer", round(seconds * 1e12), npus=range(len(sent)), after=last)]
            last = [job.send("combine", sizes, dst, src, after=last, via=back)]
        total += simulate(job, chunks=64, tie="split").time_ps
    return total / draws / 1e12


def iteration_s(
    name: str, rate_Gbps: int, fabric: str, skew: Skew = SKEW, *, own: bool = False, switching_s: float = SWITCHING_S,
    every: bool = False,
) -> float:
    """Of one microbatch: all layers, and on regions the circuits for the first, or for every one."""
    layers = language_model(MIXTURES[name].model).layers
    switched = (layers if every else 1) * switching_s if fabric == "regions" else 0.0
    return layers * layer_s(name, rate_Gbps, fabric, skew, own) + switched


def normalized(name: str, rate_Gbps: int, fabric: str, skew: Skew = SKEW, own: bool = False) -> float:
    """An iteration over the shortest of the same model, which is at the highest rate."""
    shortest = min(iteration_s(name, RATES[-1], one, skew, own=own) for one in FABRICS)
    return iteration_s(name, rate_Gbps, fabric, skew, own=own) / shortest


Times = Mapping[tuple[str, int, str], float]
"""Published: of a model, rate and fabric, normalized."""


def iterations(published: Times, quick: bool) -> Iterator[Row]:
    """Each published time beside ours, with the error, and ours where each token counts once, computed as trained."""
    for (name, rate, fabric), time in published.items():
        if not quick or rate in RATES[::3]:
            ours = normalized(name, rate, fabric)
            yield {"model": name, "Gbps": rate, "fabric": fabric, "published": time, "ours": ours,
                   "off_percent": 100 * (ours / time - 1), "tokens_once": normalized(name, rate, fabric, own=True)}


def gates(published: Times, quick: bool) -> Iterator[Row]:
    """How far ours are, fabric by fabric, as the gate is skewed."""
    for skew in (SKEW,) if quick else (0.0, 0.3, SKEW, 0.9, 1.2, None):
        off = {case: 100 * (normalized(*case, skew) / time - 1) for case, time in published.items()}
        for which, fabrics in (("all but patch panels", FABRICS[:3]), *((one, (one,)) for one in FABRICS)):
            some = [one for case, one in off.items() if case[2] in fabrics]
            yield {"skew": "example" if skew is None else skew, "fabric": which, "values": len(some),
                   "within_15_percent": sum(abs(one) <= 15 for one in some),
                   "mean_percent": float(np.mean(np.abs(some))), "most_off_percent": max(some, key=abs)}


def switching(quick: bool) -> Iterator[Row]:
    """Iterations on regions at 400 Gb/s as circuits take longer, over those that take none."""
    for every in (False, True):
        for delay in ("1us", "25ms", "1s") if quick else ("1us", "1ms", "10ms", "25ms", "100ms", "1s", "10s"):
            seconds = parse_time(delay) / 1e12
            yield {"switched": "for every layer" if every else "once", "delay": delay} | {
                name: iteration_s(name, 400, "regions", switching_s=seconds, every=every)
                / iteration_s(name, 400, "regions", switching_s=0.0) for name in MIXTURES}
