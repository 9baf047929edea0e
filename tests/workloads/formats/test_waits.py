"""Is the order of things that wait for each other that of networkx, and is a cycle named, not what hangs on it?"""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import WeftError
from workloads.formats.waits import smallest_first


@given(st.permutations(range(12)), st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_the_order_is_that_of_networkx(place, pairs):
    waits = {one: sorted(place[b] for a, b in pairs if place[a] == one and b < a) for one in place}
    graph = nx.DiGraph([(before, one) for one, those in waits.items() for before in those])
    graph.add_nodes_from(waits)
    assert smallest_first(waits, str) == list(nx.lexicographical_topological_sort(graph))


def test_a_cycle_is_named_and_not_what_waits_for_it():
    with pytest.raises(WeftError, match=r"^node [23] waits for itself in a cycle$"):
        smallest_first({0: [2], 1: [], 2: [3, 1], 3: [2]}, "node {}".format)
