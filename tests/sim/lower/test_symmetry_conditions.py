"""Each condition of the symmetry check: a fabric and transfers that it alone rejects.

Six ranks in a ring, under rotation by two: ranks 0 and 1 represent the others. What is spoiled is spoiled at rank 3 or
at a link of it, so that it shows only in the comparison with rank 1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pytest

from collectives import build
from collectives.core.symmetry import Action, Group, node_group
from collectives.core.transfers import Transfers, TransferTable, take
from sim.lower import quotient as symmetry
from sim.lower.credits import BUBBLES, DATELINES
from sim.lower.marks import Marks
from sim.lower.quotient import check, divide
from sim.program import columns
from topologies import Topology, from_links, from_spec, ring, torus

P = 6
RANKS = np.arange(P)
SPOILED = 3
"""Rank 1 represents it."""


@dataclass
class Sender:
    """Transfers that are all known, emitted for those who are asked for."""

    topology: Topology
    table: Transfers
    n_sources: int | None = None
    asked: list[npt.NDArray[np.integer]] = field(default_factory=list)

    @property
    def p(self) -> int:
        return self.topology.n_npus

    def emit(self, ranks: npt.NDArray[np.integer]) -> Transfers:
        self.asked.append(ranks)
        return take(self.table, np.flatnonzero(np.isin(self.table.src, ranks)))


def two_rounds(p: int = P) -> Transfers:
    """Each rank sends to the next, and again when something has arrived."""
    ranks = np.arange(p)
    table = TransferTable(ranks)
    table.add(slot=0, dst=(ranks + 1) % p, blocks=2, tie_class=0)
    table.add(slot=1, dst=(ranks + 1) % p, blocks=1, tie_class=1, after=[((ranks - 1) % p, 0)])
    return table.build()


def by_two(topology: Topology) -> Group:
    return node_group(topology, "rotation by two", [("two", ((RANKS + 2) % P).astype(np.int32))])


def fault(
    table: Transfers, topology: Topology | None = None, group: Group | None = None, tie: str = "first", ends: int = 0,
    turns: str = "", channels: str = "",
) -> str | None:
    sender = Sender(topology or ring(P), table)
    ranks = symmetry.Ranks(ends, turns=turns, channels=channels)
    return check(sender, divide(sender, group or by_two(sender.topology), tie, 0, ranks), tie, 0)[0]


def row_of(table: Transfers, slot: int, src: int = SPOILED) -> int:
    return int(np.flatnonzero((table.src == src) & (table.slot == slot))[0])


def with_value(table: Transfers, column: str, row: int, value: int) -> Transfers:
    values = getattr(table, column).copy()
    values[row] = value
    return table._replace(**{column: values})


def test_what_is_alike_passes_and_two_ranks_stand_for_six() -> None:
    sender = Sender(ring(P), two_rounds())
    q = divide(sender, by_two(sender.topology), "first", 0)
    assert np.unique(q.orbits.rank).tolist() == [0, 1]
    assert check(sender, q, "first", 0) == (None, "checked in full")
    assert fault(take(two_rounds(), np.zeros(0, np.int64))) is None, "nobody sends anything"


# --- links --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["bandwidth_Bps", "latency_ps"])
def test_links_of_one_orbit_are_alike(column: str) -> None:
    """Also a link that no transfer crosses."""
    fabric = ring(P)
    for link in range(fabric.n_links):
        values = getattr(fabric, column).copy()
        values[link] += 1
        unlike = fabric.with_links(**{column: values})
        group = Group("rotation by two", by_two(fabric).generators)
        assert fault(two_rounds(), unlike, group) == "links of one orbit differ"


def test_nodes_at_the_ends_of_links_of_one_orbit_are_alike() -> None:
    fabric = ring(P)
    hop = fabric.hop_latency_ps.copy()
    hop[SPOILED] += 1
    assert fault(two_rounds(), replace(fabric, hop_latency_ps=hop), by_two(fabric)) == "links of one orbit differ"


# --- NICs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [1, 2])
@pytest.mark.parametrize("spec", ["ring:6", "switch:6"])
def test_routes_begin_and_end_at_nics_of_their_own(ends: int, spec: str) -> None:
    """Where they have hops, and where an NPU is at that end: a switch has no NIC."""
    fabric = from_spec(spec)
    p, nodes = fabric.n_npus, np.arange(fabric.n_nodes)
    src, dst = (one.ravel() for one in np.meshgrid(nodes, nodes, indexing="ij"))
    some = take(two_rounds(), np.zeros(src.size, np.int64))._replace(src=src.astype(np.int32), dst=dst.astype(np.int32))
    bare, found = (
        symmetry.routes_of(some, fabric, "first", 0, symmetry.Ranks(many)).of_transfers()[0] for many in (0, ends)
    )
    for at, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        links = bare.links[bare.ptr[at] : bare.ptr[at + 1]].tolist()
        begin = [fabric.n_links + a] if links and a < p else []
        end = [fabric.n_links + p + b] if links and b < p and ends == 2 else []
        assert found.links[found.ptr[at] : found.ptr[at + 1]].tolist() == begin + links + end


@pytest.mark.parametrize("ends", [0, 1, 2])
@pytest.mark.parametrize(("spec", "turn"), [("ring:6", 2), ("switch:6", 1)])
def test_nics_stand_for_those_of_their_orbit(ends: int, spec: str, turn: int) -> None:
    fabric = from_spec(spec)
    nodes = np.append((RANKS + turn) % P, np.arange(P, fabric.n_nodes)).astype(np.int32)
    sender, group = Sender(fabric, two_rounds()), node_group(fabric, "turn", [("turn", nodes)])
    q = divide(sender, group, "first", 0, symmetry.Ranks(ends))
    assert check(sender, q, "first", 0) == (None, "checked in full")
    nics = np.unique(q.routes.paths.links[q.routes.paths.links >= fabric.n_links]) - fabric.n_links
    assert nics.tolist() == [P * end + rank for end in range(ends) for rank in range(turn)]


@pytest.mark.parametrize(("npu", "unlike"), [(1, False), (1, True), (None, True)])
def test_nics_of_one_orbit_are_alike(npu: int | None, unlike: bool) -> None:
    """What a NIC has comes from all links of its NPU, also from those that nothing crosses and no move touches."""
    more = [(one, (one + 3) % P, "1GB/s" if one == npu else "2GB/s" if unlike else "1GB/s", "100ns")
            for one in (1, 3, 5) if npu is None or one == npu or unlike]
    fabric = from_links([*((a, b, "1GB/s", "100ns") for one in RANKS.tolist()
                           for a, b in ((one, (one + 1) % P), ((one + 1) % P, one))), *more], P)
    end = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(fabric.src, fabric.dst, strict=True))}
    turned = [end[(a, b)] if (b - a) % P == 3 else end[(a + 2) % P, (b + 2) % P] for a, b in end]
    group = Group("turn", (Action(((RANKS + 2) % P)[None].astype(np.int32), np.array(turned, np.int32)),))
    wrong = None if npu is None else "NICs of one orbit differ"
    assert [fault(two_rounds(), fabric, group, ends=ends) for ends in (0, 1, 2)] == [None, wrong, wrong]


def test_a_rank_with_a_nic_stands_for_another_as_a_whole() -> None:
    here = RANKS.astype(np.int32)
    one, apart = (Group("g", (Action(np.tile(here, (n, 1)), here),)) for n in (1, 2))
    for ranks, whole in ((symmetry.Ranks(), False), (symmetry.Ranks(1), True), (symmetry.Ranks(2), True),
                         (symmetry.Ranks(together=True), True), (symmetry.Ranks(1, True), True)):
        assert ranks.keep(one) is True
        assert ranks.keep(apart) is not whole
        assert ranks.keep(Group("g", one.generators + apart.generators)) is not whole


# --- links that serve in turn -------------------------------------------------------------------------------------

TURNS = "round-robin-port", "round-robin-flow"


def to_two(*places: int) -> Transfers:
    """Each rank sends to the ones so many places further."""
    table = TransferTable(RANKS)
    for slot, far in enumerate(places):
        table.add(slot=slot, dst=(RANKS + far) % P, tie_class=slot)
    return table.build()


def test_ports_that_take_turns_keep_representatives_of_their_own() -> None:
    """Into each rank of a switch come two flows, from two links that one represents."""
    fabric = from_spec("switch:6")
    nodes = np.append((RANKS + 1) % P, P).astype(np.int32)
    group = node_group(fabric, "turn", [("turn", nodes)])
    found = [fault(to_two(1, 2), fabric, group, turns=turns) for turns in ("", *TURNS)]
    assert found == [None, "it moves together what takes turns at a link (round-robin-port)", None]
    assert [fault(two_rounds(), fabric, group, turns=turns) for turns in TURNS] == [None, None]


def test_what_begins_at_a_link_takes_turns_with_what_comes_from_another() -> None:
    """Around a ring, two hops: the first of one flow and the second of another are of different flows and ports."""
    for by, way in itertools.product((1, 2), (1, -1)):
        nodes = ((RANKS + by) % P).astype(np.int32)
        group = node_group(ring(P), "turn", [("turn", nodes)])
        assert [fault(to_two(way, 2 * way), group=group, turns=turns) for turns in TURNS] == [None, None]


def test_a_flow_has_one_representative_where_it_takes_turns() -> None:
    """Port 0 turned by two, port 1 by one, over the same link."""
    turned = np.stack([(RANKS + 2) % P, (RANKS + 1) % P]).astype(np.int32)
    nodes = ((RANKS + 1) % P).astype(np.int32)
    links = node_group(ring(P), "turn", [("turn", nodes)]).generators[0].links
    for far in (1, 2):
        table = to_two(far, far)
        said = fault(table._replace(port=table.slot), group=Group("ports", (Action(turned, links),)), turns=TURNS[1])
        assert said == "it moves together what takes turns at a link (round-robin-flow)"


def test_routes_of_one_orbit_take_the_same_channels() -> None:
    """Two steps around a ring: those from rank 5 transit coordinate 0. Turned around, bubbles enter alike."""
    assert fault(to_two(1), channels=DATELINES) is None
    said = "the routes of one orbit take different virtual channels (datelines)"
    assert [fault(to_two(1, 2), channels=one) for one in ("", DATELINES, BUBBLES)] == [None, said, None]


# --- transfers ----------------------------------------------------------------------------------------------------


def test_a_transfer_more_than_the_representative_has_is_noticed() -> None:
    table = two_rounds()
    more = take(table, np.append(np.arange(table.src.size), row_of(table, 1)))
    assert fault(with_value(more, "slot", table.src.size, 2)) == "transfers have no representative"
    none_of_01 = take(table, np.flatnonzero(table.src > 1))
    assert fault(none_of_01) == "transfers have no representative"


def test_a_transfer_less_than_the_representative_has_is_noticed() -> None:
    """Every one that is there has its representative; the link of the absent one is crossed once less."""
    table = two_rounds()
    less = take(table, np.delete(np.arange(table.src.size), row_of(table, 1)))
    assert fault(less) == "links of one orbit are crossed by different transfers"


@pytest.mark.parametrize("column", ["blocks", "tie_class"])
@pytest.mark.parametrize("slot", [0, 1])
def test_transfers_of_one_orbit_are_alike(column: str, slot: int) -> None:
    table = two_rounds()
    assert fault(with_value(table, column, row_of(table, slot), 7)) == "transfers of one orbit differ"


@pytest.mark.parametrize("column", [0, 1, 2])
def test_pools_of_one_orbit_are_alike(column: int) -> None:
    table = two_rounds()
    pool = np.tile(np.array([0, 0, 1], np.int32), (table.src.size, 1))
    assert fault(table._replace(pool=pool.copy())) is None
    pool[row_of(table, 1), column] = 2
    assert fault(table._replace(pool=pool)) == "transfers of one orbit use pools differently"


@pytest.mark.parametrize("column", [0, 1])
def test_rounds_of_one_orbit_are_alike(column: int) -> None:
    table = two_rounds()
    rounds = np.tile(np.array([3, 2], np.int32), (table.src.size, 1))
    assert fault(table._replace(rounds=rounds.copy())) is None
    rounds[row_of(table, 0), column] = 1
    assert fault(table._replace(rounds=rounds)) == "transfers of one orbit stand for different rounds"


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("pool", "transfers of one orbit use pools differently"),
        ("rounds", "transfers of one orbit stand for different rounds"),
    ],
)
def test_a_column_that_the_representatives_lack_is_noticed(column: str, words: str) -> None:
    class Late(Sender):
        def emit(self, ranks: npt.NDArray[np.integer]) -> Transfers:
            found = super().emit(ranks)
            return found if ranks.size == P else found._replace(**{column: None})

    table = two_rounds()
    zeros = np.zeros((table.src.size, 3 if column == "pool" else 2), np.int32)
    sender = Late(ring(P), table._replace(**{column: zeros}))
    q = divide(sender, by_two(sender.topology), "first", 0)
    assert check(sender, q, "first", 0)[0] == words


# --- waits --------------------------------------------------------------------------------------------------------


def test_who_waits_for_less_is_noticed() -> None:
    table = two_rounds()
    at = int(table.dep_ptr[row_of(table, 1)])
    ptr = table.dep_ptr - (table.dep_ptr > at)
    fewer = {name: np.delete(getattr(table, name), at) for name in ("dep_src", "dep_slot", "dep_lag")}
    assert fault(table._replace(dep_ptr=ptr, **fewer)) == "transfers of one orbit wait for different ones"


@pytest.mark.parametrize("block", [2, columns.BLOCK])
@pytest.mark.parametrize(
    ("column", "value"),
    [("dep_src", 3), ("dep_slot", 1), ("dep_lag", 0), ("dep_lag", 2)],
    ids=["of the other orbit", "in another slot", "chunk by chunk", "in a window"],
)
def test_waits_of_one_orbit_are_alike(monkeypatch: pytest.MonkeyPatch, column: str, value: int, block: int) -> None:
    """Rank 3 waits for rank 2, as rank 1 for rank 0; ranks 0 and 4 would do as well, by the orbits."""
    monkeypatch.setattr(columns, "BLOCK", block)
    table = two_rounds()
    at = int(table.dep_ptr[row_of(table, 1)])
    assert fault(with_value(table, "dep_src", at, 4)) is None, "the check is of orbits: 4 stands over 0 as 2 does"
    assert fault(with_value(table, column, at, value)) == "transfers of one orbit wait for different ones"


def test_the_order_in_which_waits_are_listed_does_not_matter() -> None:
    table = TransferTable(RANKS)
    table.add(slot=0, dst=(RANKS + 1) % P, tie_class=0)
    table.add(slot=1, dst=(RANKS + 1) % P, tie_class=1)
    table.add(slot=2, dst=(RANKS + 1) % P, tie_class=2, after=[((RANKS - 1) % P, 0), ((RANKS - 1) % P, 1)])
    built = table.build()
    at = int(built.dep_ptr[row_of(built, 2)])
    slots = built.dep_slot.copy()
    slots[[at, at + 1]] = slots[[at + 1, at]]
    assert fault(built._replace(dep_slot=slots)) is None


# --- routes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "tie"), [(2, "first"), (-1, "first"), (3, "split")], ids=["longer", "other links", "two of them"]
)
def test_routes_of_one_orbit_are_alike(to: int, tie: str) -> None:
    table = two_rounds()
    other = with_value(table, "dst", row_of(table, 1), (SPOILED + to) % P)
    assert fault(other, tie=tie) == "the routes of one orbit differ"


def test_a_route_by_the_same_links_in_another_order_is_noticed() -> None:
    """Named links, round and round: of orbits 0>1 and 1>2 first one, then the other."""
    fabric = from_links([(a, (a + 1) % P, "1GB/s", "0s") for a in range(P)], P)
    one = TransferTable(RANKS)
    one.add(slot=0, dst=(RANKS + 2) % P)
    table = one.build()
    links = np.array([[rank, (rank + 1) % P] for rank in table.src.tolist()], np.int32)
    named = table._replace(via_ptr=np.arange(P + 1, dtype=np.int64) * 2, via_links=links.ravel())
    assert fault(named, fabric) is None
    links[SPOILED] = links[SPOILED, ::-1]
    assert fault(named._replace(via_links=links.ravel()), fabric) == "the routes of one orbit differ"


# --- crossings ----------------------------------------------------------------------------------------------------


def test_a_tie_without_an_order_is_refused() -> None:
    table = two_rounds()
    assert fault(table._replace(tie_class=np.zeros_like(table.tie_class))) == (
        "two transfers tie at a link without an order that the symmetry keeps"
    )


def shared() -> tuple[Topology, Group]:
    """Two ranks whose switch has one link to a third rank: to exchange the two keeps that link."""
    links = [(0, 3), (1, 3), (3, 2), (2, 3), (3, 0), (3, 1)]
    fabric = from_links([(a, b, "1GB/s", "0s") for a, b in links], 3)
    return fabric, node_group(fabric, "exchange", [("0 and 1", np.array([1, 0, 2, 3], np.int32))])


@pytest.mark.parametrize("most", [symmetry.FULL_CHECK_CROSSINGS, 1], ids=["in full", "by sampling"])
def test_a_link_that_the_group_fixes_and_two_ranks_share_is_refused(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A sample has none of the representatives, beside which it would be seen twice."""
    monkeypatch.setattr(symmetry, "FULL_CHECK_CROSSINGS", most)
    fabric, exchange = shared()
    assert len(exchange.generators) == 1
    table = TransferTable(np.arange(3))
    table.add(slot=0, dst=np.array([2, 2, -1]))
    assert fault(table.build(), fabric, exchange) == "it fixes a link that several ranks share"


def twin_links() -> tuple[Topology, Group, npt.NDArray[np.int32]]:
    """Ranks 0 and 1 with two parallel links to rank 2, which the group exchanges with the ranks."""
    fabric = from_links([(a, b, "1GB/s", "0s") for a, b in ((0, 3), (1, 3), (3, 4), (3, 5), (4, 2), (5, 2))], 3)
    end = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(fabric.src, fabric.dst, strict=True))}
    nodes = np.array([1, 0, 2, 3, 5, 4])
    links = np.array([end[int(nodes[a]), int(nodes[b])] for a, b in end], np.int32)
    routes = [[end[rank, 3], end[3, middle], end[middle, 2]] for rank in (0, 1) for middle in (4, 5)]
    return fabric, Group("twins", (Action(nodes[None, :3].astype(np.int32), links),)), np.array(routes, np.int32)


def by_routes(chosen: npt.NDArray[np.int32], slots: int) -> Transfers:
    """Ranks 0 and 1 send to 2 in each slot, by the links given per slot and rank."""
    table = TransferTable(np.arange(2))
    for slot in range(slots):
        table.add(slot=slot, dst=2, tie_class=slot)
    return table.build()._replace(via_ptr=np.arange(2 * slots + 1, dtype=np.int64) * 3, via_links=chosen.ravel())


def test_images_that_share_a_link_of_an_orbit_of_two_are_refused() -> None:
    """Each link is crossed as often as its representative, but twice by images of one transfer."""
    fabric, twins, routes = twin_links()
    by_4_from_0, by_5_from_0, by_4_from_1, by_5_from_1 = routes
    apart = np.array([by_4_from_0, by_5_from_1, by_5_from_0, by_4_from_1])
    assert fault(by_routes(apart, 2), fabric, twins) is None
    together = np.array([by_4_from_0, by_4_from_1, by_5_from_0, by_5_from_1])
    assert fault(by_routes(together, 2), fabric, twins) == "it fixes a link that several ranks share"


# --- ports --------------------------------------------------------------------------------------------------------


def port_by_port() -> Group:
    """Port 0 turns by two, port 1 by one; links are turned by the first."""
    turn = [((RANKS + by) % P).astype(np.int32) for by in (2, 1)]
    one_way = np.arange(P, dtype=np.int32)
    return Group("ports", (Action(np.stack(turn), ((one_way + 2) % P).astype(np.int32)),))


def test_each_port_has_its_own_representatives() -> None:
    fabric = from_links([(a, (a + 1) % P, "1GB/s", "0s") for a in range(P)], P)
    table = TransferTable(RANKS)
    table.add(slot=0, dst=(RANKS + 1) % P, port=0)
    sender = Sender(fabric, table.build())
    q = divide(sender, port_by_port(), "first", 0)
    assert q.orbits.rank.tolist() == [[0, 1, 0, 1, 0, 1], [0] * P]
    assert q.transfers.src.tolist() == [0, 1]
    assert check(sender, q, "first", 0)[0] is None
    pool = np.zeros((P, 3), np.int32)
    assert fault(sender.table._replace(pool=pool), fabric, port_by_port()) == (
        "transfers of one orbit use pools differently"
    ), "a pool is a rank's: its ports must not be divided differently"
    second = sender.table._replace(port=np.ones(P, np.int32))
    assert fault(second, fabric, port_by_port()) == "the routes of one orbit differ"


def test_groups_for_all_ports_and_port_by_port_are_taken_together() -> None:
    """By two for both ports; and the second port, which nobody uses, turned by three."""
    fabric = from_links([(a, (a + 1) % P, "1GB/s", "0s") for a in range(P)], P)
    table = TransferTable(RANKS)
    table.add(slot=0, dst=(RANKS + 1) % P)
    links = ((RANKS + 2) % P).astype(np.int32)
    both = Action(links[None], links)
    apart = Action(np.stack([RANKS, (RANKS + 3) % P]).astype(np.int32), RANKS.astype(np.int32))
    sender = Sender(fabric, table.build())
    q = divide(sender, Group("mixed", (both, apart)), "first", 0)
    assert q.orbits.rank.tolist() == [[0, 1, 0, 1, 0, 1], [0] * P]
    assert check(sender, q, "first", 0)[0] is None


def test_switches_that_send_are_sources_as_well() -> None:
    fabric, _ = shared()
    table = TransferTable(np.arange(4))
    table.add(slot=0, dst=np.array([-1, -1, -1, 2]))
    sender = Sender(fabric, table.build(), n_sources=4)
    q = divide(sender, Group("", ()), "first", 0)
    assert q.transfers.src.tolist() == [3]
    assert check(sender, q, "first", 0)[0] is None
    assert sender.asked[-1].tolist() == [0, 1, 2, 3]


# --- sampling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "value"), [("FULL_CHECK_CROSSINGS", 2 * P - 1), ("FULL_CHECK_TRANSFERS", 2 * P - 1)])
def test_large_ones_are_sampled_among_those_that_are_represented(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    sender = Sender(ring(P), two_rounds())
    q = divide(sender, by_two(sender.topology), "first", 0)
    monkeypatch.setattr(symmetry, limit, value + 1)
    assert check(sender, q, "first", 0) == (None, "checked in full")
    monkeypatch.setattr(symmetry, limit, value)
    assert check(sender, q, "first", 0) == (None, "checked by sampling")
    assert sender.asked[-1].tolist() == [2, 3, 4, 5]
    table = two_rounds()
    assert fault(with_value(table, "blocks", row_of(table, 1), 7)) == "transfers of one orbit differ"


@pytest.mark.parametrize(("limit", "value", "count"), [
    ("SAMPLE_TRANSFERS", 4, 2), ("SAMPLE_TRANSFERS", 1, 1), ("SAMPLE_CROSSINGS", 6, 3), ("SAMPLE_CROSSINGS", 0, 1),
])  # fmt: skip
def test_a_sample_has_no_more_transfers_and_crossings_than_its_limits(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, count: int
) -> None:
    """Two transfers a rank, of one link each."""
    monkeypatch.setattr(symmetry, "FULL_CHECK_CROSSINGS", 1)
    monkeypatch.setattr(symmetry, limit, value)
    sender = Sender(ring(P), two_rounds())
    assert check(sender, divide(sender, by_two(sender.topology), "first", 0), "first", 0)[0] is None
    assert sender.asked[-1].size == count


@pytest.mark.parametrize(
    ("limit", "links", "count"), [("SAMPLE_TRANSFERS", 2, 4), ("SAMPLE_CROSSINGS", 2, 2), ("SAMPLE_CROSSINGS", 1, 4)]
)
def test_one_transfer_a_rank_of_few_links_is_counted_as_such(
    monkeypatch: pytest.MonkeyPatch, limit: str, links: int, count: int
) -> None:
    monkeypatch.setattr(symmetry, "FULL_CHECK_CROSSINGS", 1)
    monkeypatch.setattr(symmetry, limit, 4)
    table = TransferTable(RANKS)
    table.add(slot=0, dst=(RANKS + links) % P)
    sender = Sender(ring(P), table.build())
    turn = node_group(sender.topology, "rotation", [("one", ((RANKS + 1) % P).astype(np.int32))])
    assert check(sender, divide(sender, turn, "first", 0), "first", 0)[0] is None
    assert sender.asked[-1].size == count


# --- how the parts are compared -----------------------------------------------------------------------------------


def test_everybody_represents_itself_under_no_group() -> None:
    table = two_rounds()
    assert fault(table._replace(port=table.slot), group=Group("", ())) is None
    assert fault(table._replace(port=table.slot)) is None, "one group for both ports"


def test_halves_of_a_transfer_that_begin_with_the_same_link_do_not_tie() -> None:
    fabric, _, _ = twin_links()
    table = TransferTable(np.arange(3))
    table.add(slot=0, dst=np.array([2, 2, -1]), tie_class=np.array([0, 1, 0]))
    sender = Sender(fabric, table.build())
    q = divide(sender, Group("", ()), "split", 0)
    paths, _ = q.routes.of_transfers()
    assert paths.pair.tolist() == [0, 0, 1, 1] and np.unique(paths.links[::3]).size == 2
    assert check(sender, q, "split", 0)[0] is None


def test_ports_with_orbits_of_different_sizes() -> None:
    """Clockwise turned by two, two representatives; counterclockwise by one, and one of them."""
    fabric = ring(P)
    end = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(fabric.src, fabric.dst, strict=True))}
    by = {pair: 2 if pair[1] == (pair[0] + 1) % P else 1 for pair in end}
    links = np.array([end[(a + by[a, b]) % P, (b + by[a, b]) % P] for a, b in end], np.int32)
    turns = np.stack([(RANKS + 2) % P, (RANKS + 1) % P]).astype(np.int32)
    table = TransferTable(RANKS)
    table.add(slot=0, dst=(RANKS + 1) % P, port=0)
    table.add(slot=1, dst=(RANKS - 1) % P, port=1, tie_class=1, after=[((RANKS + 1) % P, 1)])
    built = table.build()._replace(dep_lag=np.full(P, 1, np.int32))
    group = Group("ports", (Action(turns, links),))
    sender = Sender(fabric, built)
    q = divide(sender, group, "first", 0)
    assert list(zip(q.transfers.src.tolist(), q.transfers.port.tolist(), strict=True)) == [(0, 0), (1, 0), (0, 1)]
    assert check(sender, q, "first", 0)[0] is None


def test_rows_are_alike_in_all_columns_or_not_at_all() -> None:
    """Five columns of 2^13 values are 2^65: a key of 64 bits would take 4096 in the first one for 0."""
    many = np.arange(2**13)
    rows = np.stack([many] * 5, axis=1)
    assert not symmetry._repeats(columns.joined(*rows.T))
    assert not symmetry._repeats(columns.joined(*np.vstack([rows, [4096, 0, 0, 0, 0]]).T))
    for column in range(5):
        unlike = np.zeros(5, np.int64)
        unlike[column] = 1
        assert not symmetry._repeats(columns.joined(*np.vstack([rows, unlike]).T))
    assert symmetry._repeats(columns.joined(*np.vstack([rows, rows[77]]).T))


def test_rows_are_found_among_few_keys_and_among_keys_far_apart() -> None:
    for key in (np.array([3, 5, 9]), np.array([3, 5, 10**6])):
        assert symmetry.find_rows(key, key).tolist() == [0, 1, 2]
        assert np.all(symmetry.find_rows(key, np.array([0, 4, 2 * 10**6])) <= 2), "a neighbor where it is not there"
    assert symmetry.find_rows(np.zeros(0, np.int64), np.array([4])).tolist() == [0]


# --- the group that is taken --------------------------------------------------------------------------------------


def words(fabric: Topology, algorithm: str = "bucket", symmetric: str = "auto", tie: str = "first") -> str:
    return symmetry.quotient(build(algorithm, "all-reduce", fabric, "1KiB").pattern, tie, 0, symmetric).symmetry


def test_the_words_say_which_group_was_taken_and_what_shrank_it() -> None:
    square = torus((4, 4))
    assert words(square) == "1 of 16 ranks simulated by translations, checked in full"
    assert words(square, symmetric="off") == "all ranks simulated (off)"
    assert words(square, "double-binary-tree") == "all ranks simulated (none declared)"
    differ = "the routes of one orbit differ"
    assert words(torus((4, 3)), "direct", tie="alternating") == (
        f"4 of 12 ranks simulated by translations, checked in full, shrunk: translations: {differ}"
    )
    assert words(square, "direct", tie="alternating") == (
        f"4 of 16 ranks simulated by even translations, checked in full, shrunk: translations: {differ}"
    )
    assert words(square, "direct", tie="ecmp") == (
        f"all ranks simulated (translations: {differ}; even translations: {differ})"
    )


def test_what_a_fabric_rules_out_is_among_the_reasons() -> None:
    assert words(from_spec("mesh:4x4"), "direct").startswith(
        "all ranks simulated (translations: translation in dimension 0 is no symmetry of its links"
    )


def test_where_every_generator_holds_alone_the_last_one_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tie may break only what two of them make together."""

    def not_both(pattern: object, q: symmetry.Quotient, *routing: object, **more: object) -> tuple[str | None, str]:
        return ("both together" if np.unique(q.orbits.rank).size == 1 else None), "looked at"

    monkeypatch.setattr(symmetry, "check", not_both)
    monkeypatch.setattr(symmetry, "_VERDICTS", WeakKeyDictionary())
    assert words(torus((4, 4))) == (
        "4 of 16 ranks simulated by translations, looked at, shrunk: translations: both together"
    )
    assert words(torus((2, 2, 2))).startswith("2 of 8 ranks simulated"), "and no more than the last one"


def test_all_ranks_must_fit_where_none_represents_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(symmetry, "check_capacity", lambda pattern, ranks, chunks: asked.append(ranks))
    words(torus((4, 4)))
    assert asked == []
    words(torus((4, 4)), symmetric="off")
    assert asked == [16]


# --- what faults mark ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["nothing", "a rank", "the last rank", "a link"])
def test_what_faults_mark_is_alike_in_one_orbit(what: str) -> None:
    sender = Sender(ring(P), two_rounds())
    q = divide(sender, by_two(sender.topology), "first", 0)
    ranks, links = (RANKS % 2).astype(np.int64), q.orbits.link.astype(np.int64)
    ranks[SPOILED] += what == "a rank"
    ranks[-1] += what == "the last rank"
    links[-1] += what == "a link"
    found = check(sender, q, "first", 0, Marks(ranks, links))[0]
    assert found == (None if what == "nothing" else "faults of one orbit differ")


def test_marks_of_each_port_are_looked_at() -> None:
    """The first port's representatives keep the marks, the second's do not."""
    fabric = from_links([(a, (a + 1) % P, "1GB/s", "0s") for a in range(P)], P)
    sender = Sender(fabric, take(two_rounds(), np.arange(P)))
    q = divide(sender, port_by_port(), "first", 0)
    marks = Marks((RANKS % 2).astype(np.int64), np.zeros(P, np.int64))
    assert check(sender, q, "first", 0, marks)[0] == "faults of one orbit differ"
    assert check(sender, q, "first", 0, Marks(np.zeros(P, np.int64), np.zeros(P, np.int64)))[0] is None


def test_the_part_of_a_group_that_keeps_the_marks_is_taken() -> None:
    """One column of a square is marked: only moves along it are left, and nothing had to be tried in vain."""
    square = torus((4, 4))
    marks = Marks((square.coords[:16, 0] == 0).astype(np.int64), np.zeros(square.n_links, np.int64))
    pattern = build("bucket", "all-reduce", square, "1KiB").pattern
    found = symmetry.quotient(pattern, "first", 0, marks=marks).symmetry
    assert found == "4 of 16 ranks simulated by translations, checked in full"


def test_windows_of_one_orbit_are_alike() -> None:
    """Three chunks at a time, and four at rank 3: a window is more than whether there is one."""
    table = two_rounds()
    windows = table._replace(dep_lag=np.full(table.dep_lag.size, 3, np.int32))
    assert fault(windows) is None
    other = with_value(windows, "dep_lag", int(table.dep_ptr[row_of(table, 1)]), 4)
    assert fault(other) == "transfers of one orbit wait for different ones"


def test_nics_of_one_orbit_have_as_many_links() -> None:
    """Rank 3 has its bandwidth in two links, the others in one and one that is half as fast, twice."""
    def fabric(parts: tuple[int, ...]) -> Topology:
        links = [(at, (at + 1) % P, "6GB/s", "1ns") for at in range(P) if at != SPOILED]
        return from_links([*links, *((SPOILED, (SPOILED + 1) % P, f"{part}GB/s", "1ns") for part in parts)], P)
    sender = Sender(fabric((6,)), two_rounds())
    q = divide(sender, by_two(sender.topology), "first", 0, symmetry.Ranks(1))
    assert not symmetry._nics_differ(sender, q)
    assert symmetry._nics_differ(Sender(fabric((3, 3)), two_rounds()), q)
    assert symmetry._nics_differ(Sender(fabric((3,)), two_rounds()), q)
