"""The order of numbered things that wait for each other, and of the nodes of a trace whose streams are served in order.

There a node that waits for one of its own stream waits instead for what that one waits for outside of it. The stream,
which serves the earliest in a topological order, keeps the two apart; and a node whose turn it is begins when the one
before it ends, and not behind what came to the stream earlier.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from topologies.checks import WeftError


def smallest_first(waits: Mapping[int, Iterable[int]], named: Callable[[int], str]) -> list[int]:
    """Each number after those that it waits for, otherwise ascending.

    `named`: what a number is, for the message.
    WeftError: numbers wait for each other in a cycle.
    """
    sorter = TopologicalSorter(waits)
    try:
        sorter.prepare()
    except CycleError as fault:
        raise WeftError(f"{named(min(fault.args[1]))} waits for itself in a cycle") from None
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, number)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order


MOST_BITS = 2**31
"""Of all masks together: traces with more keep what they wait for, and their nodes take turns as they come."""


def waits_outside(
    order: Sequence[int], after: Mapping[int, Sequence[int]], stream: Mapping[int, str]
) -> Mapping[int, Sequence[int]]:
    """For each node the ones to wait for, all of them on other streams or on none.

    `order`: the nodes, each behind those that it waits for.
    `after`: what each waits for.
    `stream`: of nodes that have one.
    """
    outside = list(dict.fromkeys(
        other for node in order for other in after[node] if node in stream and stream.get(other) != stream[node]
    ))
    if len(outside) * len(order) > MOST_BITS:
        return after
    bit = {node: 1 << at for at, node in enumerate(outside)}
    before: dict[int, int] = {}  # of each node the nodes outside that end before it, as bits
    found: dict[int, Sequence[int]] = {}
    for node in order:
        mask = 0
        for other in after[node]:
            mask |= before[other] | bit.get(other, 0)
        before[node], found[node] = mask, after[node]
        if node in stream:
            some = dict.fromkeys(
                one for other in after[node]
                for one in (found[other] if stream.get(other) == stream[node] else (other,))
            )
            implied = 0
            for one in some:
                implied |= before[one]
            found[node] = [one for one in some if not implied & bit[one]]
    return found
