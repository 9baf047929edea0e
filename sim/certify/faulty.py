"""The certificates of a run with faults: every service, lost or not, is in its journal and is looked at."""

import numpy as np
import numpy.typing as npt

from sim.certify.conditions import Conditions, detour_at, rooms, route_at
from sim.certify.order import overtaken
from sim.certify.times import deliveries, free_ps, joins, ready_ps, routed_chunks
from sim.program.contract import COMPLETES, DOWN, I64, WAITS, Program
from sim.program.outcome import CertificateError, Journal, Outcome
from topologies.core.paths import distinct_of

Rows = npt.NDArray[np.bool_]


def certify_faulty(program: Program, outcome: Outcome) -> None:
    """Conservation, capacity and causality of a finished run with faults.

    Each time in the journal is compared with that of the contract, derived from the program and the services
    that were done. Not checked: which queue a server chose, of channels or of those that take turns; which transfer
    an NPU posted or an engine took; and when a pool granted (never before it was asked).

    CertificateError: with the rule, and the task or server that broke it.
    """
    if outcome.journal is None:
        raise CertificateError("conservation: a run with faults is checked by its journal: run it with log=True")
    order = np.lexsort([getattr(outcome.journal, column) for column in ("at", "start_ps", "chunk", "task")])
    journal = Journal._make(column[order] for column in outcome.journal)
    first = _first_rows(journal)
    _conservation(program, outcome, journal, first)
    conditions = Conditions.of(program, journal, _attempts(journal, first))
    _capacity(journal, conditions.server)
    _up(journal, conditions)
    waits(program, outcome)
    _durations(journal, conditions)
    _losses(journal, conditions)
    _arrivals(program, outcome, journal, first)
    _ready(program, journal, conditions)
    _routes(program, journal, first)
    _idle(journal, conditions, _rooms(program, journal, conditions))
    _queues(program, journal, first, conditions)
    if program.has_nics:
        _nics(program, journal, first, conditions)


def _refuse(bad: Rows, journal: Journal, what: str) -> None:
    if np.any(bad):
        row = int(np.flatnonzero(bad)[0])
        raise CertificateError(
            f"{what}: chunk {journal.chunk[row]} of task {journal.task[row]}, from {journal.start_ps[row]} ps"
        )


def _first_rows(journal: Journal) -> Rows:
    """Whether a row is the first of its chunk, in the order of task, chunk and start."""
    task, chunk = journal.task, journal.chunk
    return np.append(True, (task[1:] != task[:-1]) | (chunk[1:] != chunk[:-1]))[: task.size]


def _after(rows: Rows) -> Rows:
    """Whether the row before was one of these."""
    return np.append(False, rows[:-1])[: rows.size]


def _attempts(journal: Journal, first: Rows) -> I64:
    """How often the chunk of each row was lost before it."""
    before: I64 = np.cumsum(journal.lost, dtype=np.int64) - journal.lost
    return np.asarray(before - before[first][np.cumsum(first) - 1], np.int64)


def _conservation(program: Program, outcome: Outcome, journal: Journal, first: Rows) -> None:
    """Every chunk crosses, in its last attempt, a whole route of its task; every ps of busy time is a service's."""
    at = journal.at
    begins = first | _after(journal.lost | journal.moved)
    of_task = np.isin(np.stack([journal.task, at]).T @ [program.route_hop.size, 1], _first_hops(program))
    _refuse(begins & ~of_task, journal, "conservation: an attempt begins in the middle of a route")
    follows = np.append(False, at[1:] == at[:-1] + 1)[: at.size]
    _refuse(~begins & ~follows, journal, "conservation: a hop is left out or taken twice")
    last = program.hop_last[program.route_hop[at]] != 0
    _refuse(_ends(first) & (journal.lost | journal.moved | ~last), journal, "conservation: never delivered")
    _refuse(journal.moved & ~begins, journal, "conservation: sent another way after it had left its source")
    task, chunk = routed_chunks(program)
    sent = int(np.count_nonzero(first))
    if sent != task.size:
        raise CertificateError(f"conservation: {sent} chunks were sent where the program has {task.size}")
    stranger = first.copy()
    stranger[first] = (journal.task[first] != task) | (journal.chunk[first] != chunk)
    _refuse(stranger, journal, "conservation: the program has no such chunk")
    services = int(np.count_nonzero(journal.end_ps > journal.start_ps))
    if outcome.events != services:
        raise CertificateError(f"conservation: {outcome.events} services were done where the journal has {services}")
    busy = np.zeros(program.n_servers, np.int64)
    np.add.at(busy, program.route_server[at], journal.end_ps - journal.start_ps)
    if np.any(busy != outcome.busy_ps):
        one = int(np.flatnonzero(busy != outcome.busy_ps)[0])
        raise CertificateError(
            f"conservation: server {one} was busy for {outcome.busy_ps[one]} ps and did {busy[one]} ps of services"
        )


def _ends(first: Rows) -> Rows:
    """Whether a row is the last of its chunk."""
    return np.append(first[1:], True)[: first.size]


def _first_hops(program: Program) -> I64:
    """Where attempts may begin, as task x hops + place."""
    task, route = np.arange(program.n_tasks), program.task_route.astype(np.int64)
    if program.detour_ptr.size:
        task = np.concatenate([task, np.repeat(task, np.diff(program.detour_ptr))])
        route = np.concatenate([route, program.detour_route])
    return task * program.route_hop.size + program.route_ptr[route]


def _capacity(journal: Journal, server: I64) -> None:
    """No server serves two chunks at once."""
    served = np.flatnonzero(journal.end_ps > journal.start_ps)
    server, start = server[served], journal.start_ps[served]
    clash = np.flatnonzero(start < free_ps(np.lexsort((start, server)), server, journal.end_ps[served]))
    if clash.size:
        row = served[clash[0]]
        raise CertificateError(f"capacity: server {server[clash[0]]} serves two chunks at {journal.start_ps[row]} ps")


def _up(journal: Journal, conditions: Conditions) -> None:
    """No service begins while its server is down, or crosses that unless it may; nothing is dropped but there."""
    served = journal.end_ps > journal.start_ps
    asleep = served & (conditions.rate == DOWN)
    crosses = served & (conditions.crossing != COMPLETES) & (journal.end_ps > conditions.down_ps)
    dropped = ~served & ~journal.moved & ~((conditions.rate == DOWN) & conditions.drops & journal.lost)
    for bad, what in (
        (asleep, "is down and serves"), (crosses, "goes down while it serves"), (dropped, "drops what it may not"),
    ):
        if np.any(bad):
            _refuse(bad, journal, f"capacity: server {conditions.server[np.flatnonzero(bad)[0]]} {what}")


def waits(program: Program, outcome: Outcome) -> None:
    """No task starts before those that it waits for are in, unless its deadline is over."""
    parent, child = program.whole_edges()
    early = outcome.start_ps[child] < outcome.finish_ps[parent]
    if program.task_deadline_ps.size:
        early &= outcome.start_ps[child] < program.task_deadline_ps[child]
    if np.any(early):
        edge = int(np.flatnonzero(early)[0])
        raise CertificateError(
            f"causality: task {child[edge]} started at {outcome.start_ps[child[edge]]} ps, before task "
            f"{parent[edge]} was delivered at {outcome.finish_ps[parent[edge]]} ps"
        )


def _durations(journal: Journal, conditions: Conditions) -> None:
    """Each service takes what it takes at the rate in force with its draw, or is cut off as its server goes down."""
    served = journal.end_ps > journal.start_ps
    due = np.where(conditions.cut, conditions.down_ps, conditions.end_ps)
    _refuse(served & (journal.end_ps < due), journal, "capacity: served faster than its server can")
    _refuse(served & (journal.end_ps > due), journal, "capacity: served for longer than its server takes")


def _losses(journal: Journal, conditions: Conditions) -> None:
    """Lost is what was cut off, what was drawn as lost, and what a server that was down dropped."""
    due = (journal.end_ps > journal.start_ps) & (conditions.cut | conditions.drawn)
    dropped = (journal.end_ps == journal.start_ps) & ~journal.moved
    _refuse(journal.lost & ~due & ~dropped, journal, "causality: lost, and neither cut off nor drawn nor dropped")
    _refuse(due & ~journal.lost, journal, "causality: cut off or drawn, and not lost")


def _arrivals(program: Program, outcome: Outcome, journal: Journal, first: Rows) -> None:
    """A chunk joins when it is released and the one before it was served, and arrives when it is ready."""
    _refuse(journal.start_ps < journal.arrival_ps, journal, "causality: served before it arrived")
    ready = np.roll(journal.ready_ps, 1)
    _refuse(~first & (journal.arrival_ps < ready), journal, "causality: arrived before it was ready")
    _refuse(~first & (journal.arrival_ps > ready), journal, "causality: arrived after it was ready")
    delivered = deliveries(program, outcome, journal.ready_ps[_ends(first)])
    begins, served = np.flatnonzero(first), np.flatnonzero(journal.end_ps > journal.start_ps)
    opening = served[np.searchsorted(served, begins)]  # the first service of each chunk; one ahead may end before
    starts = begins[journal.chunk[first] == 0]
    wrong = np.zeros(first.size, np.bool_)
    wrong[starts] = outcome.start_ps[journal.task[starts]] != journal.start_ps[opening[journal.chunk[first] == 0]]
    _refuse(wrong, journal, "causality: its task started at another time")
    came = journal.arrival_ps[first]
    pushed_ps = came if program.has_nics else None  # those that a NIC sends came as they were pushed
    due = joins(program, outcome, delivered, journal.end_ps[opening], pushed_ps)
    for bad, what in (
        (journal.arrival_ps[first] < due.earliest, "joined before it was released and the chunk before it was served"),
        (journal.arrival_ps[first] > due.latest, "joined later than its release and the service of the one before it"),
    ):
        rows = np.zeros(first.size, np.bool_)
        rows[begins] = bad
        _refuse(rows, journal, f"causality: {what}")


def _ready(program: Program, journal: Journal, conditions: Conditions) -> None:
    """The next hop, the delivery and the next attempt come when latencies, draws and timeouts require."""
    latency = conditions.latency_ps
    due = ready_ps(program, journal.at, conditions.size, journal.start_ps, journal.end_ps, latency)
    if program.server_resend_ps.size:
        due = np.where(journal.lost, journal.end_ps + program.server_resend_ps[conditions.server], due)
    due = np.where(journal.moved, journal.start_ps + 1, due)
    _refuse(journal.moved & (journal.end_ps != journal.start_ps), journal, "capacity: served as it was sent away")
    _refuse(journal.ready_ps < due, journal, "causality: ready before its time")
    _refuse(journal.ready_ps > due, journal, "causality: ready after its time")


def _routes(program: Program, journal: Journal, first: Rows) -> None:
    """Attempts take the route in force: what is served as it is chosen, and what is not where none has changed."""
    begins = first | _after(journal.lost | journal.moved)
    now = route_at(program, journal.task, journal.start_ps)
    served = journal.end_ps > journal.start_ps
    _refuse(begins & served & (journal.at != now), journal, "causality: it takes a route that is not in force")
    here = program.route_server[now] == program.route_server[journal.at]
    _refuse(journal.moved & here, journal, "causality: sent another way, and its route begins here")
    dropped = begins & ~served & ~journal.moved
    chosen = journal.arrival_ps - _after(journal.moved)
    still = detour_at(program, journal.task, journal.start_ps) == detour_at(program, journal.task, chosen)
    _refuse(dropped & still & (journal.at != now), journal, "causality: it takes a route that is not in force")


def _rooms(program: Program, journal: Journal, conditions: Conditions) -> Rows:
    """No buffer holds more than there is room for; returns whether there may be new room where a row starts.

    Where servers let chunks take detours as they look, a chunk behind these may start: any look may be the reason.
    """
    given = np.zeros(journal.task.size, np.bool_)
    if not program.has_credits:
        return given
    rows = np.flatnonzero(journal.end_ps > journal.start_ps)
    in_ = journal.lost | (program.hop_last[program.route_hop[journal.at]] != 0)
    gone = np.where(journal.lost, journal.end_ps, np.where(in_, journal.ready_ps, np.roll(journal.end_ps, -1)))
    line, work = program.route_line[journal.at], program.chunk_work[conditions.size]
    moves = bool(program.detour_ptr.size)
    behind = rooms(program, line[rows], work[rows], journal.start_ps[rows], gone[rows], by_server=moves)
    over = given.copy()
    over[rows], given[rows] = behind
    _refuse(over, journal, "capacity: it starts without room behind its server")
    limited = program.bounded[conditions.server]
    if moves:
        times = distinct_of(np.append(journal.arrival_ps, journal.start_ps))
        came, starts = (
            conditions.server * times.size + np.searchsorted(times, one)
            for one in (journal.arrival_ps, journal.start_ps)
        )
        given |= limited & np.isin(starts, came)
    return given | (limited & conditions.falls)


def _idle(journal: Journal, conditions: Conditions, given: Rows) -> None:
    """What waits at a free server is served or dropped at once, unless there was no room, or it has just come up.

    Not looked at: those dropped where a server waits for its outage.
    """
    served = journal.end_ps > journal.start_ps
    rows = np.flatnonzero(served | (~journal.moved & (conditions.crossing != WAITS)))
    server, start = conditions.server[rows], journal.start_ps[rows]
    free = free_ps(np.lexsort((start, server)), server, journal.end_ps[rows])
    waits = start > np.maximum(free, journal.arrival_ps[rows])
    idle = np.zeros(served.size, np.bool_)
    idle[rows] = waits & (conditions.drops[rows] | ~conditions.wakes[rows])
    _refuse(idle & ~given, journal, "capacity: it waits at a free server")


def _queues(program: Program, journal: Journal, first: Rows, conditions: Conditions) -> None:
    """Of each queue, the chunk that is due is served; where detours may change the channel, behind the first hop."""
    hop = journal.at - program.route_ptr[program.task_route[journal.task]]
    known = journal.end_ps > journal.start_ps
    if program.has_channels and program.detour_ptr.size:
        known &= ~(first | _after(journal.lost | journal.moved))
    rows = np.lexsort((journal.start_ps, conditions.server))
    wrong = overtaken(
        program, journal.task, journal.chunk, hop, journal.at, journal.start_ps, journal.arrival_ps, rows[known[rows]]
    )
    if wrong is not None:
        late = np.arange(first.size) == wrong.late
        _refuse(late, journal, f"order: server {conditions.server[wrong.late]} served another before it")


def _nics(program: Program, journal: Journal, first: Rows, conditions: Conditions) -> None:
    """A chunk is pushed only where the queue of its NIC has less than it may, by no more engines than there are."""
    nic = program.server_nic[conditions.server].astype(np.int64)
    rows = np.flatnonzero((nic >= 0) & ~journal.moved)
    pushed = first[rows]
    nic, work, arrival = nic[rows], program.chunk_work[conditions.size[rows]], journal.arrival_ps[rows]
    dropped = journal.end_ps[rows] == journal.start_ps[rows]
    # In one picosecond: ends of services, pushes, what arrives again, what is dropped.
    time = np.append(arrival, journal.end_ps[rows])
    stage = np.append(np.where(pushed, 1, 2), np.where(dropped, 3, 0))
    # The largest push comes last: in another order there would be room for less.
    order = np.lexsort((np.append(work, work), stage, time, np.append(nic, nic)))
    held = np.cumsum(np.append(work, -work)[order]) - np.append(work, 0 * work)[order]
    full = np.zeros(first.size, np.bool_)
    here = order < rows.size
    full[rows[order[here]]] = (held[here] >= program.nic_queue) & pushed[order[here]]
    _refuse(full, journal, "capacity: pushed into the queue of a NIC that was full")
    rows, nic = rows[pushed], nic[pushed]
    begin = journal.arrival_ps[rows]
    end = begin + program.push_ps[conditions.size[rows]]
    flow = program.task_flow[journal.task[rows]].astype(np.int64)
    for group, most, what in (
        (nic, program.nic_engines, "capacity: pushed while all engines of its NIC are busy"),
        (nic * (int(flow.max(initial=0)) + 1) + flow, None, "capacity: pushed while another of its flow is"),
    ):
        order = np.lexsort((np.repeat((1, 0), rows.size), np.append(begin, end), np.append(group, group)))
        busy = np.cumsum(np.append(np.ones_like(begin), -np.ones_like(end))[order])
        here = order < rows.size
        at = order[here]
        many = np.zeros(first.size, np.bool_)
        many[rows[at]] = busy[here] > (1 if most is None else most[nic[at]])
        _refuse(many, journal, what)
