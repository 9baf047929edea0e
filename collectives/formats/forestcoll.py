"""Trees of an all-gather as ForestColl writes them, in XML; `collectives.formats.files` reads them (3c13aee).

<Algo nchunkspernode="k"> has a <tree root index nchunks height> for each tree, and that a <send src dst path> an edge.
"""

from collections import defaultdict

import numpy as np

from collectives.core.routes import paths_of
from collectives.core.schedule import Schedule
from topologies import WeftError

Way = tuple[int, ...]


def to_forestcoll(schedule: Schedule) -> str:
    """An all-gather along any trees as XML, by the nodes that its transfers cross; blocks of the same tree are chunks.

    WeftError: another collective, blocks without names or unequal, or a block that reaches a rank twice.
    """
    pattern, topology, p = schedule.pattern, schedule.topology, schedule.pattern.p
    if pattern.kind.name != "all-gather" or pattern.is_unnamed or not pattern.is_of_ranks:
        raise WeftError(f"ForestColl XML of {pattern.name} {pattern.kind.name}: it has the trees of an all-gather")
    t = pattern.transfers()
    paths, sends = paths_of(t, topology), defaultdict[int, dict[int, Way]](dict)
    for row, (source, slot, to) in enumerate(zip(t.src.tolist(), t.slot.tolist(), t.dst.tolist(), strict=True)):
        ends = topology.dst[paths.links[paths.ptr[row] : paths.ptr[row + 1]]].tolist()
        for block in pattern.blocks_of(source, slot):
            if to in sends[block]:
                raise WeftError(f"ForestColl XML of {pattern.name}: block {block} reaches {to} twice: no tree")
            sends[block][to] = (source, *ends)
    trees: dict[tuple[int, tuple[Way, ...]], int] = defaultdict(int)
    for block in range(pattern.n_blocks):
        trees[block % p, _breadth_first(block % p, sends[block])] += 1
    lines, index = [f'<Algo nchunkspernode="{pattern.n_blocks // p}">'], np.zeros(p, np.int64)
    for (root, edges), many in trees.items():
        depth = {root: 0}
        for edge in edges:
            depth[edge[-1]] = depth[edge[0]] + 1
        lines.append(f'  <tree root="{root}" index="{index[root]}" nchunks="{many}" height="{max(depth.values())}">')
        lines += [f'    <send src="{edge[0]}" dst="{edge[-1]}" path="{",".join(map(str, edge))}"/>' for edge in edges]
        lines.append("  </tree>")
        index[root] += many
    return "\n".join([*lines, "</Algo>"]) + "\n"


def _breadth_first(root: int, sends: dict[int, Way]) -> tuple[Way, ...]:
    """The edges of a tree, those of a parent before those of its children."""
    children = defaultdict[int, list[Way]](list)
    for way in sends.values():
        children[way[0]].append(way)
    found = list(children[root])
    for way in found:
        found += children[way[-1]]
    return tuple(found)
