"""State of skipping, and where its fields lie."""

from __future__ import annotations

from typing import NamedTuple

from sim.engine._by_pointer import by_pointer
from sim.program.contract import I32, I64

PARTS = 1024
"""Parts at most; where there are more, nothing is skipped."""
TIMES = 64
"""Deliveries of the watched task among which a period is looked for."""
MULTIPLES = 4
"""Periods of the watched task that may make one of its part."""

# Registers: what trying may cost beside what it gains, and what it has cost, in quarters of a service; services
# skipped; services before the next try; live tasks, parts, events in the two lists, and the time of the second;
# whether the two lists are in order; stretches; whether one that was found waits for more room.
(
    ALLOWED, COST, SKIPPED, WAIT, LIVE, N_PARTS, N_BEFORE, N_AFTER, AFTER_PS, ORDERED_BEFORE, ORDERED_AFTER, STRETCHES,
    READY, REGISTERS,
) = range(14)

# Words of a part: the task that is watched, its deliveries when it was last looked at, picoseconds since then in which
# it delivered nothing (NONE: nobody in the part did for long), deliveries noted, at how many of them a period is looked
# for next; first place in `live` and number of its tasks; period in ps (0: none), multiple of it that is compared,
# whether the part recurs, end of the time in which it does, periods to skip.
(
    WATCHED, SEEN, IDLE, NOTED, LOOK_AT, FIRST, MEMBERS, PERIOD, MULTIPLE, RECURS, UNTIL, SKIPS, PART_WORDS,
) = range(13)

# Half-words of a task in a snapshot.
WAS_RELEASED, WAS_JOINED, WAS_DELIVERED, WAS_MISSING, WAS_WORDS = range(5)


@by_pointer
class SkipState(NamedTuple):
    """What skipping remembers; T tasks, S servers, N events.

    Attributes
    ----------
    register : (REGISTERS,) int64
    owner : (T + S,) int32
        Union-find over tasks and servers.
    label : (T + S,) int32
        Part of a root, NONE elsewhere.
    part_of : (T,) int32
        Part of a live task, NONE for all others.
    live, place_of, grouped : (T,) int32
        The live tasks, part by part once these are found; the place of each in this list; and room to group them.
    part : (PARTS * PART_WORDS,) int64
    noted_ps : (PARTS * TIMES,) int64
        Times of the deliveries noted.
    was : (T * WAS_WORDS,) int32
    was_gate_ps : (T,) int64
    server_was : (2 * S,) int64
        End of the last service begun, and busy time.
    step, release_step : (T,) int32
        Chunks that a task advances in a period of its part, and that it has released.
    before, after : (3 * N,) int64
        Events of the calendar at the snapshot and a period later: time, key, place.
    sorted_before, sorted_after, word : (N,) int32, int32, int64
        Their order by task, hop and chunk, and the words they are sorted by.
    """

    register: I64
    owner: I32
    label: I32
    part_of: I32
    live: I32
    place_of: I32
    grouped: I32
    part: I64
    noted_ps: I64
    was: I32
    was_gate_ps: I64
    server_was: I64
    step: I32
    release_step: I32
    before: I64
    after: I64
    sorted_before: I32
    sorted_after: I32
    word: I64
