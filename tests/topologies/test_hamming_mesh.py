import networkx as nx
import numpy as np
import pytest

from topologies import TIES, WeftError, from_spec, hamming_mesh
from topologies.core.symmetry import link_permutation, translation


def link_names(t, src, dst, **options):
    paths = t.paths(np.array([src]), np.array([dst]), **options)
    return [tuple(t.coords[node].tolist()) for node in t.dst[paths.links]]


def npu(t, x, y):
    return x + y * t.shape[0]


def test_counts_of_hx2mesh():
    t = hamming_mesh((2, 2), (16, 16))
    assert t.shape == (32, 32) and t.name == "hx2mesh:16x16"
    assert t.n_nodes == 1024 + 32 + 32
    on_board = (t.src < 1024) & (t.dst < 1024)
    assert np.count_nonzero(on_board) == 256 * 8
    assert np.count_nonzero(~on_board) == 2 * (1024 + 1024)


def test_row_and_column_switches_meet_the_edges_of_the_boards():
    t = hamming_mesh((4, 2), (2, 3))
    row = int(np.flatnonzero((t.coords == (-1, 5)).all(axis=1))[0])
    column = int(np.flatnonzero((t.coords == (3, -1)).all(axis=1))[0])
    ends = {node: t.coords[t.dst[t.link_ptr[node] : t.link_ptr[node + 1]]].tolist() for node in (row, column)}
    assert ends[row] == [[0, 5], [3, 5], [4, 5], [7, 5]]
    assert ends[column] == [[3, y] for y in range(6)]


def test_an_npu_at_both_edges_has_one_cable():
    t = hamming_mesh((1, 1), (3, 2))
    assert np.all(np.diff(t.link_ptr)[:6] == 2)
    assert np.all(t.hop_latency_ps[:6] == 0), "boards of one NPU are plain endpoints"


def test_one_board_has_no_switches():
    t = hamming_mesh((3, 2), (1, 1))
    assert t.n_nodes == 6 and t.n_links == 14


def test_routes_stay_on_a_board_or_take_the_nearer_edges():
    t = hamming_mesh((4, 4), (3, 2))
    assert link_names(t, npu(t, 0, 0), npu(t, 3, 0)) == [(1, 0), (2, 0), (3, 0)]
    assert link_names(t, npu(t, 1, 0), npu(t, 10, 0)) == [(0, 0), (-1, 0), (11, 0), (10, 0)]
    assert link_names(t, npu(t, 3, 2), npu(t, 4, 2)) == [(-1, 2), (4, 2)]
    assert link_names(t, npu(t, 3, 3), npu(t, 4, 4)) == [(-1, 3), (4, 3), (4, -1), (4, 4)]


def test_from_the_middle_of_a_board_the_lower_edge_is_first():
    t = hamming_mesh((3, 1), (2, 1))
    assert link_names(t, 1, 4) == [(0, 0), (-1, 0), (3, 0), (4, 0)]
    assert link_names(t, 1, 4, tie="alternating") == [(2, 0), (-1, 0), (5, 0), (4, 0)]
    split = t.paths(np.array([1]), np.array([4]), tie="split")
    assert split.pair.tolist() == [0, 0]
    assert t.dst[split.links].tolist() == [0, 6, 3, 4, 2, 6, 5, 4]


def test_between_the_edges_of_a_board_the_switch_is_the_second_way():
    t = hamming_mesh((4, 4), (2, 2))
    board, switch = [(2, 0), (1, 0), (0, 0)], [(-1, 0), (0, 0)]
    assert link_names(t, npu(t, 3, 0), npu(t, 0, 0)) == board
    assert link_names(t, npu(t, 3, 0), npu(t, 0, 0), tie="alternating") == switch
    assert link_names(t, npu(t, 0, 0), npu(t, 3, 0), tie="alternating") == [(1, 0), (2, 0), (3, 0)]
    assert link_names(t, npu(t, 3, 0), npu(t, 0, 0), tie="split") == board + switch
    assert link_names(t, npu(t, 3, 0), npu(t, 1, 0), tie="alternating") == board[:2]
    alone = hamming_mesh((4, 4), (1, 2))
    assert link_names(alone, npu(alone, 3, 0), npu(alone, 0, 0), tie="alternating") == board


def test_traces_cables_and_switches_have_their_own_latencies():
    t = hamming_mesh(
        (2, 2), (2, 2), latency=["20ns", "30ns"], trace_latency=["1ns", "2ns"], hop_latency="5ns", switch_latency="7ns"
    )
    on_board = (t.src < t.n_npus) & (t.dst < t.n_npus)
    for dim, (trace, cable) in enumerate([(1_000, 20_000), (2_000, 30_000)]):
        assert set(t.latency_ps[on_board & (t.dimension == dim)].tolist()) == {trace}
        assert set(t.latency_ps[~on_board & (t.dimension == dim)].tolist()) == {cable}
    assert set(t.hop_latency_ps[: t.n_npus].tolist()) == {5_000}
    assert set(t.hop_latency_ps[t.n_npus :].tolist()) == {7_000}
    named = from_spec("hx2mesh:2x2", None, "20ns,30ns", "5ns", trace_latency="1ns,2ns", switch_latency="7ns")
    assert np.array_equal(named.latency_ps, t.latency_ps)
    assert np.array_equal(named.hop_latency_ps, t.hop_latency_ps)


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        ("torus:4x4", {"trace_latency": "1ns"}, "'torus:4x4' is no HammingMesh: omit trace latency '1ns'"),
        ("fabric.json", {"switch_latency": "1ns"}, "'fabric.json' is no HammingMesh: omit switch latency '1ns'"),
        ("hx2mesh:2x2", {"trace_latency": "1ns,2ns,3ns"}, "trace latency has 3 values"),
        ("hx2mesh:2x2", {"trace_latency": "1"}, "trace latency '1' is not a time"),
    ],
)
def test_latencies_of_classes_are_of_hamming_meshes(spec, given, message):
    with pytest.raises(WeftError, match=message):
        from_spec(spec, **given)


def test_default_latencies_add_up_to_those_of_the_published_figures():
    """A hop on a board 0.1 us; edge to edge through a switch 0.506 us: by spec, whatever the board, as in Python."""
    for t in (hamming_mesh((2, 2), (2, 2)), from_spec("hx2mesh:2x2"), from_spec("hx3mesh:2x2")):
        hop = t.latency_ps + t.hop_latency_ps[t.dst]
        paths = t.paths(np.array([0, t.n_npus]), np.array([1, 0]))
        assert hop[paths.links[:1]].tolist() == [100_000]
        up, down = t.link_ids(np.array([0, t.n_npus]), np.array([t.n_npus, 0]))
        assert hop[up] + hop[down] == 506_000


@pytest.mark.parametrize("spec", ["hx2mesh:2x3", "hx3mesh:2x2", "hx3x1mesh:2x3"])
@pytest.mark.parametrize("tie", TIES)
def test_up_to_boards_of_three_routes_are_shortest(spec, tie, graph_of, all_pairs, check_routes):
    t = from_spec(spec)
    src, dst = all_pairs(t.n_nodes)
    paths = t.paths(src, dst, tie, seed=5)
    distance = dict(nx.all_pairs_shortest_path_length(graph_of(t)))
    expected = [distance[src[pair]][dst[pair]] for pair in paths.pair]
    assert check_routes(t, src, dst, paths) == expected


def test_moving_by_whole_boards_is_an_automorphism():
    t = hamming_mesh((2, 4), (3, 2))
    for dim, board in enumerate((2, 4)):
        permutation = link_permutation(t, translation(t, dim, by=board))
        assert permutation is not None
        assert sorted(permutation.tolist()) == list(range(t.n_links))
        assert link_permutation(t, translation(t, dim, by=1)) is None


def test_different_numbers_of_dimensions_are_refused():
    with pytest.raises(WeftError, match="boards 4 of 2x2 NPUs"):
        hamming_mesh((2, 2), (4,))


def test_bad_extents_are_named():
    with pytest.raises(WeftError, match="an extent of hamming_mesh board is 0"):
        hamming_mesh((0, 2), (4, 4))
