"""NICs in the general loop: what an NPU posts, which engines take it, and what they push into the queue of the NIC.

A chunk is a token from its release on, and in one heap at a time, by when it got there:

    READY --post--> LINE --engine--> PUSHING --push--> arrivals of the picosecond, and so the queue of the server
      ^  v            ^  v
    ASIDE           LATER (of its flow)

ASIDE has chunks of the port that is left out, LATER transfers whose flow has an engine. An engine is an event of its
own, after those of the servers and of the alarms (one of each NIC, for the next post), and happens when it has pushed a
chunk. It is then PAUSED until all that this picosecond releases is known: where the next chunk of its transfer is in
PUSHING it goes on, else it is IDLE.
"""

from __future__ import annotations

from sim.engine.compile.door import helper, u64
from sim.engine.core.status import FAR, NONE
from sim.program.contract import FIFO
from tests.oracles.general_loop.event import NEXT, TASK, chunk_of, field, next_of, size_of, task_of, time_of
from tests.oracles.general_loop.heap import lone, meld, ties_before, without_root
from tests.oracles.general_loop.state import ARRIVING, FIRST_HOP, NOW, TOUCHED_NICS
from tests.oracles.general_loop.wheel import push

# Words of a NIC: heaps, lists of engines, the port posted last, when the NPU may post again, whether its alarm is set,
# work that the queue has room for, work in service, when it was touched.
READY, ASIDE, LINE, PUSHING, PAUSED, IDLE, LAST_PORT, POST_PS, ALARM, ROOM, SERVING, STAMP, NIC_WORDS = range(13)

# Of the line of a fifo server: its last token, and the last one that came before the picosecond of that one.
LAST, EARLIER = 0, 1

# Words of a flow: the transfer that has an engine, the engine, the heap of those posted after it.
HOLDER, ENGINE, LATER, FLOW_WORDS = range(4)


@helper
def touch_nic(state, nic):
    """Look at a NIC before the arrivals of this picosecond."""
    if state.nic[u64(nic * NIC_WORDS + STAMP)] != state.register[NOW]:
        state.nic[u64(nic * NIC_WORDS + STAMP)] = state.register[NOW]
        state.touched_nic[u64(state.register[TOUCHED_NICS])] = nic
        state.register[TOUCHED_NICS] += 1


@helper
def _put(program, state, heap, token):
    """Put a token into a heap of a NIC, given its place in `state.nic`."""
    state.nic[u64(heap)] = meld(program, state, FIFO, state.nic[u64(heap)], lone(state, token))


@helper
def _taken(program, state, heap):
    """Take the first token out of a heap of a NIC that has one."""
    token = state.nic[u64(heap)]
    state.nic[u64(heap)] = without_root(program, state, FIFO, token)
    return token


@helper
def ask_nic(program, state, nic, token):
    """A released chunk: to be pushed if its transfer has an engine, else to be posted."""
    task = task_of(state.event, token)
    holder = state.flow[u64(FLOW_WORDS * program.task_flow[u64(task)] + HOLDER)]
    state.event_ps[u64(4 * token)] = state.register[NOW]
    _put(program, state, nic * NIC_WORDS + (PUSHING if holder == task else READY), token)
    touch_nic(state, nic)


@helper
def join_line(program, state, server, token):
    """Put a token that arrives now into the line of a fifo server: a list, in which only those of now are compared.

    `server`: or the queue of one of its channels (tests/oracles/general_loop/credits.py).

    Bursts are long: with heaps, Swing on 8x8 at 128 MiB took twice as long.
    """
    events = state.event
    if state.queue[u64(server)] == NONE:
        before, after = NONE, NONE
        state.line[u64(2 * server + EARLIER)] = NONE
    else:
        last = state.line[u64(2 * server + LAST)]
        if time_of(state.event_ps, last) < state.register[NOW]:
            before, after = last, NONE
            state.line[u64(2 * server + EARLIER)] = last
        else:
            before = state.line[u64(2 * server + EARLIER)]
            after = state.queue[u64(server)] if before == NONE else next_of(events, before)
            while after != NONE and ties_before(program, state, after, token):
                before, after = after, next_of(events, after)
    events[field(token, NEXT)] = after
    if before == NONE:
        state.queue[u64(server)] = token
    else:
        events[field(before, NEXT)] = token
    if after == NONE:
        state.line[u64(2 * server + LAST)] = token


@helper
def engine_is_done(program, state, engine, all_of_it):
    """An engine has pushed a chunk, and no further one of its transfer waits for it yet."""
    nic = chunk_of(state.event, engine)
    state.event[field(engine, NEXT)] = state.nic[u64(nic * NIC_WORDS + PAUSED)]
    state.nic[u64(nic * NIC_WORDS + PAUSED)] = engine
    if all_of_it:
        ports = state.port_left.size // program.nic_engines.size
        state.port_left[u64(nic * ports + program.task_port[u64(task_of(state.event, engine))])] -= 1
    touch_nic(state, nic)


@helper
def served(state, nic):
    """The server of a NIC has done its service."""
    state.nic[u64(nic * NIC_WORDS + ROOM)] += state.nic[u64(nic * NIC_WORDS + SERVING)]
    touch_nic(state, nic)


@helper
def serve_nics(program, state):
    """What touched NICs do once nothing more is delivered or released: none of it delivers or releases anything now."""
    for i in range(state.register[TOUCHED_NICS]):
        nic = state.touched_nic[u64(i)]
        _free_engines(program, state, nic * NIC_WORDS)
        _post(program, state, nic, nic * NIC_WORDS)
        _give_engines(program, state, nic * NIC_WORDS)
        _push_chunks(program, state, nic * NIC_WORDS)
    state.register[TOUCHED_NICS] = 0


@helper
def _free_engines(program, state, base):
    engine = state.nic[u64(base + PAUSED)]
    while engine != NONE:
        after = next_of(state.event, engine)
        task = task_of(state.event, engine)
        if state.gate_ps[u64(task)] != FAR:  # no further chunk of it waits to be pushed
            flow = FLOW_WORDS * program.task_flow[u64(task)]
            state.flow[u64(flow + HOLDER)] = NONE
            later = state.flow[u64(flow + LATER)]
            state.nic[u64(base + LINE)] = meld(program, state, FIFO, state.nic[u64(base + LINE)], later)
            state.flow[u64(flow + LATER)] = NONE
            state.event[field(engine, NEXT)] = state.nic[u64(base + IDLE)]
            state.nic[u64(base + IDLE)] = engine
        engine = after
    state.nic[u64(base + PAUSED)] = NONE


@helper
def _ready_again(program, state, base):
    """Chunks of the port that was left out have their turn again."""
    aside = state.nic[u64(base + ASIDE)]
    if aside != NONE:
        state.nic[u64(base + READY)] = meld(program, state, FIFO, state.nic[u64(base + READY)], aside)
        state.nic[u64(base + ASIDE)] = NONE


@helper
def _is_left_out(program, state, nic, port):
    """Whether a port was posted last, and another of its phase has transfers that are not pushed in full."""
    turns = program.ports_in_turn
    if turns == 0 or port != state.nic[u64(nic * NIC_WORDS + LAST_PORT)]:
        return False
    ports = state.port_left.size // program.nic_engines.size
    for other in range(port - port % turns, min(port - port % turns + turns, ports)):
        if other != port and state.port_left[u64(nic * ports + other)] > 0:
            return True
    return False


@helper
def _post(program, state, nic, base):
    present = state.register[NOW]
    _ready_again(program, state, base)
    while state.nic[u64(base + READY)] != NONE:
        if state.nic[u64(base + POST_PS)] > present:
            if state.nic[u64(base + ALARM)] == 0:
                state.nic[u64(base + ALARM)] = 1
                push(state, program.server_rate.size + nic, state.nic[u64(base + POST_PS)])
            return
        token = _taken(program, state, base + READY)
        port = program.task_port[u64(task_of(state.event, token))]
        if _is_left_out(program, state, nic, port):
            _put(program, state, base + ASIDE, token)
            continue
        state.event_ps[u64(4 * token)] = present
        _put(program, state, base + LINE, token)
        state.nic[u64(base + LAST_PORT)] = port
        state.nic[u64(base + POST_PS)] = present + program.post_ps
        _ready_again(program, state, base)


@helper
def _give_engines(program, state, base):
    while state.nic[u64(base + LINE)] != NONE and state.nic[u64(base + IDLE)] != NONE:
        token = _taken(program, state, base + LINE)
        task = task_of(state.event, token)
        flow = FLOW_WORDS * program.task_flow[u64(task)]
        if state.flow[u64(flow + HOLDER)] != NONE:
            later = state.flow[u64(flow + LATER)]
            state.flow[u64(flow + LATER)] = meld(program, state, FIFO, later, lone(state, token))
            continue
        engine = state.nic[u64(base + IDLE)]
        state.nic[u64(base + IDLE)] = next_of(state.event, engine)
        state.event[field(engine, TASK)] = task
        state.flow[u64(flow + HOLDER)] = task
        state.flow[u64(flow + ENGINE)] = engine
        state.event_ps[u64(4 * token)] = state.register[NOW]
        _put(program, state, base + PUSHING, token)


@helper
def _push_chunks(program, state, base):
    while state.nic[u64(base + PUSHING)] != NONE and state.nic[u64(base + ROOM)] > 0:
        token = _taken(program, state, base + PUSHING)
        size = size_of(state.event, token) & (FIRST_HOP - 1)
        state.nic[u64(base + ROOM)] -= program.chunk_work[u64(size)]
        flow = FLOW_WORDS * program.task_flow[u64(task_of(state.event, token))]
        push(state, state.flow[u64(flow + ENGINE)], state.register[NOW] + program.push_ps[u64(size)])
        state.event[field(token, NEXT)] = state.register[ARRIVING]
        state.register[ARRIVING] = token
