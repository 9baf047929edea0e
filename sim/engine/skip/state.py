"""State of skipping, and where its fields lie."""

from __future__ import annotations

from typing import NamedTuple

from sim.engine.compile.pointers import by_pointer
from sim.program.contract import I32, I64

PARTS = 1024
"""Parts at most; where there are more, nothing is skipped."""
TIMES = 64
"""Deliveries of the watched task among which a period is looked for."""
MULTIPLES, MOST_MULTIPLES = 4, 256
"""Periods of the watched task that may make one of its part; four times as many after a try that found nothing but a
growing or shrinking queue."""

STAGES, RUNS, ROWS = 1 << 16, 1 << 10, 1 << 12
"""Stages of live tasks, runs, and rows of runs at most; where there are more, nothing is skipped."""

# Registers: the budget of the search beside what it gains, and what it has cost, in quarters of a service; services
# skipped, and deliveries; services before the next try; live tasks, their stages, parts, events in the two lists, and
# the time of the second; whether the two lists are sorted by stage; stretches; how far a try has come, and events
# that it puts into the calendar; tasks left when it began, the time of its snapshot, and the multiples of periods that
# are compared with it; what is added to the budget once a queue may recur; runs made, runs there are, their rows, the
# horizon, before which the calendar has all of their events, and a span of time in which some of them happen.
(
    ALLOWED, COST, SKIPPED, SAVED, WAIT, LIVE, N_STAGES, N_PARTS, N_BEFORE, N_AFTER, AFTER_PS, LAID_BEFORE, LAID_AFTER,
    STRETCHES, TRY, TO_PUT, LEFT_THEN, SINCE_PS, PATIENCE, QUEUES, MADE, N_RUNS, N_ROWS, HORIZON_PS, SPAN_PS,
    REGISTERS,
) = range(26)
BEGUN, WATCHING, TIMED, COMPARING, RECURRING = 1, 2, 3, 4, 5
"""How far a try has come; 0: there is none. One that needed more room goes on where it was."""

# Words of a part: the task that is watched, its deliveries when it was last looked at, picoseconds since then in which
# it delivered nothing (NONE: nobody in the part did for long), deliveries noted, at how many of them a period is looked
# for next; first place in `live` and number of its tasks; period in ps (0: none), multiple of it that is looked at
# next; the task that was last found not to recur; whether the part recurs, end of the time in which it does, periods to
# skip.
(
    WATCHED, SEEN, IDLE, NOTED, LOOK_AT, FIRST, MEMBERS, PERIOD, MULTIPLE, SUSPECT, RECURS, UNTIL, SKIPS, PART_WORDS,
) = range(14)

# Words of a stage, which is where a task's chunks are on their way to one of its hops or, the last, to their delivery:
# place of its events in the first list, its first chunk then, its chunks; the same of the second list; its first run;
# chunks that leave it and that come to it in a period; whether it is only shifted by a period; its task; another stage
# at the same server.
(
    PLACE_WAS, FRONT_WAS, COUNT_WAS, PLACE_NOW, FRONT, COUNT, HEAD, OUT, CAME, SHIFTS, OF_TASK, BESIDE, STAGE_WORDS,
) = range(13)

# Words of a run: its task and stage, the first chunk that is not in the calendar, first row and number of rows; how
# often they repeat, and did so at the snapshot; time to add to those of the rows, and from one repetition to the next;
# the run behind it in its stage.
(
    RUN_TASK, RUN_STAGE, RUN_FIRST, RUN_ROW, RUN_ROWS, RUN_LEFT, RUN_LEFT_WAS, RUN_LATER_PS, RUN_SPACING_PS, BEHIND,
    RUN_WORDS,
) = range(11)

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
    live, grouped : (T,) int32
        The live tasks, part by part once these are found; and room to group them.
    part : (PARTS * PART_WORDS,) int64
    noted_ps : (PARTS * TIMES,) int64
        Times of the deliveries noted.
    was : (T * WAS_WORDS,) int32
    was_gate_ps : (T,) int64
    server_was : (2 * S,) int64
        End of the last service begun, and busy time; once its part recurs, by how much more than a period the first
        moves in a period, and the second.
    step, release_step : (T,) int32
        Chunks of a task that are delivered in a period of its part, and released.
    before, after : (3 * N,) int64
        Events of the calendar at the snapshot and a period later: time, key, place.
    laid_before, laid_after : (N,) int32
        Events of each stage, chunk by chunk.
    stage_of : (T,) int32
        First stage of a live task.
    stage : (STAGES * STAGE_WORDS,) int64
    run : (RUNS * RUN_WORDS,) int64
    row_ps, row_place : (ROWS,) int64
    """

    register: I64
    owner: I32
    label: I32
    part_of: I32
    live: I32
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
    laid_before: I32
    laid_after: I32
    stage_of: I32
    stage: I64
    run: I64
    row_ps: I64
    row_place: I64
