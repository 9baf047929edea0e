"""The walk back over a log, compiled: one pass for all paths that are asked for; each state is left once.

A state is the start of a service, as (task, chunk, hop), or a delivery, as (task, chunk, DELIVERED). Walking on from
one writes the pieces before it, from late to early, and goes to the state before. The pieces of a walk lie one behind
the other; a MEETS ends them and leads to the piece of an earlier walk from where on both are one path: where pieces of
one class are written as one, to a time within it. A walk goes back as far as it is asked for, and ends with a PAUSED,
from which a later one that meets it goes on.
"""

from typing import NamedTuple

from sim.engine.compile.door import by_pointer, entry, helper, u64
from sim.engine.compile.rows import Half, Row, Rows, Word
from sim.engine.core.tasks import service_ps
from sim.program.contract import HEAD, I32, I64, NEVER_PS, UNBOUNDED

DELIVERED, RELEASED, ENDED = -1, -2, -3
"""In place of a hop: a chunk was delivered; was released, at a time; nothing was before."""

PAUSED, MEETS, LATENCY, SERIALIZATION, QUEUEING, POSTING, CREDITS = range(-1, 6)
"""What a piece is; of one that only leads on, `at` is where to, NONE at the beginning of time, and `end_ps` when; of
one at which a walk has paused, `task`, `at` and `size` are the state."""

NONE = -1

FINISHED, NEEDS_ROOM, UNEXPLAINED = range(3)
"""Status: all is walked; pieces need more room; nothing released a task, which is a fault of the engine."""

MOST_WRITTEN = 2
"""Pieces of a step."""


class PieceRow(Row):
    """A piece of a path."""

    start_ps: Word
    end_ps: Word
    what: Half
    task: Half
    at: Half  # place of its hop in the routes
    size: Half  # chunk size of a service


class Frame(Row):
    """A delivery whose causes are looked at one by one."""

    task: Half
    chunk: Half
    looked: Half  # how many were


class WalkRow(Row):
    """Registers of a walk, kept between calls."""

    asked: Word  # walks begun
    pieces: Word  # written
    begun: Word  # of them before the walk that goes on
    at: Word  # the piece of earlier walks up to which it is known that they lead on
    task: Word  # the state
    chunk: Word
    hop: Word
    time_ps: Word  # of a release
    now_ps: Word  # how far back the walk is
    mark: Word  # of what a search has seen, a running number
    waited: Word  # a task that the search has seen and that waited for a push, and its chunk
    waited_chunk: Word
    cause: Word  # what it found
    cause_chunk: Word


@by_pointer
class Back(NamedTuple):
    """State of walks over a log; T tasks, C chunks of all tasks without servers, R rows of the log."""

    walk: Rows[WalkRow]
    # asked_task, asked_chunk, asked_hop, asked_ps: states to walk from, and when they were
    asked_task: I64
    asked_chunk: I64
    asked_hop: I64
    asked_ps: I64
    since_ps: I64  # back to when each
    asked_piece: I64  # filled: the first piece of each
    # base, start_ps, before: the log
    base: I64
    start_ps: I64
    before: I64
    finish_ps: I64  # (T,)
    begin_ps: I64  # (T,) or (0,): when the first chunk of each task had its units; empty without pools
    first: I32  # (T,): number of the first chunk of each task without servers among theirs; others are not set
    # whole_ptr, whole, pushed_ptr, pushed: (T+2,) or (0,), (...,): parents of each task that it waits for as a whole,
    # and until they are pushed
    whole_ptr: I32
    whole: I32
    pushed_ptr: I32
    pushed: I32
    join_ps: I64  # (C,) or (0,): delivery of each of these chunks; empty where no task has several
    # given_ptr, given_ps, given_task, given_chunk: (P+1,), (...,): deliveries that returned units to each pool, by time
    given_ptr: I64
    given_ps: I64
    given_task: I64
    given_chunk: I64
    # found: (R + C,) or (0,): 1 + first piece before each service and each delivery without servers, 0 before it is
    # walked; empty of one walk alone
    found: I32
    seen: I32  # (C,): mark of the last search that has seen a delivery
    frames: Rows[Frame]  # C and one
    pieces: Rows[PieceRow]
    # task_operation, operation_class, at_class: (T,) or (0,), (n,), (hops of routes,): pieces one behind the other of
    # one class of both are one
    task_operation: I32
    operation_class: I64
    at_class: I64


@entry
def number_joins(program, first):
    """Number the chunks of tasks without servers; returns how many such tasks there are, and such chunks."""
    tasks, chunks = 0, 0
    for task in range(program.task_route.size):
        if hops_of(program, task) == 0:
            first[task] = chunks
            tasks, chunks = tasks + 1, chunks + chunks_of(program, task)
    return tasks, chunks


@entry
def prepare(program, back):
    """Fill in parents, deliveries of joins, and when units were given back, in the order of `given_task`."""
    turn_around(program.whole_ptr, program.whole_child, back.whole_ptr, back.whole)
    turn_around(program.pushed_ptr, program.pushed_child, back.pushed_ptr, back.pushed)
    if back.join_ps.size:
        deliver_joins(program, back)
    for at in range(back.given_task.size):
        back.given_ps[at] = delivered_ps(program, back, back.given_task[at], back.given_chunk[at])


@entry
def walk_back(program, back):
    """Walk from all states that are asked for; on NEEDS_ROOM call again with more room for pieces."""
    walk = back.walk
    while walk.asked < back.asked_task.size or walk.hop != ENDED or walk.at != NONE:
        if walk.pieces + MOST_WRITTEN >= back.pieces.size:
            return NEEDS_ROOM
        if walk.hop == ENDED:
            if walk.at != NONE:
                look_along(back)
            else:
                ask_next(back)
        elif walk.now_ps <= back.since_ps[walk.asked - 1]:
            write(back, 0, walk.now_ps, PAUSED, walk.task, walk.chunk, walk.hop)
            walk.hop = ENDED
        elif walk.hop == RELEASED:
            if not released(program, back):
                return UNEXPLAINED
        else:
            leave_state(program, back)
    return FINISHED


@by_pointer
class Ways(NamedTuple):
    """Paths through pieces: the first piece of each, back to when, and, filled, what is theirs of the pieces on all.

    `on`, `end_ps`: a piece, and until when it is on the path.
    """

    pieces: Rows[PieceRow]
    first: I64
    since_ps: I64
    ptr: I64
    on: I64
    end_ps: I64


@entry
def follow(ways):
    """Write down the pieces of paths, as far as there is room; returns how many there are."""
    count = 0
    for path in range(ways.first.size):
        ways.ptr[path] = count
        at, until_ps = ways.first[path], NEVER_PS
        while at != NONE:
            piece = ways.pieces[at]
            if piece.what == MEETS:
                at, until_ps = piece.at, min(until_ps, piece.end_ps)
                continue
            if piece.what == PAUSED or min(piece.end_ps, until_ps) <= ways.since_ps[path]:
                break
            if piece.start_ps < until_ps:
                if count < ways.on.size:
                    ways.on[count], ways.end_ps[count] = at, min(piece.end_ps, until_ps)
                count += 1
            at += 1
    ways.ptr[ways.first.size] = count
    return count


@helper
def turn_around(child_ptr, child, ptr, parent):
    """Edges as seen from the child: `parent`, and `ptr`, zeros on entry, a place longer than the tasks' own."""
    for edge in range(child.size):
        ptr[child[edge] + 2] += 1
    for task in range(2, ptr.size):
        ptr[task] += ptr[task - 1]
    for task in range(child_ptr.size - 1):
        for edge in range(child_ptr[task], child_ptr[task + 1]):
            place = child[edge] + 1
            parent[ptr[place]] = task
            ptr[place] += 1


@helper
def deliver_joins(program, back):
    """A task may wait for one of a higher number."""
    again = True
    while again:
        again = False
        for task in range(program.task_cut.size):
            if hops_of(program, task) == 0:
                chunks = chunks_of(program, task)
                for chunk in range(chunks):
                    time_ps = back.finish_ps[task]
                    if chunk < chunks - 1:
                        time_ps = waited_until(program, back, task, chunk)
                        if back.begin_ps.size:
                            time_ps = max(time_ps, back.begin_ps[task])
                    place = back.first[task] + chunk
                    again = again or time_ps > back.join_ps[place]
                    back.join_ps[place] = time_ps


@helper
def go_to(walk, task, chunk, hop):
    """Go on from a chunk at a hop."""
    walk.task, walk.chunk, walk.hop = task, chunk, hop


@helper
def ask_next(back):
    """Begin the next walk that is asked for."""
    walk, asked = back.walk, back.walk.asked
    back.asked_piece[asked] = walk.begun = walk.pieces
    go_to(walk, back.asked_task[asked], back.asked_chunk[asked], back.asked_hop[asked])
    walk.time_ps = walk.now_ps = back.asked_ps[asked]
    walk.asked += 1


@helper
def meet(back, piece):
    """End a walk at a piece of an earlier one, or at the beginning of time."""
    write(back, 0, back.walk.now_ps, MEETS, NONE, piece, 0)
    back.walk.hop, back.walk.at = ENDED, piece


@helper
def look_along(back):
    """Follow earlier walks from where this one met them, and go on where they have paused too early for this one."""
    walk, since_ps = back.walk, back.since_ps[back.walk.asked - 1]
    while walk.at != NONE:
        piece = back.pieces[walk.at]
        if piece.what == PAUSED and piece.end_ps > since_ps:
            go_to(walk, piece.task, piece.at, piece.size)
            walk.time_ps = walk.now_ps = piece.end_ps
            piece.what, piece.at, walk.begun, walk.at = MEETS, walk.pieces, walk.pieces, NONE
        elif piece.what == MEETS:
            walk.at = piece.at
        else:
            walk.at = NONE if piece.what == PAUSED or piece.start_ps <= since_ps else walk.at + 1


@helper
def write(back, start_ps, end_ps, what, task, at, size):
    """Write down a piece of the path, from its last one backwards; one of the class of the last makes that longer."""
    if what > MEETS:
        back.walk.now_ps = start_ps
        if within(back):
            piece = back.pieces[back.walk.pieces - 1]
            one, other = back.task_operation[piece.task], back.task_operation[task]
            alike = back.operation_class[one] == back.operation_class[other]
            if alike and back.at_class[piece.at] == back.at_class[at]:
                piece.start_ps, piece.what = start_ps, SERIALIZATION
                return
    piece = back.pieces[back.walk.pieces]
    piece.start_ps, piece.end_ps = start_ps, end_ps
    piece.what, piece.task, piece.at, piece.size = what, task, at, size
    back.walk.pieces += 1


@helper
def within(back):
    """Whether the walk has written a piece that the next one may make longer."""
    return back.task_operation.size > 0 and back.walk.pieces > back.walk.begun


@helper
def leave_state(program, back):
    """Walk on from a state, unless an earlier walk has; deliveries by a server lead to its service."""
    walk = back.walk
    task, chunk, hops = walk.task, walk.chunk, hops_of(program, walk.task)
    if walk.hop != DELIVERED:
        row = row_of(program, back, task, chunk, walk.hop)
        if not known(back, row):
            leave_service(program, back, row)
    elif hops > 0:
        go_before(program, back, hops - 1, delivered_ps(program, back, task, chunk))
    elif not known(back, back.start_ps.size + back.first[task] + chunk):
        walk.hop, walk.time_ps = RELEASED, delivered_ps(program, back, task, chunk)


@helper
def known(back, place):
    """Whether an earlier walk has been in the state of this number, which this one then meets."""
    if back.found.size:
        if back.found[place]:
            meet(back, back.found[place] - 1)
            return True
        back.found[place] = back.walk.pieces + (0 if within(back) else 1)
    return False


@helper
def leave_service(program, back, row):
    """Walk on from the start of a service; at the first server the chunk before it or a release decides."""
    walk, start_ps = back.walk, back.start_ps[row]
    task, chunk, hop = walk.task, walk.chunk, walk.hop
    if hop == 0 and has_nic(program, task):
        if not queued(program, back, row, start_ps):
            posted(program, back, task, chunk, start_ps)
    elif hop > 0 and arrival_ps(program, back, task, chunk, hop) == start_ps:
        go_before(program, back, hop - 1, start_ps)
    elif hop == 0 and start_ps == 0:
        meet(back, NONE)
    elif hop == 0 and find_cause(program, back, task, chunk, start_ps):
        go_to(walk, walk.cause, walk.cause_chunk, DELIVERED)
    elif not queued(program, back, row, start_ps) and not room_given(program, back, row, start_ps):
        walk.hop, walk.time_ps = RELEASED, start_ps


@helper
def go_before(program, back, hop, ready_ps):
    """Walk from when a chunk was ready for the next server, or delivered, to the start of its service at a hop."""
    walk = back.walk
    at = first_hop(program, walk.task) + hop
    start_ps = start_of(program, back, walk.task, walk.chunk, hop)
    left_ps = ready_ps - program.hop_latency_ps[program.route_hop[at]]
    if ready_ps > left_ps:
        write(back, left_ps, ready_ps, LATENCY, walk.task, at, 0)
    if left_ps > start_ps:
        write(back, start_ps, left_ps, SERIALIZATION, walk.task, at, size_of(program, walk.task, walk.chunk))
    walk.hop = hop


@helper
def go_through(program, back, task, chunk, hop, for_task):
    """Walk through a whole service, in front of one of another task or of its own, to its start."""
    start_ps = start_of(program, back, task, chunk, hop)
    what = SERIALIZATION if task == for_task else QUEUEING
    at = first_hop(program, task) + hop
    write(back, start_ps, end_of(program, back, task, chunk, hop), what, task, at, size_of(program, task, chunk))
    go_to(back.walk, task, chunk, hop)


@helper
def queued(program, back, row, start_ps):
    """Walk through the service before a row on its server, if that ended as this one began."""
    before = back.before[row]
    if before == NONE:
        return False
    task = task_of(back, before, back.walk.task)
    chunk, hop = chunk_and_hop(program, back, task, before)
    if end_of(program, back, task, chunk, hop) != start_ps:
        return False
    go_through(program, back, task, chunk, hop, back.walk.task)
    return True


@helper
def room_given(program, back, row, start_ps):
    """Walk from a service that waited for room to the service, or the delivery, that gave it back."""
    walk = back.walk
    task, at = walk.task, first_hop(program, walk.task) + walk.hop
    server, line = server_at(program, at), line_at(program, at)
    if program.server_buffer.size == 0 or program.server_buffer[server] == UNBOUNDED:
        return False
    holder = back.before[row]
    while holder != NONE:
        other = task_of(back, holder, task)
        chunk, hop = chunk_and_hop(program, back, other, holder)
        last = hop == hops_of(program, other) - 1
        gone_ps = delivered_ps(program, back, other, chunk) if last else end_of(program, back, other, chunk, hop + 1)
        same_room = line_at(program, first_hop(program, other) + hop) == line
        if same_room and gone_ps + program.server_credit_ps[server] == start_ps:
            write(back, gone_ps, start_ps, CREDITS, task, at, 0)
            if last:
                go_to(walk, other, chunk, DELIVERED)
            else:
                go_through(program, back, other, chunk, hop + 1, task)
            return True
        holder = back.before[holder]
    return False


@helper
def posted(program, back, task, chunk, time_ps):
    """Walk from when a chunk was posted to the last delivery that it waited for.

    When it was pushed leaves no trace, nor when another send was that it waited for: both are posting.
    """
    released_ps = waited_until(program, back, task, chunk)
    if time_ps > released_ps:
        write(back, released_ps, time_ps, POSTING, task, first_hop(program, task), 0)
    go_to(back.walk, task, chunk, RELEASED)
    back.walk.time_ps = released_ps


@helper
def released(program, back):
    """Walk from a release to the delivery, or the push, that was its cause; whether there is one."""
    walk = back.walk
    if walk.time_ps == 0:
        meet(back, NONE)
    elif find_cause(program, back, walk.task, walk.chunk, walk.time_ps):
        go_to(walk, walk.cause, walk.cause_chunk, DELIVERED)
    elif walk.waited == NONE:
        return False
    elif walk.waited == walk.task and walk.waited_chunk == walk.chunk:
        pushed(program, back, walk.task, walk.time_ps)
    else:
        go_to(walk, walk.waited, walk.waited_chunk, DELIVERED)
    return True


@helper
def pushed(program, back, task, time_ps):
    """Walk from the end of the last push that a task waited for to the service of what it pushed.

    When it was pushed leaves no trace: not after that service began; where that is later, to before its posting.
    """
    last_ps, last = NONE, NONE
    for edge in range(back.pushed_ptr[task], back.pushed_ptr[task + 1]):
        parent = back.pushed[edge]
        start_ps = start_of(program, back, parent, chunks_of(program, parent) - 1, 0)
        if start_ps > last_ps or (start_ps == last_ps and parent > last):
            last_ps, last = start_ps, parent
    if last_ps > time_ps:
        posted(program, back, last, chunks_of(program, last) - 1, time_ps)
        return
    if time_ps > last_ps:
        write(back, last_ps, time_ps, POSTING, last, first_hop(program, last), 0)
    go_to(back.walk, last, chunks_of(program, last) - 1, 0)


@helper
def find_cause(program, back, task, chunk, time_ps):
    """Find a delivery by a server at this time that released a chunk, or gave it its units.

    Tasks without servers pass things on within the picosecond, and may give the units that they took themselves: each
    of them is looked at once.
    """
    walk, depth = back.walk, 0
    walk.mark += 1
    walk.waited = NONE
    look_at(program, back, depth, task, chunk)
    while depth >= 0:
        if not next_cause(program, back, back.frames[depth], time_ps):
            depth -= 1
        elif hops_of(program, walk.cause) > 0:
            if walk.cause != task or walk.cause_chunk != chunk:  # which may have been given its own units
                return True
        elif back.seen[back.first[walk.cause] + walk.cause_chunk] != walk.mark:
            depth += 1
            look_at(program, back, depth, walk.cause, walk.cause_chunk)
    return False


@helper
def look_at(program, back, depth, task, chunk):
    """Begin to look at what a chunk of a task waited for, at a depth of the search."""
    frame, walk = back.frames[depth], back.walk
    frame.task, frame.chunk, frame.looked = task, chunk, 0
    if hops_of(program, task) == 0:
        back.seen[back.first[task] + chunk] = walk.mark
    if walk.waited == NONE and parents(back.pushed_ptr, task) > 0:
        walk.waited, walk.waited_chunk = task, chunk


@helper
def next_cause(program, back, frame, time_ps):
    """Find the next delivery at this time that a chunk waited for, or that returned units to its task's pool."""
    walk, task, chunk = back.walk, frame.task, frame.chunk
    n_whole = parents(back.whole_ptr, task)
    while frame.looked < n_whole:
        walk.cause = back.whole[back.whole_ptr[task] + frame.looked]
        walk.cause_chunk = chunks_of(program, walk.cause) - 1
        frame.looked += 1
        if back.finish_ps[walk.cause] == time_ps:
            return True
    n_stream = parents(program.parent_ptr, task)
    while frame.looked < n_whole + n_stream:
        edge = program.parent_ptr[task] + frame.looked - n_whole
        walk.cause, walk.cause_chunk = program.parent[edge], needed(program, edge, task, chunk) - 1
        frame.looked += 1
        if walk.cause_chunk >= 0 and delivered_ps(program, back, walk.cause, walk.cause_chunk) == time_ps:
            return True
    if program.task_pool.size == 0 or program.task_pool[task] == NONE:
        return False
    begin, end = back.given_ptr[program.task_pool[task]], back.given_ptr[program.task_pool[task] + 1]
    at = first_from(back.given_ps, begin, end, time_ps) + frame.looked - n_whole - n_stream
    if at >= end or back.given_ps[at] != time_ps:
        return False
    walk.cause, walk.cause_chunk = back.given_task[at], back.given_chunk[at]
    frame.looked += 1
    return True


@helper
def waited_until(program, back, task, chunk):
    """The last delivery that a chunk waits for."""
    latest_ps = 0
    for at in range(parents(back.whole_ptr, task)):
        latest_ps = max(latest_ps, back.finish_ps[back.whole[back.whole_ptr[task] + at]])
    for at in range(parents(program.parent_ptr, task)):
        edge = program.parent_ptr[task] + at
        last = needed(program, edge, task, chunk) - 1
        if last >= 0:
            latest_ps = max(latest_ps, delivered_ps(program, back, program.parent[edge], last))
    return latest_ps


@helper
def needed(program, edge, task, chunk):
    """Chunks of a stream parent that a chunk waits for."""
    lag = program.parent_lag[edge] if program.parent_lag.size else 0
    if lag > 0:
        return chunk - lag + 1
    return ((chunk + 1) * chunks_of(program, program.parent[edge]) - 1) // chunks_of(program, task) + 1


@helper
def parents(ptr, task):
    """Number of parents of a task, of a list that is empty where no task has any."""
    return ptr[task + 1] - ptr[task] if ptr.size else 0


@helper
def delivered_ps(program, back, task, chunk):
    """When a chunk was delivered."""
    hops = hops_of(program, task)
    if hops == 0:
        return back.join_ps[back.first[task] + chunk] if back.join_ps.size else back.finish_ps[task]
    hop = program.route_hop[first_hop(program, task) + hops - 1]
    head = program.hop_last[hop] == HEAD
    leaves_ps = (
        start_of(program, back, task, chunk, hops - 1) if head else end_of(program, back, task, chunk, hops - 1)
    )
    return leaves_ps + program.hop_latency_ps[hop]


@helper
def arrival_ps(program, back, task, chunk, hop):
    """When a chunk reached a server that is not its first."""
    latency_ps = program.hop_latency_ps[program.route_hop[first_hop(program, task) + hop - 1]]
    start_ps, end_ps = start_of(program, back, task, chunk, hop - 1), end_of(program, back, task, chunk, hop - 1)
    if not program.cut_through:
        return end_ps + latency_ps
    return max(start_ps + latency_ps, end_ps + latency_ps - duration_ps(program, task, chunk, hop))


@helper
def start_of(program, back, task, chunk, hop):
    """When a chunk began a hop."""
    return back.start_ps[row_of(program, back, task, chunk, hop)]


@helper
def end_of(program, back, task, chunk, hop):
    """When a chunk had passed a hop."""
    return start_of(program, back, task, chunk, hop) + duration_ps(program, task, chunk, hop)


@helper
def duration_ps(program, task, chunk, hop):
    """How long a chunk held the server of a hop."""
    rate = program.server_rate[server_at(program, first_hop(program, task) + hop)]
    return service_ps(program, size_of(program, task, chunk), rate)


@helper
def size_of(program, task, chunk):
    """The size of a chunk, by its number."""
    cut = program.task_cut[task]
    return program.cut_size[u64(cut), 0 if chunk < program.cut_first[cut] else 1]


@helper
def chunks_of(program, task):
    """Chunks of a task."""
    return program.cut_chunks[program.task_cut[task]]


@helper
def hops_of(program, task):
    """Hops of a task."""
    route = program.task_route[task]
    return program.route_ptr[route + 1] - program.route_ptr[route]


@helper
def first_hop(program, task):
    """Place of the first hop of a task in the routes."""
    return program.route_ptr[program.task_route[task]]


@helper
def server_at(program, at):
    """The server of a hop of a route."""
    return program.hop_server[program.route_hop[at]]


@helper
def line_at(program, at):
    """What holds the room behind a hop: its server, or the channel there."""
    server = server_at(program, at)
    if program.buffer_shared or program.hop_channel.size == 0:
        return server
    return server + program.server_rate.size * program.hop_channel[program.route_hop[at]]


@helper
def has_nic(program, task):
    """Whether a task leaves through a NIC."""
    return program.server_nic.size > 0 and program.server_nic[server_at(program, first_hop(program, task))] >= 0


@helper
def row_of(program, back, task, chunk, hop):
    """The row of the log of a chunk at a hop."""
    return back.base[task] + chunk * hops_of(program, task) + hop


@helper
def task_of(back, row, near):
    """The task of a row of the log, the last one whose rows begin there or before: looked for from a near one on."""
    begin, end, reach = near, near, 1
    while back.base[begin] > row:
        begin, end, reach = max(begin - reach, 0), begin, 2 * reach
    while end < back.base.size and back.base[end] <= row:
        begin, end, reach = end, min(end + reach, back.base.size), 2 * reach
    return first_from(back.base, begin, end, row + 1) - 1


@helper
def chunk_and_hop(program, back, task, row):
    """The chunk and the hop of a row of the log."""
    hops = hops_of(program, task)
    return (row - back.base[task]) // hops, (row - back.base[task]) % hops


@helper
def first_from(values, begin, end, least):
    """The first place from `begin` on, before `end`, of sorted values that are not below the least; else `end`."""
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < least:
            begin = middle + 1
        else:
            end = middle
    return begin
