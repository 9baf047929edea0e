"""The table of service times: of every size at every rate, or packed, of those alone that meet.

Row z begins at `service_row[z]`, and size z takes `service_ps[service_row[z] + r]` at rate r. Tables of common programs
are dense: each row has a place for every rate. Among thousands of sizes and of rates a size meets those of its routes
alone; there rows are laid over each other, so that no two pairs that meet have one place (row displacement, as parsers
pack their tables). Other pairs are never looked up.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from sim.program.contract import DOWN, I32, I64, Program
from sim.program.cutting import Rates
from topologies.core.paths import distinct_of

MOST_DENSE = 2**20
"""Places of a table that is always dense: 8 MiB."""

SPARSE = 4
"""Others are packed where no more than one place in so many would be of a pair that meets."""

WINDOW = 1024
"""Places that a row looks at before it goes behind the others: with more of them a table is at most 6 % smaller."""

BLOCK = 2**16
"""Places of a dense table that are computed together, and kinds of tasks that are looked at together."""

Times = Callable[[I64, I64], I64]
"""Service times of sizes at rates, as arrays that broadcast; of pairs that do not meet anything from 1 on."""


def with_services(program: Program, n_rates: int, times: Times, *, same_pairs: bool = False) -> Program:
    """The program with a table of its services.

    `same_pairs`: it has one of the same pairs, whose rows stay where they are.
    """
    n_sizes, stays = program.chunk_work.size, same_pairs and program.is_packed
    if stays or n_sizes * n_rates > MOST_DENSE:
        program = program._replace(n_rates=n_rates)
        size, rate = pairs_that_meet(program)
        row = program.service_row if stays else rows_of(size, rate, n_sizes, n_rates)
        if row is not None:
            service = np.ones(int(row.max()) + n_rates, np.int64)
            service[row[size] + rate] = times(size, rate)
            return program._replace(service_ps=service, service_row=row)
    sizes, rates, step = np.arange(n_sizes), np.arange(n_rates), max(BLOCK // max(n_rates, 1), 1)
    service = np.empty((n_sizes, n_rates), np.int64)
    for first in range(0, n_sizes, step):
        service[first : first + step] = times(sizes[first : first + step, None], rates)
    return program._replace(service_ps=service.reshape(-1), service_row=sizes * n_rates, n_rates=n_rates)


def times_of(program: Program, per_s: Sequence[Fraction], old: I64) -> Times:
    """Service times at rates some of which are those of a program, or shares of them.

    `old` (R,): the rate of the program that each is, or is a share of; -1 for others.
    `per_s`: work per second of each; of those of the program, where services are the work, the share times 10^12.
    """
    rates, own = Rates(per_s), old < 0

    def times(size: I64, rate: I64) -> I64:
        work = program.chunk_work[size]
        if not own.all():
            work = np.where(own[rate], work, program.service(size, np.maximum(old[rate], 0)))
        return rates.times_ps(work, rate)

    return times


def rows_of(size: I64, rate: I64, n_sizes: int, n_rates: int) -> I64 | None:
    """Where each row begins in a packed table, (Z,); none where a dense one is as good."""
    if SPARSE * size.size > n_sizes * n_rates:
        return None
    row = first_fit(size, rate, n_sizes)
    return row if row.max() + n_rates < n_sizes * n_rates else None


def first_fit(size: I64, rate: I64, n_sizes: int) -> I64:
    """Where each row begins, (Z,), so that no two of some pairs, in the order of the sizes, have one place.

    Long rows are placed first, each at the first of the last places where nothing of it is taken.
    """
    row, count = np.zeros(n_sizes, np.int64), np.bincount(size, minlength=n_sizes)
    end = np.cumsum(count)
    taken, base = 0, 0  # bit i: place base + i is taken; what is before is as good as full
    for one in np.argsort(-count, kind="stable").tolist():
        clash, own = 0, 0
        for at in rate[end[one] - count[one] : end[one]].tolist():
            clash |= taken >> at
            own |= 1 << at
        free = (~clash & (clash + 1)).bit_length() - 1  # the lowest bit that is not set
        row[one] = base + free
        taken |= own << free
        taken, base = taken >> max(free - WINDOW, 0), base + max(free - WINDOW, 0)
    return row


def pairs_that_meet(program: Program) -> tuple[I64, I64]:
    """Chunk sizes and the rates at which they occur: on the routes and detours of the tasks, and at any time.

    In the order of sizes, then of rates.
    """
    task, route = program.every_route()
    kinds = distinct_of(program.task_cut[task].astype(np.int64) * program.route_ptr.size + route)
    found = [np.zeros(0, np.int64)]
    for first in range(0, kinds.size, BLOCK):
        cut, route = np.divmod(kinds[first : first + BLOCK], program.route_ptr.size)
        at, row = _entries(program.route_ptr, route)
        size, server = program.cut_size[cut].astype(np.int64), program.route_server[at].astype(np.int64)
        found.append(distinct_of(size[row] * program.n_servers + server[:, None]))
    size, server = np.divmod(distinct_of(np.concatenate(found)), max(program.n_servers, 1))
    rate = program.server_rate[server].astype(np.int64)
    if program.timetable_ptr.size:
        at, row = _entries(program.timetable_ptr, server)
        up = program.timetable_rate[at] != DOWN
        size, rate = np.append(size, size[row[up]]), np.append(rate, program.timetable_rate[at[up]])
    pairs = distinct_of(size * max(program.n_rates, 1) + rate)
    return np.divmod(pairs, max(program.n_rates, 1))


def _entries(ptr: I32, rows: I64) -> tuple[I64, I64]:
    """Places of all entries of some rows of a CSR list, and which of the rows each is of."""
    counts = np.diff(ptr)[rows].astype(np.int64)
    row = np.repeat(np.arange(rows.size), counts)
    return np.arange(row.size) - np.repeat(np.cumsum(counts) - counts - ptr[rows], counts), row


def slowest_ps(program: Program) -> int:
    """The longest service that occurs."""
    return int(program.service(*pairs_that_meet(program)).max(initial=1))
