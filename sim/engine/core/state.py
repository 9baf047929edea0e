"""State of the fifo loop; its rows are declared in sim/engine/core/layouts.py."""

from typing import NamedTuple

import numpy as np

from sim.engine.compile.door import by_pointer
from sim.engine.compile.rows import Rows, rows
from sim.engine.core.layouts import (
    Backlog,
    Choice,
    Ends,
    Engine,
    Event,
    Flow,
    Nic,
    Node,
    Pool,
    Queue,
    Return,
    Room,
    Run,
    Server,
    Service,
    Slot,
    Task,
    Wish,
)
from sim.program.contract import I8, I32, I64

DIGIT = 13
SLOTS = 1 << DIGIT
LEVELS = -(-63 // DIGIT)
WORDS = SLOTS // 64
OPEN = LEVELS * SLOTS
BLOCK = 32
"""Events of a block."""

RADIX = 256

WOKEN, ALARM, PUSHED, ASKS, RINGS = -2, -3, -4, -5, -6
"""In place of a place. The key is then: a server that is to choose again; a NIC; a task; a task that asks a pool; a
task that has come to its deadline."""

# A place: where its hop is in the routes, FRESH before the first service of a chunk that faults may lose, how often it
# was lost, and its chunk size.
#
#     bit   63 ... 32 | 31    | 30 ... 23 | 22 ... 0
#           at        | FRESH | attempt   | size
ATTEMPT_SHIFT = 23
SIZES, FRESH = 1 << ATTEMPT_SHIFT, 1 << 31

_NONE, _FEW, _SMALL = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8)


@by_pointer
class FifoState(NamedTuple):
    """State of a run; S servers, T tasks, B blocks, N events that can be open.

    Attributes
    ----------
    run : Run
        One row, of the registers.
    tasks, servers : (T,), (S,)
    start_ps : (T,) int64
    touched : (S,) int32
        Servers at which something arrived in this picosecond.
    events : (B * BLOCK,)
    next_block : (B,) int32
    slots : (OPEN + 1,)
    occupied : (LEVELS * WORDS,) int64
        Which slots are not empty.
    order, other, late : (N,) int64
        The open events in the order of time, room to sort them, and the heap of those that came late.
    digit : (RADIX,) int32
    log_base, log_start_ps, log_before : (T+1,) or (0,), ... int64
    last_row : (S,) or (0,) int64
        The log, where asked for; see sim.program.outcome.Log.
    nics, flows, wishes : (N,), (flows,), (T,) or (0,)
    engines, backlog : (engines,), (services,) or (0,)
        Empty, as the two that follow, where there are no NICs.
    port_left : (N * ports,) or (0,) int32
        Transfers of each port that are not pushed in full.
    touched_nic : (N,) or (0,) int32
        NICs to look at in this picosecond.
    choices : (S,) or (0,)
        Empty, as the rest, where no server chooses and there are no pools.
    filled, ends : (S * words,), (S * buckets,) or (0,) int64, Ends
        Buckets of the queues, and which of them are not empty; see sim/engine/policies/choose.py.
    nodes, returns : (nodes,) or (0,)
        Chunks that wait for servers or pools, and the same memory as returns of room.
    node_rank : (nodes,) or (0,) int64
        What is compared first of nodes in heaps; empty where there are none.
    pools, granted : (P,), (T,) or (0,) int32
        And chunks of each task that have had their units; empty where there are no pools.
    least_rank : (disciplines,) or (0,) int64
        What is added to ranks, so that they begin at 0.
    work_rank : (K,) or (0,) int32
        Place of each cut in the order of the work of its tasks.
    chooses : (S,) or (0,) int8
        Whether a server chooses; the others are committed on arrival.
    channel : (S,) or (0,) int32
        Channel that has the next turn; empty where there is one.
    rooms, returned : (channels * S,), (channels * S * 2,) or (0,)
        Buffers, and lists of returns of each: of chunks that go on, and of those that are delivered.
    queues, turns : (queues,), (channels * S,) or (0,)
        Queues that take turns, and lines of them, as rooms are numbered; empty where there are none.
    row : (S,) or (0,) int32
        Row of the timetable that held when the server last looked; the row before its first where none did. Empty, as
        all that follows, in a healthy program.
    held : (T,) or (0,) int32
        Nodes of chunks that are in, while one of a chunk before them is not: a list.
    node_since : (nodes,) or (0,) int64
        When the chunks in nodes arrived, or asked.
    journal : (rows,) or (0,)
        Every service, where asked for.
    """

    run: Rows[Run]
    tasks: Rows[Task]
    start_ps: I64
    servers: Rows[Server]
    touched: I32
    events: Rows[Event]
    next_block: I32
    slots: Rows[Slot]
    occupied: I64
    order: I64
    other: I64
    late: I64
    digit: I32
    log_base: I64
    log_start_ps: I64
    log_before: I64
    last_row: I64
    nics: Rows[Nic] = rows(Nic)
    flows: Rows[Flow] = rows(Flow)
    wishes: Rows[Wish] = rows(Wish)
    engines: Rows[Engine] = rows(Engine)
    backlog: Rows[Backlog] = rows(Backlog)
    port_left: I32 = _FEW
    touched_nic: I32 = _FEW
    choices: Rows[Choice] = rows(Choice)
    filled: I64 = _NONE
    ends: Rows[Ends] = rows(Ends)
    nodes: Rows[Node] = rows(Node)
    returns: Rows[Return] = rows(Return)
    node_rank: I64 = _NONE
    pools: Rows[Pool] = rows(Pool)
    granted: I32 = _FEW
    least_rank: I64 = _NONE
    work_rank: I32 = _FEW
    chooses: I8 = _SMALL
    channel: I32 = _FEW
    rooms: Rows[Room] = rows(Room)
    returned: Rows[Ends] = rows(Ends)
    queues: Rows[Queue] = rows(Queue)
    turns: Rows[Ends] = rows(Ends)
    row: I32 = _FEW
    held: I32 = _FEW
    node_since: I64 = _NONE
    journal: Rows[Service] = rows(Service)

    @property
    def joined(self) -> I32:
        """Chunks of each task that went to the first server, (T,)."""
        return np.asarray(self.tasks["joined"])

    @property
    def delivered(self) -> I32:
        """Chunks delivered of each task, (T,)."""
        return np.asarray(self.tasks["delivered"])

    @property
    def finish_ps(self) -> I64:
        """When each task was delivered, -1 where it was not, (T,); computed."""
        found: I64 = np.array(self.tasks["gate_ps"])
        if self.run["left"]:
            found[self.delivered != self.tasks["chunks"]] = -1
        return found

    @property
    def busy_ps(self) -> I64:
        """Busy time of each server, (S,); computed."""
        return np.array(self.servers["busy_ps"])

    @property
    def tokens(self) -> int:
        """Room for chunks in flight: for events, and for nodes, in which chunks wait for servers that choose."""
        return self.events.size + self.nodes.size
