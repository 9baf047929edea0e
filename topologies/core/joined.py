"""The parts of a graph, compiled: orbits of millions of links."""

from functools import partial

from topologies.compiled import cached

_jit = partial(cached, nogil=True, _nrt=False)


@_jit
def join(least, src, dst):  # type: ignore[no-untyped-def]  # jitted
    """Give each item the least one that edges join it to, whichever way they lead.

    `least` (n,): the items themselves at first; no entry is ever more than its item.
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
    for item in range(least.size):  # the entry of a lesser one is final by now
        least[item] = least[least[item]]
