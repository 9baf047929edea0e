"""Chunks at their first server that take another route, which holds from some time on."""

from sim.engine.compile.door import helper, section
from sim.engine.core.calendar import put
from sim.engine.core.nodes import free_node
from sim.engine.core.status import NONE
from sim.engine.policies.faults import begins_at, first_hop_at, journal, key_at, task_of

_LOW = (1 << 32) - 1


@helper
def changes_route(program, state, node):
    """Whether a chunk is at the first hop of a route that its task does not take any more."""
    at = state.nodes[node].place >> 32
    if not begins_at(program, at):
        return False
    return first_hop_at(program, task_of(state, state.nodes[node].key), state.run.now_ps) != at


@section
def stays(program, state, server, node):
    """Give a chunk the route that holds now. Returns whether it stays at its server, else it is on the way to another.

    A chunk that leaves arrives there in the next picosecond, and its node is free.
    """
    key, place, present = state.nodes[node].key, state.nodes[node].place, state.run.now_ps
    first = first_hop_at(program, task_of(state, key), present)
    key_there, place_there = key_at(program, state, key, first), (first << 32) | (place & _LOW)
    if program.hop_server[program.route_hop[first]] == server:
        state.nodes[node].key, state.nodes[node].place = key_there, place_there
        return True
    journal(state, key, place, ~state.node_since[node], present, present, present + 1)
    put(program, state, present + 1, key_there, place_there, NONE)
    free_node(state, node)
    return False
