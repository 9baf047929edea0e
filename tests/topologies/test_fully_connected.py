import networkx as nx
import pytest

from topologies import WeftError, fully_connected


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_equals_the_complete_graph(n):
    t = fully_connected(n)
    assert sorted(zip(t.src.tolist(), t.dst.tolist(), strict=True)) == sorted(nx.DiGraph(nx.complete_graph(n)).edges)
    assert t.n_nodes == t.n_npus == n


def test_too_many_links_are_refused_before_they_are_built():
    with pytest.raises(WeftError, match=r"fc:1000000 has 1000000 nodes and 999999000000 links .* about .*iB"):
        fully_connected(10**6)
