"""Where a replay finds another order of service: the engine goes on from there, and the tape is put in that order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.engine import loop as _fifo
from sim.engine import setup as fifo
from sim.engine.core import state as fields
from sim.engine.core.state import FifoState
from sim.engine.core.status import NONE
from sim.engine.run import Run, advance_to_end, start
from sim.engine.tape import reorder as _reorder
from sim.engine.tape import restore as _resume
from sim.engine.tape.restore import Swept
from sim.engine.tape.tape import Replay, Tape, empty_ops
from sim.program import Program
from sim.program.outcome import Outcome
from topologies.stages import staged

LEAST_SAVED = 4096
"""Services before the change from which on a run is resumed: the state of 3,500 takes as long as to simulate them."""


@staged("engine")
def resume(tape: Tape, program: Program, replay: Replay, log: bool = False) -> Run:
    """A run of a program that stands where its order of service begins to differ from the recorded one.

    It stands at the start where little would be saved, and where another loop runs it, or pools: what asks for units in
    the order of its grants is not known from times alone.

    `program`: that of the last replay.
    `replay`: which was not in order.
    `log`: as for a run; the services so far are in it.
    """
    one = start(program, log=log)
    if not isinstance(one.state, FifoState) or one._kernel is not _fifo.run_fifo or program.pool_capacity.size:
        return one
    if tape.n_ops < LEAST_SAVED or np.count_nonzero(tape._out < replay.change_ps) <= LEAST_SAVED:
        return one
    if replay.change_ps >> one.state.register[fields.WIDTH] == 0:
        return one  # the present is set to the end of the bucket of the calendar before that of the change
    swept = Swept(tape._out, tape._end, tape.times(program)[0])
    events = np.empty(fields.EVENT_WORDS * (tape.places.op_of.size + program.n_tasks), np.int64)
    count = _resume.restore(program, one.state, tape.ops, swept, tape.places, replay.change_ps, events)
    one.state = fifo.with_blocks(one.state, max(count, 1))
    _resume.fill(program, one.state, events, count, replay.change_ps)
    return one


def record_again(tape: Tape, program: Program, replay: Replay) -> Tape:
    """A tape of a program whose order of service is not that of another tape.

    `program`, `replay`: as in `resume`.
    """
    if program.pool_capacity.size or fifo.loop(program) is None:
        return Tape.record(program)
    return _reordered(tape, program, advance_to_end(resume(tape, program, replay, log=True)))


@staged("engine")
def _reordered(tape: Tape, program: Program, outcome: Outcome) -> Tape:
    """The tape of another run, of which `outcome` has the log."""
    assert outcome.log is not None
    rank, tie = np.zeros(tape.ops.server.size, np.int64), np.zeros(tape.ops.server.size, np.int64)
    _reorder.rank_ops(program, tape.places, outcome.log.start_ps, np.array(fifo.bits(program)[:3]), rank, tie)
    _reorder.rank_joins(tape.ops, *tape.times(program), rank, tape._out, tape._end)
    place, ops = np.zeros(rank.size, np.int32), empty_ops(rank.size)
    last = np.full(program.n_servers, NONE, np.int32)
    _reorder.reorder(tape.ops, np.argsort(rank, kind="stable"), tie, last, place, ops)
    places = tape.places._replace(
        op_of=place[tape.places.op_of], empty_op=place[tape.places.empty_op], before=outcome.log.before
    )
    return replace(
        tape, program=program, ops=ops, first_op=place[tape.first_op], last_op=place[tape.last_op], places=places,
        _out=np.zeros(rank.size, np.int64), _end=np.zeros(rank.size, np.int64),
    )
