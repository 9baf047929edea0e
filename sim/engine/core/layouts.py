"""The rows of the fifo loop's state, word by word; see sim/engine/compile/rows.py.

What is used together lies together: a task and a server take half a cache line each, an event takes 24 bytes.
"""

from sim.engine.compile.rows import Half, Row, Word


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
    noted_from: Word  # the place in the routes from which services are noted that neither are lost nor move
    given_up: Word  # the first node of the chunks that were given up
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
