"""What the fifo loop runs, its state before the first picosecond, and more room for events."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.engine import loop as _fifo
from sim.engine.compile.rows import Rows, row, rows
from sim.engine.core import state as layout
from sim.engine.core.status import FAR, NONE, UNSTACKED
from sim.engine.policies.choose import NUMBER_BITS
from sim.engine.policies.faults import SPARE_NODES
from sim.engine.policies.rounds import find_rings
from sim.program import FIFO, I32, I64, PER_TASK, Program
from sim.program.contract import ATTEMPTS, HEAD, ROUND_ROBIN_FLOW, UNBOUNDED, WEIGHTS
from sim.program.outcome import Stranded, log_base, noted_from
from topologies import WeftError
from topologies.core.paths import distinct_of

KEY_BITS = 63
SAMPLE = 4096
"""Tasks that are looked at to find how long a service takes."""

FEW_TASKS = 2**13
"""Tasks whose rows stay in the cache between two words that are written."""

SERVERS_A_BUCKET = 512
"""Servers that begin a service in the span of a bucket, if all are busy; a bucket is a quarter of a service at most, so
that hardly an event becomes due in the bucket that is open. Where servers choose it is a quarter of that: the ends of
services are events too."""

FEW_CHOOSE = 0.5
"""Share of the servers that may choose without that: a link that goes down, and what leads to it."""

QUEUED = 32
"""Of the tasks that begin at once, so many for each server let a bucket be a service longer: what their chunks cause
becomes due in a later bucket still. 2 servers with 2,047 tasks of an all-to-all: 31 ns a service, was 41."""

FEW_BLOCKS, FEW_NODES = 512, 256
"""Room from the first, of which memory is taken as it is used: to make more takes as long as thousands of services."""

JOURNAL_TO_SPARE = 64
"""Rows of a journal beyond the services that are noted whatever happens."""

MOST_BUCKETS = 256
ROOM_FOR_BUCKETS = 1 << 22
"""Of the queue of a server, a power of two; and of all queues of a run, where servers are many."""


def loop(program: Program, rings: int = 0) -> Callable[..., int]:
    """The entry of the loop with the fewest flags that a program can run in, where its state has so many rings."""
    if rings:
        return _fifo.run_rounds
    ranks = not (program.takes_turns or program.has_credits or program.has_channels or program.has_nics)
    if not program.is_healthy:
        drawn = ranks and not (choosers(program).any() or program.pool_capacity.size)
        return _fifo.run_drawn if drawn else _fifo.run_changing if ranks else _fifo.run_faulty
    if not choosers(program).any() and _pools_are_simple(program):
        return _fifo.run_fifo_nics if program.has_nics else _fifo.run_fifo
    return _fifo.run_ordered if ranks else _fifo.run_links


def is_plain(program: Program) -> bool:
    """Whether no server of a program chooses, and it has no pools and NICs, and is healthy."""
    simple = program.is_healthy and not program.pool_capacity.size and not program.has_nics
    return simple and not choosers(program).any()


def in_rounds(program: Program, state: layout.FifoState) -> layout.FifoState:
    """The state with its rings, if each task of several chunks is in one; see sim.engine.policies.rounds."""
    lag = program.parent_lag
    if (not lag.size or program.pool_capacity.size or np.any(lag != 1) or np.any(program.hop_last == HEAD)
            or loop(program) is not _fifo.run_fifo):
        return state
    found = state._replace(rings=rows(layout.Ring, program.n_tasks))
    return found if find_rings(program, found) else state


def check_fits(program: Program) -> None:
    """Reject a program whose keys or places do not fit a word."""
    limits = (
        (sum(bits(program)), KEY_BITS, "of (class, chunk, hop, task) in a key"),
        (_most_rank(program).bit_length() + NUMBER_BITS, KEY_BITS, "of a rank and a running number"),
        (max(int(program.service_row.size) - 1, 0).bit_length(), layout.ATTEMPT_SHIFT, "of a chunk size"),
    )
    for needed, most, what in limits:
        if needed > most:
            raise WeftError(f"the program needs {needed} bits {what}; the chunk engine has {most}")


def simplified(program: Program) -> Program:
    """The program as the loop runs it: classes from 0, dense priorities, NICs named, no idle buffers and turns."""
    least = int(program.task_class.min(initial=0))
    if least < 0:
        program = program._replace(task_class=program.task_class - np.int32(least))
    if program.task_priority.size and int(np.ptp(program.task_priority)).bit_length() + NUMBER_BITS > KEY_BITS:
        rank = np.unique(program.task_priority, return_inverse=True)[1]
        program = program._replace(task_priority=rank.astype(np.int32))
    program = without_lone_queues(without_room_to_spare(program))
    if not program.has_nics and loop(program) in (_fifo.run_links, _fifo.run_changing, _fifo.run_faulty):
        program = program._replace(server_nic=np.full(program.n_servers, NONE, np.int32))
    return program


def without_room_to_spare(program: Program) -> Program:
    """The program without buffers that have room for all that ever crosses their server."""
    if not program.has_credits or not program.is_healthy:
        return program
    n_first, size = program.cut_first.astype(np.int64), program.chunk_work[program.cut_size].astype(np.float64)
    of_cut = n_first * size[:, 0] + (program.cut_chunks - n_first) * size[:, 1]
    lengths = np.diff(program.route_ptr)
    of_route = np.bincount(program.task_route, of_cut[program.task_cut], lengths.size)
    of_hop = np.bincount(program.route_hop, np.repeat(of_route, lengths), program.hop_server.size)
    line = program.hop_server.astype(np.int64)
    if program.has_channels:
        line += program.n_servers * program.hop_channel.astype(np.int64)
    work = np.bincount(line, of_hop, program.server_buffer.size).reshape(program.channels, -1)
    if program.buffer_shared:
        work[:] = work.sum(axis=0)
    room = program.server_buffer.reshape(program.channels, -1)
    buffer = np.where((work * 1.001 < room).all(axis=0), UNBOUNDED, room).reshape(-1)
    if np.all(buffer == UNBOUNDED):
        return program._replace(server_buffer=buffer[:0], server_credit_ps=program.server_credit_ps[:0])
    return program._replace(server_buffer=buffer)


def without_lone_queues(program: Program) -> Program:
    """The program without turns, where every server has one queue: whose turn it is needs no choice."""
    if not program.takes_turns or program.has_channels or not program.is_healthy:
        return program
    used = np.bincount(program.task_route, minlength=program.route_ptr.size - 1) > 0
    served = distinct_of(program.route_server[np.repeat(used, np.diff(program.route_ptr))])
    if int(program.hop_queue.max(initial=-1)) >= served.size:  # no two servers share a queue
        return program
    turns = program.server_discipline >= ROUND_ROBIN_FLOW
    return program._replace(
        server_discipline=np.where(turns, FIFO, program.server_discipline).astype(np.int8),
        task_queue=program.task_queue[:0], hop_queue=program.hop_queue[:0], server_quantum=program.server_quantum[:0],
    )


def choosers(program: Program) -> npt.NDArray[np.bool_]:
    """Servers that choose when they are free, (S,); the others are committed on arrival.

    A fifo server chooses where it has a buffer, or where hops in several channels cross it.
    """
    chooses = np.asarray(program.server_discipline != FIFO)
    if program.has_credits:
        chooses |= (program.server_buffer != UNBOUNDED).reshape(program.channels, -1).any(axis=0)
    if not program.is_healthy:
        chooses |= _may_go_wrong(program)
    if program.has_channels:
        used = np.zeros((program.n_servers, program.channels), np.bool_)
        used[program.hop_server, program.hop_channel] = True
        chooses |= used.sum(axis=1) > 1
    return chooses


def _may_go_wrong(program: Program) -> npt.NDArray[np.bool_]:
    """Servers whose services are not known on arrival, (S,): ones that change, first ones of detours, and NICs.

    What is drawn, as a loss is, depends on the chunk alone.
    """
    found = np.zeros(program.n_servers, np.bool_)
    if program.timetable_ptr.size:
        found |= np.diff(program.timetable_ptr) > 0
    if program.detour_ptr.size:
        moved = np.diff(program.detour_ptr) > 0
        routes = np.concatenate([program.task_route[moved], program.detour_route])
        found[program.hop_server[program.route_hop[program.route_ptr[routes]]]] = True
    if program.has_nics:
        found |= program.server_nic != NONE
    return found


def _pools_are_simple(program: Program) -> bool:
    """Whether pools are fifo, and units are taken by joins of one chunk and given back by whole tasks."""
    if program.pool_capacity.size == 0:
        return True
    chunks = program.chunks()
    asks = np.flatnonzero(program.task_pool >= 0)
    gives = np.repeat(np.arange(program.n_tasks), np.diff(program.give_ptr))
    joins = bool(np.all(program.hops()[asks] == 0) and np.all(chunks[asks] == 1))
    whole = bool(np.all((program.give_per == PER_TASK) | (chunks[gives] == 1)))
    return joins and whole and bool(np.all(program.pool_discipline == FIFO))


def hops_in_keys(program: Program) -> tuple[int, int]:
    """Least and most hop of a key: those of detours count from where the task's own route begins."""
    least, most = 0, int(np.diff(program.route_ptr).max(initial=1)) - 1
    if program.detour_ptr.size:
        detours = np.diff(program.detour_ptr)
        moved = detours > 0
        own = np.repeat(program.task_route[moved], detours[moved])
        begin = program.route_ptr[program.detour_route].astype(np.int64) - program.route_ptr[own]
        end = begin + np.diff(program.route_ptr)[program.detour_route] - 1
        least, most = min(least, int(begin.min(initial=0))), max(most, int(end.max(initial=0)))
    return least, most


def bits(program: Program) -> list[int]:
    """Bits of a task, a hop, a chunk and a class in a key."""
    least, most_hop = hops_in_keys(program)
    most = (
        program.n_tasks - 1, most_hop - least, program.cut_chunks.max(initial=1) - 1, program.task_class.max(initial=0),
    )
    return [max(int(value), 0).bit_length() for value in most]


def width(program: Program, n_ready: int) -> int:
    """Bits of a bucket in the calendar, from the median of first services, given how many tasks begin at once."""
    step = max(program.n_tasks // SAMPLE, 1)
    route, cut = program.task_route[::step], program.task_cut[::step]
    first = program.route_ptr[route]
    if (first == program.route_ptr[route + 1]).any():
        crosses = first < program.route_ptr[route + 1]
        first, cut = first[crosses], cut[crosses]
    if first.size == 0:
        return 0
    server = program.hop_server[program.route_hop[first]]
    service = program.service(program.cut_size[cut, 0], program.server_rate[server])
    median = int(np.partition(service, service.size // 2)[service.size // 2])
    span = median * SERVERS_A_BUCKET // max(program.n_servers, 4 * SERVERS_A_BUCKET)
    if choosers(program).mean() > FEW_CHOOSE:
        span //= 4
    else:
        span = max(span, min(n_ready // QUEUED, SERVERS_A_BUCKET) // program.n_servers * median)
    return min(max(span.bit_length() - 1, 0), 30)


def initial_state(program: Program, log: bool, times: bool = True) -> layout.FifoState:
    """The state before the first picosecond; see `sim.engine.run.Run`."""
    n_tasks, n_servers = program.n_tasks, program.n_servers
    run, tasks, servers = row(layout.Run), rows(layout.Task, n_tasks), rows(layout.Server, n_servers)
    missing, free = program.waited_for(tasks["missing"]), [np.zeros(0, np.int64)]
    for first in range(0, n_tasks, FEW_TASKS):
        some = slice(first, first + FEW_TASKS)
        fresh = tasks[some]
        fresh["chunks"], fresh["link"] = program.cut_chunks[program.task_cut[some]], UNSTACKED
        free.append(first + np.flatnonzero(missing[some] == 0))
    ready = np.concatenate(free)
    tasks["link"][ready] = np.append(ready[1:], NONE)[: ready.size]
    servers["stamp_ps"] = -1
    run["left"] = n_tasks
    run["top"] = ready[0] if ready.size else NONE
    run["ended"] = run["stirred"] = run["free_node"] = run["given_up"] = NONE
    run["width"] = width(program, ready.size)
    run["task_bits"], run["hop_bits"], run["chunk_bits"] = bits(program)[:3]
    run["bias"] = -hops_in_keys(program)[0]
    calendar = empty_calendar(run, ready.size + n_servers, n_servers)
    logs = log and program.is_healthy
    base = log_base(program) if logs else np.zeros(0, np.int64)
    n_logged = int(base[-1]) if logs else 0
    return in_rounds(program, layout.FifoState(
        run=run,
        tasks=tasks,
        start_ps=np.full(n_tasks if times else 0, -1, np.int64),
        servers=servers,
        touched=np.zeros(n_servers, np.int32),
        **calendar,
        log_base=base,
        log_start_ps=np.full(n_logged, -1, np.int64),
        log_before=np.full(n_logged, -1, np.int64),
        last_row=np.full(n_servers if logs else 0, -1, np.int64),
        **(nics(program) if program.has_nics else {}),
        **_queues(program, run),
        **({} if program.is_healthy else _faults(program, run, log)),
    ))


def _faults(program: Program, run: Rows[layout.Run], log: bool) -> dict[str, Any]:
    """State of what changes in time; the journal has room for lapses, or for all services if none is lost."""
    run["noted_from"] = 0 if log else noted_from(program)
    journal = rows(layout.Service, (program.chunk_hops() + program.n_servers) * log + JOURNAL_TO_SPARE)
    return {
        "row": (program.timetable_ptr[:-1] - 1).astype(np.int32), "held": np.full(program.n_tasks, NONE, np.int32),
        "journal": journal,
    }


def nics(program: Program) -> dict[str, Any]:
    """State of NICs."""
    n_nics = program.nic_engines.size
    sent = np.flatnonzero(program.hops() > 0)
    first_hop = program.route_hop[program.route_ptr[program.task_route[sent]]]
    nic = program.server_nic[program.hop_server[first_hop]].astype(np.int64)
    sent, nic = sent[nic >= 0], nic[nic >= 0]
    left = np.zeros((n_nics, int(program.task_port.max(initial=0)) + 1), np.int32)
    np.add.at(left, (nic, program.task_port[sent]), 1)
    cut = program.task_cut[sent]
    n_first = program.cut_first[cut].astype(np.int64)
    first, rest = program.chunk_work[program.cut_size[cut]].T
    work = np.zeros(n_nics, np.float64)
    np.add.at(work, nic, n_first * first.astype(np.float64) + (program.cut_chunks[cut] - n_first) * rest)
    engines = program.nic_engines.astype(np.int64)
    nics = rows(layout.Nic, n_nics)
    for word in ("ready", "aside", "line", "paused", "last_port", "oldest", "newest", "together", "stamp_ps"):
        nics[word] = NONE
    nics["look_ps"] = FAR
    nics["idle"] = engines
    nics["engines"] = np.cumsum(engines) - engines
    nics["room"] = program.nic_queue
    # What all engines push at once; a queue with as much room is not likely to be full soon.
    at_once = np.maximum(engines * program.chunk_work.max(initial=1).astype(np.float64), 1)
    # What is lost comes again, so that with faults no queue has room for all.
    plenty = work < (0.999 * program.nic_queue if program.is_healthy else 0)
    nics["watched"] = np.where(plenty, 0, np.minimum(at_once, UNBOUNDED))
    server = np.flatnonzero(program.server_nic >= 0)
    nics["server"][program.server_nic[server]] = server
    backlog = rows(layout.Backlog, 2 * int(engines.sum()) + 2)
    flows = rows(layout.Flow, int(program.task_flow.max(initial=-1)) + 1)
    backlog["behind"] = np.append(np.arange(1, len(backlog)), NONE)
    flows["holder"] = flows["later"] = flows["next_flow"] = NONE
    return {
        "nics": nics, "flows": flows, "wishes": rows(layout.Wish, program.n_tasks),
        "engines": rows(layout.Engine, int(engines.sum())), "backlog": backlog,
        "port_left": left.reshape(-1), "touched_nic": np.zeros(n_nics, np.int32),
    }


def _extremes(program: Program) -> I64:
    """(2, 3) least and most of what orders weigh: priorities, ranks of works, chunks."""
    works = distinct_of(program.cut_work).size
    priorities = program.task_priority if program.task_priority.size else np.zeros(1, np.int32)
    least, most = int(priorities.min()), int(priorities.max())
    return np.array([[least, 0, 0], [most, works - 1, int(program.cut_chunks.max(initial=1)) - 1]], np.int64)


def _most_rank(program: Program) -> int:
    """The highest rank of a chunk at a server, counted from 0."""
    weights = np.abs(WEIGHTS[distinct_of(program.server_discipline)])
    return int((weights @ np.diff(_extremes(program), axis=0)[0]).max(initial=0)) if weights.any() else 0


def _buckets(program: Program) -> int:
    """Buckets of each channel of a server, a power of two."""
    bits = min(_most_rank(program).bit_length(), MOST_BUCKETS.bit_length() - 1)
    return 1 << max(min(bits, (ROOM_FOR_BUCKETS // max(program.n_servers, 1)).bit_length() - 1), 0)


def queue_bytes(program: Program) -> int:
    """Memory of pools, and of the queues of servers that choose, but for the chunks that wait there."""
    if not choosers(program).any() and not program.pool_capacity.size:
        return 0
    words = program.n_servers * (5 + 2 * program.channels * _buckets(program))
    words += 4 * int((program.task_pool >= 0).sum())
    of_rooms = (layout.Room.words.itemsize + 2 * layout.Ends.words.itemsize) * program.server_buffer.size
    return 8 * words + of_rooms + layout.Queue.words.itemsize * program.hop_queue.size + 4 * program.cut_work.size


def _queues(program: Program, run: Rows[layout.Run]) -> dict[str, Any]:
    """The fields of pools and of queues of servers that choose, which are empty; sets their registers."""
    chooses, n_servers, n_pools = choosers(program), program.n_servers, program.pool_capacity.size
    if not chooses.any() and n_pools == 0 and program.is_healthy:
        return {}
    buckets = _buckets(program)
    run["bucket_bits"] = buckets.bit_length() - 1
    run["rank_shift"] = (_most_rank(program) // buckets).bit_length()
    run["buckets"] = buckets = buckets * program.channels
    run["most"] = 8 + program.channels
    nodes = _with_nodes(rows(layout.Node), run, max(FEW_NODES, n_servers))
    in_heaps = n_pools > 0 or run["rank_shift"] > 0
    choices, pools = rows(layout.Choice, n_servers), rows(layout.Pool, n_pools)
    choices["wake_ps"] = -1
    pools["free_units"], pools["requests"], pools["look"] = program.pool_capacity, NONE, UNSTACKED
    queues = rows(layout.Queue, int(program.hop_queue.max(initial=-1)) + 1 if program.takes_turns else 0)
    queues["first"] = queues["last"] = queues["next_queue"] = NONE
    rooms = rows(layout.Room, program.server_buffer.size)
    return {
        "choices": choices,
        "filled": np.zeros(n_servers * -(-buckets // 64), np.int64),
        "ends": rows(layout.Ends, n_servers * buckets),
        "nodes": nodes,
        "returns": rows(layout.Return, nodes),
        "node_rank": np.zeros(nodes.size if in_heaps else 0, np.int64),
        "node_since": np.zeros(0 if program.is_healthy else nodes.size, np.int64),
        "pools": pools,
        "granted": np.zeros(program.n_tasks if n_pools else 0, np.int32),
        "least_rank": -np.minimum(*(WEIGHTS * one for one in _extremes(program))).sum(axis=1),
        "work_rank": np.unique(program.cut_work, return_inverse=True)[1].astype(np.int32),
        "chooses": chooses.astype(np.int8),
        "channel": np.zeros(n_servers if program.has_channels else 0, np.int32),
        "rooms": rooms,
        "returned": _empty_lists(2 * rooms.size),
        "queues": queues,
        "turns": _empty_lists(n_servers * program.channels if program.takes_turns else 0),
    }


def _empty_lists(count: int) -> Rows[layout.Ends]:
    ends = rows(layout.Ends, count)
    ends["first"] = ends["last"] = NONE
    return ends


def _waiting_nodes(state: layout.FifoState) -> npt.NDArray[np.bool_]:
    """Which nodes are chunks that wait at servers: not free, no returns of room, no requests, not in or given up."""
    run, onward = state.run, np.stack([state.nodes["next"], state.nodes["child"]], axis=1)
    other = np.zeros(len(onward), np.bool_)
    chains = int(run["free_node"]), int(run["given_up"])
    for first in (*chains, *state.returned["first"].tolist(), *state.held[state.held != NONE].tolist()):
        mark(other, onward[:, :1], first)
    for first in state.pools["requests"].tolist():
        mark(other, onward, first)
    return ~other


def held_up(program: Program, state: layout.FifoState) -> I64:
    """Places in the routes of the chunks that wait there, but at the first server, when nothing happens any more."""
    if state.nodes.size == 0:
        return np.zeros(0, np.int64)
    at = state.nodes["place"][_waiting_nodes(state)] >> 32
    follows = np.append(False, program.hop_last[program.route_hop] == 0)
    return np.asarray(at[follows[at]])


def stranded(program: Program, state: layout.FifoState) -> list[Stranded]:
    """Chunks that faults hold up for good, when nothing happens any more: given up, or at servers that stay down."""
    if program.is_healthy:
        return []
    run, nodes = state.run, state.nodes
    given_up = np.zeros(nodes.size, np.bool_)
    mark(given_up, nodes["next"][:, None], int(run["given_up"]))
    waits = _waiting_nodes(state)
    server = program.hop_server[program.route_hop[np.where(waits, nodes["place"] >> 32, 0)]]
    waits &= state.servers["free_ps"][server] == FAR
    task_bits, hop_bits, chunk_bits = (int(run[bits]) for bits in ("task_bits", "hop_bits", "chunk_bits"))
    found = []
    for number in np.flatnonzero(waits | given_up).tolist():
        key, place = int(nodes["key"][number]), int(nodes["place"][number])
        task, chunk = key & (1 << task_bits) - 1, key >> task_bits + hop_bits & (1 << chunk_bits) - 1
        lost = (place >> layout.ATTEMPT_SHIFT & ATTEMPTS - 1) + bool(given_up[number])
        found.append(Stranded(task, chunk, int(program.hop_server[program.route_hop[place >> 32]]), lost))
    return found


def mark(marked: npt.NDArray[np.bool_], onward: I32, root: int) -> None:
    """Mark every token or node that is reached from one along (N, links) others: of a list, or of a heap."""
    left = [root]
    while left:
        token = left.pop()
        if token != NONE and not marked[token]:
            marked[token] = True
            left += onward[token].tolist()


def empty_calendar(run: Rows[layout.Run], n_events: int, n_sorted: int) -> dict[str, Any]:
    """The fields of a calendar with nothing in it and room for some events, which are written before they are read."""
    n_blocks, n_sorted = max(FEW_BLOCKS, n_events // layout.BLOCK), max(64, n_sorted)
    run["opened"] = run["happened"] = run["late"] = run["free_block"] = 0
    run["blocks"] = n_blocks
    run["spare"] = run["moving"] = NONE
    return {
        "events": rows(layout.Event, np.empty(n_blocks * layout.BLOCK * layout.Event.words.itemsize, np.uint8)),
        "next_block": np.arange(1, n_blocks + 1, dtype=np.int32),
        "slots": rows(layout.Slot, layout.OPEN + 1),
        "occupied": np.zeros(layout.LEVELS * layout.WORDS, np.int64),
        "order": np.zeros(n_sorted, np.int64),
        "other": np.zeros(n_sorted, np.int64),
        "late": np.zeros(n_sorted, np.int64),
        "digit": np.zeros(layout.RADIX, np.int32),
    }


def with_more_room(state: layout.FifoState) -> layout.FifoState:
    """More room to sort in, for services of NICs, for nodes, or half as many blocks again: whichever is short."""
    run = state.run
    if state.backlog.size and run["backlog_free"] == NONE:
        return _with_longer_backlog(state)
    if state.nodes.size and run["free_nodes"] < SPARE_NODES:
        more = state.nodes.size // 2
        nodes, rank, since = _with_nodes(state.nodes, run, more), state.node_rank, state.node_since
        return state._replace(
            nodes=nodes, returns=rows(layout.Return, nodes), node_rank=_longer(rank, more) if rank.size else rank,
            node_since=_longer(since, more) if since.size else since,
        )
    if 0 < state.journal.size < run["journaled"] + run["most"]:
        more = state.journal.size // 2 + JOURNAL_TO_SPARE
        return state._replace(journal=rows(layout.Service, _longer(state.journal, more)))
    largest, size = int(state.slots["count"][:layout.SLOTS].max()), state.order.size
    if largest > size or run["late"] + max(run["most"], 2) > size:
        more = max(size // 2, largest - size)
        return state._replace(
            order=_longer(state.order, more), other=_longer(state.other, more), late=_longer(state.late, more)
        )
    return with_blocks(state, state.next_block.size // 2)


def _with_longer_backlog(state: layout.FifoState) -> layout.FifoState:
    """Room for half as many services of NICs again."""
    old = state.backlog.size
    backlog = rows(layout.Backlog, _longer(state.backlog, max(old // 2, 16)))
    backlog["behind"][old:] = np.append(np.arange(old + 1, backlog.size), NONE)
    state.run["backlog_free"] = old
    return state._replace(backlog=backlog)


def with_blocks(state: layout.FifoState, more: int) -> layout.FifoState:
    """More blocks."""
    old = state.next_block.size
    linked = np.arange(old + 1, old + more + 1, dtype=np.int32)
    linked[-1] = state.run["free_block"]
    state.run["free_block"] = old
    state.run["blocks"] += more
    return state._replace(
        next_block=np.concatenate([state.next_block, linked]),
        events=rows(layout.Event, _longer(state.events, more * layout.BLOCK)),
    )


def _with_nodes(nodes: Rows[layout.Node], run: Rows[layout.Run], more: int) -> Rows[layout.Node]:
    """More nodes, all free."""
    old, nodes = nodes.size, rows(layout.Node, _longer(nodes, more))
    nodes["next"][old:] = np.append(np.arange(old + 1, old + more), run["free_node"])
    run["free_node"] = old
    run["free_nodes"] += more
    return nodes


def _longer(array: npt.NDArray[Any], more: int) -> npt.NDArray[Any]:
    plain = array.view(np.ndarray).view(f"V{array.itemsize}")  # rows as bytes: named words are joined one by one
    found = np.zeros(array.size + more, plain.dtype)  # whose end takes memory as it is used
    found[: array.size] = plain
    return found.view(array.dtype)
