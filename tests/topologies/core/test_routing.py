from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import fabrics
from topologies import TIES, TOPOLOGIES, ShortestPathRouter, WeftError, from_links, from_spec, ring, torus
from topologies.core.paths import join_paths
from topologies.core.rateless import wiring_of
from topologies.core.routing import _KNOWN, _Doors, hash64

SAMPLES = [sample for family in TOPOLOGIES.values() for sample in family.samples]
ON_BOARD = "hx4mesh"  # stays on a board of four where the switch would be nearer


def route_nodes(t, paths, route):
    return t.dst[paths.links[paths.ptr[route] : paths.ptr[route + 1]]].tolist()


def one(n, m):
    return np.array([n]), np.array([m])


@pytest.mark.table
@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("generic", [False, True], ids=["own", "shortest-path"])
@pytest.mark.parametrize("spec", SAMPLES)
def test_routes_join_every_pair_of_nodes_by_the_fewest_links(spec, generic, tie, graph_of, all_pairs, check_routes):
    t = from_spec(spec)
    if generic:
        t = replace(t, router=ShortestPathRouter())
    src, dst = all_pairs(t.n_nodes)
    paths = t.paths(src, dst, tie, seed=1)
    distance = dict(nx.all_pairs_shortest_path_length(graph_of(t)))
    shortest = [distance[src[pair]][dst[pair]] for pair in paths.pair]
    hops = check_routes(t, src, dst, paths)
    if spec.startswith(ON_BOARD) and not generic:
        assert all(a >= b for a, b in zip(hops, shortest, strict=True))
    else:
        assert hops == shortest
    if tie == "split":
        counts = np.bincount(paths.pair, minlength=src.size)
        assert np.all((counts == 1) | (counts == 2)) and np.all(np.diff(paths.pair) >= 0)
    else:
        assert np.array_equal(paths.pair, np.arange(src.size))


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
@pytest.mark.parametrize("generic", [False, True], ids=["own", "shortest-path"])
def test_split_is_the_first_route_and_another_one(spec, generic, all_pairs):
    t = from_spec(spec)
    if generic:
        t = replace(t, router=ShortestPathRouter())
    src, dst = all_pairs(t.n_npus)
    first, split = t.paths(src, dst), t.paths(src, dst, tie="split")
    for route, pair in enumerate(split.pair):
        mine = split.links[split.ptr[route] : split.ptr[route + 1]].tolist()
        theirs = first.links[first.ptr[pair] : first.ptr[pair + 1]].tolist()
        assert (mine != theirs) == (route > 0 and split.pair[route - 1] == pair)


def test_a_pair_half_way_round_an_even_ring():
    t = ring(6)
    assert route_nodes(t, t.paths(*one(1, 4)), 0) == [2, 3, 4]
    assert route_nodes(t, t.paths(*one(1, 4), tie="alternating"), 0) == [0, 5, 4]
    assert route_nodes(t, t.paths(*one(2, 5), tie="alternating"), 0) == [3, 4, 5]
    split = t.paths(*one(1, 4), tie="split")
    assert [route_nodes(t, split, 0), route_nodes(t, split, 1)] == [[2, 3, 4], [0, 5, 4]]


@pytest.mark.parametrize(
    ("spec", "routes"), [("ring:2", 2), ("ring:5", 20), ("ring:4", 16), ("torus:2x2", 12), ("ring:6", 36)]
)
def test_only_even_rings_above_two_have_ties(spec, routes, all_pairs):
    t = from_spec(spec)
    src, dst = all_pairs(t.n_npus)
    apart = src != dst
    assert t.paths(src[apart], dst[apart], tie="split").pair.size == routes


def test_two_ties_still_make_two_routes_all_positive_and_all_negative():
    t = torus((4, 4))
    split = t.paths(*one(0, 10), tie="split")
    assert split.pair.tolist() == [0, 0]
    assert route_nodes(t, split, 0) == [1, 2, 6, 10]
    assert route_nodes(t, split, 1) == [3, 2, 14, 10]


def test_alternating_looks_at_the_coordinate_of_each_dimension():
    t = torus((4, 4))
    source = 1 + 4 * 2
    assert route_nodes(t, t.paths(*one(source, 3 + 4 * 0), tie="alternating"), 0) == [8, 11, 15, 3]


def test_without_a_tie_all_rules_agree(all_pairs):
    t = torus((3, 5))
    src, dst = all_pairs(15)
    expected = t.paths(src, dst)
    for tie in TIES:
        paths = t.paths(src, dst, tie, seed=9)
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip(paths, expected, strict=True))


@pytest.mark.parametrize("router", [None, ShortestPathRouter()], ids=["own", "shortest-path"])
def test_ecmp_is_seeded_and_uses_both_ways(router, all_pairs):
    t = torus((8, 8)) if router is None else replace(torus((8, 8)), router=router)
    src, dst = all_pairs(64)
    half = (dst - src) % 8 == 4
    once, again, other = (t.paths(src[half], dst[half], "ecmp", seed=seed).links for seed in (1, 1, 2))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)
    half_x = (dst - src) % 8 == 4
    half_x &= src // 8 == dst // 8
    first, ecmp = (t.paths(src[half_x], dst[half_x], tie, seed=1).links.reshape(64, 4) for tie in ("first", "ecmp"))
    agree = np.count_nonzero((first == ecmp).all(axis=1))
    assert 16 < agree < 48


def test_ecmp_does_not_depend_on_what_else_is_asked():
    t = torus((4, 4))
    src, dst = np.arange(16), (np.arange(16) + 10) % 16
    together = t.paths(src, dst, "ecmp", seed=3)
    for pair in range(16):
        alone = t.paths(src[pair : pair + 1], dst[pair : pair + 1], "ecmp", seed=3)
        assert np.array_equal(alone.links, together.links[together.ptr[pair] : together.ptr[pair + 1]])


@pytest.mark.parametrize("t", [torus((4, 4)), from_spec("fat-tree:4")], ids=["torus", "fat-tree"])
def test_batches_are_joined_without_a_seam(monkeypatch, all_pairs, t):
    src, dst = all_pairs(16)
    for tie in TIES:
        whole = t.paths(src, dst, tie, seed=2)
        monkeypatch.setattr("topologies.core.paths.BATCH", 7)
        parts = t.paths(src, dst, tie, seed=2)
        monkeypatch.undo()
        assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_shortest_paths_in_batches_keep_the_order_of_the_pairs(monkeypatch):
    t = replace(torus((4, 4)), router=ShortestPathRouter())
    src, dst = np.random.default_rng(0).integers(0, 16, (2, 300))
    whole = t.paths(src, dst, "split")
    monkeypatch.setattr("topologies.core.routing._batch_size", lambda topology: 3)
    fresh = replace(torus((4, 4)), router=ShortestPathRouter())
    assert all(np.array_equal(a, b) for a, b in zip(whole, fresh.paths(src, dst, "split"), strict=True))


@pytest.mark.parametrize("spec", ["torus:4x4", "switch:4"])
@pytest.mark.parametrize("generic", [False, True])
def test_no_pairs_no_routes(spec, generic):
    t = from_spec(spec)
    if generic:
        t = replace(t, router=ShortestPathRouter())
    paths = t.paths(np.array([], int), np.array([], int), tie="split")
    assert (paths.ptr.tolist(), paths.links.size, paths.pair.size) == ([0], 0, 0)


def diamond():
    """npu0 to npu3 through npu1 or npu2, and back over npu1 only."""
    links = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 1), (1, 0)]
    return from_links([(src, dst, "1GB/s", "1ns") for src, dst in links], n_npus=4)


def test_lowest_link_first_and_highest_second():
    t = diamond()
    assert route_nodes(t, t.paths(*one(0, 3)), 0) == [1, 3]
    split = t.paths(*one(0, 3), tie="split")
    assert [route_nodes(t, split, 0), route_nodes(t, split, 1)] == [[1, 3], [2, 3]]
    assert t.paths(*one(3, 0), tie="split").pair.tolist() == [0]


def test_another_numbering_has_the_routes_of_the_relabeled_graph():
    """Node for node and link for link, whatever the tie rule that looks at the order of links alone."""
    ladder = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]

    def wired(number):
        return from_links([(number[a], number[b], "1GB/s", 0) for x, y in ladder for a, b in ((x, y), (y, x))], 6)

    t, pairs = wired(range(6)), np.array([(a, b) for a in range(6) for b in range(6) if a != b])
    seen = set()
    for seed in range(8):
        number = np.argsort(np.argsort(hash64(seed, np.arange(6)))).tolist()
        other, moved = wired(number), replace(t, router=ShortestPathRouter(numbering=seed))
        for tie in ("first", "split"):
            mine = moved.paths(*pairs.T, tie=tie)
            its = other.paths(*np.array(number)[pairs].T, tie=tie)
            at = [[number[node] for node in route_nodes(t, mine, route)] for route in range(mine.pair.size)]
            assert at == [route_nodes(other, its, route) for route in range(its.pair.size)]
        seen.add(moved.paths(*pairs.T).links.tobytes())
    assert len(seen) > 1


def test_alternating_without_coordinates_goes_by_the_rank_of_the_source():
    ends = [*((a, b) for a in (0, 1) for b in (2, 3)), (2, 4), (3, 4)]
    t = from_links([(a, b, "1GB/s", 0) for a, b in ends], n_npus=5)
    paths = t.paths(np.array([0, 1]), np.array([4, 4]), tie="alternating")
    assert [route_nodes(t, paths, 0), route_nodes(t, paths, 1)] == [[2, 4], [3, 4]]


def test_parallel_links_are_a_tie():
    t = from_links([(0, 1, "1GB/s", 0), (0, 1, "2GB/s", 0), (1, 0, "1GB/s", 0)], n_npus=2)
    assert t.paths(*one(0, 1), tie="split").links.tolist() == [0, 1]
    chosen = {int(t.paths(*one(0, 1), tie="ecmp", seed=seed).links[0]) for seed in range(20)}
    assert chosen == {0, 1}


def test_an_unreachable_pair_names_both_nodes():
    t = from_links([(0, 1, "1GB/s", 0), (2, 1, "1GB/s", 0)], n_npus=3, name="broken")
    with pytest.raises(WeftError, match="topology broken: no route from npu1 to npu0"):
        t.paths(np.array([0, 1]), np.array([1, 0]))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 7),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25),
    st.sampled_from(TIES),
    st.integers(0, 3),
)
def test_shortest_paths_of_random_graphs(n_npus, ends, tie, seed):
    ends = [(a % n_npus, b % n_npus) for a, b in ends if a % n_npus != b % n_npus]
    t = from_links([(a, b, "1GB/s", 0) for a, b in ends], n_npus=n_npus)
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(n_npus))
    graph.add_edges_from(ends)
    distance = dict(nx.all_pairs_shortest_path_length(graph))
    for src in range(n_npus):
        for dst in range(n_npus):
            if dst not in distance[src]:
                with pytest.raises(WeftError, match=f"no route from npu{src} to npu{dst}"):
                    t.paths(*one(src, dst), tie, seed)
                continue
            paths = t.paths(*one(src, dst), tie, seed)
            for route in range(paths.pair.size):
                links = paths.links[paths.ptr[route] : paths.ptr[route + 1]]
                assert links.size == distance[src][dst]
                assert t.src[links].tolist() == [src, *t.dst[links].tolist()][:-1]
                assert links.size == 0 or t.dst[links[-1]] == dst


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.sampled_from(TIES), st.integers(0, 2**70))
def test_torus_routes_have_the_distance_of_the_coordinates(shape, tie, seed):
    t = torus(shape)
    src, dst = np.random.default_rng(seed % 2**32).integers(0, t.n_npus, (2, 50))
    paths = t.paths(src, dst, tie, seed)
    ahead = (t.coords[dst] - t.coords[src]) % np.array(shape)
    distance = np.minimum(ahead, np.array(shape) - ahead).sum(axis=1)
    assert np.array_equal(np.diff(paths.ptr), distance[paths.pair])
    for route, pair in enumerate(paths.pair):
        links = paths.links[paths.ptr[route] : paths.ptr[route + 1]]
        assert np.all(np.diff(t.dimension[links]) >= 0), "dimension order"
        assert [int(src[pair]), *t.dst[links].tolist()] == [*t.src[links].tolist(), int(dst[pair])]


def test_the_hash_is_the_same_everywhere():
    assert hash64(0).tolist() == [0xE220A8397B1DCDAF], "the first output of SplitMix64 seeded with 0"
    values = hash64(7, np.arange(1000), 3)
    assert np.unique(values).size == 1000
    assert abs(float(np.mean(values % np.uint64(2))) - 0.5) < 0.05
    assert not np.array_equal(hash64(7, np.arange(9), 3), hash64(8, np.arange(9), 3))


def splitmix(seed, *keys):
    """The same in Python's integers, key by key."""

    def mix(z):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ z >> shift) * factor % 2**64
        return z ^ z >> 31

    for key in keys:
        seed = mix((seed + 0x9E3779B97F4A7C15) % 2**64) ^ key
    return mix((seed + 0x9E3779B97F4A7C15) % 2**64)


@pytest.mark.parametrize("seed", [0, 5, 2**63 + 9, 2**64 - 1, 2**64 + 3])
def test_the_hash_is_splitmix_of_the_seed_and_each_key(seed):
    assert hash64(seed, np.array([4]), 7, np.array([2**40])).tolist() == [splitmix(seed, 4, 7, 2**40)]


def three_ways():
    """From each of the first four nodes to node 7 through nodes 4, 5 and 6, of which all are equally near."""
    ends = [*((a, b) for a in range(4) for b in (4, 5, 6)), *((b, 7) for b in (4, 5, 6))]
    return from_links([(a, b, "1GB/s", 0) for a, b in ends], n_npus=8)


def test_of_three_routes_split_and_alternating_take_the_first_and_the_last():
    t = three_ways()
    middle = [route_nodes(t, t.paths(*one(source, 7), "alternating"), 0)[0] for source in range(4)]
    assert middle == [4, 6, 4, 6]
    split = t.paths(*one(0, 7), "split")
    assert [route_nodes(t, split, route)[0] for route in (0, 1)] == [4, 6]


def test_ecmp_draws_by_seed_ends_and_hop():
    t = three_ways()
    for seed in range(20):
        drawn = route_nodes(t, t.paths(*one(2, 7), "ecmp", seed=seed), 0)[0]
        assert drawn == 4 + (splitmix(seed, 2, 7, 0) >> 1) % 3


@pytest.mark.parametrize("most", [1, 2, 3])
def test_two_batches_are_both_taken(monkeypatch, most):
    monkeypatch.setattr("topologies.core.routing._batch_size", lambda topology: most)
    t = replace(ring(4), router=ShortestPathRouter())
    paths = t.paths(np.array([0, 0, 0]), np.array([1, 2, 1]))
    assert [route_nodes(t, paths, route) for route in range(3)] == [[1], [1, 2], [1]]


def test_an_unknown_rule_for_ties_names_those_there_are():
    with pytest.raises(WeftError, match="tie rule 'last' is unknown: choose one of first, split"):
        ring(4).paths(*one(0, 1), "last")


def test_one_part_is_joined_as_it_is():
    paths = ring(4).paths(*one(0, 1))
    assert join_paths([paths]) is paths


def test_what_is_known_about_destinations_is_bounded(monkeypatch):
    t = replace(torus((4, 4)), router=ShortestPathRouter())
    monkeypatch.setattr("topologies.core.routing._batch_size", lambda topology: 1)
    expected = np.diff(torus((4, 4)).paths(np.zeros(16, int), np.arange(16)).ptr)
    for _ in range(2):
        assert np.array_equal(np.diff(t.paths(np.zeros(16, int), np.arange(16)).ptr), expected)
    assert len(_KNOWN[wiring_of(t)]) <= 9


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("spec", ["dragonfly:5x4x2", "fat-tree:4", "switch:3", "ring:2", "one-way"])
def test_hosts_that_share_the_routes_to_their_switch_have_those_of_a_search_of_their_own(
    spec, tie, all_pairs, monkeypatch
):
    t = fabrics.one_way_ring(5) if spec == "one-way" else from_spec(spec)
    pairs = all_pairs(t.n_nodes)
    shared = ShortestPathRouter().paths(t, *pairs, tie, 3)
    nodes = np.arange(t.n_nodes)
    monkeypatch.setattr("topologies.core.routing._doors", lambda t: _Doors(nodes, np.full(nodes.size, -1)))
    own = ShortestPathRouter().paths(t, *pairs, tie, 3)
    assert all(map(np.array_equal, shared, own))
