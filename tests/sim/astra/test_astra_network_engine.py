"""The network of the compatibility run by itself: times of astra-network-analytical, and what must always hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.astra.network import Clock, MessageNetwork
from tests.oracles.astra_closed_forms import message_ns
from topologies.formats.astra_network import AstraDimension, AstraNetwork

MIB = 2**20


def network(*dims: tuple[str, int], backend: str = "aware") -> tuple[MessageNetwork, Clock]:
    clock = Clock(10**8)
    description = AstraNetwork(tuple(AstraDimension(kind, extent, 50.0, 500.0) for kind, extent in dims))
    return MessageNetwork(description, backend, clock), clock


def pairs(n: int, order: str) -> Iterator[tuple[int, int]]:
    """All pairs by distance, or by source and destination."""
    if order == "rotating":
        return ((i, (i + k) % n) for k in range(1, n) for i in range(n))
    return ((i, j) for i in range(n) for j in range(n) if i != j)


def all_to_all_ns(shape: tuple[int, int], order: str) -> int:
    """Until all has arrived, everything being sent at 0."""
    links, clock = network(("Ring", shape[0]), ("Ring", shape[1]))
    for src, dst in pairs(shape[0] * shape[1], order):
        links.send(("message", 0, src, dst, MIB))
    last = 0

    def arrived(_: object) -> None:
        nonlocal last
        last = clock.now

    for src, dst in pairs(shape[0] * shape[1], order):
        links.receive(("message", 0, src, dst, MIB), arrived)
    clock.run()
    return last


def test_all_to_all_on_small_tori() -> None:
    """Two dimensions with congestion, as the library's engine gives them (599a0473 with routes x, then y)."""
    assert all_to_all_ns((4, 4), "rotating") == 255_403
    assert all_to_all_ns((8, 4), "ascending") == 821_802


@pytest.mark.verify
def test_all_to_all_on_a_large_torus() -> None:
    """524,288 crossings of links."""
    assert all_to_all_ns((16, 16), "rotating") == 12_482_309


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["Ring", "FullyConnected", "Switch"]), st.integers(2, 9), st.integers(0, 8), st.integers(0, 8),
    st.integers(0, 10**7),
)
def test_a_free_way_takes_the_sum_of_its_hops(kind: str, n: int, a: int, b: int, size: int) -> None:
    src, dst = a % n, b % n
    hops = {"Ring": min((dst - src) % n, (src - dst) % n), "FullyConnected": int(src != dst), "Switch": 2}[kind]
    for backend in ("aware", "unaware") if src != dst else ():
        links, clock = network((kind, n), backend=backend)
        ends: list[int] = []
        links.receive(("message", 0, src, dst, size), lambda _, clock=clock, ends=ends: ends.append(clock.now))
        links.send(("message", 0, src, dst, size))
        clock.run()
        once = int(hops * 500.0 + size / (50 * 2**30 / 1e9))
        assert ends == [message_ns(size, 50.0, 500.0, hops) if backend == "aware" else once]


def test_halfway_around_a_ring_goes_clockwise() -> None:
    links, _ = network(("Ring", 4))
    links.send(("message", 0, 3, 1, 8))
    assert sorted(links.links) == [(0, 0, 1), (0, 3, 0)]


def test_each_line_has_its_own_switch() -> None:
    links, _ = network(("Switch", 2), ("Switch", 2))
    for src, dst in pairs(4, "ascending"):
        links.send(("message", 0, src, dst, 8))
    assert len(links.links) == 2 * 2 * 4 and len({(dim, head) for dim, _, head in links.links if head < 0}) == 4


def test_an_early_message_waits_for_its_receive() -> None:
    """It is handed over in the ns of the receive, after what was put there before."""
    links, clock = network(("FullyConnected", 2))
    links.send(("message", 0, 0, 1, 0))
    heard: list[tuple[str, int]] = []

    def receive(_: object) -> None:
        clock.at(clock.now, lambda _: heard.append(("before", clock.now)), None)
        links.receive(("message", 0, 0, 1, 0), lambda _: heard.append(("message", clock.now)))

    clock.at(900, receive, None)
    clock.run()
    assert heard == [("before", 900), ("message", 900)]
