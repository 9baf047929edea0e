"""The order of numbered things that wait for each other."""

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from heapq import heappop, heappush


def smallest_first(waits: Mapping[int, Iterable[int]]) -> list[int]:
    """Each number after those that it waits for, otherwise ascending.

    graphlib.CycleError: numbers wait for each other in a cycle; its second argument is the cycle.
    """
    sorter = TopologicalSorter(waits)
    sorter.prepare()
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, number)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order
