"""Transfers that name their links take them; the others, and a table without names, take the topology's routes."""

from __future__ import annotations

import numpy as np

from collectives.core import collective as kinds
from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.schedule import schedule
from collectives.core.sends import SendList
from collectives.core.transfers import take
from sim import simulate
from topologies import from_spec, ring


def detour():
    """A broadcast on a ring of four: to rank 1 the long way round, to 2 and 3 as the topology likes."""
    t = ring(4, bandwidth="1GB/s", latency="0s", hop_latency="0s")
    way = t.link_ids(np.array([0, 3, 2]), np.array([3, 2, 1])).tolist()
    sends = SendList()
    sends.add(0, 1, [0], links=way)
    sends.add(0, 2, [0])
    sends.add(0, 3, [0])
    return t, way, sends


def test_named_and_chosen_routes_stand_in_the_order_of_the_transfers():
    t, way, sends = detour()
    transfers, _ = sends.build()
    paths = paths_of(transfers, t)
    assert paths.links[: paths.ptr[1]].tolist() == way
    free = t.paths(transfers.src[1:], transfers.dst[1:])
    assert paths.links[paths.ptr[1] :].tolist() == free.links.tolist()
    assert paths.pair.tolist() == [0, 1, 2]
    plain = transfers._replace(via_ptr=None, via_links=None)
    assert paths_of(plain, t).ptr.tolist() == t.paths(plain.src, plain.dst).ptr.tolist()


def test_rows_keep_their_routes():
    _, way, sends = detour()
    transfers, _ = sends.build()
    taken = take(transfers, np.array([2, 0]))
    assert np.diff(taken.via_ptr).tolist() == [0, 3] and taken.via_links.tolist() == way


def test_a_detour_costs_its_links():
    t, _, sends = detour()
    transfers, blocks = sends.build()
    pattern = Pattern(
        topology=t, kind=kinds.collective("broadcast"), algorithm="detour", n_blocks=1,
        emit=lambda ranks: take(transfers, np.flatnonzero(np.isin(transfers.src, ranks))),
        blocks_of=lambda source, slot: blocks[source, slot],
    )
    result = simulate(schedule(pattern, 10**6), chunks=1, forwarding="store-and-forward")
    busy = result.link_busy_ps.reshape(4, 2)
    assert result.wire_bytes == 3 * 10**6
    assert busy.sum() == (3 + 2 + 1) * 10**9  # three links, two and one, at 1 GB/s


def test_two_routes_between_the_same_ends_stay_apart():
    t = ring(4, bandwidth="1GB/s", latency="0s", hop_latency="0s")
    sends = SendList()
    sends.add(0, 2, [0], links=t.link_ids(np.array([0, 1]), np.array([1, 2])).tolist())
    sends.add(0, 2, [1], links=t.link_ids(np.array([0, 3]), np.array([3, 2])).tolist())
    for rank in (1, 3):
        sends.add(0, rank, [0, 1])
    transfers, blocks = sends.build()
    pattern = Pattern(
        topology=t, kind=kinds.collective("broadcast"), algorithm="two-ways", n_blocks=2,
        emit=lambda ranks: take(transfers, np.flatnonzero(np.isin(transfers.src, ranks))),
        blocks_of=lambda source, slot: blocks[source, slot],
    )
    busy = simulate(schedule(pattern, 2 * 10**6), chunks=1).link_busy_ps
    assert busy[t.link_ids(np.array([1, 3]), np.array([2, 2]))].tolist() == [10**9, 10**9]


def test_dgx_trees_pass_their_switches():
    from collectives import pipelined

    t = from_spec("dgx-a100:2")
    transfers = pipelined.all_gather(t, "1MiB").pattern.transfers()
    assert set(np.diff(transfers.via_ptr).tolist()) <= {2, 4}
