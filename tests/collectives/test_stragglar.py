"""StragglAR: as few rounds as its paper has, one message per rank and direction in each, and its gain."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from collectives.stragglar import powers
from sim import simulate
from sim.faults.plan import FaultPlan, Straggler
from tests.oracles import arrays
from topologies import WeftError, from_spec


@pytest.mark.parametrize("k", range(1, 11))
def test_powers_are_all_elements_and_close_under_addition(k):
    """Oracle: the product of polynomials, bit by bit."""
    found = powers(k)
    assert sorted(found) == list(range(1, 2**k))
    if k > 1:
        modulus = found[k] | 1 << k if len(found) > k else 0b111
        for i in range(len(found)):
            doubled = found[i] << 1
            assert found[(i + 1) % len(found)] == (doubled ^ modulus if doubled >> k else doubled)


@pytest.mark.parametrize("k", range(6))
@pytest.mark.parametrize("seed", range(2))
def test_rounds_ports_and_arrays(k, seed):
    n = 2**k
    late = seed * (n - 1)
    built = build("stragglar", "all-reduce", from_spec(f"switch:{n}"), "1MiB", late=late)
    t = built.pattern.transfers()
    assert built.proof == "proved"
    if n == 1:
        return
    of_round = t.step >= n - 1
    assert int(t.step.max()) + 1 - (n - 1) == n - 2 + k
    assert set(t.step[(t.src == late) | (t.dst == late)]) <= set(t.step[of_round].tolist())
    for end in (t.src, t.dst):
        assert np.unique(np.stack([t.step, end])[:, of_round], axis=1).shape[1] == of_round.sum()
    arrays.run(built.pattern, seed)


@pytest.mark.parametrize("n", [4, 8, 16, 32])
def test_behind_a_late_rank_it_takes_its_rounds(n):
    """After the delay (n - 2 + log2 n) / (n - 1) of the array passes each port, where a ring takes 2 (n - 1) / n."""
    topology = from_spec(f"switch:{n}", "100GB/s")
    plan = FaultPlan(faults=(Straggler(npu=topology.node_name(0), delay="10ms"),))
    after = {}
    for name in ("stragglar", "ring"):
        result = simulate(build(name, "all-reduce", topology, "64MiB"), chunks=16, faults=plan)
        after[name] = result.time_s - 0.01
    ideal = 2**26 / 100e9 * (n - 2 + n.bit_length() - 1) / (n - 1)
    assert ideal < after["stragglar"] < 1.04 * ideal
    assert after["ring"] / after["stragglar"] > {4: 1.1, 8: 1.25, 16: 1.45, 32: 1.6}[n]


def test_refused():
    with pytest.raises(WeftError, match="stragglar on switch:6: 6 ranks are no power of two"):
        build("stragglar", "all-reduce", from_spec("switch:6"), "1MiB")
    with pytest.raises(WeftError, match="late"):
        build("stragglar", "all-reduce", from_spec("switch:8"), "1MiB", late=8)
