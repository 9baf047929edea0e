"""The next edge of a low tree, in compiled code: of all ways from a node, the one with most room."""

import numpy as np
import numpy.typing as npt

from collectives.core._jit import entry

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NONE = -1


@entry
def roomiest(links: npt.NDArray[np.int32], open_: Bools, missing: Bools, left: Floats, share: Floats, tie: float,
             ask: Ints) -> int:
    """The NPU and the way, as NPU * ways + way, that have most room; NONE if every way is full.

    Room is what is left on the link that has least, as a share of what it carries, at most 1. Of equal ones the first
    NPU behind the root counts, and its first way.

    `links`: (n_npus, n_npus, ways, hops), of each way from one NPU to another.
    `open_`: (prices, n_npus, n_npus): whether ways have a price.
    `missing`: (trees, n_npus): NPUs that a tree has not reached.
    `left`, `share`: (n_links + 1,): trees that a link can still carry, and one over those it could at first.
    `tie`: weight of the room on all links of a way.
    `ask`: (4,): tree, root, price, node.
    """
    tree, root, price, node = ask[0], ask[1], ask[2], ask[3]
    n, ways, hops = links.shape[1:]
    most, found = -1.0, NONE
    for behind in range(n):
        other = (root + behind) % n
        if not (missing[tree, other] and open_[price, node, other]):
            continue
        for way in range(ways):
            least, whole, fits = 1.0, 0.0, True
            for hop in range(hops):
                link = links[node, other, way, hop]
                if left[link] < 1:
                    fits = False
                    break
                room = min(left[link] * share[link], 1.0)
                least = min(least, room)
                whole += room
            rank = least + tie * (whole / hops)
            if fits and rank > most:
                most, found = rank, other * ways + way
    return found
