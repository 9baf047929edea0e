"""The same structure at other rates and latencies: only the tables of service times and latencies are made anew."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sim.program.contract import Program
from sim.program.service_table import times_of, with_services
from topologies.units import PS_PER_S

KEEPS_ITS_RATE = -1


def retime(
    program: Program, rates: Sequence[Fraction], server_rate: npt.NDArray[np.integer], more_latency_ps: int = 0
) -> Program:
    """The program of the same work whose servers have other rates.

    Servers, routes, tasks, dependencies and cuts stay. Servers that represent others by symmetry remain correct
    only if those have the new rate as well.

    `rates`: distinct rates, work per second.
    `server_rate` (S,): which of them each server has; `KEEPS_ITS_RATE` for one that keeps its own.
    `more_latency_ps`: added to the last hop of every route, and so to every transfer.

    Examples
    --------
    >>> from collectives import ring as rings
    >>> from sim.lower.job import lower
    >>> from topologies import ring
    >>> program = lower(rings.all_reduce(ring(4, bandwidth="50GB/s"), "64KiB")).program
    >>> slower = retime(program, [Fraction(25 * 10**9)], np.zeros(program.n_servers, int))
    >>> bool((slower.service_ps == 2 * program.service_ps).all())
    True
    """
    kept, column = np.unique(program.server_rate[server_rate == KEEPS_ITS_RATE], return_inverse=True)
    new_rate = server_rate.astype(np.int32)
    new_rate[server_rate == KEEPS_ITS_RATE] = len(rates) + column
    changed = program._replace(
        server_rate=new_rate,
        hop_latency_ps=program.hop_latency_ps + more_latency_ps * (program.hop_last > 0),
    )
    old = np.append(np.full(len(rates), -1), kept)
    times = times_of(program, [*rates, *[Fraction(PS_PER_S)] * kept.size], old)
    return with_services(changed, old.size, times)
