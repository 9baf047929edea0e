"""Circuits that take turns whatever is asked for: every link of a rotor over time.

Slot s has the rotations s P + 1 to s P + P of the n - 1 that join every two servers, P being the ports; then all are
dark for the delay. What would not end before its circuit goes waits for the next turn of it.

W. Mellette et al., "RotorNet: A Scalable, Low-complexity, Optical Datacenter Network", SIGCOMM 2017.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from sim.lower.lowered import Lowered
from sim.lower.marks import Marks
from sim.program.columns import crossings
from sim.program.contract import WAITS
from sim.program.disrupt import Disruptions, Phase, disrupt
from sim.program.outcome import Outcome
from topologies import Topology, WeftError
from topologies.units import format_time

FIRST_CYCLES = 8
"""Of a run; four times as many where it takes longer."""

UP, DARK = Fraction(1), Fraction(0)


def turns_of(topology: Topology) -> Marks | None:
    """Links that are up at the same times; None of what is no rotor."""
    if topology.optics is None or not topology.optics.dwell_ps:
        return None
    return Marks(np.zeros(topology.n_npus, np.int64), (topology.dst - topology.src).astype(np.int64) % topology.n_npus)


def refuse_turns(topology: Topology, what: str) -> None:
    """Reject a rotor where `what` knows no turns."""
    if turns_of(topology) is not None:
        raise WeftError(f"{what} on {topology.name}, whose circuits take turns: choose a fabric such as ocs:16x4")


def _cycle_ps(topology: Topology) -> int:
    """After how long a circuit comes again."""
    assert topology.optics is not None
    slots = -(-(topology.n_npus - 1) // topology.optics.ports)
    return max(slots, 1) * (topology.optics.dwell_ps + topology.optics.delay_ps)


def in_turns(lowered: Lowered, run: Callable[[Lowered], Outcome]) -> tuple[Lowered, Outcome]:
    """A run of a program, and its legend: on a rotor, in as many of its cycles as it takes."""
    marks, cycles = turns_of(lowered.topology), FIRST_CYCLES
    if marks is None:
        return lowered, run(lowered)
    while True:
        turned = _turning(lowered, marks, cycles)
        outcome = run(turned)
        if outcome.makespan_ps <= cycles * _cycle_ps(lowered.topology):
            return turned, outcome
        cycles *= 4


def _turning(lowered: Lowered, marks: Marks, cycles: int) -> Lowered:
    """The program whose circuits take turns in some cycles, and then are all up.

    WeftError: a chunk that takes longer than a circuit is up.
    """
    topology, program = lowered.topology, lowered.program
    optics = topology.optics
    assert optics is not None
    slot_ps, cycle = optics.dwell_ps + optics.delay_ps, _cycle_ps(topology)
    task, server = crossings(program)
    links = np.flatnonzero(lowered.server_link >= 0)
    task, server = (one[np.isin(server, links)] for one in (task, server))
    chunk = program.cut_size[program.task_cut[task]]
    longest = int(program.service(chunk, program.server_rate[server][:, None]).max(initial=0))
    if longest > optics.dwell_ps:
        raise WeftError(f"a chunk takes {format_time(longest)}, and circuits of {topology.name} are up for "
                        f"{format_time(optics.dwell_ps)}: give smaller chunks or a longer dwell")

    def phases(shift: int) -> list[Phase]:
        first = (shift - 1) // optics.ports * slot_ps
        if optics.dwell_ps == cycle:
            return []  # always up
        turns = [turn * cycle + first for turn in range(cycles)]
        times = [one for up in turns for one in (Phase(up, UP), Phase(up + optics.dwell_ps, DARK))]
        return [Phase(0, DARK)] * (first > 0) + times + [Phase(cycles * cycle, UP)]

    of_shift = {shift: phases(shift) for shift in range(1, topology.n_npus)}
    link_of = {server: link for server, link in enumerate(lowered.server_link.tolist()) if link >= 0}
    faults = Disruptions(
        phases={server: of_shift[int(marks.link[link])] for server, link in link_of.items()},
        crossing=dict.fromkeys(link_of, WAITS),
    )
    return lowered._replace(program=disrupt(program, faults), phases=faults.phases)
