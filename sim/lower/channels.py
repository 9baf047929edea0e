"""Virtual channels of links: which one a route takes at each hop, by datelines or by bubbles."""

import numpy as np

from sim.program import I8
from sim.program.model import Model
from topologies import Topology, WeftError
from topologies.core.paths import Paths

DATELINES, BUBBLES = "datelines", "bubbles"


def channels_of(model: Model) -> str:
    """What gives routes their channels under a model; nothing where links have one."""
    return BUBBLES if model.bubble else DATELINES if model.vcs > 1 else ""


def check_rings(topology: Topology, channels: str) -> None:
    """Reject a fabric whose links are not steps along rings or lines.

    WeftError: with the first link that is none.
    """
    if not channels:
        return
    src, dst, is_own = topology.src, topology.dst, np.arange(len(topology.shape)) == topology.dimension[:, None]
    step = (topology.coords[dst] - topology.coords[src]) % np.array(topology.shape)
    is_step = (step == 1) | (step == np.array(topology.shape) - 1)
    wrong = (np.maximum(src, dst) >= topology.n_npus) | ~np.all(np.where(is_own, is_step, step == 0), axis=1)
    if np.any(wrong):
        link = int(np.flatnonzero(wrong)[0])
        raise WeftError(
            f"{channels} are of rings: on {topology.name} the link {topology.node_name(int(src[link]))}->"
            f"{topology.node_name(int(dst[link]))} is no step along a dimension; give a ring, torus, mesh or hypercube"
        )


def route_channels(topology: Topology, paths: Paths, channels: str) -> I8:
    """Channel of each hop of some routes over links and, beyond them, ends.

    Datelines: a route begins in each dimension with channel 0, and changes to the other one where it goes on within the
    dimension from coordinate 0. Bubbles: channel 1 where it enters a dimension, 0 where it goes on.
    """
    is_link = paths.links < topology.n_links
    link = np.where(is_link, paths.links, 0)
    dimension = np.where(is_link, topology.dimension[link], -1).astype(np.int64)
    goes_on = np.zeros(link.size, np.bool_)
    goes_on[1:] = dimension[1:] == dimension[:-1]  # no route has two ends in a row
    goes_on[paths.ptr[:-1][np.diff(paths.ptr) > 0]] = False
    if channels == BUBBLES:
        return (is_link & ~goes_on).astype(np.int8)
    crossed = np.cumsum(topology.coords[topology.src[link], dimension] == 0)
    entered = np.maximum.accumulate(np.where(goes_on, 0, np.arange(link.size)))
    found: I8 = ((crossed - crossed[entered]) % 2).astype(np.int8)
    return found
