"""Planes of circuits that switch while the others transmit: which of them carry how much of each step.

Each port of a server is on a plane of its own. A step, one permutation, is divided over the planes that have its
circuits up; the others may switch for later steps meanwhile, each as soon as it is idle (SWOT, arXiv 2510.19322). The
division of least time is a mixed-integer program, as in the paper; its answer is run as a job and timed there.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby, pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np

from collectives import Schedule
from collectives.reconfigured import of_steps, step_pairs
from topologies import Topology, WeftError
from topologies.core.epochs import circuit_epochs, packet_links
from topologies.core.paths import distinct_of
from topologies.optics import joining
from topologies.process import heard
from topologies.stages import count, staged
from topologies.units import PS_PER_S
from workloads.job import Job

OVERLAPPED = "overlapped"
"""Circuits that switch while others carry a step."""

MOST_CELLS = 48
"""Limit on steps times planes: beyond, the program takes minutes."""

MOST_NODES = 100_000
"""Limit on the search of the solver, which no clock decides; its best answer so far is taken."""

FAILED = 4
"""Status of `milp` where its solver met an error."""


class Indivisible(WeftError):
    """Steps that planes cannot divide."""


class Division(NamedTuple):
    """Bytes of each step on each plane, (steps, planes), and the circuits of each plane in each step."""

    share: list[list[int]]
    circuits: list[list[int]]  # number of the step whose circuits are up, the first of equal ones
    switches: int
    end_ps: float


class _Steps(NamedTuple):
    """All that a division depends on."""

    size: tuple[int, ...]  # bytes of each message of a step
    config: tuple[int, ...]  # number of the first step with the same circuits
    planes: int
    delay_ps: int
    latency_ps: int
    rate_Bps: float

    def joined(self) -> "_Steps":
        """Consecutive steps on the same circuits as one: what divides them apart divides it, in no more time."""
        runs = [list(run) for _, run in groupby(range(len(self.size)), self.config.__getitem__)]
        firsts = [self.config[run[0]] for run in runs]
        return self._replace(size=tuple(sum(self.size[at] for at in run) for run in runs),
                             config=tuple(firsts.index(one) for one in firsts))

    @property
    def least_ps(self) -> float:
        """No division ends sooner: planes send, and switch to circuits of which there are more than planes."""
        delays = max(0, len(set(self.config)) - self.planes) * self.delay_ps
        takes = sum(self.size) * PS_PER_S / self.rate_Bps
        return (takes + delays) / self.planes + len(self.size) * self.latency_ps / self.planes


def divided(schedules: Sequence[Schedule], limit_ps: float = inf) -> list[tuple[int, Division]]:
    """The divisions among which the best of some schedules is, and whose each is; equal steps are divided once.

    Left out are schedules that planes cannot divide, those of which consecutive steps, put together, are another's, and
    divisions that take as long as another or the limit.
    """
    asked = dict[int, _Steps]()
    for number, schedule in enumerate(schedules):
        with suppress(Indivisible):
            asked[number] = _steps_of(schedule)
    every, found = dict.fromkeys(asked.values()), dict[_Steps, Division]()
    distinct = sorted((one for one in every if one.joined() == one or one.joined() not in every),
                      key=lambda one: one.least_ps)
    for at, one in enumerate(distinct):
        count("divisions over planes", at, len(distinct))
        if one.least_ps < limit_ps:
            with suppress(Indivisible):
                found[one] = _division_of(one, limit_ps)
                limit_ps = min(limit_ps, found[one].end_ps)
    return [(number, found[one]) for number, one in asked.items() if one in found]


def quickest_overlapped(schedules: Sequence[Schedule]) -> Job:
    """The job of the division that ends first among those of some schedules that planes can divide."""
    at, division = min(divided(schedules), key=lambda one: one[1].end_ps)
    return overlapped(schedules[at], division)


def divide(schedule: Schedule) -> Division:
    """The division of least time.

    Indivisible: a step in which a rank sends or receives twice, or unequal messages; or too many steps.
    """
    return _division_of(_steps_of(schedule), inf)


def _steps_of(schedule: Schedule) -> _Steps:
    optics, pairs = schedule.topology.optics, step_pairs(schedule)
    assert optics is not None
    n, k = len(pairs), optics.ports
    if n * k > MOST_CELLS or n == 0:
        raise Indivisible(f"{schedule.name} has {n} steps over {k} planes: at most {MOST_CELLS} together are divided")
    size = tuple(_bytes_of(schedule, step, pairs[step]) for step in range(n))
    latency_ps = int(schedule.topology.latency_ps.max(initial=0))
    return _Steps(size, tuple(pairs.index(some) for some in pairs), k, optics.delay_ps, latency_ps, optics.rate_Bps)


@staged("search")
def _division_of(steps: _Steps, limit_ps: float) -> Division:
    size, config, k = steps.size, steps.config, steps.planes
    n, kinds = len(size), sorted(set(config))
    delay, latency, per_byte = steps.delay_ps / 1e6, steps.latency_ps / 1e6, PS_PER_S / steps.rate_Bps / 1e6
    takes = [one * per_byte for one in size]
    big = min(sum(takes) / k + n * latency + delay * sum(a != b for a, b in pairwise(config)), limit_ps / 1e6)
    model = _Model(n, k, len(kinds))
    for i in range(n):
        model.row({model.d[i][j]: 1.0 for j in range(k)}, takes[i], takes[i])
        for j in range(k):
            u, r, f = model.u[i][j], model.r[i][j], model.f[i][j]
            model.row({model.d[i][j]: 1.0, u: -takes[i]}, most=0.0)
            model.row({model.x[i][j][c]: 1.0 for c in range(len(kinds))}, 1.0, 1.0)
            model.row({u: 1.0, model.x[i][j][kinds.index(config[i])]: -1.0}, most=0.0)
            sends = {f: 1.0, model.d[i][j]: -1.0, u: -big}
            model.row(sends | ({model.e[i - 1]: -1.0} if i else {}), least=latency - big)
            idle = {model.a[i - 1][j]: -1.0, r: -delay} if i else {}
            model.row(sends | idle, least=latency - big)
            model.row({model.a[i][j]: 1.0} | idle, least=0.0)
            for after in (model.e[i], model.a[i][j]):
                model.row({after: 1.0, f: -1.0, u: -big}, least=-big)
            for c in range(len(kinds)) if i else ():
                model.row({r: 1.0, model.x[i][j][c]: -1.0, model.x[i - 1][j][c]: 1.0}, least=0.0)
            done = {model.d[at][j]: 1.0 for at in range(i + 1)} | {model.u[at][j]: latency for at in range(i + 1)}
            model.row(done | {model.e[i]: -1.0}, most=0.0)  # what a plane does is one after the other
            spent = done | {model.r[at][j]: delay for at in range(i + 1)}
            model.row(spent | {model.e[i]: -1.0, u: spent[u] + big}, most=big)
        model.row({model.e[i]: 1.0} | ({model.e[i - 1]: -1.0} if i else {}), least=latency + takes[i] / k)
        if i:  # what it does not carry, a plane does not switch for
            for u, now, before in zip(model.u[i], model.x[i], model.x[i - 1], strict=True):
                for c in range(len(kinds)):
                    model.row({now[c]: 1.0, before[c]: -1.0, u: -1.0}, most=0.0)
    model.row({model.e[-1]: 1.0}, most=big)
    for j in range(k - 1):  # planes are alike: in the order of their first circuits
        order = {model.x[0][j + at][c]: (c * (1.0 if at else -1.0)) for at in (0, 1) for c in range(len(kinds))}
        model.row(order, least=0.0)
    found = model.solve(big)
    share = [_whole([found[model.d[i][j]] / per_byte for j in range(k)], size[i]) for i in range(n)]
    up = [[kinds[int(np.argmax([found[model.x[i][j][c]] for c in range(len(kinds))]))] for j in range(k)]
          for i in range(n)]
    switches = sum(a != b for one, two in pairwise(up) for a, b in zip(one, two, strict=True))
    return Division(share, up, switches, found[model.e[-1]] * 1e6)


def overlapped(schedule: Schedule, division: Division) -> Job:
    """The job of a division: a rank begins a step when it has ended the one before; idle planes switch."""
    fabric, pairs = schedule.topology, step_pairs(schedule)
    assert fabric.optics is not None
    delay, k = f"{fabric.optics.delay_ps}ps", fabric.optics.ports
    epochs_of: list[list[int]] = []  # number of the epoch of each plane in each step
    fabrics: list[Topology] = []
    first_of: list[list[tuple[int, int]]] = []
    for plane in range(k):
        mine, firsts = list[int](), list[tuple[int, int]]()
        for step in range(len(pairs)):
            now = division.circuits[step][plane]
            if not step or now != division.circuits[step - 1][plane]:
                firsts.append((len(fabrics), now))
                fabrics.append(_plane(fabric, pairs[now]))
            mine.append(len(fabrics) - 1)
        epochs_of.append(mine)
        first_of.append(firsts)
    epochs = circuit_epochs(fabrics, name=fabric.name)
    job, last = Job(epochs.topology, implements=schedule), list[int]()
    for step, some in enumerate(pairs):
        sends = [(division.share[step][plane], src, dst, epochs.route(epochs_of[plane][step], [src], [dst])[0])
                 for plane in range(k) if division.share[step][plane] for src, dst in sorted(some)]
        sizes, src, dst, via = zip(*sends, strict=True)
        last = [job.send(f"step {step}", sizes, src, dst, via=via, after=last, kind=schedule.kind.name)]
    for plane, firsts in enumerate(first_of):
        before: list[int] = []
        for (old, _), (new, step) in pairwise(firsts):
            down, up = map(sorted, epochs.turned(old, new, per_port=False))
            name = f"plane {plane} switches for step {step}"
            before = [job.reconfigure(name, delay, down, up, controller=f"plane {plane}", after=before)]
    return job


def _plane(fabric: Topology, pairs: frozenset[tuple[int, int]]) -> Topology:
    """Circuits of one port of each server."""
    assert fabric.optics is not None
    one = joining(fabric, pairs)
    assert one is not None
    return one.with_links(bandwidth_Bps=np.where(packet_links(one), one.bandwidth_Bps, fabric.optics.rate_Bps))


def _bytes_of(schedule: Schedule, step: int, pairs: frozenset[tuple[int, int]]) -> int:
    """Bytes of each message of a step."""
    t = of_steps(schedule, step, step)
    blocks = distinct_of(t.blocks[t.src != t.dst])
    ends = [len({pair[end] for pair in pairs}) for end in (0, 1)]
    optics = schedule.topology.optics
    if optics is not None and optics.duplex and any((dst, src) not in pairs for src, dst in pairs):
        raise Indivisible(f"step {step} of {schedule.name} leads one way, and a duplex port of a plane both")
    if blocks.size != 1 or min(ends) < len(pairs) or np.count_nonzero(t.src != t.dst) != len(pairs):
        raise Indivisible(f"step {step} of {schedule.name} is no permutation of equal messages, which planes divide")
    return int(blocks[0]) * schedule.block_bytes


def _whole(share: list[float], size: int) -> list[int]:
    """Whole bytes with the same sum; a rest goes to the largest."""
    found = [round(one) for one in share]
    found[int(np.argmax(found))] += size - sum(found)
    return found


class _Model:
    """Variables and rows of the program, by step i, plane j and kind of circuits c; times in us."""

    def __init__(self, n: int, k: int, kinds: int) -> None:
        cells = n * k
        grid = np.arange(cells).reshape(n, k)
        self.n_binary, self.n_vars = (2 + kinds) * cells, cells * (5 + kinds) + n
        self.u = grid.tolist()  # whether plane j carries some of step i
        self.r = (cells + grid).tolist()  # whether it switches before
        self.x = (2 * cells + np.arange(cells * kinds).reshape(n, k, kinds)).tolist()  # it has circuits of kind c
        # time of its bytes of the step on it, when it has carried them, and when it is idle after the step
        self.d, self.f, self.a = ((self.n_binary + at * cells + grid).tolist() for at in range(3))
        self.e = [self.n_vars - n + i for i in range(n)]  # when the step has ended
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def row(self, terms: dict[int, float], least: float = -np.inf, most: float = np.inf) -> None:
        self.rows.append((terms, least, most))

    def solve(self, big: float) -> list[float]:
        from scipy.optimize import Bounds, LinearConstraint, milp  # heavy: loaded where it is used
        from scipy.sparse import lil_matrix

        matrix = lil_matrix((len(self.rows), self.n_vars))
        for at, (terms, _, _) in enumerate(self.rows):
            for variable, factor in terms.items():
                matrix[at, variable] += factor
        binary = np.arange(self.n_vars) < self.n_binary
        cost = np.zeros(self.n_vars)
        cost[self.e[-1]] = 1.0
        cost[np.ravel(self.r)] = 1e-9 * big  # among equals, fewer switches
        most = np.where(binary, 1.0, np.inf)
        constraints = LinearConstraint(matrix.tocsr(), [row[1] for row in self.rows], [row[2] for row in self.rows])

        def search(presolve: bool) -> Any:
            with _quiet():
                return milp(
                    cost, integrality=binary, bounds=Bounds(0.0, most), constraints=constraints,
                    options={"node_limit": MOST_NODES, "mip_rel_gap": 1e-6, "presolve": presolve},
                )

        found = heard(partial(search, True))
        if found.status == FAILED:  # what presolve made of it; as it is, it has a solution
            found = heard(partial(search, False))
        if found.x is None:
            raise Indivisible(f"no division over planes was found: {found.message}")
        solution: list[float] = found.x.tolist()
        return solution


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the solver, which is no Python, writes to standard output now and then."""
    try:
        kept = os.dup(1)
    except OSError:  # it is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
