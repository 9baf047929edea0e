"""What users simulate, drawn at random: any algorithm of the registry on any fabric, at any size, under any model.

Decimal rates, sizes that nothing divides, 1 to 64 chunks, NICs slower than the links, as fast, and faster.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from hypothesis import strategies as st

from collectives.registry import ALGORITHMS
from sim.program import DELIVERY, DISCIPLINES, FORWARDING
from sim.program.model import Model, Nic
from sim.program.model_options import DEFAULT_CHUNKS, OPTIONS
from tests.fabrics import random_fabric
from topologies import Topology, from_spec
from topologies.core.ties import TIES

SPECS = (
    "ring:1", "ring:2", "ring:5", "ring:8", "mesh:3x2", "torus:2x2", "torus:4x4", "torus:3x4", "torus:4x2x1",
    "hypercube:3", "fc:3", "fc:4", "switch:4", "hyperx:3x3", "twisted-torus:2x2x4", "leaf-spine:2x2x2",
    "leaf-spine:4x3x3", "circulant:7x1x2", "fat-tree:2", "multidim:RI(2)_FC(3)", "random", "random", "random",
)
CASES = [(name, kind, form) for name, one in ALGORITHMS.items() for kind in one.functions
         for form in one.forms_of(kind) or (None,)]
SIZES = (
    0, 1, 3, 4, 7, 63, 64, 513, 4096, 4097, 99_991, 2**20, 2**20 + 1, 10**6 + 3, 2**26, 2**33 - 1, 2**40, 2**50 + 1,
    2**60,
)
BANDWIDTHS = (None, None, None, "1e15B/s", "33.3GB/s", "12.5GB/s", "1.7GB/s")
NIC_RATES = (None, None, 1e9, 5e9, 2.05e10, 2.5e10, 5e10, 1e11, 3.333e11, 1e15)


@lru_cache(maxsize=256)
def topology_of(spec: str, seed: int, bandwidth: str | None = None) -> Topology:
    """A fabric of its spec, or a random one."""
    return random_fabric(seed, 6) if spec == "random" else from_spec(spec, bandwidth=bandwidth)


def fabrics() -> st.SearchStrategy[Topology]:
    return st.builds(topology_of, st.sampled_from(SPECS), st.integers(0, 39), st.sampled_from(BANDWIDTHS))


def cases() -> st.SearchStrategy[tuple[str, str, str | None]]:
    """Algorithm, collective and form."""
    return st.sampled_from(CASES)


def sizes() -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from(SIZES), st.integers(1, 2**24))


@st.composite
def models(draw: st.DrawFn, disciplines: tuple[str, ...] = DISCIPLINES) -> Model:
    """Of links alone."""
    chunks = draw(st.one_of(st.just(DEFAULT_CHUNKS), st.sampled_from((1, 2, 3, 7, 64)), st.integers(1, 64), st.none()))
    return Model(
        forwarding=draw(st.sampled_from(FORWARDING)), deliver=draw(st.sampled_from(DELIVERY)), chunks=chunks,
        chunk_bytes=draw(st.sampled_from((1000, 8192))) if chunks is None else None,
        discipline=draw(st.sampled_from(disciplines)), header_bytes=draw(st.sampled_from((0, 0, 26))),
        packet_header_bytes=draw(st.sampled_from((0, 0, 40))),
        endpoint_latency_ps=draw(st.sampled_from((0, 0, 1, 750_000))), tie=draw(st.sampled_from(TIES)),
        seed=draw(st.integers(0, 9)),
    )


def nics() -> st.SearchStrategy[Nic]:
    return st.builds(
        Nic, injection_Bps=st.sampled_from(NIC_RATES), ejection_Bps=st.sampled_from(NIC_RATES),
        engines=st.sampled_from((None, None, 1, 2, 3)), post_ps=st.sampled_from((0, 1000, 1000, 31_007, 10**6)),
        push_ps=st.sampled_from((0, 700, 1000, 1000, 5000, 10**6)),
        queue_bytes=st.sampled_from((1, 5000, 70_001, 2**26)), order=st.sampled_from(OPTIONS["nic_order"].choices),
        send_complete=st.sampled_from(OPTIONS["send_complete"].choices),
    )


@st.composite
def models_with_ranks(draw: st.DrawFn) -> Model:
    """Models with NICs, or ranks that wait for all their ports, or both; and buffers."""
    nic = draw(st.one_of(st.none(), nics(), nics()))
    model = draw(st.one_of(models(), models(DISCIPLINES[:1])))
    progress = draw(st.sampled_from(("free", "any", "all", "authors") if nic else ("all", "authors")))
    tie = "first" if model.tie == "split" else model.tie
    buffer = draw(st.sampled_from((None, None, None, 5000, 2**20)))
    return replace(model, nic=nic, rank_progress=progress, tie=tie, buffer_bytes=buffer)
