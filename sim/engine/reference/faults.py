"""What changes in time, as the reference engine sees it: written from the contract, one question a method."""

from dataclasses import dataclass
from typing import NamedTuple

from sim.program.contract import DOWN, DROPS, Program
from topologies.core.routing import hash64

LOSS, JITTER = 0, 1


class Regime(NamedTuple):
    """What holds for a server from a time on."""

    from_ps: int
    rate: int
    latency_ps: int


@dataclass(eq=False)
class Conditions:
    """What holds for one server, and when it changes."""

    program: Program
    index: int

    def __post_init__(self) -> None:
        p = self.program
        self.regimes = [Regime(-1, int(p.server_rate[self.index]), 0)]
        if p.timetable_ptr.size:
            for row in range(p.timetable_ptr[self.index], p.timetable_ptr[self.index + 1]):
                self.regimes.append(
                    Regime(int(p.timetable_from_ps[row]), int(p.timetable_rate[row]), int(p.timetable_latency_ps[row]))
                )
        flag = int(p.server_crossing[self.index]) if p.server_crossing.size else 0
        self.drops, self.crossing = flag >= DROPS, flag % DROPS
        self.resend_ps = int(p.server_resend_ps[self.index]) if p.server_resend_ps.size else 0

    def at(self, time_ps: int) -> Regime:
        """What holds at a time."""
        return [regime for regime in self.regimes if regime.from_ps <= time_ps][-1]

    def up_from(self, time_ps: int) -> int | None:
        """When the server is up, at a time or after it; None: never again."""
        if self.at(time_ps).rate != DOWN:
            return time_ps
        return next((one.from_ps for one in self.regimes if one.from_ps > time_ps and one.rate != DOWN), None)

    def down_after(self, time_ps: int) -> int | None:
        """When the server next goes down after a time."""
        return next((one.from_ps for one in self.regimes if one.from_ps > time_ps and one.rate == DOWN), None)

    def jitter_ps(self, task: int, chunk: int, hop: int, attempt: int, of_service: bool) -> int:
        """What is drawn for a service, or for its latency."""
        p = self.program
        row = int(p.server_jitter[self.index]) if p.server_jitter.size else -1
        if row < 0 or bool(p.jitter_of_service[row]) != of_service:
            return 0
        return int(p.jitter_ps[row, self._draw(JITTER, task, chunk, hop, attempt) % p.jitter_ps.shape[1]])

    def loses(self, task: int, chunk: int, hop: int, attempt: int) -> bool:
        """Whether a service that nothing cuts off is lost."""
        if not self.program.server_loss.size:
            return False
        return self._draw(LOSS, task, chunk, hop, attempt) < int(self.program.server_loss[self.index])

    def _draw(self, what: int, task: int, chunk: int, hop: int, attempt: int) -> int:
        return int(hash64(self.program.seed, what, task, chunk, hop, attempt)[0]) >> 1


def detours_of(program: Program, task: int) -> list[tuple[int, int]]:
    """From when on a task takes which other route."""
    rows = range(*program.detour_ptr[task : task + 2]) if program.detour_ptr.size else range(0)
    return [(int(program.detour_from_ps[row]), int(program.detour_route[row])) for row in rows]


def route_from(program: Program, task: int, time_ps: int) -> int:
    """The route that chunks of a task take which join, or are sent again, at a time."""
    own = int(program.task_route[task])
    return [own, *(route for from_ps, route in detours_of(program, task) if from_ps <= time_ps)][-1]
