"""Circuits that take turns whatever is asked for: every link of a rotor over time.

Slot s has the rotations s P + 1 to s P + P of the n - 1 that join every two servers, P being the ports; then all are
dark for the delay. What would not end before its circuit goes waits for the next turn of it.

W. Mellette et al., "RotorNet: A Scalable, Low-complexity, Optical Datacenter Network", SIGCOMM 2017.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from sim.lower.lowered import Lowered
from sim.lower.marks import Marks
from sim.program.columns import crossings
from sim.program.contract import I32, WAITS, Program
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


Turns = Callable[[Program, I32, Disruptions], None]
"""Adds the turns of links, some cycles of them, to what else happens to the servers of a program."""


def with_turns(lowered: Lowered, turns: Turns | None) -> Lowered:
    """A healthy program, with the turns of its circuits if it has any."""
    if turns is None:
        return lowered
    faults = Disruptions()
    turns(lowered.program, lowered.server_link, faults)
    return lowered._replace(program=disrupt(lowered.program, faults), phases=faults.phases)


def _cycle_ps(topology: Topology) -> int:
    """After how long a circuit comes again."""
    assert topology.optics is not None
    slots = -(-(topology.n_npus - 1) // topology.optics.ports)
    return max(slots, 1) * (topology.optics.dwell_ps + topology.optics.delay_ps)


def in_turns(
    lowered: Lowered, run: Callable[[Lowered], Outcome], change: Callable[[Lowered, Turns | None], Lowered] = with_turns
) -> tuple[Lowered, Outcome]:
    """A run of a program, and its legend: on a rotor, in as many of its cycles as it takes.

    `change` adds the turns, and what else there is, to the program.
    """
    marks, cycles = turns_of(lowered.topology), FIRST_CYCLES
    if marks is None:
        lowered = change(lowered, None)  # what it was before need not stay as long as the run takes
        return lowered, run(lowered)
    while True:
        turned = change(lowered, partial(_turning, lowered.topology, marks, cycles))
        outcome = run(turned)
        if outcome.makespan_ps <= cycles * _cycle_ps(lowered.topology):
            return turned, outcome
        cycles *= 4


def _turning(
    topology: Topology, marks: Marks, cycles: int, program: Program, server_link: I32, faults: Disruptions
) -> None:
    """Circuits take turns in some cycles, and then are all up.

    WeftError: a chunk that takes longer than a circuit is up.
    """
    optics = topology.optics
    assert optics is not None
    slot_ps, cycle = optics.dwell_ps + optics.delay_ps, _cycle_ps(topology)
    task, server = crossings(program)
    links = np.flatnonzero(server_link >= 0)
    task, server = (one[np.isin(server, links)] for one in (task, server))
    chunk = program.cut_size[program.task_cut[task]]
    share = np.ones(program.n_servers)
    for one in links.tolist():
        share[one] = float(min((phase.factor for phase in faults.phases.get(one, ()) if phase.factor), default=UP))
    times_ps = program.service(chunk, program.server_rate[server][:, None]) / share[server][:, None]
    longest = int(times_ps.max(initial=0))
    if longest > optics.dwell_ps:
        raise WeftError(f"a chunk takes {format_time(longest)}, and circuits of {topology.name} are up for "
                        f"{format_time(optics.dwell_ps)}: give a longer dwell, "
                        "or smaller chunks, which --engine fluid does not have")

    def phases(shift: int) -> list[Phase]:
        first = (shift - 1) // optics.ports * slot_ps
        if optics.dwell_ps == cycle:
            return []  # always up
        turns = [turn * cycle + first for turn in range(cycles)]
        times = [one for up in turns for one in (Phase(up, UP), Phase(up + optics.dwell_ps, DARK))]
        if times[-1].from_ps == cycles * cycle:  # without a delay, after the last circuit of a cycle
            times.pop()
        return [Phase(0, DARK)] * (first > 0) + times + [Phase(cycles * cycle, UP)]

    of_shift = {shift: phases(shift) for shift in range(1, topology.n_npus)}
    for one in links.tolist():
        turns = of_shift[int(marks.link[server_link[one]])]
        faults.phases[one] = _both(turns, faults.phases[one]) if one in faults.phases else turns
        faults.crossing[one] = WAITS


def _both(turns: list[Phase], other: list[Phase]) -> list[Phase]:
    """What a circuit does that is up when both say so, with the rate and the latency of the second."""
    found, now = list[Phase](), [Phase(-1), Phase(-1)]
    for phase, which in sorted([*((one, 0) for one in turns), *((one, 1) for one in other)]):
        now[which] = phase
        if found and found[-1].from_ps == phase.from_ps:
            found.pop()
        found.append(Phase(phase.from_ps, now[0].factor * now[1].factor, now[1].latency_ps))
    return found
