"""One program run again and again at other service times, in the memory of its first run.

A run of a few hundred services takes less time than its state takes to be made, and the kernel to be found.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.engine import setup
from sim.engine.core.state import OPEN, FifoState
from sim.engine.core.status import FINISHED, NEEDS_TOKENS
from sim.program.contract import CLOCK_END_PS, Program
from sim.program.outcome import Outcome
from topologies.compiled import held
from topologies.stages import staged

SCRATCH = ("events", "slots", "occupied", "order", "other", "late", "digit")
"""Of the calendar, which a finished run leaves empty but for the open bucket."""


class Reruns:
    """Runs of a healthy program on servers that do not choose, without pools and NICs.

    Parameters
    ----------
    program : Program
        Its service times are those of the next run: whoever has it writes others over them.
    """

    def __init__(self, program: Program) -> None:
        self.program = setup.simplified(program)
        setup.check_fits(self.program)
        state = setup.initial_state(self.program, log=False)
        self._longest_ps, self._kernel = (
            int(program.service_ps.max(initial=1)), setup.loop(self.program, state.rings.size))
        self._take(state)

    @staticmethod
    def accept(program: Program) -> bool:
        """Whether a program is one of these."""
        return setup.is_plain(program)

    def _take(self, state: FifoState) -> None:
        """Begin every run from a state."""
        self.state: FifoState = state
        self._run, self._tasks, self._servers, self._slots = (
            one.view(np.ndarray) for one in (state.run, state.tasks, state.servers, state.slots))
        columns: dict[str, Any] = state._asdict()
        plain = [one.view(np.ndarray).reshape(-1).view(np.uint8) for name, one in columns.items()
                 if name not in SCRATCH and one.size]
        self._kept = [(one, one.copy()) for one in plain]
        limits = np.int64(CLOCK_END_PS), np.int64(CLOCK_END_PS - 1)
        self._call: Callable[[], Any] = held(self._kernel, self.program, state, *limits)

    @staged("engine")
    def run(self) -> Outcome:
        """What `sim.engine.run.run` returns."""
        longest = int(self.program.service_ps.max(initial=1))
        while True:
            for array, first in self._kept:
                array[:] = first
            run = self._run
            self._slots["count"][OPEN] = 0
            wider = longest.bit_length() - self._longest_ps.bit_length()  # no order of events depends on it
            run["width"] = min(max(int(run["width"]) + wider, 0), 30)
            status = self._call()
            if status == FINISHED:
                times = self.state.start_ps.copy(), self._tasks["gate_ps"].copy(), self._servers["busy_ps"].copy()
                return Outcome(*times, int(run["makespan_ps"]), int(run["events"]))
            if status != NEEDS_TOKENS:
                raise AssertionError(f"a run ended with status {status}: the kernel is wrong")
            self._grow()

    def _grow(self) -> None:
        """Room for what the run was short of: begin anew with as much."""
        short = setup.with_more_room(self.state)
        fresh = setup.initial_state(self.program, log=False)
        more = short.next_block.size - fresh.next_block.size
        fresh = setup.with_blocks(fresh, more) if more > 0 else fresh
        self._take(fresh._replace(order=short.order, other=short.other, late=short.late))
