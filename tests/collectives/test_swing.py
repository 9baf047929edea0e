"""Swing against the paper: peers, blocks, link loads and hop totals (De Sensi et al., NSDI 2024).

The vectors number ranks with the last dimension fastest, weft with dimension 0 fastest: with the extents reversed
the ranks are the same, and their dimension 0 is our last.
"""

from __future__ import annotations

import numpy as np
import pytest

from collectives import ALGORITHMS, swing
from collectives.butterfly import Grid
from collectives.core.pattern import Pattern
from collectives.swing import odd_groups, rho
from topologies import WeftError, ring, switch, torus
from topologies.flows.load import link_loads


def pattern_of(shape, form="bandwidth", kind="all-reduce", algorithm="swing") -> Pattern:
    functions = ALGORITHMS[algorithm].functions
    options = {"form": form} if kind == "all-reduce" else {}
    return functions[kind](torus(shape), "1MiB", **options).pattern


def peers(pattern: Pattern, port: int = 0) -> list[list[int]]:
    """Receivers of all ranks, step by step, of one port."""
    t = pattern.transfers()
    return [t.dst[(t.port == port) & (t.step == step)].tolist() for step in range(int(t.step.max()) + 1)]


def blocks(pattern: Pattern, rank: int, port: int = 0) -> list[set[int]]:
    """Blocks of a port that a rank sends, step by step."""
    t = pattern.emit(np.array([rank]))
    slots = t.slot[t.port == port]
    return [{block - port * pattern.p for block in pattern.blocks_of(rank, slot)} for slot in slots.tolist()]


@pytest.mark.parametrize("shape", [(6,), (10,), (14,), (24,), (62,), (100,), (6, 10), (12, 2)])
def test_blocks_are_counted_as_they_are_listed(shape: tuple[int, ...]) -> None:
    butterfly = swing._butterfly(Grid(shape), "bandwidth")
    for peers_of, (sent, _, size) in zip(butterfly.ports, butterfly._sets, strict=True):
        assert [size(step) for step in range(len(peers_of))] == [one.bit_count() for one in sent(0)]


def test_a_million_ranks_send_each_block_once() -> None:
    """None of their sets is made, which would not fit in memory."""
    butterfly = swing._butterfly(Grid((10**6,)), "bandwidth")
    assert sum(butterfly._sets[0].size(step) for step in range(len(butterfly.ports[0]))) == 10**6 - 1


def test_distances():
    assert [rho(s) for s in range(12)] == [1, -1, 3, -5, 11, -21, 43, -85, 171, -341, 683, -1365]


S8 = [[1, 0, 3, 2, 5, 4, 7, 6], [7, 2, 1, 4, 3, 6, 5, 0], [3, 6, 5, 0, 7, 2, 1, 4]]
MIRRORED8 = [[7, 2, 1, 4, 3, 6, 5, 0], [1, 0, 3, 2, 5, 4, 7, 6], [5, 4, 7, 6, 1, 0, 3, 2]]
S16 = [
    [r ^ 1 for r in range(16)],
    [15, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 0],
    [3, 14, 5, 0, 7, 2, 9, 4, 11, 6, 13, 8, 15, 10, 1, 12],
    [11, 6, 13, 8, 15, 10, 1, 12, 3, 14, 5, 0, 7, 2, 9, 4],
]
S6 = [[1, 0, 3, 2, 5, 4], [5, 2, 1, 4, 3, 0], [3, 4, 5, 0, 1, 2]]


@pytest.mark.parametrize(("p", "expected"), [(8, S8), (16, S16)])
def test_peers_of_both_forms(p, expected):
    assert peers(pattern_of(p, "latency")) == expected
    assert peers(pattern_of(p, "bandwidth")) == expected + expected[::-1]


def test_peers_of_the_mirror_image():
    assert peers(pattern_of(8, "latency"), port=1) == MIRRORED8


def test_peers_of_six():
    assert peers(pattern_of(6)) == S6 + S6[::-1]


def test_blocks_of_eight_and_sixteen():
    eight, sixteen = pattern_of(8, kind="reduce-scatter"), pattern_of(16, kind="reduce-scatter")
    assert blocks(eight, 0) == [{1, 2, 5, 6}, {4, 7}, {3}]
    assert blocks(eight, 1) == [{0, 3, 4, 7}, {2, 5}, {6}]
    assert blocks(sixteen, 0) == [{1, 2, 5, 6, 9, 10, 13, 14}, {4, 7, 12, 15}, {3, 8}, {11}]
    assert blocks(sixteen, 1) == [{0, 3, 4, 7, 8, 11, 12, 15}, {2, 5, 10, 13}, {9, 14}, {6}]


def test_blocks_of_six_go_only_the_last_time():
    six = pattern_of(6, kind="reduce-scatter")
    assert blocks(six, 0) == [{1, 4}, {2, 5}, {3}]
    assert blocks(six, 1) == [{0, 3}, {2, 5}, {4}]


def test_the_gather_is_the_time_reversal():
    pattern = pattern_of(20)
    steps = 5
    for rank in range(20):
        for step, peer in enumerate(table[rank] for table in peers(pattern)[steps:]):
            assert blocks(pattern, rank)[steps + step] == blocks(pattern, peer)[steps - 1 - step]


@pytest.mark.parametrize(
    ("p", "sizes"),
    [
        (6, [2, 2, 1]), (14, [6, 4, 2, 1]), (18, [2, 8, 4, 2, 1]), (20, [10, 2, 4, 2, 1]), (24, [12, 6, 2, 2, 1]),
        (26, [10, 8, 4, 2, 1]), (48, [24, 12, 6, 2, 2, 1]), (96, [48, 24, 12, 6, 2, 2, 1]),
        (100, [50, 18, 16, 8, 4, 2, 1]), (64, [32, 16, 8, 4, 2, 1]),
    ],
)  # fmt: skip
def test_block_counts(p, sizes):
    t = pattern_of(p, kind="reduce-scatter").transfers()
    for rank in (0, 1, p - 1):
        assert t.blocks[(t.src == rank) & (t.port == 1)].tolist() == sizes


@pytest.mark.parametrize(("p", "sizes"), [(7, [3, 2, 1]), (9, [4, 2, 2]), (27, [13, 7, 3, 2, 1])])
def test_groups_of_an_odd_rank(p, sizes):
    groups = odd_groups(p - 1, len(sizes))
    assert [len(group) for group in groups] == sizes
    assert sorted(rank for group in groups for rank in group) == list(range(p - 1))


def test_seven_ranks():
    pattern = pattern_of(7)
    assert pattern.n_blocks == 14
    t = pattern.emit(np.array([6]))
    first = t.port == 0
    by_step = [t.dst[first & (t.step == step)].tolist() for step in range(6)]
    assert by_step == [[0, 1, 2], [3, 4], [5], [5], [3, 4], [0, 1, 2]]
    carried = [list(pattern.blocks_of(6, slot)) for slot in t.slot[first].tolist()]
    assert carried == [[0], [1], [2], [3], [4], [5], [6], [6], [6], [6], [6], [6]]


THEIR_PORT = {0: 1, 1: 0, 2: 3, 3: 2}
"""Their port of two dimensions, and ours."""


@pytest.mark.parametrize(
    ("port", "of_0", "of_5", "of_10", "sent"),
    [
        (0, [4, 1, 12, 3], [1, 4, 9, 6], [14, 11, 6, 9], [{4, 5, 6, 7, 8, 9, 10, 11}, {1, 2, 13, 14}, {12, 15}, {3}]),
        (1, [1, 4, 3, 12], [4, 1, 6, 9], [11, 14, 9, 6], [{1, 2, 5, 6, 9, 10, 13, 14}, {4, 7, 8, 11}, {3, 15}, {12}]),
        (2, [12, 3, 4, 1], [9, 6, 1, 4], [6, 9, 14, 11], [{8, 9, 10, 11, 12, 13, 14, 15}, {2, 3, 6, 7}, {4, 5}, {1}]),
        (3, [3, 12, 1, 4], [6, 9, 4, 1], [9, 6, 11, 14], [{2, 3, 6, 7, 10, 11, 14, 15}, {8, 9, 12, 13}, {1, 5}, {4}]),
    ],
)
def test_four_by_four(port, of_0, of_5, of_10, sent):
    pattern = pattern_of((4, 4), kind="reduce-scatter")
    table = np.array(peers(pattern, THEIR_PORT[port]))
    assert table[:, [0, 5, 10]].T.tolist() == [of_0, of_5, of_10]
    assert blocks(pattern, 0, THEIR_PORT[port]) == sent


@pytest.mark.parametrize(("port", "expected"), [(0, [4, 1, 3]), (1, [1, 4, 3]), (2, [4, 3, 1]), (3, [3, 4, 1])])
def test_two_by_four(port, expected):
    assert [step[0] for step in peers(pattern_of((4, 2), "latency"), THEIR_PORT[port])] == expected


def test_eight_by_eight():
    pattern = pattern_of((8, 8), "latency")
    assert [step[0] for step in peers(pattern, THEIR_PORT[0])] == [8, 1, 56, 7, 24, 3]
    assert [step[0] for step in peers(pattern, THEIR_PORT[2])] == [56, 7, 8, 1, 40, 5]
    assert [step[9] for step in peers(pattern, THEIR_PORT[0])] == [1, 8, 17, 10, 49, 14]


def busiest(pattern: Pattern, ports=None, tie="first", blocks=False) -> list[float]:
    """Most messages (or blocks) on a link, step by step."""
    t = pattern.transfers()
    some = np.ones(t.src.size, bool) if ports is None else np.isin(t.port, ports)
    loads = []
    for step in range(int(t.step.max()) + 1):
        now = some & (t.step == step)
        weight = t.blocks[now] if blocks else 1.0
        loads.append(float(link_loads(pattern.topology, t.src[now], t.dst[now], weight, tie).max()))
    return loads


@pytest.mark.parametrize(
    ("shape", "all_ports", "one_port"),
    [
        (16, [1, 1, 3, 5], [1, 1, 2, 3]),
        ((8, 8), [1, 1, 1, 1, 3, 3], [1, 1, 1, 1, 2, 2]),
        ((64, 64), [1, 1, 1, 1, 3, 3, 5, 5, 11, 11, 21, 21], [1, 1, 1, 1, 2, 2, 3, 3, 6, 6, 11, 11]),
        ((16, 64), [1, 1, 1, 1, 3, 3, 5, 5, 22, 42], None),
    ],
)
def test_messages_per_link(shape, all_ports, one_port):
    pattern = pattern_of(shape, "latency")
    assert busiest(pattern) == all_ports
    if one_port:
        assert busiest(pattern, ports=[0]) == one_port


def test_plain_and_mirrored_load_every_link_of_the_dimension_alike():
    pattern = pattern_of((16, 16), "latency")
    t = pattern.transfers()
    for step, distance in enumerate([1, 1, 1, 1, 3, 3, 5, 5]):
        now = (t.step == step) & np.isin(t.port, [0, 2])
        loads = link_loads(pattern.topology, t.src[now], t.dst[now], 1.0)
        active = pattern.topology.dimension == step % 2
        assert set(loads[active]) == {distance}
        assert not loads[~active].any()


@pytest.mark.parametrize(
    ("shape", "congestion"),
    [(8, 1.125), (16, 1.4375), (64, 2.1094), ((8, 8), 1.0781), ((64, 64), 1.1843), ((8, 8, 8), 1.0254),
     ((64, 16), 1.2207)],
)  # fmt: skip
def test_congestion_deficiency(shape, congestion):
    pattern = pattern_of(shape, kind="reduce-scatter")
    assert sum(busiest(pattern, blocks=True)) / pattern.p == pytest.approx(congestion, abs=6e-5)


@pytest.mark.parametrize(
    ("shape", "steps", "hops"),
    [((8, 8), 6, 10), ((64, 64), 12, 84), ((64, 16), 10, 52), ((8, 8, 8), 9, 15)],
)
def test_hops_of_the_latency_form(shape, steps, hops):
    pattern = pattern_of(shape, "latency")
    t = pattern.emit(np.array([0]))
    route_hops = np.diff(pattern.topology.paths(t.src, t.dst).ptr)
    assert [route_hops[t.port == port].sum() for port in range(2 * len(shape))] == [hops] * (2 * len(shape))
    assert int(t.step.max()) + 1 == steps


def test_every_rank_sends_p_minus_1_blocks_a_phase():
    for p in range(2, 41, 2):
        t = pattern_of(p, kind="reduce-scatter").transfers()
        assert set(np.bincount(t.src[t.port == 0], t.blocks[t.port == 0])) == {p - 1}


def test_the_default_form_goes_with_the_size():
    fabric = torus((8, 8))
    assert swing.all_reduce(fabric, "32B").pattern.form == "latency"
    assert swing.all_reduce(fabric, "8MiB").pattern.form == "bandwidth"
    assert swing.all_reduce(torus((3, 5)), "8MiB").pattern.form == "latency"


def test_refusals_say_what_is_possible():
    with pytest.raises(WeftError, match="form 'fast' is unknown: choose one of latency, bandwidth"):
        swing.all_reduce(ring(8), "1KiB", form="fast")
    with pytest.raises(WeftError, match=r"torus:6x5: an odd extent among several: \(6, 5\).*all-reduce accepts any"):
        swing.all_reduce(torus((6, 5)), "1KiB", form="bandwidth")


def test_one_rank_of_a_million_is_quick():
    t = swing.all_reduce(switch(2**20), "1GiB", form="bandwidth").pattern.emit(np.array([12345]))
    assert t.src.size == 2 * 2 * 20
    assert t.blocks[:2].tolist() == [2**19] * 2
