"""An algorithm of one's own: a line broadcast, proved when it is built, simulated, and compared with its bound."""

import numpy as np

from collectives.collective import collective
from collectives.pattern import Pattern
from collectives.schedule import schedule
from collectives.transfers import TransferTable
from sim import simulate
from topologies import ring


def line_broadcast(topology, size):
    """Rank r passes every chunk on to rank r + 1 as soon as it has it."""
    p = topology.n_npus

    def emit(ranks):
        table = TransferTable(ranks)
        following = np.where(ranks < p - 1, ranks + 1, -1)  # -1: the last rank sends nothing
        before = np.where(ranks > 0, 0, -1)  # the root waits for nobody
        table.add(slot=0, dst=following, stream=[(np.maximum(ranks - 1, 0), before)])
        return table.build()

    pattern = Pattern(
        topology=topology,
        kind=collective("broadcast"),
        algorithm="line",
        n_blocks=1,
        emit=emit,
        blocks_of=lambda source, slot: [0],
    )
    return schedule(pattern, size)


result = simulate(line_broadcast(ring(8), "8MiB"), chunks=64)
print(result)
