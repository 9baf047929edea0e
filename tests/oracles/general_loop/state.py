"""State of a run, in arrays that live between two calls of the kernel; and the constants that its fields use."""

from __future__ import annotations

from typing import NamedTuple

from sim.engine.compile.door import by_pointer
from sim.engine.core.status import *  # noqa: F403  the general loop takes all it knows from here
from sim.program.contract import I32, I64

DIGIT = 10
SLOTS = 1 << DIGIT
LEVELS = -(-63 // DIGIT)
WORDS = SLOTS // 64

# Registers of a run, kept between calls: present, services done, tasks left, last delivery, first event of the
# present, first token arriving at the present, first free token, top of the stack, number of touched servers, rows
# of the journal, number of touched NICs, first token after the alarms and engines of NICs,
# first of the tokens that are kept for credits, and how many.
(
    NOW, EVENTS, LEFT, MAKESPAN, BATCH, ARRIVING, FREE, TOP, TOUCHED, JOURNALED, TOUCHED_NICS, TOKENS_FROM,
    RETURNS, STOCK, REGISTERS,
) = range(15)

FIRST_HOP = 1 << 30
"""Added to the size of a token that is still at its first server."""
ARM, RING = -2, -1
"""In place of a chunk, in a token that is the timer of a task: to be set, and set."""
RETURN = -3
"""In place of a chunk, in a token of tests/oracles/general_loop/credits.py."""
JOURNAL_COLUMNS = 7
NEEDS_JOURNAL = 10
"""Status of a run whose journal is full, beside those of sim/engine/core/status.py."""


@by_pointer
class State(NamedTuple):
    """State of a run; S servers, T tasks, P pools, N tokens.

    A token is a chunk in flight, numbered by its event: S + n (tests/oracles/general_loop/event.py has the layout).

    Attributes
    ----------
    register : (REGISTERS,) int64
    released, joined, delivered : (T,) int32
        Chunks released; of these, that went to the first server (or the pool); delivered.
    missing : (T,) int32
        Parents that hold back the next chunk.
    link : (T,) int32
        Stack of the tasks to look at in this picosecond: the task below, NONE at the bottom, or UNSTACKED.
    gate_ps : (T,) int64
        When the first server is done with the chunk before; FAR while that chunk has not been served.
    start_ps, finish_ps : (T,) int64
    free_ps : (S,) int64
        End of the last service begun.
    busy_ps : (S,) int64
    first_of : (S,) int32
        Task whose first hop is being served, or NONE.
    queue : (channels * S,) int32
        Waiting tokens: the root of a pairing heap.
    touched : (S,) int32
        Servers to look at in this picosecond.
    touched_ps : (S,) int64
    event_ps : ((S+N) * 4,) int64
        Time of event e at 4 e; an arrival time while the token waits.
    event : ((S+N) * 8,) int32
        The same memory in half-words, the fields of tests/oracles/general_loop/event.py.
    slot, occupied : (LEVELS * SLOTS,) int32, (LEVELS * WORDS,) int64
        Heads of the wheel's lists, and which are not empty.
    pool_free, pool_queue : (P,) int32
    log_base, log_start_ps, log_before : (T+1,) or (0,), ... int64
    last_row : (S,) or (0,) int64
        The log, where asked for; see sim.program.outcome.Log.
    place : (S,) or (0,) int32
        Row of the timetable that held when the server last looked; the row before its first where none did.
    attempt : (S+N,) or (0,) int32
        How often a token was lost. Empty, as all that follows, in a healthy program.
    held : (T,) or (0,) int32
        Tokens that are in, while one of a chunk before them is not: a list through NEXT.
    journal : (rows * JOURNAL_COLUMNS,) or (0,) int64
        Task, chunk, place in the routes, arrival (its complement: sent on another route), start, end, and when the
        chunk is ready for what follows (its complement: resent after it was lost), of every service, where asked for.
    nic : (N * NIC_WORDS,) or (0,) int64
        Words of tests/oracles/general_loop/nic.py. Empty, as all that follows, where there are no NICs.
    flow : (flows * FLOW_WORDS,) or (0,) int32
    port_left : (N * ports,) or (0,) int32
        Transfers of each port that are not pushed in full.
    touched_nic : (N,) or (0,) int32
        NICs to look at in this picosecond.
    line : (2 * channels * S,) or (0,) int32
        Of fifo servers, whose `queue` is the first of a list here: LAST and EARLIER of general/nic.py. Also there
        where queues take turns: FRONT and BACK of tests/oracles/general_loop/turns.py.
    turn : (queues * QUEUE_WORDS,) or (0,) int64
        Words of the queues that take turns; empty where there are none.
    buffered : (channels * S,) or (0,) int64
        Work of the chunks that hold a buffer, and of those that gave it back since a return was last looked at; empty
        where there are no buffers.
    room : (channels * S * ROOM_WORDS,) or (0,) int64
        Words of tests/oracles/general_loop/credits.py.
    channel : (S,) or (0,) int32
        Channel that has the next turn; empty where there is one.
    """

    register: I64
    released: I32
    joined: I32
    delivered: I32
    missing: I32
    link: I32
    gate_ps: I64
    start_ps: I64
    finish_ps: I64
    free_ps: I64
    busy_ps: I64
    first_of: I32
    queue: I32
    touched: I32
    touched_ps: I64
    event_ps: I64
    event: I32
    slot: I32
    occupied: I64
    pool_free: I32
    pool_queue: I32
    log_base: I64
    log_start_ps: I64
    log_before: I64
    last_row: I64
    place: I32
    attempt: I32
    held: I32
    journal: I64
    nic: I64
    flow: I32
    port_left: I32
    touched_nic: I32
    line: I32
    turn: I64
    buffered: I64
    room: I64
    channel: I32
