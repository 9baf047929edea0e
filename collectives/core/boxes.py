"""Boxes: the NPUs that links of tier 0 join, as the NVLinks of a server do."""

import numpy as np

from topologies import Topology, WeftError
from topologies.core.components import components


def boxes_of(topology: Topology) -> list[list[int]]:
    """Ranks of each box, in order."""
    fast = topology.dimension == 0
    label = components(topology.n_nodes, topology.src[fast], topology.dst[fast])[: topology.n_npus]
    return [np.flatnonzero(label == one).tolist() for one in dict.fromkeys(label.tolist())]


def equal_boxes(topology: Topology, algorithm: str) -> list[list[int]]:
    """The boxes of a network.

    WeftError: boxes of several sizes; `algorithm` is who asks.
    """
    boxes = boxes_of(topology)
    sizes = sorted({len(box) for box in boxes})
    if len(sizes) > 1:
        raise WeftError(f"{algorithm} on {topology.name}: boxes have {' and '.join(map(str, sizes))} NPUs: not equal")
    return boxes


def entries_of(topology: Topology, box: list[int]) -> list[int]:
    """Positions by which an algorithm enters and leaves a box: as many of every NIC, the first that share it."""
    behind: dict[int, list[int]] = {}
    for at, npu in enumerate(box):
        links = slice(*topology.link_ptr[npu : npu + 2])
        beyond = topology.dst[links][topology.dimension[links] > 0].tolist()
        own = [node for node in beyond if node >= topology.n_npus and _is_of(topology, node, box)]
        behind.setdefault(own[0] if own else npu, []).append(at)
    each = min(map(len, behind.values()))
    return sorted(at for some in behind.values() for at in some[:each])


def _is_of(topology: Topology, node: int, box: list[int]) -> bool:
    """Whether the NPUs next to a node are all of one box, as those of a NIC are."""
    near = topology.dst[topology.link_ptr[node] : topology.link_ptr[node + 1]]
    return set(near[near < topology.n_npus].tolist()).issubset(box)


def zigzag(n: int) -> list[int]:
    """0, 1, -1, 2, -2, ...: n numbers; every step between two occurs once modulo an even n, and twice modulo an odd n.

    Chains of that form from every position therefore use all links of a mesh alike.
    """
    found = [0, *(sign * step for step in range(1, n // 2 + 1) for sign in (1, -1))]
    return found[:n]
