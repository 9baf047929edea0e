import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import WeftError, from_spec, optical, torus, twisted_torus
from topologies.core.epochs import circuit_epochs, packet_links
from topologies.optics import joining, layouts


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
    return n, interfaces, pairs, duplex


@given(some_circuits())
@settings(max_examples=60, deadline=None)
def test_no_server_has_more_links_than_interfaces(circuits):
    n, interfaces, pairs, duplex = circuits
    fabric = optical(*circuits, bandwidth="1GB/s")
    assert fabric.bandwidth_Bps.sum() == 1e9 * len(pairs) * (2 if duplex else 1)
    assert np.all(np.bincount(fabric.src, fabric.bandwidth_Bps, minlength=n) / 1e9 <= interfaces)


def paths_of(fabric, pairs):
    """Nodes on the way of each pair."""
    paths = fabric.paths(*np.array(pairs, np.int64).T)
    ways = np.split(paths.links, paths.ptr[1:-1])
    return [[a, *fabric.dst[way].tolist()] for (a, _), way in zip(pairs, ways, strict=True)]


def test_a_hybrid_uses_the_circuit_where_there_is_one():
    fabric = from_spec("hybrid:6x1", bandwidth=["10GB/s", "50GB/s"], latency="1us")
    assert paths_of(fabric, [(0, 1), (1, 0), (5, 0)]) == [[0, 1], [1, 6, 0], [5, 0]]
    other = joining(fabric, [(1, 0), (1, 2), (2, 1), (3, 1)])
    assert circuits_in(other) == {(1, 2), (3, 1)}  # the nearest, forward, for which there are ports
    assert paths_of(other, [(1, 0), (2, 1)]) == [[1, 6, 0], [2, 6, 1]]
    assert set(other.bandwidth_Bps[packet_links(other)]) == {10e9}


def circuits_in(fabric):
    circuits = ~packet_links(fabric)
    return set(zip(fabric.src[circuits].tolist(), fabric.dst[circuits].tolist(), strict=True))


def test_rails_join_gpus_of_equal_place():
    fabric = from_spec("rails:4x8")
    assert circuits_in(fabric) == {(a, (a + 8) % 32) for a in range(32)}
    other = joining(fabric, [(0, 1), (3, 26), (26, 3)])
    assert circuits_in(other) == {(2, 26), (27, 3)}  # each over the rail of its destination
    assert paths_of(other, [(3, 26), (26, 3), (0, 1)]) == [[3, 32, 2, 26], [26, 35, 27, 3], [0, 32, 1]]
    assert joining(fabric, [(0, 8), (0, 16)]) is None  # one port each


def test_packet_links_stay_up_when_circuits_change():
    fabric = from_spec("rails:4x2")
    other = joining(fabric, [(0, 4), (4, 0)])
    epochs = circuit_epochs([fabric, other])
    stay = set(np.flatnonzero(packet_links(epochs.topology)).tolist())
    assert len(stay) == np.count_nonzero(packet_links(fabric))
    (change,) = epochs.changes()
    assert len(change.down) == 8 and len(change.up) == 2 and not stay & {*change.down, *change.up}


def test_a_pod_is_a_torus_or_a_twisted_one():
    both = layouts(from_spec("pod:4x4x8"))
    for name, built in (("torus", torus), ("twisted", twisted_torus)):
        for column in ("src", "dst", "bandwidth_Bps"):
            assert np.array_equal(getattr(both[name], column), getattr(built((4, 4, 8)), column))
    assert [*layouts(from_spec("pod:4x8x16"))] == ["torus"]


def test_a_patch_panel_plugs_its_first_circuits():
    slow, ahead = (from_spec(f"patch-panel:8x2{more}").optics for more in ("", ",look-ahead"))
    assert slow.paid and ahead.paid and slow.delay_ps - ahead.delay_ps == 300 * 10**12


def test_delays_are_kept_apart():
    assert from_spec("ocs:4x2,delay=30ms+10ms+5s").optics.delay_ps == 5_040 * 10**9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optical(4, 1, ((0, 1), (1, 2))), "server 1 has 2 circuits, and 1 interface for"),
        (lambda: optical(4, 1, ((0, 1), (0, 2)), duplex=False), "server 0 has 2 outgoing circuits"),
        (lambda: optical(4, 1, ((0, 2), (1, 2)), duplex=False), "server 2 has 2 incoming circuits"),
        (lambda: optical(4, 1, ((0, 4),)), "circuit 0-4: its ends are two different servers of 0 to 3"),
        (lambda: optical(4, 1, ((2, 2),)), "circuit 2-2"),
        (lambda: from_spec("rotor:4x4"), "circuits stay up for 1ps or longer, and ports are fewer than servers"),
        (lambda: from_spec("rotor:4x2,policy=demand"), "option 'policy=demand' is unknown: choose among dwell=TIME"),
        (lambda: from_spec("pod:4x4x6"), "a slice is of cubes of 4x4x4"),
        (lambda: from_spec("pod:4x4x16,circuits=twisted"), "circuits 'twisted' is unknown"),
        (lambda: from_spec("rails:4"), "1 extent: write BOXESxGPUS or BOXESxGPUSxPORTS, such as rails:8x8"),
        (lambda: from_spec("ocs:5x2,delay=1us,delay=2us"), "option 'delay' is given twice"),
        (lambda: from_spec("hybrid:4x1,duplex"), "joins 4 servers in pairs only"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(WeftError, match=message):
        call()


def test_what_goes_to_a_switch_or_comes_from_it_asks_for_no_circuit() -> None:
    """Beside a packet switch; on rails the numbers of GPUs exceed those of boxes, and theirs are joined."""
    fabric = from_spec("hybrid:5x2,delay=2us")
    with_switch, without = joining(fabric, {(0, 3), (2, 5), (5, 4)}), joining(fabric, {(0, 3)})
    assert with_switch is not None and without is not None and with_switch.name == without.name
    rails = joining(from_spec("rails:3x4,delay=1us"), {(11, 3)})
    assert rails is not None and rails.paths(np.array([11]), np.array([3])).links.size
