"""State of the fifo loop, and its rows, word by word; see sim/engine/compile/rows.py.

What is used together lies together: a task and a server take half a cache line each, an event takes 24 bytes.
"""

from typing import NamedTuple

import numpy as np

from sim.engine.compile.door import by_pointer
from sim.engine.compile.rows import Half, Row, Rows, Word, rows
from sim.program.contract import I8, I32, I64


class Run(Row):
    """Registers of a run, kept between calls: one row."""

    now_ps: Word  # the present
    events: Word  # services done
    left: Word  # tasks not done
    makespan_ps: Word  # last delivery
    top: Word  # of the stack of tasks to look at
    touched: Word  # servers touched in this picosecond
    served: Word  # how many of them are done
    opened: Word  # open events that were sorted
    happened: Word  # how many of them have happened
    late: Word  # events in the heap of the late
    spare: Word  # an event of this bucket that has happened, whose place is free
    free_block: Word  # first free block
    blocks: Word  # free blocks
    moving: Word  # the slot whose events move to the levels below
    stirred: Word  # the first pool that may have something to grant
    touched_nics: Word
    served_nics: Word  # how many of the touched are done
    ended: Word  # the first flow whose engine may be done
    backlog_free: Word  # first free place for a service of a NIC
    free_node: Word  # first free node
    free_nodes: Word  # how many there are
    number: Word  # of the next node in a queue, a running one
    width: Word  # bits of the offset in a bucket; from here on constants of the run, but for the last
    task_bits: Word  # bits of a task in a key
    hop_bits: Word
    chunk_bits: Word
    buckets: Word  # of the queue of a server that chooses
    rank_shift: Word  # bits of a rank that these queues do not look at
    most: Word  # events that a service may put into the calendar
    past: Word  # whether an event was put into the past, which is a fault of a kernel
    bias: Word  # added to hops in keys, as those of detours may lie before the task's own route
    timer: Word  # the next task whose deadline is to be set
    arrived_ps: Word  # when the chunk arrived that is served now
    journaled: Word  # rows of the journal
    # the place in the routes from which first services of a route are noted that neither are lost nor move; 0: all are
    noted_from: Word
    given_up: Word  # the first node of the chunks that were given up
    loss_begun: Word  # what all draws of losses have in common,
    jitter_begun: Word  # and those of jitter
    bucket_bits: Word  # of the number of buckets of a channel


class Task(Row):
    """A transfer, or a join."""

    released: Half  # chunks released
    joined: Half  # of these, that went to the first server
    delivered: Half
    missing: Half  # parents that hold back the next chunk
    link: Half  # the task below on the stack, NONE at its bottom, or UNSTACKED; in the line of a pool, the one behind
    chunks: Half
    # When the first server is done with the chunk before, so that the next may join; FAR while that is not known, or
    # the next waits for units. Of a join in the line of a pool, when it asked. Once all is delivered nothing joins any
    # more, and it is when that was.
    gate_ps: Word


class Ring(Row):
    """A task whose chunks wait for each other, and for those of a task behind it; see `sim.engine.policies.rounds`."""

    behind: Half  # itself where there is none
    ahead: Half  # the task that waits for it, or NONE
    at: Half  # where its route begins
    tie: Half
    cut: Half


class Server(Row):
    """A server, whether it is committed on arrival or chooses."""

    free_ps: Word  # end of the last service begun
    busy_ps: Word
    stamp_ps: Word  # last arrival
    line: Word  # first and last event that arrived then


class Choice(Row):
    """What a server that chooses has besides."""

    waiting: Word  # chunks
    wake_ps: Word  # when it was last set to choose again


class Event(Row):
    """What waits in the calendar; see sim/engine/core/calendar.py."""

    time_ps: Word
    key: Word
    place: Word


class Slot(Row):
    """A list of blocks of events."""

    block: Half  # the first
    count: Half  # events


class Node(Row):
    """What waits outside the calendar; see sim/engine/core/nodes.py."""

    next: Half
    child: Half  # the first, in a heap
    key: Word
    place: Word


class Return(Row):
    """A node that stands for room that is given back; the same memory."""

    next: Half
    previous: Half
    due_ps: Word
    work: Word


class Ends(Row):
    """A list: of returns of a room, of the queues of a server, or of nodes in a bucket of a server's queue."""

    first: Half  # or the root of a heap
    last: Half


class Pool(Row):
    """A pool of units."""

    free_units: Half
    requests: Half  # the first of those that ask, a node or, in a line, a task
    look: Half  # the pool below on the stack of those to look at, NONE at its bottom, or UNSTACKED


class Room(Row):
    """A buffer behind a server; see sim/engine/policies/rooms.py."""

    alarm_ps: Word  # when the server chooses again
    wanted: Word  # whether a chunk did not fit
    taken: Word  # work of the chunks that hold it, returns that were not collected included


class Queue(Row):
    """A queue that takes turns; see sim/engine/policies/turns.py."""

    first: Word  # node
    last: Word
    next_queue: Word  # behind it in the line of the server
    in_line: Word  # whether it is
    allowance: Word


class Nic(Row):
    """A NIC; see sim/engine/nics/posts.py."""

    ready: Word  # heaps of transfers: to be posted,
    aside: Word  # of the port that is left out,
    line: Word  # posted
    paused: Word  # the first flow that is paused
    idle: Word  # engines
    last_port: Word  # posted last
    post_ps: Word  # when the NPU may post again
    engines: Word  # the first
    busy: Word  # how many of them push
    look_ps: Word  # when it is looked at again, FAR if that is not set
    last_ps: Word  # the last push
    room: Word  # work that the queue has room for
    watched: Word  # whether it can ever be short of it
    oldest: Word  # first of its services that have not ended
    newest: Word  # last of them
    together: Word  # first chunk of those pushed together, which are to be committed
    waited: Word  # engines that had to wait for room
    stamp_ps: Word  # when it was touched
    server: Word


class Flow(Row):
    """Transfers of which one at a time has an engine."""

    holder: Word  # the transfer that has one
    later: Word  # the heap of those posted after it
    next_flow: Word  # that is paused, or whose engine may be done


class Wish(Row):
    """A transfer at its NIC."""

    since_ps: Word  # it is where it is, or with an engine, when all that was released is pushed
    wanted: Word  # key of its chunk
    next: Word  # of its siblings, or of the chunks pushed together
    child: Word  # the first, or with an engine, whether it is pushing and whether it has waited for room


class Engine(Row):
    """The next chunk of an engine."""

    from_ps: Word
    next_key: Word
    next_place: Word


class Backlog(Row):
    """A service of a NIC that has not ended."""

    end_ps: Word
    work: Word
    behind: Word


class Service(Row):
    """A row of the journal."""

    task: Word
    chunk: Word
    at: Word  # place in the routes
    since_ps: Word  # arrival; its complement where the chunk was sent on another route
    start_ps: Word
    end_ps: Word
    ready_ps: Word  # when the chunk is ready for what follows; its complement, resent after it was lost


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
    """State of a run; S servers, T tasks, B blocks, N events that can be open."""

    run: Rows[Run]  # one row, of the registers
    # tasks, servers: (T,), (S,)
    tasks: Rows[Task]
    start_ps: I64  # (T,), or (0,) where nobody asks for times
    servers: Rows[Server]
    touched: I32  # (S,): servers at which something arrived in this picosecond
    events: Rows[Event]  # (B * BLOCK,)
    next_block: I32  # (B,)
    slots: Rows[Slot]  # (OPEN + 1,)
    occupied: I64  # (LEVELS * WORDS,): which slots are not empty
    # order, other, late: (N,): the open events in the order of time, room to sort them, and the heap of those that came
    # late
    order: I64
    other: I64
    late: I64
    digit: I32  # (RADIX,)
    log_base: I64
    log_start_ps: I64
    log_before: I64
    last_row: I64  # (S,) or (0,): the log, where asked for; see sim.program.outcome.Log
    # nics, flows, wishes: (N,), (flows,), (T,) or (0,)
    nics: Rows[Nic] = rows(Nic)
    flows: Rows[Flow] = rows(Flow)
    wishes: Rows[Wish] = rows(Wish)
    # engines, backlog: (engines,), (services,) or (0,): empty, as the two that follow, where there are no NICs
    engines: Rows[Engine] = rows(Engine)
    backlog: Rows[Backlog] = rows(Backlog)
    port_left: I32 = _FEW  # (N * ports,) or (0,): transfers of each port that are not pushed in full
    touched_nic: I32 = _FEW  # (N,) or (0,): NICs to look at in this picosecond
    # (S,) or (0,): empty, as the rest, where no server chooses and there are no pools
    choices: Rows[Choice] = rows(Choice)
    # filled, ends: buckets of the queues, and which of them are not empty; see sim/engine/policies/choose.py
    filled: I64 = _NONE
    ends: Rows[Ends] = rows(Ends)
    # nodes, returns: (nodes,) or (0,): chunks that wait for servers or pools, and the same memory as returns of room
    nodes: Rows[Node] = rows(Node)
    returns: Rows[Return] = rows(Return)
    node_rank: I64 = _NONE  # (nodes,) or (0,): what is compared first of nodes in heaps; empty where there are none
    # pools, granted: (P,), (T,) or (0,): and chunks of each task that have had their units; empty where there are no
    # pools
    pools: Rows[Pool] = rows(Pool)
    granted: I32 = _FEW
    least_rank: I64 = _NONE  # (disciplines,) or (0,): what is added to ranks, so that they begin at 0
    work_rank: I32 = _FEW  # (K,) or (0,): place of each cut in the order of the work of its tasks
    chooses: I8 = _SMALL  # (S,) or (0,): whether a server chooses; the others are committed on arrival
    channel: I32 = _FEW  # (S,) or (0,): channel that has the next turn; empty where there is one
    # rooms, returned: (channels * S,), (channels * S * 2,) or (0,): buffers, and lists of returns of each: of chunks
    # that go on, and of those that are delivered
    rooms: Rows[Room] = rows(Room)
    returned: Rows[Ends] = rows(Ends)
    # queues, turns: (queues,), (channels * S,) or (0,): queues that take turns, and lines of them, as rooms are
    # numbered; empty where there are none
    queues: Rows[Queue] = rows(Queue)
    turns: Rows[Ends] = rows(Ends)
    # (S,) or (0,): row of the timetable that held when the server last looked; the row before its first where none did.
    # Empty, as all that follows, in a healthy program.
    row: I32 = _FEW
    held: I32 = _FEW  # (T,) or (0,): nodes of chunks that are in, while one of a chunk before them is not: a list
    node_since: I64 = _NONE  # (nodes,) or (0,): when the chunks in nodes arrived, or asked
    journal: Rows[Service] = rows(Service)  # (rows,) or (0,): every service, where asked for
    rings: Rows[Ring] = rows(Ring)  # (T,) or (0,): empty where not all tasks of several chunks are such

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
