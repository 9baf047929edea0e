"""Do the defaults of a NIC count the links that a schedule uses at once, and not all that a fabric has?"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from sim.lower.nics import Ports, ends_of, flows, has_flows, injection_Bps, links_at_once, nics_of, posting_of
from sim.program.model import Model, Nic
from topologies import Topology, from_links, from_spec


@pytest.mark.parametrize(("spec", "algorithm", "links"), [
    ("torus:4x4", "swing", 4), ("torus:4x4", "recursive-doubling", 4), ("torus:2x8", "bucket", 3),
    ("hyperx:8x8", "swing", 4), ("hyperx:8x8", "bucket", 4), ("hyperx:8x8", "direct", 14), ("RI(2)_FC(8)", "swing", 4),
    ("switch:8", "direct", 1), ("circulant:16x1x3x5", "totient-rings", 6),
])
def test_a_nic_is_as_fast_as_twice_the_links_in_use(spec: str, algorithm: str, links: int) -> None:
    """It was twice all 126 links of hyperx:64x64, of which Swing uses four: 5 to 10 % too fast."""
    schedule = build(algorithm, "all-reduce", from_spec(spec, "50GB/s"), "1MiB")
    times = [
        simulate(schedule, nic="shared", nic_order="fifo", injection_rate=rate, nic_engines=engines).time_ps
        for rate, engines in ((None, None), (f"{2 * 50 * links}GB/s", links))
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize(("spec", "preset", "told"), [
    ("hx4mesh:2x1", "swing-paper", "swing-paper is of tori: hx4mesh has other links and endpoints (swing-hx)"),
    ("torus:4x4", "swing-hx",
     "swing-hx is of HammingMesh: torus has other links and endpoints (swing-paper, swing-sst)"),
    ("torus:4x4", "swing-sst", ""), ("hx2mesh:2x2", "swing-hx", ""), ("hyperx:3x3", "swing-sst", ""),
    ("switch:4", "swing-paper", "swing-paper is of tori: switch has other links and endpoints"),
])
def test_a_preset_says_what_fabric_it_was_not_made_for(
    spec: str, preset: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ["--algorithm", "bucket", "-b", "64K"]
    for command, asked in (("compare", one), ("validate", one), ("share", ["--tenant", "all-reduce bucket 64KiB"])):
        assert main([command, "--topology", spec, *asked, "--preset", preset, "--vcs", "1"]) == 0
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# preset")]
        assert said == ([f"# preset {told}"] if told else [])


def unequal() -> Topology:
    """Three NPUs with links of 30, 10 and 20, and of 10 GB/s, behind a switch that sends to all."""
    rates = {(0, 1): 30, (0, 2): 10, (0, 3): 20, (1, 3): 10, (2, 3): 10, (3, 0): 90, (3, 1): 90, (3, 2): 90}
    return from_links([(src, dst, f"{rate}GB/s", 0) for (src, dst), rate in rates.items()], 3, name="unequal")


@pytest.mark.parametrize(("at_once", "first"), [(1, 60), (2, 100), (3, 120), (4, 120)])
def test_a_nic_injects_as_given_or_twice_its_fastest_links(at_once: int, first: int) -> None:
    assert injection_Bps(unequal(), Model(nic=Nic()), at_once).tolist() == [first * 10**9, 20 * 10**9, 20 * 10**9]
    assert injection_Bps(unequal(), Model(nic=Nic(injection_Bps=7.0)), at_once).tolist() == [7, 7, 7]


def test_engines_are_given_or_the_links_that_are_used_at_once() -> None:
    t = unequal()
    keys, task = np.arange(t.n_links + 4), np.arange(2)  # links, three NICs, and what is behind them
    for engines, at_once, most in ((None, 2, [2, 1, 1]), (None, 9, [3, 1, 1]), (5, 2, [5, 5, 5])):
        nics = nics_of(t, keys, Model(nic=Nic(engines=engines)), task, task, 0, at_once)
        assert nics is not None
        assert nics[0].tolist() == [t.n_links + npu for npu in range(3)] and nics[1].tolist() == most
    assert nics_of(t, keys, Model(), task, task, 0, 2) is None
    assert nics_of(t, keys, Model(nic=Nic()), task, None, 0, 2) is None


def test_what_a_model_says_of_nics() -> None:
    """Ends of routes, whether flows matter, and how ranks post."""
    assert [ends_of(model) for model in (Model(), Model(nic=Nic()), Model(nic=Nic(ejection_Bps=1.0)))] == [0, 1, 2]
    assert [has_flows(model) for model in (Model(), Model(nic=Nic()), Model(discipline="round-robin-flow"))] == [
        False, True, True,
    ]
    posted = posting_of(Model(nic=Nic(post_ps=3, push_ps=8, queue_bytes=9, order="fifo")), 2)
    assert posted == (3, Fraction(8, 8192), 9, 2)
    assert posting_of(Model(nic=Nic(queue_bytes=9, order="rotate"))).queue == 1


@pytest.mark.parametrize(("spec", "name", "most"), [
    ("ring:4", "ring", 2), ("torus:1x4", "ring", 2), ("torus:4x4", "ring", 4), ("switch:5", "direct", 4),
])
def test_links_that_a_rank_may_use_at_once(spec: str, name: str, most: int) -> None:
    """Two for each dimension of more than one NPU, or as many as it sends in a step."""
    t = from_spec(spec)
    pattern = build(name, "all-gather", t, "1MiB").pattern
    sent = pattern.emit(np.arange(t.n_npus))
    assert links_at_once(t, [None, sent], Model(nic=Nic())) == most
    assert links_at_once(t, [sent], Model()) == 0
    assert flows(t, sent).tolist() == [src * t.n_nodes + dst for src, dst in zip(sent.src, sent.dst, strict=True)]


def test_ports_that_take_turns_have_numbers_for_each_phase() -> None:
    """Bucket's take turns behind NICs, phase by phase and operation by operation; Swing's, and messages, do not."""
    t = from_spec("torus:4x4")
    (bucket, turns), (swing, steps) = (
        (pattern, pattern.emit(np.arange(16)))
        for pattern in (build(name, "all-reduce", t, "1MiB").pattern for name in ("bucket", "swing"))
    )
    assert Ports(Model(), [(bucket, turns)]).in_turn == 0
    assert Ports(Model(nic=Nic()), [(swing, steps)]).in_turn == 0
    ports = Ports(Model(nic=Nic()), [(swing, steps), (bucket, turns)])
    many = int(turns.port.max()) + 1
    assert ports.in_turn == many and ports.of(swing, steps) == 0 and ports.of(None, turns) == 0
    phases = [sum(step >= first for first in bucket.phases) - 1 for step in turns.step.tolist()]
    assert len(set(phases)) > 1
    for before in (1, 1 + len(bucket.phases)):
        expected = [port + many * (before + phase) for port, phase in zip(turns.port.tolist(), phases, strict=True)]
        assert np.asarray(ports.of(bucket, turns)).tolist() == expected
