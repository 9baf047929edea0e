"""State of the fifo loop, and where its fields lie.

What is used together lies together: a task and a server take half a cache line each, an event takes 24 bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.engine.compile.pointers import by_pointer
from sim.program.contract import I8, I32, I64

DIGIT = 13
SLOTS = 1 << DIGIT
LEVELS = -(-63 // DIGIT)
WORDS = SLOTS // 64
OPEN = LEVELS * SLOTS
BLOCK = 32
"""Events of a block."""

RADIX = 256

# Registers of a run, kept between calls: present, services done, tasks left, last delivery, top of the stack; servers
# touched in this picosecond, and how many of them are done; open events sorted, how many of these have happened,
# events in the heap of the late, an event delivered in this bucket whose place is free; first free block, free blocks,
# the slot whose events move to the levels below; the first pool that may have something to grant; NICs touched, how
# many of them are done, the first flow whose engine may be done, the first free place for a service of a NIC; of the
# queues of policies/choose.py the first free node, how many are free, and the number of the next one; and the
# constants of the run: bits of the offset in a bucket, of a task, a hop and a chunk in a key; of these queues how many
# buckets one has, bits of a rank that they do not look at, and the least priority; events that a service may put into
# the calendar; whether an event was put into the past, which is a fault of a kernel; and with faults, what is added to
# hops in keys, the next task whose deadline is to be set, when the chunk arrived that is served now, rows of the
# journal, and the first node of the chunks that were given up; bits of the number of buckets of a channel.
(
    NOW, EVENTS, LEFT, MAKESPAN, TOP, TOUCHED, SERVED, OPENED, HAPPENED, LATE, SPARE, FREE, BLOCKS, MOVING, STIRRED,
    TOUCHED_NICS, SERVED_NICS, ENDED, BACKLOG_FREE, FREE_NODE, FREE_NODES, NUMBER, WIDTH, TASK_BITS, HOP_BITS,
    CHUNK_BITS, BUCKETS, RANK_SHIFT, LEAST, MOST, PAST, BIAS, TIMER, ARRIVED_PS, JOURNALED, GIVEN_UP,
    BUCKET_BITS, REGISTERS,
) = range(38)

# Words of an event, int64.
TIME, KEY, PLACE, EVENT_WORDS = 0, 1, 2, 3
WOKEN, ALARM, PUSHED, ASKS, RINGS = -2, -3, -4, -5, -6
"""In place of a place. KEY then has: a server that is to choose again; the place of a NIC; a task; a task that asks a
pool; a task that has come to its deadline."""
# A place: where its hop is in the routes, FRESH before the first service of a chunk that faults may lose, how often it
# was lost, and its chunk size.
#
#     bit   63 ... 32 | 31    | 30 ... 23 | 22 ... 0
#           at        | FRESH | attempt   | size
ATTEMPT_SHIFT = 23
SIZES, FRESH = 1 << ATTEMPT_SHIFT, 1 << 31
JOURNAL_COLUMNS = 7
# Words of a server, int64.
FREE_PS, BUSY_PS, STAMP_PS, LINE, SERVER_WORDS = 0, 1, 2, 3, 4
# Half-words of a task, int32; the last two are its gate, int64.
RELEASED, JOINED, DELIVERED, MISSING, LINK, CHUNKS, GATE, TASK_WORDS = 0, 1, 2, 3, 4, 5, 3, 8
# Words of a node of sim/engine/core/nodes.py, int64, beside KEY and PLACE; its links, half-words, int32.
NODE_WORDS = 3
NEXT, CHILD = 0, 1
# Words of a pool, int32: units left, the first of those that ask (a node; in a line, a task) or NONE, and the pool
# below on the stack of those to look at, NONE at the bottom, or UNSTACKED.
FREE_UNITS, REQUESTS, LOOK, POOL_WORDS = 0, 1, 2, 3
# Words of a server that chooses, int64.
WAITING, WAKE_PS, CHOICE_WORDS = 0, 1, 2

_NONE, _FEW, _SMALL = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8)


@by_pointer
class FifoState(NamedTuple):
    """State of a run; S servers, T tasks, B blocks, N events that can be open.

    Attributes
    ----------
    register : (REGISTERS,) int64
    task : (T * TASK_WORDS,) int32
        Chunks released; of these, that went to the first server; delivered; parents that hold back the next chunk;
        the stack of the tasks to look at in this picosecond: the task below, NONE at the bottom, or UNSTACKED; chunks.
        In the lines of sim/engine/policies/pools.py the task behind is in place of the one below.
    gate_ps : (T * TASK_WORDS / 2,) int64
        The same memory. When the first server is done with the chunk before; FAR while that chunk was not served, or
        waits for units of a pool; GRANTED when it has them; when the task finished, once it has.
    start_ps : (T,) int64
    server : (S * SERVER_WORDS,) int64
        End of the last service begun; busy time; picosecond of the last arrival; first and last event that arrived
        then, in one word.
    touched : (S,) int32
        Servers at which something arrived in this picosecond.
    event : (B * BLOCK * EVENT_WORDS,) int64
        Events that wait in the calendar; see sim/engine/core/calendar.py.
    next_block : (B,) int32
    slot : (OPEN * 2 + 2,) int32
        First block of a slot, and its number of events.
    occupied : (LEVELS * WORDS,) int64
        Which slots are not empty.
    order, other, late : (N,) int64
        The open events in the order of time, room to sort them, and the heap of those that came late.
    digit : (RADIX,) int32
    log_base, log_start_ps, log_before : (T+1,) or (0,), ... int64
    last_row : (S,) or (0,) int64
        The log, where asked for; see sim.program.outcome.Log.
    nic, flow, wish : (N * NIC_WORDS,), (flows * FLOW_WORDS,), (T * WISH_WORDS,) or (0,) int64
    engine, backlog : (engines * ENGINE_WORDS,), (services * BACKLOG_WORDS,) or (0,) int64
        Words of sim/engine/core/nic_state.py. Empty, as the two that follow, where there are no NICs.
    port_left : (N * ports,) or (0,) int32
        Transfers of each port that are not pushed in full.
    touched_nic : (N,) or (0,) int32
        NICs to look at in this picosecond.
    choice : (S * CHOICE_WORDS,) or (0,) int64
        Chunks that wait at a server that chooses, and when it will be looked at again, if that was ever set. Empty, as
        the rest, where no server chooses and there are no pools.
    filled, ends : (S * words,), (S * BUCKETS * 2,) or (0,) int64, int32
        Buckets of the queues, and which of them are not empty; see sim/engine/policies/choose.py.
    node, link : (nodes * NODE_WORDS,), (nodes * NODE_WORDS * 2,) or (0,) int64, int32
        Chunks that wait for servers or pools, and the same memory in half-words.
    node_rank : (nodes,) or (0,) int64
        What is compared first of nodes in heaps; empty where there are none.
    pool : (P * POOL_WORDS,) int32
    work_rank : (K,) or (0,) int32
        Place of each cut in the order of the work of its tasks.
    chooses : (S,) or (0,) int8
        Whether a server chooses; the others are committed on arrival.
    channel : (S,) or (0,) int32
        Channel that has the next turn; empty where there is one.
    room : (channels * S * ROOM_WORDS,) or (0,) int64
        Words of sim/engine/policies/rooms.py; empty where there are no buffers.
    turn, turn_line : (queues * QUEUE_WORDS,), (2 * channels * S,) or (0,) int64
        Words of sim/engine/policies/turns.py; empty where no queues take turns.
    row : (S,) or (0,) int32
        Row of the timetable that held when the server last looked; the row before its first where none did. Empty, as
        all that follows, in a healthy program.
    held : (T,) or (0,) int32
        Nodes of chunks that are in, while one of a chunk before them is not: a list.
    node_since : (nodes,) or (0,) int64
        When the chunks in nodes arrived, or asked.
    journal : (rows * JOURNAL_COLUMNS,) or (0,) int64
        Task, chunk, place in the routes, arrival (its complement: sent on another route), start, end, and when the
        chunk is ready for what follows (its complement: resent after it was lost), of every service, where asked for.
    """

    register: I64
    task: I32
    gate_ps: I64
    start_ps: I64
    server: I64
    touched: I32
    event: I64
    next_block: I32
    slot: I32
    occupied: I64
    order: I64
    other: I64
    late: I64
    digit: I32
    log_base: I64
    log_start_ps: I64
    log_before: I64
    last_row: I64
    nic: I64 = _NONE
    flow: I64 = _NONE
    wish: I64 = _NONE
    engine: I64 = _NONE
    backlog: I64 = _NONE
    port_left: I32 = _FEW
    touched_nic: I32 = _FEW
    choice: I64 = _NONE
    filled: I64 = _NONE
    ends: I32 = _FEW
    node: I64 = _NONE
    link: I32 = _FEW
    node_rank: I64 = _NONE
    pool: I32 = _FEW
    work_rank: I32 = _FEW
    chooses: I8 = _SMALL
    channel: I32 = _FEW
    room: I64 = _NONE
    turn: I64 = _NONE
    turn_line: I64 = _NONE
    row: I32 = _FEW
    held: I32 = _FEW
    node_since: I64 = _NONE
    journal: I64 = _NONE

    @property
    def joined(self) -> I32:
        """Chunks of each task that went to the first server, (T,)."""
        return self.task[JOINED::TASK_WORDS]

    @property
    def delivered(self) -> I32:
        """Chunks delivered of each task, (T,)."""
        return self.task[DELIVERED::TASK_WORDS]

    @property
    def finish_ps(self) -> I64:
        """When each task was delivered, -1 where it was not, (T,); computed."""
        return np.where(self.delivered == self.task[CHUNKS::TASK_WORDS], self.gate_ps[GATE :: TASK_WORDS // 2], -1)

    @property
    def busy_ps(self) -> I64:
        """Busy time of each server, (S,); computed."""
        return self.server[BUSY_PS::SERVER_WORDS].copy()

    @property
    def tokens(self) -> int:
        """Room for chunks in flight: for events, and for nodes, in which chunks wait for servers that choose."""
        return self.next_block.size * BLOCK + self.node.size // NODE_WORDS
