"""What skipping is put together from, as plain Python: each condition alone, against what is counted out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from sim.engine import setup as fifo
from sim.engine.core import calendar as _calendar
from sim.engine.core.state import (
    BLOCK,
    BLOCKS,
    BUSY_PS,
    CHUNKS,
    DELIVERED,
    EVENT_WORDS,
    FREE_PS,
    GATE,
    HAPPENED,
    HOP_BITS,
    JOINED,
    KEY,
    LATE,
    MISSING,
    NOW,
    OPENED,
    PLACE,
    RELEASED,
    TASK_BITS,
    TASK_WORDS,
    TIME,
    WIDTH,
    FifoState,
)
from sim.engine.core.status import FAR, NONE
from sim.engine.skip import events as _skip_events
from sim.engine.skip import limits as _skip_limits
from sim.engine.skip import moves as _skip_moves
from sim.engine.skip import parts as _skip_parts
from sim.engine.skip import runs as _skip_runs
from sim.engine.skip import setup as skipping
from sim.engine.skip import stages as _skip_stages
from sim.engine.skip import watch as _skip_watch
from sim.engine.skip.limits import STARTED
from sim.engine.skip.parts import FAR_OFF
from sim.engine.skip.state import (
    AFTER_PS,
    CAME,
    COUNT,
    FIRST,
    FRONT,
    FRONT_WAS,
    HEAD,
    HORIZON_PS,
    LAID_AFTER,
    LIVE,
    MEMBERS,
    N_AFTER,
    N_BEFORE,
    N_PARTS,
    N_ROWS,
    N_RUNS,
    N_STAGES,
    OF_TASK,
    OUT,
    PART_WORDS,
    PERIOD,
    RUN_FIRST,
    RUN_LATER_PS,
    RUN_LEFT,
    RUN_LEFT_WAS,
    RUN_ROW,
    RUN_ROWS,
    RUN_SPACING_PS,
    RUN_STAGE,
    RUN_TASK,
    RUN_WORDS,
    SHIFTS,
    SKIPS,
    STAGE_WORDS,
    SUSPECT,
    TIMES,
    UNTIL,
    WAS_DELIVERED,
    WAS_JOINED,
    WAS_MISSING,
    WAS_RELEASED,
    WAS_WORDS,
    SkipState,
)
from sim.program import Cutting, Program, ProgramBuilder
from tests.plain_kernels import SKIPPING, as_python


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    as_python(monkeypatch, SKIPPING)


class Case(NamedTuple):
    """A program whose tasks are all live and one part, in their order."""

    program: Program
    state: FifoState
    skip: SkipState

    def has(self, task: int, *, delivered: int | None = None, joined: int | None = None) -> None:
        """Set how far a task came."""
        for word, value in ((DELIVERED, delivered), (JOINED, joined)):
            if value is not None:
                self.state.task[TASK_WORDS * task + word] = value

    def leaves(self, stage: int, out: int, was: int, front: int) -> None:
        """Set what leaves a stage in a period."""
        self.skip.stage[STAGE_WORDS * stage :][[OUT, FRONT_WAS, FRONT]] = out, was, front


def case(routes: list[list[int]], classes: list[int] | None = None) -> Case:
    """Tasks of a thousand chunks along servers."""
    builder = ProgramBuilder("store-and-forward", "tail")
    servers = [builder.server(10**9) for _ in range(1 + max(max(route) for route in routes))]
    for task, route in enumerate(routes):
        hops = [(servers[one], 0) for one in route]
        builder.task(1000, hops, Cutting(1000), tie_class=classes[task] if classes else 0)
    program = builder.build()
    found = Case(program, fifo.initial_state(program, False), skipping.initial_state(program))
    n = len(routes)
    for room in found.skip[1:]:
        room[:] = 0  # what a try writes first has anything in it
    found.skip.live[:n] = range(n)
    found.skip.part[[FIRST, MEMBERS]] = 0, n
    found.skip.stage_of[:n] = np.cumsum([0, *(len(route) + 1 for route in routes)])[:-1]
    found.skip.stage[OF_TASK::STAGE_WORDS] = np.repeat(range(n), [len(route) + 1 for route in routes])
    return found


def events_of(one: Case, times: list[int]) -> None:
    for key, time in enumerate(times):
        _calendar.put(one.program, one.state, np.int64(time), np.int64(key), np.int64(7 * key), np.int64(NONE))


def test_events_are_listed_and_put_back() -> None:
    """Near and far ones, several in a picosecond; a list that is one too short holds none."""
    one = case([[0], [1]])
    times = [5000, 5000, 5001, 9_000, 77_777, 10**7, 10**9, 10**9, 10**13]
    events_of(one, times)
    room = np.zeros(EVENT_WORDS * len(times), np.int64)
    for _ in range(2):
        assert _skip_events.gather(one.state, room) == len(times)
        rows = sorted(room.reshape(-1, EVENT_WORDS)[:, [TIME, KEY, PLACE]].tolist())
        assert rows == [[time, key, 7 * key] for key, time in enumerate(times)]
        assert _skip_events.gather(one.state, np.zeros(room.size - EVENT_WORDS, np.int64)) == NONE
        _skip_events.scatter(one.program, one.state, room, len(times), np.int64(100))
        assert one.state.register[NOW] == 100


@pytest.mark.parametrize(("opened", "happened", "late"), [(3, 1, 0), (0, 0, 2), (4, 2, 3)])
def test_events_of_the_open_bucket_need_room_as_well(opened: int, happened: int, late: int) -> None:
    one = case([[0], [1]])
    register, n = one.state.register, opened - happened + late
    register[[OPENED, HAPPENED, LATE, NOW]] = opened, happened, late, 5 << int(register[WIDTH])
    for entry in range(opened):
        one.state.order[entry] = entry
    for entry in range(late):
        one.state.late[entry] = opened + entry
    for entry in range(opened + late):
        one.state.event[EVENT_WORDS * entry + KEY] = entry
    room = np.zeros(EVENT_WORDS * n, np.int64)
    assert _skip_events.gather(one.state, room) == n
    assert room[KEY::EVENT_WORDS].tolist() == [*range(happened, opened), *range(opened, opened + late)]
    assert set(room[TIME::EVENT_WORDS].tolist()) == {int(register[NOW])}
    assert _skip_events.gather(one.state, np.zeros(EVENT_WORDS * (n - 1), np.int64)) == NONE


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 100])
def test_events_of_a_slot_are_listed_block_by_block(count: int) -> None:
    one = case([[0], [1]])
    one = one._replace(state=fifo.with_blocks(one.state, 64))
    events_of(one, [10**9] * count)
    room = np.zeros(EVENT_WORDS * count, np.int64)
    assert _skip_events.gather(one.state, room) == count
    assert sorted(room[KEY::EVENT_WORDS].tolist()) == list(range(count))
    assert set(room[TIME::EVENT_WORDS].tolist()) == {10**9}


def live(one: Case) -> Case:
    """The same, with all tasks released."""
    one.state.task[RELEASED::TASK_WORDS] = 1
    _skip_parts.find_live(one.program, one.state, one.skip)
    return one


@pytest.mark.parametrize(("routes", "parts"), [
    ([[0], [1], [2]], [0, 1, 2]), ([[0], [1], [0]], [0, 1, 0]), ([[0, 1], [2], [1, 2]], [0, 0, 0]), ([[0]], [0]),
])
def test_tasks_that_share_a_server_are_in_one_part(
    routes: list[list[int]], parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to as many parts, and as many stages, as there is room for."""
    one = live(case(routes))
    assert _skip_parts.find_parts(one.program, one.state, one.skip)
    assert one.skip.part_of[: len(parts)].tolist() == parts
    own, n_stages = one.skip.register, sum(len(route) + 1 for route in routes)
    assert own[[N_PARTS, N_STAGES]].tolist() == [max(parts) + 1, n_stages]
    of_task = one.skip.stage[OF_TASK::STAGE_WORDS]
    for task, route in enumerate(routes):
        first = int(one.skip.stage_of[task])
        assert of_task[first : first + len(route) + 1].tolist() == [task] * (len(route) + 1)
    for short, fits in ((0, True), (1, False)):
        room = one.skip._replace(stage=one.skip.stage[: STAGE_WORDS * (n_stages - short)].copy())
        _skip_parts.find_live(one.program, one.state, room)
        assert _skip_parts.find_parts(one.program, one.state, room) == fits
        monkeypatch.setattr(_skip_parts, "PARTS", max(parts) + 1 - short)
        _skip_parts.find_live(one.program, one.state, one.skip)
        assert _skip_parts.find_parts(one.program, one.state, one.skip) == fits
        monkeypatch.undo()
        as_python(monkeypatch, SKIPPING)


@pytest.mark.parametrize(("chunks", "services", "tried"), [(12, 24, True), (13, 24, False), (12, 25, False)])
def test_what_is_worth_trying(chunks: int, services: int, tried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of enough chunks, and enough services in all; these are 24, of tasks of 12 and of 6."""
    builder = ProgramBuilder("store-and-forward", "tail")
    server = builder.server(10**9)
    builder.task(6, [(server, 0), (server, 0)], Cutting(6))
    builder.task(12, [(server, 0)], Cutting(12))
    monkeypatch.setattr(skipping, "LEAST_CHUNKS", chunks)
    monkeypatch.setattr(skipping, "LEAST_SERVICES", services)
    assert skipping.worth_trying(builder.build()) == tried
    assert not skipping.worth_trying(ProgramBuilder().build())


def test_nothing_that_lives_is_no_part() -> None:
    one = case([[0], [1]])
    _skip_parts.find_live(one.program, one.state, one.skip)
    assert not _skip_parts.find_parts(one.program, one.state, one.skip)


def test_a_stretch_needs_room_for_its_runs_their_rows_and_all_events() -> None:
    """Each counted out; a queue that has become shorter than what came in a period cannot be repeated."""
    one = case([[0, 1], [2, 3]])
    own = one.skip.register
    own[[LIVE, N_STAGES, N_PARTS, N_RUNS, N_ROWS, N_AFTER]] = 2, 6, 1, 2, 7, 11
    one.skip.part[SKIPS] = 5
    for stage, came, count in ((1, 3, 3), (4, 2, 9)):
        one.skip.stage[STAGE_WORDS * stage :][[CAME, COUNT]] = came, count
    assert _skip_moves.room_to_move(one.skip) == 11 + 7 + 5
    for name, words in (("run", 4 * RUN_WORDS), ("row_ps", 12), ("after", 23 * EVENT_WORDS)):
        exact = one.skip._replace(**{name: np.zeros(words, np.int64)})
        assert _skip_moves.room_to_move(exact) == 23
        short = one.skip._replace(**{name: np.zeros(words - 1, np.int64)})
        assert _skip_moves.room_to_move(short) == NONE
    one.skip.stage[STAGE_WORDS + COUNT] = 2
    assert _skip_moves.room_to_move(one.skip) == NONE
    one.skip.part[SKIPS] = 0  # nothing of it is repeated
    assert _skip_moves.room_to_move(one.skip) == 11 + 7
    one.skip.part[SKIPS], one.skip.stage[SHIFTS::STAGE_WORDS] = 5, 1
    assert _skip_moves.room_to_move(one.skip) == 11 + 7


@pytest.mark.parametrize("part", [0, 2])
@pytest.mark.parametrize("gaps", [[3], [3, 4], [3, 3, 4], [1, 2, 1, 2, 5], [7, 1, 1, 1, 1, 1, 1]])
def test_the_shortest_period_is_found(gaps: list[int], part: int) -> None:
    """From as many deliveries on as show it twice, whatever came first."""
    one = case([[0]])
    times = np.cumsum([1000, *([9, 8, 6] + gaps * 20)])[: TIMES]
    one.skip.noted_ps[TIMES * part : TIMES * part + times.size] = times
    for noted in range(1, 5 + 2 * len(gaps)):
        _skip_watch._find_period(one.skip, part, noted)
        found = int(one.skip.part[PART_WORDS * part + PERIOD])
        shown = np.diff(times[:noted]).tolist()
        periods = [n for n in range(1, (noted - 1) // 2 + 1) if shown[-n:] == shown[-2 * n : -n]]
        assert found == (sum(shown[-periods[0] :]) if periods else 0)
        one.skip.part[PART_WORDS * part + PERIOD] = 0


@pytest.mark.parametrize("seed", range(12))
def test_what_is_under_way_is_laid_out_by_stage_and_chunk(seed: int) -> None:
    """Events in any order, some of them in runs, are found by stage and chunk; one that is missing is noticed."""
    one, rng = case([[0, 1, 2], [3], [1, 2]]), np.random.default_rng(seed)
    own, hop_bits = one.skip.register, int(one.state.register[HOP_BITS])
    hops, expected, events, n_stages = (3, 1, 2), {}, [], 0
    own[LIVE] = 3
    for task, n_hops in enumerate(hops):
        one.skip.stage_of[task] = n_stages
        chunk = int(rng.integers(0, 5))
        one.has(task, delivered=chunk)
        for stage in range(n_hops, -1, -1):
            key = (min(stage, n_hops - 1) << int(one.state.register[TASK_BITS])) | task
            time = 0
            for run in rng.integers(0, 2, int(rng.integers(0, 4))):
                rows, times = (int(rng.integers(1, 4)), int(rng.integers(1, 6))) if run else (1, 1)
                gaps, spacing = np.sort(rng.integers(0, 9, rows)), int(rng.integers(10, 20))
                place = rng.integers(0, 3, rows) if stage < n_hops else np.full(rows, NONE)
                for at in range(rows * times):
                    when = time + int(gaps[at % rows]) + at // rows * spacing
                    expected[n_stages + stage, chunk + at] = when, int(place[at % rows])
                if run:
                    words = one.skip.run[RUN_WORDS * own[N_RUNS] :]
                    words[[RUN_TASK, RUN_STAGE, RUN_FIRST, RUN_ROW]] = task, stage, chunk, own[N_ROWS]
                    words[[RUN_ROWS, RUN_LEFT, RUN_LEFT_WAS, RUN_LATER_PS]] = rows, times, times, time
                    words[RUN_SPACING_PS] = spacing
                    one.skip.row_ps[own[N_ROWS] : own[N_ROWS] + rows] = gaps
                    one.skip.row_place[own[N_ROWS] : own[N_ROWS] + rows] = place
                    own[N_RUNS], own[N_ROWS] = own[N_RUNS] + 1, own[N_ROWS] + rows
                else:
                    events.append((time + int(gaps[0]), chunk << hop_bits + int(one.state.register[TASK_BITS]) | key,
                                   int(place[0])))
                chunk, time = chunk + rows * times, time + times * spacing
        one.has(task, joined=chunk)
        n_stages += n_hops + 1
    own[N_STAGES], own[N_BEFORE] = n_stages, len(events)
    own[N_AFTER] = len(events)
    for listed in (one.skip.before, one.skip.after):
        listed[: EVENT_WORDS * len(events)] = rng.permutation(np.array(events).reshape(-1, 3)).ravel()
    one.skip.was[:] = one.state.task.reshape(-1, TASK_WORDS)[:, [RELEASED, JOINED, DELIVERED, MISSING]].ravel()
    assert _skip_stages.lay_out(one.program, one.state, one.skip)
    for (stage, chunk), event in expected.items():
        assert _skip_stages.event_of(one.skip, stage, chunk) == event
        if _skip_stages.of_stage(one.skip, stage, HEAD) == NONE:
            assert _skip_stages.event_was(one.skip, stage, chunk) == event
    own[LAID_AFTER] = 0
    one.has(0, joined=1000)
    assert not _skip_stages.lay_out(one.program, one.state, one.skip)


def test_runs_are_put_into_the_calendar_up_to_the_horizon() -> None:
    """Each repetition whose first event lies before it, whole; the last one ends it."""
    one = case([[0]])
    register, own, room = one.state.register, one.skip.register, np.zeros(300, np.int64)
    width = int(register[WIDTH])
    own[[N_RUNS, N_ROWS, HORIZON_PS]] = 1, 2, 1 << width
    one.skip.run[[RUN_STAGE, RUN_FIRST, RUN_ROWS, RUN_LEFT, RUN_LATER_PS]] = 1, 7, 2, 6, 1 << width
    one.skip.run[RUN_SPACING_PS] = 3 << width
    one.skip.row_ps[:2], one.skip.row_place[:2] = (0, 5 << width), NONE
    assert _skip_runs.unroll(one.program, one.state, one.skip, (4 << width) - 1)
    assert own[HORIZON_PS] == 4 << width
    assert _skip_events.gather(one.state, room) == 2
    assert _skip_runs.unroll(one.program, one.state, one.skip, 4 << width)
    assert _skip_events.gather(one.state, room) == 4
    found = room.reshape(-1, EVENT_WORDS)[:4]
    times = {int(_skip_runs.chunk_of(one.state, key)): int(time) >> width for time, key, _ in found}
    assert times == {7: 1, 8: 6, 9: 4, 10: 9}
    register[BLOCKS], blocks = 7, int(register[BLOCKS])
    assert not _skip_runs.unroll(one.program, one.state, one.skip, 1000 << width)
    assert _skip_events.gather(one.state, room) == 4
    register[BLOCKS] = blocks
    assert _skip_runs.unroll(one.program, one.state, one.skip, 1000 << width)
    assert _skip_events.gather(one.state, room) == 12
    assert own[[N_RUNS, HORIZON_PS]].tolist() == [0, FAR_OFF]


def periods_in_order(slow: tuple[int, int, int], fast: tuple[int, int, int]) -> int:
    """Periods for which the chunks that arrive in each, (step, first, last + 1), are in one order."""
    for n in range(1000):
        (low, high), (first, last) = ((was + n * step, front + n * step) for step, was, front in (slow, fast))
        if not (first >= high or last <= low):
            return n - 1
    return FAR_OFF


@pytest.mark.parametrize("slow_step", [1, 3])
@pytest.mark.parametrize("more", [1, 2])
def test_ties_stay_in_order_for_as_long_as_counted_out(slow_step: int, more: int) -> None:
    """A fast task behind catches up; where chunks of both are mixed nothing may be skipped; ahead it stays ahead."""
    for was_fast in range(12):
        for was_slow in (4, 5):
            one = case([[0, 1], [2, 1]])
            slow = slow_step, was_slow, was_slow + slow_step
            fast = slow_step + more, was_fast, was_fast + slow_step + more
            one.leaves(1, *slow)
            one.leaves(4, *fast)
            assert _skip_limits._tie_limit(one.program, one.skip, 0) == periods_in_order(slow, fast)
            for pair in ((1, 4), (4, 1)):
                assert _skip_limits._order_limit(one.skip, *pair) == periods_in_order(slow, fast)


@pytest.mark.parametrize(("routes", "classes", "steps", "limited"), [
    ([[0, 1], [2, 1]], [0, 0], (1, 2), True),
    ([[0, 1], [2, 1]], [0, 1], (1, 2), False),  # the class comes before the chunk
    ([[0, 1], [2, 3]], [0, 0], (1, 2), False),  # they never meet
    ([[0, 1], [2, 1]], [0, 0], (2, 2), False),  # they advance alike
    ([[0, 1], [2, 1]], [0, 0], (0, 2), False),  # one stands still: nothing of it arrives there
])
def test_only_ties_that_can_happen_limit(
    routes: list[list[int]], classes: list[int], steps: tuple[int, int], limited: bool
) -> None:
    one = case(routes, classes)
    one.leaves(1, steps[0], 6, 6 + steps[0])
    one.leaves(4, steps[1], 6, 6 + steps[1])
    assert _skip_limits._tie_limit(one.program, one.skip, 0) == (-1 if limited else FAR_OFF)


@pytest.mark.parametrize("growth", [-60, -9, -7, 0, 3, 200])
def test_a_server_recurs_as_long_as_it_is_busy_all_along(growth: int) -> None:
    """Where it gets further behind, or less, what it had to do when a period began must last to its end."""
    one, since, period = case([[0]]), 1000, 60
    for ahead in range(150):
        one.skip.server_was[:2] = since + ahead, 5
        one.state.server[[FREE_PS, BUSY_PS]] = since + ahead + period + growth, 6
        found = _skip_limits._server_limit(one.state, one.skip, np.int64(0), since, period)
        lasts = [ahead + n * growth >= period for n in range(500)]
        if growth == 0 or max(ahead + growth, 0) == ahead:
            assert found == FAR_OFF
        elif growth <= -period:  # what comes from it would not be in order
            assert found == -1
        else:
            assert found == (lasts.index(False) - 1 if growth < 0 or not lasts[0] else FAR_OFF)
    one.state.server[BUSY_PS] = 5  # it did not serve
    assert _skip_limits._server_limit(one.state, one.skip, np.int64(0), since, period) == FAR_OFF


def periods_held(needs: Callable[[int], int], chunks: int, was: int, step: int, released: int, more: int) -> int:
    """Periods for which a parent lets a child go on as in the one that has passed, period by period.

    `needs`: chunks of the parent that a chunk of the child waits for; `was`, `step`: those delivered when the period
    began, and in it; `released`, `more`: chunks of the child that are released at its end, and were in it.
    """
    delivered = was + step
    if more and all(needs(chunk + more) == needs(chunk) + step for chunk in range(1000, 1100)):
        return FAR_OFF  # each chunk waits for the one that the chunk a period before it waited for, moved on alike
    if not more and needs(released) > delivered:
        alike = [needs(released) > delivered + n * step for n in range(2000)]  # held back
    else:
        most = (chunks - 1 - released) // more + 1 if more else 2000
        alike = [needs(released + n * more) <= was + n * step if more else needs(released) <= was for n in range(most)]
    return FAR_OFF if all(alike) and not more else [*alike, False].index(False) - 1


@pytest.mark.parametrize("lag", [0, 1, 3])
@pytest.mark.parametrize(("parent", "child"), [(12, 12), (12, 24), (24, 12), (12, 18), (18, 12), (13, 11)])
def test_a_parent_holds_back_as_long_as_counted_out(parent: int, child: int, lag: int) -> None:
    """It holds back a child as it has so far, or stays ahead of it, chunk by chunk."""
    builder, rng = ProgramBuilder("store-and-forward", "tail"), np.random.default_rng(parent + child + lag)
    server, found = builder.server(10**9), set()
    for chunks in (parent, child):
        builder.task(1000 * chunks, [(server, 0)], Cutting(chunks))
    program = builder.build()
    state, skip = fifo.initial_state(program, False), skipping.initial_state(program)
    skip.part_of[:] = 0

    def needs(chunk: int) -> int:
        return chunk - lag + 1 if lag else -(-(chunk + 1) * parent // child)

    for _ in range(500):
        step, more = (int(rng.choice((0, 1, 2, 3, 4))) for _ in range(2))
        was, released = int(rng.integers(parent + 1 - step)), int(rng.integers(more, child + 1))
        state.task[DELIVERED], state.task[TASK_WORDS + RELEASED] = was + step, released
        skip.was[WAS_DELIVERED], skip.was[WAS_WORDS + WAS_RELEASED] = was, released - more
        limit = _skip_limits._release_limit(state, skip, np.int64(0), np.int64(1), np.int64(lag))
        expected = FAR_OFF
        if released < child:
            expected = periods_held(lambda chunk: max(needs(chunk), 0), child, was, step, released, more)
        assert limit == expected, (step, more, was, released)
        found.add(min(int(limit), 99))
    assert {-1, 0, 1, 99} <= found


@pytest.mark.parametrize(("released", "expected"), [(0, 2), (1, STARTED), (12, FAR_OFF)])
def test_a_child_that_was_held_back_whole_ends_the_stretch_when_it_starts(released: int, expected: int) -> None:
    """It needs three chunks more; nothing is known of it before it was live. Whole, it is held back no more."""
    one = case([[0], [0]])
    one.state.task[[CHUNKS, TASK_WORDS + CHUNKS]] = 48, 12
    one.skip.part_of[:] = 0, NONE
    one.has(0, delivered=1)
    one.skip.was[WAS_DELIVERED] = 0
    one.skip.was[WAS_WORDS + WAS_RELEASED] = 7  # of an earlier try
    one.state.task[TASK_WORDS + RELEASED] = released
    assert _skip_limits._release_limit(one.state, one.skip, np.int64(0), np.int64(1), np.int64(0)) == expected
    one.skip.part_of[:] = NONE, 0
    one.skip.was[[WAS_DELIVERED, WAS_WORDS + WAS_RELEASED]] = -5, 0  # the parent stands still
    one.state.task[TASK_WORDS + RELEASED] = 0
    assert _skip_limits._release_limit(one.state, one.skip, np.int64(0), np.int64(1), np.int64(0)) == FAR_OFF


def periods_of_a_task(
    chunks: int, first: int, now: tuple[int, int, int], step: tuple[int, int, int]
) -> int:
    """Periods for which a task goes on alike, period by period: until what it does meets its last chunk, or an odd one.

    `first`: its chunks of the one size, which come first; `now`, `step`: chunks released, joined and delivered by the
    end of the period that has passed, and in it.
    """
    was_released, was_joined = now[0] - step[0], now[1] - step[1]
    odd = first < chunks and was_joined < first and step[1] > 0
    ahead = was_released < chunks and step[0] != step[1]
    if (odd and now[1] > first) or (ahead and now[1] >= was_released):
        return -1
    for n in range(1000):
        released, joined, delivered = (one + n * more for one, more in zip(now, step, strict=True))
        ended = any(more and one >= chunks for one, more in zip((released, joined, delivered), step, strict=True))
        waits = ahead and step[0] < step[1] and joined >= was_released + n * step[0]
        if ended or waits or (odd and joined > first):
            return n - 1
    return FAR_OFF


@pytest.mark.parametrize("first", [5, 12])
@pytest.mark.parametrize("seed", range(5))
def test_a_task_goes_on_as_long_as_counted_out(seed: int, first: int) -> None:
    """Up to the last chunk that is released, joins or is delivered, the first one of another size, or its release."""
    builder, rng, found = ProgramBuilder("store-and-forward", "tail"), np.random.default_rng(seed), set()
    builder.task(24 + first % 12, [(builder.server(10**9), 0)], Cutting(12))
    program = builder.build()
    assert program.cut_first.tolist() == [first]
    state, skip = fifo.initial_state(program, False), skipping.initial_state(program)
    skip.was_gate_ps[:] = state.gate_ps[GATE] = FAR
    state.task[MISSING] = skip.was[WAS_MISSING] = 1
    for _ in range(400):
        step = [int(one) for one in rng.choice(4, 3)]
        now = [int(rng.integers(one, 13)) for one in step]
        state.task[[RELEASED, JOINED, DELIVERED]] = now
        skip.was[[WAS_RELEASED, WAS_JOINED, WAS_DELIVERED]] = np.subtract(now, step)
        skip.step[0], skip.release_step[0] = step[2], step[0]
        limit = _skip_limits._task_limit(program, state, skip, np.int64(0), 100, 110)
        assert limit == int(limit) == periods_of_a_task(12, first, tuple(now), tuple(step)), (now, step)
        found.add(min(int(limit), 99))
    assert {-1, 0, 1, 2, 99} <= found


@pytest.mark.parametrize("step", [0, 1])
def test_a_gate_recurs_where_it_does_not_count_or_moves_by_a_period(step: int) -> None:
    """Where chunks join; else it must stay. What a task misses must be the same in any case."""
    one, since, present = case([[0]]), 100, 110
    one.has(0, joined=step)
    one.state.task[[RELEASED, MISSING]] = 1000, 1
    one.skip.was[[WAS_RELEASED, WAS_MISSING]] = 1000, 1
    times = [50, 99, 100, 101, 105, 109, 110, 111, 115, 121, int(FAR)]
    for was in times:
        for now in times:
            one.skip.was_gate_ps[0], one.state.gate_ps[GATE] = was, now
            alike = now == was
            if step:
                moved = was > since and now - present == was - since
                alike = now == was == FAR or (now <= present and was <= since) or moved
            limit = _skip_limits._task_limit(one.program, one.state, one.skip, np.int64(0), since, present)
            assert (limit >= 0) == alike, (was, now)
    one.state.gate_ps[GATE] = one.skip.was_gate_ps[0] = FAR
    one.state.task[MISSING] = 2
    assert _skip_limits._task_limit(one.program, one.state, one.skip, np.int64(0), since, present) == -1


def test_releases_are_looked_at_with_their_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each task those that it waits for, and those of its children that are not live, which nobody looks at else."""
    builder = ProgramBuilder("store-and-forward", "tail")
    servers = [builder.server(10**9) for _ in range(3)]
    first = builder.task(12, [(servers[0], 0)], Cutting(12))
    second = builder.task(12, [(servers[1], 0)], Cutting(12), stream=[first])
    builder.window(first, second, 5)
    third = builder.task(12, [(servers[2], 0)], Cutting(12), stream=[first])
    builder.window(third, first, 3)
    program = builder.build()
    state, skip = fifo.initial_state(program, False), skipping.initial_state(program)
    seen: list[tuple[int, int, int]] = []

    def release_limit(state: FifoState, skip: SkipState, *edge: int) -> int:
        seen.append((int(edge[0]), int(edge[1]), int(edge[2])))
        return 9 - edge[2]

    monkeypatch.setattr(_skip_limits, "_release_limit", release_limit)
    to_third = {(first, third, 0), (first, third, 3)}
    for dead, expected in (
        (None, {first: {(second, first, 5)}, second: {(first, second, 0)}, third: to_third}),
        (third, {first: {(second, first, 5), *to_third}, second: {(first, second, 0)}}),
    ):
        skip.part_of[:] = 0
        if dead is not None:
            skip.part_of[dead] = NONE
        for task, edges in expected.items():
            seen.clear()
            limit = _skip_limits._edge_limit(program, state, skip, np.int64(task))
            assert sorted(seen) == sorted(edges)
            assert limit == min(9 - lag for _, _, lag in edges)


def test_a_part_advances_as_long_as_all_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that differed last time is looked at first; without a period none may advance."""
    one, rng, seen = case([[0], [0], [0]]), np.random.default_rng(0), []
    for _ in range(300):
        limits, steps = rng.choice([-2, -1, 0, 1, 7], 3, p=[0.05, 0.1, 0.2, 0.3, 0.35]), rng.integers(0, 2, 3)
        suspect, period = int(rng.integers(3)), int(rng.integers(0, 3))
        one.skip.part[[SUSPECT, PERIOD]] = suspect, period
        one.skip.step[:] = steps
        seen.clear()
        monkeypatch.setattr(
            _skip_limits, "_alike", lambda *of, limits=limits: (seen.append(int(of[3])), np.int64(limits[of[3]]))[1]
        )
        found = _skip_limits.advances_alike(one.program, one.state, one.skip, 0, 100, 110)
        order = [suspect, 0, 1, 2]
        wrong = next((at for at, task in enumerate(order) if limits[task] < 0), None)
        if wrong is None:
            assert seen == order
            assert found == (limits.min() if steps.any() == (period > 0) else -1)
        else:
            assert seen == order[: wrong + 1]
            assert found == limits[order[wrong]]
            assert one.skip.part[SUSPECT] == order[wrong]


def test_a_task_is_alike_as_long_as_its_edges_and_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    one, rng = case([[0, 1]]), np.random.default_rng(0)
    for _ in range(200):
        own, edges, first, second = (int(limit) for limit in rng.choice([-1, 0, 1, 5], 4, p=[0.1, 0.3, 0.3, 0.3]))
        monkeypatch.setattr(_skip_limits, "_task_limit", lambda *_, own=own: own)
        monkeypatch.setattr(_skip_limits, "_edge_limit", lambda *_, edges=edges: edges)
        monkeypatch.setattr(_skip_limits, "_server_limit", lambda *of, by=(first, second): by[of[2]])
        found = _skip_limits._alike(one.program, one.state, one.skip, np.int64(0), 100, 110)
        assert (found < 0) == (min(own, edges, first, second) < 0)
        assert found < 0 or found == min(own, edges, first, second)


def test_a_part_recurs_until_its_first_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its stages, its tasks, and its ties where stages advance by different numbers of chunks."""
    one, rng, since, present, recurring = case([[0], [1]]), np.random.default_rng(0), 100, 110, 0
    outs: list[int] = []
    ends: list[int] = []

    def stage_end(program: Program, state: FifoState, skip: SkipState, task: int, stage: int, *_: int) -> int:
        skip.stage[STAGE_WORDS * stage + OUT] = outs[stage]
        return ends[stage]

    monkeypatch.setattr(_skip_limits, "_stage_end", stage_end)
    monkeypatch.setattr(_skip_limits, "_keep_servers", lambda *_: None)
    for _ in range(400):
        outs[:] = rng.choice([0, 1, 2], 4, p=[0.3, 0.5, 0.2]).tolist()
        ends[:] = rng.choice([109, 110, 115, 1000], 4, p=[0.03, 0.1, 0.17, 0.7]).tolist()
        most, ties, laid = int(rng.integers(-1, 4)), int(rng.integers(-1, 4)), bool(rng.random() < 0.9)
        period = int(rng.choice([0, 1, 10]))
        one.skip.part[PERIOD] = period
        monkeypatch.setattr(_skip_limits, "_tie_limit", lambda *_, ties=ties: ties)
        monkeypatch.setattr(_skip_limits, "lay_out", lambda *_, laid=laid: laid)
        found = _skip_limits.recurs(one.program, one.state, one.skip, 0, since, present, most)
        periods = min(most, ties) if len({out for out in outs if out}) > 1 else most
        assert found == (laid and most >= 0 and periods >= 0 and min(ends) >= present)
        if found:
            assert one.skip.part[UNTIL] == min(*ends, since + (periods + 1) * 10 if period else FAR_OFF)
        recurring += bool(found)
    assert 50 < recurring < 350


class Queue(NamedTuple):
    """A stage behind a server that gets further behind: what left it and came to it in a period; times by chunk."""

    out: int
    came: int
    period: int
    spacing: int  # by which what comes is later in the next period
    count: int
    time: list[int]
    place: list[int]

    def at(self, chunk: int) -> tuple[int, int]:
        """When and where a chunk arrives, counted out; chunk 0 was the first in the stage a period ago."""
        end, periods = len(self.time), 0
        if chunk >= end:
            if self.came == 0:
                return FAR_OFF, NONE
            periods = (chunk - end) // self.came + 1
        return self.time[chunk - periods * self.came] + periods * self.spacing, self.place[chunk - periods * self.came]

    def differs(self) -> int:
        """The first chunk that does not leave as the one a period before it, as far as one looks."""
        for chunk in range(self.out, self.out + 40 * (self.out + self.came)):
            time, place = self.at(chunk - self.out)
            if self.at(chunk) != (time + self.period, place):
                return chunk
        return FAR_OFF

    def end(self) -> int:
        """The last picosecond before what leaves no longer recurs."""
        if self.out == 0:
            return self.time[0] - 1 if self.time else FAR_OFF
        chunk = self.differs()
        if chunk == FAR_OFF:
            return FAR_OFF
        return min(self.at(chunk)[0], self.at(chunk - self.out)[0] + self.period) - 1


def queue(rng: np.random.Generator) -> Queue:
    """What leaves is even or nearly, what comes continues it or does not."""
    out, came, times = int(rng.integers(0, 4)), int(rng.integers(0, 5)), int(rng.integers(0, 6))
    pattern, steepness = int(rng.integers(1, 4)), int(rng.integers(2, 9))
    gaps, kinds = np.sort(rng.integers(0, pattern * steepness, pattern)), rng.integers(0, 2, pattern)
    count = out + times * pattern + int(rng.integers(0, 3)) if rng.random() < 0.9 else int(rng.integers(0, 3))
    count = out - 1 if out and came and rng.random() < 0.15 else max(count, out)  # one came and went
    n = count + came
    time = [int(gaps[at % pattern]) + at // pattern * pattern * steepness for at in range(n)]
    place = [int(kinds[at % pattern]) for at in range(n)]
    if n and rng.random() < 0.4:
        time[int(rng.integers(0, n))] += 1
    if n and rng.random() < 0.2:
        place[int(rng.integers(0, n))] ^= 1
    period = max(out * steepness, 1) if out else int(rng.integers(1, 30))
    spacing = came * steepness if came and rng.random() < 0.8 else period + int(rng.integers(0, 9))
    return Queue(out, came, period, max(spacing, 1), count, time, place)


def laid(one: Case, a: Queue, rng: np.random.Generator) -> None:
    """Put a queue into the second stage of the only task, some of it as runs."""
    own, base, end = one.skip.register, 10_000, len(a.time)
    key = (np.int64(1) << int(one.state.register[TASK_BITS]))
    shift = int(one.state.register[TASK_BITS] + one.state.register[HOP_BITS])
    now, chunk = [], a.out
    under_way = {at: (base + a.time[at], a.place[at]) for at in range(a.out, end)}
    while chunk < end:
        rows, times = int(rng.integers(1, 5)), int(rng.integers(1, 9))
        block = [under_way.get(chunk + at) for at in range(rows * times)]
        spacing = block[rows][0] - block[0][0] if rows * times > rows and block[rows] and block[0] else 0
        even = spacing > 0 and chunk + rows * times <= a.count and all(
            block[at] == (block[at - rows][0] + spacing, block[at - rows][1]) for at in range(rows, rows * times)
        )
        if even and rng.random() < 0.7:
            words = one.skip.run[RUN_WORDS * own[N_RUNS] :]
            words[[RUN_TASK, RUN_STAGE, RUN_FIRST, RUN_ROW]] = 0, 1, chunk, own[N_ROWS]
            words[[RUN_ROWS, RUN_LEFT, RUN_LEFT_WAS, RUN_LATER_PS, RUN_SPACING_PS]] = rows, times, times, 7, spacing
            for at in range(rows):
                one.skip.row_ps[own[N_ROWS] + at] = block[at][0] - 7
                one.skip.row_place[own[N_ROWS] + at] = block[at][1]
            own[N_RUNS], own[N_ROWS], chunk = own[N_RUNS] + 1, own[N_ROWS] + rows, chunk + rows * times
        else:
            now.append((under_way[chunk][0], chunk << shift | key, under_way[chunk][1]))
            chunk += 1
    in_runs = {at for run in range(own[N_RUNS]) for at in range(
        int(one.skip.run[RUN_WORDS * run + RUN_FIRST]),
        int(one.skip.run[RUN_WORDS * run + RUN_FIRST] + _skip_runs.run_chunks(one.skip, run)),
    )}
    was = [(base + a.time[at], at << shift | key, a.place[at]) for at in range(a.count) if at not in in_runs]
    own[[N_BEFORE, N_AFTER]] = len(was), len(now)
    one.skip.before[: 3 * len(was)], one.skip.after[: 3 * len(now)] = np.ravel(was), np.ravel(now)


@pytest.mark.parametrize("seeds", range(10))
def test_a_queue_recurs_and_moves_as_counted_out(seeds: int) -> None:
    """For as long as what leaves it does so as before; then what is left is what came and did not leave."""
    moved = 0
    for seed in range(100 * seeds, 100 * seeds + 100):
        moved += recurs_and_moves(np.random.default_rng(seed))
    assert moved > 20


def recurs_and_moves(rng: np.random.Generator) -> bool:
    """Hold a random queue against what is counted out; returns whether it was moved."""
    one, a, since = case([[0, 1]]), queue(rng), 10_000
    own, end, growth = one.skip.register, len(a.time), a.spacing - a.period
    own[[LIVE, N_STAGES, N_PARTS]] = 1, 3, 1
    laid(one, a, rng)
    one.has(0, delivered=a.out, joined=end)
    one.skip.was[[WAS_DELIVERED, WAS_JOINED]] = 0, a.count
    one.skip.server_was[:2] = since + 10**6, 5
    one.state.server[[FREE_PS, BUSY_PS]] = since + 10**6 + a.period + growth, 6
    assert _skip_stages.lay_out(one.program, one.state, one.skip)
    found = _skip_limits._stage_end(one.program, one.state, one.skip, np.int64(0), np.int64(1), since, a.period)
    expected = a.end() if a.out or end else FAR_OFF
    expected += since if expected != FAR_OFF else 0
    if a.out == a.came and growth == 0 and a.out:
        expected = FAR_OFF if expected == FAR_OFF else NONE
    elif a.out != a.came or a.out:
        expected = NONE if end - a.out < max(a.out, a.came) else expected
    assert found == expected
    if found == NONE:
        return False
    skips = int(rng.integers(1, 12))
    if a.out:
        skips = min(skips, (a.differs() - a.out) // a.out)
    one.skip.part[[SKIPS, PERIOD]] = skips, a.period
    one.skip.server_was[0] = growth
    room = _skip_moves.room_to_move(one.skip)
    _skip_moves.move_events(one.program, one.state, one.skip)
    assert own[N_AFTER] <= room
    left = {}
    for time, key, place in one.skip.after.reshape(-1, EVENT_WORDS)[: own[N_AFTER]].tolist():
        left[int(_skip_runs.chunk_of(one.state, key))] = time, place
    for run in range(own[N_RUNS]):
        words = one.skip.run[RUN_WORDS * run : RUN_WORDS * (run + 1)].tolist()
        for at in range(words[RUN_ROWS] * words[RUN_LEFT]):
            row = words[RUN_ROW] + at % words[RUN_ROWS]
            later = words[RUN_LATER_PS] + at // words[RUN_ROWS] * words[RUN_SPACING_PS]
            left[words[RUN_FIRST] + at] = int(one.skip.row_ps[row]) + later, int(one.skip.row_place[row])
    assert sorted(left) == [*range(a.out + skips * a.out, end + skips * a.came)]
    for chunk, event in left.items():
        time, place = a.at(chunk)
        assert event == (since + time, place)
    return skips > 0 and own[N_RUNS] > 0


@pytest.mark.parametrize("growth", [0, 4, -2])
def test_a_source_that_waits_in_a_queue_does_not_recur(growth: int) -> None:
    """Its next chunk arrives when its server is through, which is not a period later."""
    one, since, period = case([[0]]), 1000, 10
    key = np.int64(1) << int(one.state.register[TASK_BITS] + one.state.register[HOP_BITS])
    one.skip.register[[LIVE, N_STAGES, N_PARTS, N_BEFORE, N_AFTER]] = 1, 2, 1, 1, 1
    one.skip.before[:3], one.skip.after[:3] = (1100, 0, 0), (1110, key, 0)
    one.has(0, delivered=1, joined=2)
    one.skip.was[[WAS_DELIVERED, WAS_JOINED]] = 0, 1
    one.skip.server_was[:2] = 1100, 5
    one.state.server[[FREE_PS, BUSY_PS]] = 1100 + period + growth, 6
    assert _skip_stages.lay_out(one.program, one.state, one.skip)
    found = _skip_limits._stage_end(one.program, one.state, one.skip, np.int64(0), np.int64(0), since, period)
    assert found == (NONE if growth else FAR_OFF)


def test_a_source_from_which_nothing_leaves_does_not_recur() -> None:
    """One chunk waits there at a time: what came to it in a period will not come again."""
    one = case([[0]])
    one.skip.register[[LIVE, N_STAGES, N_PARTS, N_AFTER]] = 1, 2, 1, 1
    one.skip.after[:3] = 1110, 0, 0
    one.has(0, delivered=0, joined=1)
    assert _skip_stages.lay_out(one.program, one.state, one.skip)
    assert _skip_limits._stage_end(one.program, one.state, one.skip, np.int64(0), np.int64(0), 1000, 10) == NONE


@pytest.mark.parametrize("step", [0, 2])
def test_a_gate_moves_with_what_joins(step: int) -> None:
    """Where nothing joins, the next chunk may do so when it might have."""
    one = case([[0]])
    one.skip.register[[LIVE, AFTER_PS]] = 1, 100
    one.skip.part[[SKIPS, PERIOD]] = 7, 10
    one.skip.stage[CAME] = one.skip.stage[OUT] = step
    one.state.gate_ps[GATE] = 105
    _skip_moves.move_tasks(one.program, one.state, one.skip)
    assert one.state.gate_ps[GATE] == (175 if step else 105)
    assert one.state.task[JOINED] == 7 * step
