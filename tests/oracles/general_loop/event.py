"""Events and tokens: how one lies in memory, and how its fields are read.

Event e < S is the end of service of server e (general discipline only). Event S + n is token n, a chunk in flight,
and what it does next; a token is known by the index of its event everywhere. An event is half a cache line, because
tokens in flight are too many for the cache and each is accessed about twice per hop:

    byte          0         8      12      16      20      24      28      32
    event_ps      | time_of |                                              |   int64 at 4 e
    event         |         | NEXT | TASK  | CHUNK |  AT   | SIZE  | CHILD |   int32 at 8 e + 2 ... 8 e + 7

A token is in one list at a time, and NEXT is its link there: the free tokens, a slot of the wheel, the batch of the
present, the arrivals at a server, the siblings in a pairing heap (CHILD its first child), or the chunks of a task that
wait for one before them. Readers take the array and not the state: an argument is one LLVM value per array member, and
thirty arrays at each of a hundred calls would double the time to compile.
"""

from __future__ import annotations

from sim.engine.compile.door import helper, u64

NEXT, TASK, CHUNK, AT, SIZE, CHILD = 2, 3, 4, 5, 6, 7
"""Half-words of an event, after its time: the next event in a list; task and chunk of the token; index of its hop in
the routes (NONE: delivery); its row of the service table, plus FIRST_HOP; its first child in a heap."""


@helper
def field(event, what):
    """Index of a field of an event in `state.event`."""
    return u64(8 * event + what)


@helper
def next_of(events, event):
    return events[u64(8 * event + NEXT)]


@helper
def task_of(events, token):
    return events[u64(8 * token + TASK)]


@helper
def chunk_of(events, token):
    return events[u64(8 * token + CHUNK)]


@helper
def at_of(events, token):
    return events[u64(8 * token + AT)]


@helper
def size_of(events, token):
    return events[u64(8 * token + SIZE)]


@helper
def child_of(events, token):
    return events[u64(8 * token + CHILD)]


@helper
def time_of(events_ps, event):
    """When an event happens; while its token waits, when it arrived."""
    return events_ps[u64(4 * event)]
