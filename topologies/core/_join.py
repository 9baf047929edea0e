"""The compiled union of the parts of a graph, for fabrics of a million links."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from topologies.compiled import cached


def _jit(function: Callable[..., Any]) -> Any:
    return cached(function, [Path(__file__)], nogil=True)


@_jit
def join(least, src, dst):  # type: ignore[no-untyped-def]  # jitted
    """Give each node the least node that edges join it to, whichever way they lead.

    `least` (n,): the nodes themselves at first; no entry is ever more than its node.
    `src`, `dst` (n_edges,): ends of the edges.
    """
    for edge in range(src.size):
        one, other = src[edge], dst[edge]
        while least[one] != one:
            least[one] = least[least[one]]
            one = least[one]
        while least[other] != other:
            least[other] = least[least[other]]
            other = least[other]
        least[max(one, other)] = min(one, other)
    for node in range(least.size):  # the entry of a lesser node is final by now
        least[node] = least[least[node]]
