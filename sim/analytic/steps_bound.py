"""Lower bounds on steps of a schedule alone, on circuits that stay as they are: they decide which are simulated."""

from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives import Schedule, Transfers
from collectives.core.transfers import take
from collectives.reconfigured import step_numbers, waits
from sim.lower.progress import sends_end_pushed
from sim.program import I64, WHOLE
from sim.program.model import Model
from topologies import Paths, Topology, WeftError
from topologies.core.rateless import wiring_of
from topologies.units import PS_PER_S

F64 = npt.NDArray[np.float64]


class _Step(NamedTuple):
    """A step on some circuits."""

    load_ps: F64  # (n_links,): what its transfers take on each
    ends_ps: F64  # (2, rows): of each transfer that begins at 0, whole and its first chunk


class _Waits(NamedTuple):
    """Dependencies of the transfers of a step: the place of each in the step, and the row that it waits for."""

    place: I64
    row: I64


class StepBounds:
    """Bounds on any steps of a schedule, by the busiest link and by what waits for each other, chunk by chunk.

    Parameters
    ----------
    schedule : Schedule
        Its transfers take the routes of the fabric, whatever links they name.
    model : Model
    """

    def __init__(self, schedule: Schedule, model: Model) -> None:
        t = schedule.pattern.transfers()
        number, (owner, source) = step_numbers(t), waits(t)
        self.transfers, self.size, self.model = t._replace(via_ptr=None, via_links=None), schedule.block_bytes, model
        self.rows = _by_step(number, int(number.max(initial=-1)) + 1)
        place = np.zeros(t.src.size, np.int64)
        for rows in self.rows:
            place[rows] = np.arange(rows.size)
        stop = (t.dep_lag == WHOLE) & ((t.dep_src != t.src[owner]) | (not sends_end_pushed(model)))
        self.waits = [
            [_Waits(place[owner[some]], source[some]) for some in (here[stop[here]], here[t.dep_lag[here] == 0])]
            for here in _by_step(number[owner], len(self.rows))
        ]
        self._steps: dict[tuple[int, Hashable], _Step | None] = {}
        self._found: dict[tuple[int, Hashable], tuple[list[int], Iterator[int]]] = {}

    def least_ps(self, first: int, last: int, fabric: Topology, state: Hashable) -> int | None:
        """What some steps take at least; None without a route.

        Rounded to the next picosecond, so that bounds that are the time itself are equal to it but for a few.

        `state`: tells the fabric from others.
        """
        if (first, state) not in self._found:
            steps = (self._alone(step, fabric, state) for step in range(first, len(self.rows)))
            self._found[first, state] = [], self._from(first, steps, fabric.latency_ps)
        return self._known(first, last, state)

    def _known(self, first: int, last: int, state: Hashable) -> int | None:
        """Of the steps from one to another, as far as bounds are known or there are routes."""
        found, more = self._found[first, state]
        found.extend(islice(more, max(0, last - first + 1 - len(found))))
        return found[last - first] if last - first < len(found) else None

    def anywhere_ps(self, first: int, last: int, n_nodes: int, latency_ps: int, rate_Bps: float) -> int:
        """What some steps take at least, however links are connected, and whenever they change.

        `n_nodes`, `latency_ps`: of nodes, and of any link.
        `rate_Bps`: of all links of a node together, which a single pair may have.
        """
        state = "anywhere", n_nodes, latency_ps, rate_Bps
        if (first, state) not in self._found:
            steps = (self._at_once(step, n_nodes, latency_ps, rate_Bps) for step in range(first, len(self.rows)))
            self._found[first, state] = [], self._from(first, steps, np.full(2 * n_nodes, latency_ps))
        return (self._known(first, last, state) or 0) if last >= first else 0

    def _from(self, first: int, steps: Iterable[_Step | None], latency_ps: npt.NDArray[np.integer]) -> Iterator[int]:
        """Of the steps up to each, as far as there are routes."""
        load_ps, ended_ps = np.zeros(latency_ps.size), np.zeros((2, self.transfers.src.size))
        for step, one in enumerate(steps, first):
            if one is None:
                break
            begun_ps = np.zeros(self.rows[step].size)
            for some, ended in zip(self.waits[step], ended_ps, strict=True):
                np.maximum.at(begun_ps, some.place, ended[some.row])
            ended_ps[:, self.rows[step]] = begun_ps + one.ends_ps
            load_ps += one.load_ps
            busiest_ps = np.where(load_ps > 0, load_ps + latency_ps, 0).max(initial=0)
            yield round(max(busiest_ps, ended_ps[0].max(initial=0)))

    def _alone(self, step: int, fabric: Topology, state: Hashable) -> _Step | None:
        """One step, whose transfers begin together."""
        if (step, state) not in self._steps:
            self._steps[step, state] = self._routed(step, fabric)
        return self._steps[step, state]

    def _routed(self, step: int, fabric: Topology) -> _Step | None:
        t, model = take(self.transfers, self.rows[step]), self.model
        try:
            paths = _paths(wiring_of(fabric), t.src.tobytes(), t.dst.tobytes(), model.tie, model.seed)
        except WeftError:
            return None
        row, routes = np.repeat(paths.pair, np.diff(paths.ptr)), np.bincount(paths.pair, minlength=t.src.size)
        ps_per_byte = PS_PER_S / fabric.bandwidth_Bps[paths.links] * (model.deliver != "head")
        size = t.blocks * self.size / routes
        load_ps = np.bincount(paths.links, size[row] * ps_per_byte, fabric.n_links)
        latency_ps = np.bincount(row, fabric.latency_ps[paths.links], t.src.size) / routes
        slowest = np.zeros(t.src.size)
        np.maximum.at(slowest, row, ps_per_byte)
        return _Step(load_ps.astype(np.float64), latency_ps + slowest * self.sizes(t, size))

    def _at_once(self, step: int, n_nodes: int, latency_ps: int, rate_Bps: float) -> _Step:
        """A step of which each transfer has all links of its ends; loads are of what nodes send, then receive."""
        t = take(self.transfers, self.rows[step])
        moves, ps_per_byte = t.src != t.dst, PS_PER_S / rate_Bps * (self.model.deliver != "head")
        size = t.blocks * self.size * moves
        load_ps = np.concatenate([np.bincount(ends, size * ps_per_byte, n_nodes) for ends in (t.src, t.dst)])
        return _Step(load_ps, moves * latency_ps + ps_per_byte * self.sizes(t, size))

    def sizes(self, t: Transfers, size: F64) -> F64:
        """Bytes of transfers and of their first chunks, (2, rows)."""
        own = 0 if t.rounds is None else t.rounds[:, 0]
        chunks = np.where(own, own, self.model.chunks or 0)
        return np.stack([size, np.where(chunks, size // np.maximum(chunks, 1), 0)])


@lru_cache(maxsize=2048)
def _paths(wiring: Topology, src: bytes, dst: bytes, tie: str, seed: int) -> Paths:
    """The routes of the pairs of a step, whatever the rates."""
    return wiring.paths(np.frombuffer(src, np.int32), np.frombuffer(dst, np.int32), tie, seed)


def _by_step(number: I64, n_steps: int) -> list[I64]:
    """The places of each step in an array of steps, ascending."""
    ends = np.cumsum(np.bincount(number, minlength=n_steps))
    return np.split(np.argsort(number, kind="stable"), ends)[:-1]
