"""What a forest must be, checked edge by edge with dictionaries."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from collectives.trees.forest import Forest


def check(forest: Forest, per_root: dict[int, int], s_per_block_byte: Fraction) -> None:
    """Every tree spans all NPUs from its root over links that are there, and no link carries more than its share."""
    t = forest.topology
    load: Counter[int] = Counter()
    roots: Counter[int] = Counter()
    for tree in forest.trees:
        roots[tree.root] += tree.multiplicity
        parent = {edge.child: edge.parent for edge in tree.edges}
        assert len(parent) == len(tree.edges) == t.n_npus - 1 and tree.root not in parent
        for node in range(t.n_npus):
            seen = set()
            while node != tree.root:
                assert node not in seen
                seen.add(node)
                node = parent[node]
        for edge in tree.edges:
            at, end = (edge.child, edge.parent) if forest.inward else (edge.parent, edge.child)
            for link in edge.links:
                assert t.src[link] == at
                at = int(t.dst[link])
                load[link] += tree.multiplicity
            assert at == end
    assert dict(roots) == per_root
    for link, blocks in load.items():
        assert blocks <= s_per_block_byte * Fraction(float(t.bandwidth_Bps[link]))
