from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import Circuits, WeftError, from_spec, hybrid, optical, rotor_matchings


@st.composite
def some_circuits(draw):
    n, interfaces, duplex = draw(st.integers(2, 8)), draw(st.integers(1, 4)), draw(st.booleans())
    out, into, pairs = [0] * n, [0] * n, []
    for a, b in draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20)):
        if a != b and out[a] < interfaces and into[b] < interfaces and (
            not duplex or (out[b] < interfaces and into[a] < interfaces)):
            pairs.append((a, b))
            for x, y in ((a, b), (b, a)) if duplex else ((a, b),):
                out[x] += 1
                into[y] += 1
    return Circuits(n, interfaces, tuple(pairs), duplex)


@given(some_circuits())
@settings(max_examples=60, deadline=None)
def test_no_server_has_more_links_than_interfaces(circuits):
    fabric = optical(circuits, bandwidth="1GB/s")
    assert fabric.bandwidth_Bps.sum() == 1e9 * len(circuits.pairs) * (2 if circuits.duplex else 1)
    rates = np.bincount(fabric.src, fabric.bandwidth_Bps, minlength=circuits.n) / 1e9
    assert np.all(rates <= circuits.interfaces)


@pytest.mark.parametrize("duplex", [False, True])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_rotor_joins_every_pair_once(n, duplex):
    links = Counter(pair for turn in rotor_matchings(n, duplex=duplex) for pair in turn.links())
    assert links == {(a, b): 1 for a in range(n) for b in range(n) if a != b}


def test_a_hybrid_uses_the_circuit_where_there_is_one():
    fabric = hybrid(Circuits(4, 1, ((0, 1),)), bandwidth="50GB/s", switch_bandwidth="10GB/s", latency="1us")
    paths = fabric.paths(np.array([0, 1, 0, 2, 3]), np.array([1, 0, 2, 3, 3]))
    assert np.diff(paths.ptr).tolist() == [1, 1, 2, 2, 0]
    assert fabric.bandwidth_Bps[paths.links].tolist() == [50e9, 50e9, 10e9, 10e9, 10e9, 10e9]


def test_delays_are_kept_apart():
    assert from_spec("ocs:4x2,delay=30ms+10ms+5s").optics.delay_ps == 5_040 * 10**9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Circuits(4, 1, ((0, 1), (1, 2))), "server 1 has 2 circuits, and 1 interfaces"),
        (lambda: Circuits(4, 1, ((0, 1), (0, 2)), duplex=False), "server 0 has 2 outgoing circuits"),
        (lambda: Circuits(4, 1, ((0, 2), (1, 2)), duplex=False), "server 2 has 2 incoming circuits"),
        (lambda: Circuits(4, 1, ((0, 4),)), "circuit 0-4: its ends are two different servers of 0 to 3"),
        (lambda: Circuits(4, 1, ((2, 2),)), "circuit 2-2"),
        (lambda: rotor_matchings(5, duplex=True), "a rotor over 5 servers"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(WeftError, match=message):
        call()
