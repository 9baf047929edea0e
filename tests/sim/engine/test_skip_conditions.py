"""What skipping is put together from, as plain Python: each condition alone, against what is counted out."""

from __future__ import annotations

from types import FunctionType
from typing import NamedTuple

import numpy as np
import pytest

from sim.engine import (
    _calendar,
    _fifo,
    _fifo_line,
    _fifo_task,
    _jit,
    _skip_events,
    _skip_limits,
    _skip_parts,
    _skip_watch,
    fifo,
    skipping,
)
from sim.engine._fifo_state import (
    DELIVERED,
    EVENT_WORDS,
    HAPPENED,
    HOP_BITS,
    JOINED,
    KEY,
    LATE,
    NOW,
    OPENED,
    PLACE,
    TASK_BITS,
    TASK_WORDS,
    TIME,
    WIDTH,
    FifoState,
)
from sim.engine._skip_parts import FAR_OFF
from sim.engine._skip_state import (
    FIRST,
    LIVE,
    MEMBERS,
    PART_WORDS,
    PERIOD,
    TIMES,
    WAS_DELIVERED,
    WAS_WORDS,
    SkipState,
)
from sim.engine._state import NONE
from sim.program import Cutting, Program, ProgramBuilder

MODULES = _calendar, _fifo, _fifo_line, _fifo_task, _skip_events, _skip_limits, _skip_parts, _skip_watch


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helpers as Python: compiled ones have no callers but the loops."""
    for module in MODULES:
        for name, one in list(vars(module).items()):
            if isinstance(getattr(one, "py_func", None), FunctionType):
                monkeypatch.setattr(module, name, one.py_func)
            elif name in ("count_leading_zeros", "count_trailing_zeros"):
                monkeypatch.setattr(module, name, getattr(_jit, name.removeprefix("count")))


class Case(NamedTuple):
    """A program whose tasks are all live and one part, in their order."""

    program: Program
    state: FifoState
    skip: SkipState

    def has(self, task: int, *, step: int, was_delivered: int, joined: int) -> None:
        """Set how far a task came, and how far it comes in a period."""
        self.skip.step[task] = step
        self.skip.was[WAS_WORDS * task + WAS_DELIVERED] = was_delivered
        self.state.task[TASK_WORDS * task + JOINED] = joined
        self.state.task[TASK_WORDS * task + DELIVERED] = was_delivered + step


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
    found.skip.live[:n] = found.skip.place_of[:n] = range(n)
    found.skip.part[[FIRST, MEMBERS]] = 0, n
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 33])
def test_sorting(count: int) -> None:
    rng = np.random.default_rng(count)
    for first in range(20):
        word, order = rng.permutation(first + count + 3).astype(np.int64), np.arange(first + count + 3, dtype=np.int32)
        part = slice(first, first + count)
        _skip_events.sort(order, word, first, count)
        assert word[order].tolist() == [*word[:first], *sorted(word[part]), *word[first + count :]]


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


@pytest.mark.parametrize("places", [[], [0], [0, 0, 1], [0, 2, 2, 2, 3, 5], [4] * 7])
def test_the_first_event_of_a_task(places: list[int]) -> None:
    one = case([[0]] * 6)
    bits, n = int(one.state.register[TASK_BITS]), len(places)
    one.skip.place_of[:6] = [5, 4, 3, 2, 1, 0]
    rng = np.random.default_rng(n)
    order, events = rng.permutation(n).astype(np.int32), np.zeros(EVENT_WORDS * max(n, 1), np.int64)
    for at, place in enumerate(places):
        events[EVENT_WORDS * order[at] + KEY] = 3 << bits | 5 - place
    for place in range(7):
        found = _skip_limits._first_event(one.state, one.skip, events, order, n, place)
        assert found == sum(other < place for other in places)


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_events_are_put_in_order_of_task_hop_and_chunk(count: int) -> None:
    one = case([[0, 1]] * 6)
    bits, hop_bits = int(one.state.register[TASK_BITS]), int(one.state.register[HOP_BITS])
    one.skip.register[LIVE] = 6
    one.skip.place_of[:6] = [5, 4, 3, 2, 1, 0]
    rng = np.random.default_rng(count)
    task, hop, chunk = rng.integers(0, 5, count), rng.integers(0, 2, count), rng.permutation(count)
    events, order = np.zeros(EVENT_WORDS * max(count, 1), np.int64), np.zeros(max(count, 1), np.int32)
    events.reshape(-1, EVENT_WORDS)[:count, KEY] = (chunk << hop_bits | hop) << bits | task
    _skip_limits._order(one.state, one.skip, events, order, count)
    assert order[:count].tolist() == np.lexsort((chunk, hop, 5 - task)).tolist()


def test_two_tasks_meet_where_they_share_a_server() -> None:
    routes = [[0, 1, 2], [2], [3, 0], [4], [5, 6, 1]]
    one = case(routes)
    for a, route in enumerate(routes):
        for b, other in enumerate(routes):
            assert _skip_limits._meet(one.program, one.skip, a, b) == bool(set(route) & set(other))


def periods_in_order(slow: tuple[int, int, int], fast: tuple[int, int, int]) -> int:
    """Periods for which the chunks under way of two tasks, (step, was delivered, joined), are in one order.

    What goes on within a period starts from the older of its two ends, so that it is looked at as a whole.
    """
    for n in range(1000):
        (low, high), (first, last) = (
            (was + n * step, joined + n * step) for step, was, joined in (slow, fast)
        )
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
            slow = slow_step, was_slow, was_slow + slow_step + 1
            fast = slow_step + more, was_fast, was_fast + slow_step + more
            for task, (step, was, joined) in enumerate((slow, fast)):
                one.has(task, step=step, was_delivered=was, joined=joined)
            assert _skip_limits._tie_limit(one.program, one.state, one.skip, 0) == periods_in_order(slow, fast)


@pytest.mark.parametrize(("routes", "classes", "steps", "limited"), [
    ([[0, 1], [2, 1]], [0, 0], (1, 2), True),
    ([[0, 1], [2, 1]], [0, 1], (1, 2), False),  # the class comes before the chunk
    ([[0, 1], [2, 3]], [0, 0], (1, 2), False),  # they never meet
    ([[0, 1], [2, 1]], [0, 0], (2, 2), False),  # they advance alike
    ([[0, 1], [2, 1]], [0, 0], (0, 2), False),  # one stands still: it has no chunk under way there
])
def test_only_ties_that_can_happen_limit(
    routes: list[list[int]], classes: list[int], steps: tuple[int, int], limited: bool
) -> None:
    one = case(routes, classes)
    one.has(0, step=steps[0], was_delivered=5, joined=9)
    one.has(1, step=steps[1], was_delivered=6, joined=8)
    assert _skip_limits._tie_limit(one.program, one.state, one.skip, 0) == (-1 if limited else FAR_OFF)


def test_too_many_tasks_for_pairs_are_not_skipped() -> None:
    for n, limit in ((TIMES, FAR_OFF), (TIMES + 1, -1)):
        assert _skip_limits._tie_limit(*case([[0]] * n), 0) == limit
