"""The calendar of the fifo loop against a heap, as plain Python, event by event."""

from __future__ import annotations

from heapq import heappop, heappush
from types import FunctionType

import numpy as np
import pytest

from sim.engine.core import calendar as _calendar
from sim.engine.core.state import BLOCK, DIGIT, OPEN, FifoState
from sim.engine.core.status import FINISHED, NEEDS_TOKENS, NONE, PAUSED, STUCK
from sim.engine.setup import initial_state, with_more_room
from sim.program import I64, ProgramBuilder

MOST_CALLS = 100_000
"""In a test: a calendar that does not come to its end fails, and does not go on for ever."""

builder = ProgramBuilder()
builder.task(10, [(builder.server(1e12), latency) for latency in range(5)])
PROGRAM = builder.build()


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers have no callers but the loops, which are compiled."""
    for name, one in list(vars(_calendar).items()):
        if isinstance(getattr(one, "py_func", None), FunctionType):
            monkeypatch.setattr(_calendar, name, one.py_func)


class Calendar:
    """A calendar and a heap of the same events: of time, key and place."""

    def __init__(self, width: int) -> None:
        self.state: FifoState = initial_state(PROGRAM, False)
        self.state.run["width"] = width
        self.heap: list[tuple[int, int, int]] = []
        self.keys = 0

    @property
    def now(self) -> int:
        return int(self.state.run["now_ps"])

    def put(self, time: int, event: int = NONE) -> None:
        """Put an event into both; `event`: one that has just happened, whose place is free."""
        for _ in range(20):
            if self.state.run["blocks"] >= 1 and self.state.run["late"] + 2 <= self.state.late.size:
                break
            self.state = with_more_room(self.state)
        place = NONE if self.keys % 3 == 0 else self.keys % 5 << 32 | self.keys
        heappush(self.heap, (time, self.keys, place))
        _calendar.put(PROGRAM, self.state, np.int64(time), np.int64(self.keys), np.int64(place), np.int64(event))
        self.keys += 1

    def take(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Keys and places of what is due now, and where they lay."""
        taken, events = [], []
        for _ in range(MOST_CALLS):
            event = int(_calendar.take(self.state))
            if event == NONE:
                return taken, events
            row = self.state.events[event]
            if row.place != NONE:
                assert row.time_ps == PROGRAM.route_hop[row.place >> 32]
            taken.append((int(row.key), int(row.place)))
            events.append(event)
        raise AssertionError("events are due without end")

    def drain(self) -> None:
        """Let all that waits happen, in its order."""
        while self.heap:
            due, expected = self.heap[0][0], []
            assert self.advance(2**61) == FINISHED and self.now == due
            while self.heap and self.heap[0][0] == due:
                expected.append(heappop(self.heap)[1:])
            assert sorted(self.take()[0]) == expected
        assert self.advance(2**61) == STUCK

    def advance(self, until: int) -> int:
        for _ in range(20):
            before, status = self.now, int(_calendar.advance(PROGRAM, self.state, np.int64(until)))
            assert before <= self.now <= max(until, before)
            if status != NEEDS_TOKENS:
                return status
            self.state = with_more_room(self.state)
        raise AssertionError("no room is enough")


STEPS = 1, 1, 2, 3, 40, 1000, 2**13, 2**20, 2**33
"""From an event to those that it causes: in the open bucket, in the next, and on all levels of the wheel."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("width", [0, 3, 10, 30])
def test_events_happen_in_the_order_of_a_heap(width: int, seed: int) -> None:
    draw, calendar = np.random.default_rng(seed), Calendar(width)
    for _ in range(300):
        calendar.put(int(draw.choice(STEPS)) * int(draw.integers(1, 50)))
    for _ in range(MOST_CALLS):
        if not calendar.heap:
            break
        due = calendar.heap[0][0]
        if draw.random() < 0.3:  # a pause before it: the present stays before it, too
            assert calendar.advance(due - 1) == PAUSED
        assert calendar.advance(due + int(draw.choice([0, 10**9]))) == FINISHED
        assert calendar.now == due
        expected = []
        while calendar.heap and calendar.heap[0][0] == due:
            expected.append(heappop(calendar.heap)[1:])
        taken, events = calendar.take()
        assert sorted(taken) == expected
        for event in events[: max(0, 1500 - calendar.keys)]:
            calendar.put(due + int(draw.choice(STEPS)), event)
            if draw.random() < 0.3:
                calendar.put(due + int(draw.choice(STEPS)) * int(draw.integers(1, 5)))
    assert calendar.keys > 1000 and calendar.advance(2**61) == STUCK


@pytest.mark.parametrize("count", [2, 32, 33, 64, 65, 512, 513, 1500])
def test_a_bucket_of_any_size_is_opened(count: int) -> None:
    """There is room to sort for 64 at first."""
    calendar = Calendar(12)
    for offset in np.random.default_rng(count).integers(2**11, size=count).tolist():
        calendar.put(2**13 + 5 + offset)
    calendar.drain()


def test_what_moves_down_gets_room() -> None:
    """From one slot of a higher level to more slots below it than there are blocks."""
    calendar = Calendar(3)
    assert calendar.state.run["blocks"] == 16
    for one in np.random.default_rng(0).permutation(100).tolist():
        calendar.put((5 << 3 + DIGIT) + (one << 3))
    assert calendar.state.run["blocks"] == 12
    calendar.drain()


def test_what_has_happened_leaves_its_room() -> None:
    """However many events follow each other in buckets of their own, they need a block for each time and no more."""
    calendar = Calendar(0)
    room = calendar.state.next_block.size
    calendar.put(1)
    for time in range(1, 50 * BLOCK):
        assert calendar.advance(2**61) == FINISHED
        calendar.take()
        calendar.put(time + 1)
    assert calendar.state.next_block.size == room and calendar.state.run["blocks"] >= room - 2


@pytest.mark.parametrize("most", [1, 2, 255, 256, 2**16 - 1, 2**16, 2**30 - 1])
@pytest.mark.parametrize("least", [0, 5])
@pytest.mark.parametrize("count", [33, 100, 1000])
def test_words_are_sorted_by_their_offsets(count: int, least: int, most: int) -> None:
    """Up to any difference, and where two offsets differ in one bit alone."""
    offset = least + np.random.default_rng(count).integers(most + 1, size=count)
    offset[:2] = least + most, least
    words = np.random.default_rng(1).permutation((offset << 32) | np.arange(count))
    expected = words[np.argsort(words >> 32, kind="stable")]
    state = initial_state(PROGRAM, False)
    state = state._replace(order=words.copy(), other=np.zeros(count, np.int64))
    _calendar._radix(state, count, np.int64(least), np.int64(least + most))
    np.testing.assert_array_equal(state.order, expected)
    state.order[:] = words
    _calendar._spread(state, count, np.int64(least), np.int64(least + most))
    digit = (state.other >> 32) - least >> max((most | 1).bit_length() - 8, 0)
    assert np.all(np.diff(digit) >= 0)
    _calendar._insert(state.other, state.order, count)
    np.testing.assert_array_equal(state.order, expected)


def test_few_words_are_sorted() -> None:
    draw = np.random.default_rng(0)
    for count in range(12):
        words: I64 = draw.integers(5, size=count) << 32 | draw.permutation(count)
        expected = words[np.argsort(words >> 32, kind="stable")]
        _calendar._insert(words, words, count)
        np.testing.assert_array_equal(words, expected)


def test_what_is_open_is_counted() -> None:
    """Events of the open bucket that come late get blocks of their own, which go back when the next bucket opens."""
    calendar = Calendar(20)
    calendar.put(1)
    heappop(calendar.heap)
    assert calendar.advance(2**61) == FINISHED
    calendar.take()
    free = int(calendar.state.run["blocks"])
    for time in range(2 * BLOCK):
        calendar.put(2 + time)
    assert calendar.state.slots["count"][OPEN] == 2 * BLOCK + 1
    calendar.put(2**21)
    while calendar.heap[0][0] < 2**21:
        heappop(calendar.heap)
        calendar.advance(2**61)
        calendar.take()
    assert calendar.advance(2**61) == FINISHED and calendar.now == 2**21
    assert calendar.state.run["blocks"] == free
