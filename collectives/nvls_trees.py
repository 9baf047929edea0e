"""Trees over boxes whose switches reduce: NVLSTree of NCCL.

The switch of a box reduces the part of each GPU and sends the sum there, double binary trees over the boxes reduce it
on, position by position, and the results come back the same way, with one copy on each link. A GPU adds its own part
itself, so its links carry the array once each way; in NCCL that part goes through the switch too, n + 1 parts for n. Of
two boxes each has one neighbor in every tree, as in `nccl_trees`.
"""

from collections.abc import Sequence

from collectives.core.boxes import entries_of, equal_boxes
from collectives.core.builders import by_wiring
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.double_binary_tree import double_tree
from collectives.trees.aggregation import AggregationTree, minimum_depth_tree
from collectives.trees.flows import MOST_TRANSFERS, Flows
from collectives.trees.forest import Tree
from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.units import Quantity

NAME = "nvls-trees"


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, routers: bool = False, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """Reduce in the switch of every box, along trees between the boxes, and back.

    `routers`: whether the routers of NPUs reduce; required where a box has no switch.
    WeftError: boxes of several sizes or without a switch that joins them, or more than `MOST_TRANSFERS`.

    Examples
    --------
    >>> from topologies import dgx_h100
    >>> all_reduce(dgx_h100(2), "1MiB").proof
    'proved'
    """
    return schedule(_pattern(topology.as_it_reduces(), routers), size, element_bytes)


@by_wiring
def _pattern(topology: Topology, routers: bool) -> Pattern:
    boxes = equal_boxes(topology, NAME)
    gpus = len(boxes[0])
    if 8 * gpus * topology.n_npus > MOST_TRANSFERS:
        raise WeftError(
            f"{NAME} on {topology.name}: {2 * gpus} trees over {topology.n_npus:,} NPUs take more than "
            f"{MOST_TRANSFERS:,} transfers"
        )
    flows = Flows(topology)
    pair = double_tree(len(boxes))  # one for a single box
    entries = entries_of(topology, boxes[0])
    between = [ends for over in pair for edge in over.edges for ends in ((edge.parent, edge.child), edge[1::-1])]
    one, other = ([boxes[ends[side]][at] for ends in between for at in entries] for side in (0, 1))
    flows.find_routes(one, other)
    for number, position in enumerate(entries):
        local = [
            minimum_depth_tree(topology, members=box, root=box[position], routers=routers, dimensions=(0,))
            for box in boxes
        ]
        for half, over in enumerate(pair):
            _add(flows, boxes, local, position, over, (len(pair) * number + half,))
    return flows.pattern("all-reduce", NAME, "", len(pair) * len(entries))


def _add(
    flows: Flows, boxes: Sequence[Sequence[int]], local: Sequence[AggregationTree], position: int, over: Tree,
    block: tuple[int],
) -> None:
    """A block: through the switch of every box to one GPU, up and down the tree over the boxes, and back."""
    rail, depth = [box[position] for box in boxes], over.depth()
    deepest = max(depth.values())
    arrived = [flows.collect(tree, box, block)[1] for tree, box in zip(local, boxes, strict=True)]
    for edge in reversed(over.edges):
        path, step = flows.route(rail[edge.child], rail[edge.parent]), 2 + deepest - depth[edge.child]
        row = flows.relays.along(path, block, step=step, reduces=True, stream=arrived[edge.child])
        arrived[edge.parent].append(row)
    for edge in over.edges:
        path, step = flows.route(rail[edge.parent], rail[edge.child]), 2 + deepest + depth[edge.parent]
        arrived[edge.child] = [flows.relays.along(path, block, step=step, stream=arrived[edge.parent])]
    for tree, box, done in zip(local, boxes, arrived, strict=True):
        flows.spread(tree, box, block, done)
