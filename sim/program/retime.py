"""The same structure at other rates and latencies, given, or as others as no number of a specification is sure of."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sim.program.contract import CLOCK_END_PS, I64, Program
from sim.program.extend import Late, late_tasks
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
    return Retimer(program, len(rates), server_rate, more_latency_ps)(rates)


class Retimer:
    """`retime` of one program, called again at other rates of the same servers."""

    def __init__(
        self, program: Program, n_rates: int, server_rate: npt.NDArray[np.integer], more_latency_ps: int = 0
    ) -> None:
        kept, column = np.unique(program.server_rate[server_rate == KEEPS_ITS_RATE], return_inverse=True)
        new_rate = server_rate.astype(np.int32)
        new_rate[server_rate == KEEPS_ITS_RATE] = n_rates + column
        more_ps = more_latency_ps * (program.hop_last > 0)
        self.program, self.n_kept = program, kept.size
        self.changed = program._replace(server_rate=new_rate, hop_latency_ps=program.hop_latency_ps + more_ps)
        self.old = np.append(np.full(n_rates, -1), kept)

    def __call__(self, rates: Sequence[Fraction]) -> Program:
        """The program at these rates."""
        times = times_of(self.program, [*rates, *[Fraction(PS_PER_S)] * self.n_kept], self.old)
        return with_services(self.changed, self.old.size, times)


SHARE = 0.001
"""Largest change of a rate, and of a start as a share of the time."""

LEVELS = 9
"""Factors between the two ends; each server has one of them."""

GROUPS = 4
"""Groups of first tasks, each of which starts at a time of its own."""


def perturb(program: Program, rng: "np.random.Generator", time_ps: int) -> Program:
    """The same work with rates and starts changed by up to `SHARE`, and another order of what asks at one time.

    Each server has a rate of its own. Where it represents others by symmetry, these have the same one, so that the
    symmetry holds. Classes of ties are renumbered, which keeps tasks apart that were.

    `program`: without timetables.
    `time_ps`: of the program, to which late starts are in proportion.
    """
    level = rng.integers(LEVELS, size=program.n_servers)
    factor = 1 + SHARE * np.linspace(-1, 1, LEVELS)
    column, rate = np.unique(program.server_rate.astype(np.int64) * LEVELS + level, return_inverse=True)
    classes = rng.permutation(int(program.task_class.max(initial=-1)) + 1)
    changed = program._replace(
        server_rate=rate.astype(np.int32), task_class=classes[program.task_class].astype(np.int32)
    )

    def times(size: I64, rate: I64) -> I64:
        was = program.service(size, column[rate] // LEVELS)
        changed_ps = np.rint(was * factor[column[rate] % LEVELS]).astype(np.int64)
        return np.asarray(np.clip(changed_ps, 1, CLOCK_END_PS))

    changed = with_services(changed, column.size, times)
    waits = program.task_waits + np.bincount(program.stream_edges()[1], minlength=program.n_tasks)
    first = np.flatnonzero(waits == 0)
    group = rng.integers(GROUPS, size=first.size)
    delays_ps = rng.integers(int(time_ps * SHARE) + 1, size=GROUPS).tolist()
    starts = [Late(first[group == number], delay_ps) for number, delay_ps in enumerate(delays_ps)]
    return late_tasks(changed, [start for start in starts if start.tasks.size and start.delay_ps])
