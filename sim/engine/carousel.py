"""Runs in which tasks wait for times alone, and each crosses one server again and again; see core/carousel.py."""

import numpy as np
import numpy.typing as npt

from sim.engine import setup
from sim.engine.compile.rows import Rows, row, rows
from sim.engine.core.carousel import BITS, Arrival, Lane, Queues, Rider, go_round
from sim.engine.core.status import FINISHED
from sim.program.contract import CLOCK_END_PS, HEAD, I32, I64, Program
from sim.program.outcome import Outcome

FEWEST_SERVICES = 2**17
"""A run of fewer takes less time than one more kernel takes to be loaded."""

MOST_SERVERS, MOST_CHUNKS = 64, 2**20
"""Servers are few where one stands for many; and there is room for all chunks in queues."""


class Carousel:
    """A run that goes on to its end, in slices, server by server.

    `program`: one that `accepts`.
    `times`: keep when each task started and finished.
    """

    def __init__(self, program: Program, times: bool = True) -> None:
        self.program, self.times = program, times
        server = _servers(program)
        order = np.lexsort((program.task_class, server))
        self._task = np.split(order, np.searchsorted(server[order], np.arange(1, program.n_servers)))
        begin_ps = _begin_ps(program)
        self._states = [_initial(program, one, tasks, begin_ps[tasks]) for one, tasks in enumerate(self._task)]

    @staticmethod
    def accepts(program: Program) -> bool:
        """Whether a program is one of these."""
        if program.parent.size or program.n_servers > MOST_SERVERS or not setup.is_plain(program):
            return False
        lengths, chunks = np.diff(program.route_ptr), program.chunks()
        most = max(program.n_tasks, int(lengths.max(initial=0)), int(chunks.max(initial=0)))
        if most >> BITS or chunks.sum() > MOST_CHUNKS or np.any(lengths == 0) or not _waits_for_times(program):
            return False
        slowest_ps = float(program.service_ps.max(initial=0)) + float(program.hop_latency_ps.max(initial=0))
        if program.chunk_hops() * slowest_ps >= CLOCK_END_PS:
            return False  # perhaps beyond the clock, which only a calendar finds out
        inner, server = program.hop_last == 0, program.route_server
        alike = program.hop_latency_ps[inner] == _onward_ps(program)[program.hop_server[inner]]
        stays = (server[1:] == server[:-1]) | (program.hop_last[program.route_hop[:-1]] != 0)
        return bool(np.all(alike) and np.all(stays))

    @property
    def events(self) -> int:
        """Services begun so far."""
        return sum(int(one.lane["events"]) for one in self._states)

    @property
    def now_ps(self) -> int:
        """Picosecond reached, at the server that is ahead."""
        return max((int(one.lane["now_ps"]) for one in self._states), default=0)

    def advance(self, max_events: int, until_ps: int = CLOCK_END_PS) -> bool:
        """Go on to the end, or until so many more services have begun; returns whether it has ended.

        `until_ps`: not looked at, for servers go on by themselves.
        """
        goal = self.events + max_events
        return all(go_round(one, np.int64(goal - self.events)) == FINISHED for one in self._states)

    def outcome(self) -> Outcome:
        """Times, once the run has ended."""
        times = np.zeros((2, self.program.n_tasks if self.times else 0), np.int64)
        for tasks, one in zip(self._task if self.times else (), self._states, strict=False):
            times[:, tasks] = one.riders["start_ps"], one.riders["finish_ps"]
        busy_ps = np.array([one.lane["busy_ps"] for one in self._states], np.int64)
        last_ps = max((int(one.riders["finish_ps"].max(initial=0)) for one in self._states), default=0)
        return Outcome(times[0], times[1], busy_ps, last_ps, self.events)


def _onward_ps(program: Program) -> I64:
    """Latency after the hops at each server that are not the last, (S,)."""
    inner, onward_ps = program.hop_last == 0, np.zeros(program.n_servers, np.int64)
    onward_ps[program.hop_server[inner]] = program.hop_latency_ps[inner]
    return onward_ps


def _servers(program: Program) -> I32:
    """The server of each task, (T,)."""
    return program.hop_server[program.route_hop[program.route_ptr[program.task_route]]]


def _waits_for_times(program: Program) -> bool:
    """Whether what tasks wait for lets time pass and nothing else: one chunk, once, alone on its server."""
    parent, _ = program.whole_edges()
    hops, alone = np.diff(program.route_ptr)[program.task_route[parent]], np.bincount(server := _servers(program))
    once = (program.chunks()[parent] == 1) & (hops == 1) & (alone[server[parent]] == 1)
    return bool(np.all(once & (program.task_waits[parent] == 0)))


def _begin_ps(program: Program) -> I64:
    """When each task may begin, (T,): what it waits for has been delivered."""
    parent, child = program.whole_edges()
    cut, hop = program.task_cut[parent], program.route_hop[program.route_ptr[program.task_route[parent]]]
    size = program.cut_size[cut, np.int64(program.cut_first[cut] == 0)]
    service_ps = program.service(size, program.server_rate[program.hop_server[hop]])
    begin_ps = np.zeros(program.n_tasks, np.int64)
    np.maximum.at(begin_ps, child, program.hop_latency_ps[hop] + service_ps * (program.hop_last[hop] != HEAD))
    return begin_ps


def _initial(program: Program, server: int, tasks: npt.NDArray[np.integer], begin_ps: I64) -> Queues:
    """The state of a server, with its first chunk."""
    cut, route = program.task_cut[tasks], program.task_route[tasks]
    lane, riders, rate = row(Lane), rows(Rider, tasks.size), program.server_rate[server]
    last = program.route_hop[program.route_ptr[route + 1] - 1]
    riders["tie_class"], riders["hops"] = program.task_class[tasks], np.diff(program.route_ptr)[route]
    riders["chunks"], riders["leading"] = program.cut_chunks[cut], program.cut_first[cut]
    for word, some in (("first_ps", riders["leading"] > 0), ("rest_ps", riders["leading"] < riders["chunks"])):
        size = program.cut_size[cut[some], int(word == "rest_ps")]
        riders[word][some] = program.service(size, rate)
    riders["out_ps"], riders["whole"] = program.hop_latency_ps[last], program.hop_last[last] != HEAD
    lane["onward_ps"], lane["stored"] = _onward_ps(program)[server], not program.cut_through
    order, firsts, begins = np.argsort(begin_ps, kind="stable"), rows(Arrival, tasks.size), _queue(tasks.size)
    firsts["at_ps"], firsts["word"] = begin_ps[order], order
    some = lane["released"] = lane["to_begin"] = min(tasks.size, 1)
    begins[:some] = firsts[:some]
    return Queues(lane, riders, firsts, begins, _queue(int(program.cut_chunks[cut].sum())))


def _queue(room: int) -> Rows[Arrival]:
    return rows(Arrival, 1 << max(room - 1, 0).bit_length())
