"""Rows of named words, in kernels that are compiled and in Python."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sim.engine.compile import door
from sim.engine.compile.door import by_pointer, entry, helper
from sim.engine.compile.rows import Half, Row, Rows, Word, row, rows
from sim.engine.core.state import Node, Return
from sim.engine.setup import _longer
from sim.program import I32, I64


class Link(Row):
    """Two half-words, and a word."""

    after: Half
    before: Half
    key: Word


class Shown(Row):
    """The same memory with other names, whose words are at the same places: the optimizer takes others apart."""

    first: Half
    last: Half
    second: Word


class Clock(Row):
    """A row that stands alone."""

    now_ps: Word
    ticks: Half
    spare: Half


@by_pointer
class State(NamedTuple):
    clock: Rows[Clock]
    links: Rows[Link]
    shown: Rows[Shown]
    plain: I64
    few: I32


def state() -> State:
    memory = np.zeros(8, np.int64)
    return State(
        row(Clock, np.zeros(2, np.int64)), rows(Link, memory), rows(Shown, memory), np.arange(5),
        np.arange(5, dtype=np.int32),
    )


def same(one: State, other: State) -> bool:
    return all(np.array_equal(mine, its) for mine, its in zip(one, other, strict=True))


@helper
def _push(link, key):
    link.key += key
    return link


@helper
def _tick(state, by):
    clock = state.clock
    clock.now_ps += by
    clock.ticks += 1
    return clock.now_ps


def work(state: Any, at: int, key: int) -> tuple[int, ...]:
    link = state.links[at]
    link.after, link.before = at + 1, -at
    state.links[at].key = key
    link.after += 3
    pushed = _push(state.links[at + 1], key)
    shown = state.shown[at].first
    state.shown[at].second -= 1
    state.plain[at] += state.links[at].after
    state.few[at] = link.before
    big = (state.links[at].after << 40) + (state.few[at] << np.int64(40))
    return link.after, link.before, link.key, pushed.key, shown, _tick(state, key), state.clock.ticks, big


compiled = entry(work)


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("key", [0, 1, -5, 2**61, -(2**40)])
def test_kernels_and_python_agree(monkeypatch: pytest.MonkeyPatch, at: int, key: int) -> None:
    """Reading, writing and changing words and half-words, of rows that stand alone, are handed on, or share memory."""
    one, other = state(), state()
    given = np.int64(at), np.int64(key)
    seen = compiled(one, *given), compiled(one, *given)
    for name in ("_push", "_tick"):
        monkeypatch.setitem(globals(), name, getattr(globals()[name], "py_func", globals()[name]))
    assert (work(other, *given), work(other, *given)) == seen
    assert same(one, other)
    assert seen[0][:5] == (at + 4, -at, key - 1, key, at + 4)
    assert one.links["key"].tolist()[at : at + 2] == [key - 1, 2 * key]
    assert one.clock["now_ps"] == 2 * key and one.clock["ticks"] == 2


def test_columns_are_views() -> None:
    """In Python a word of all rows is an array of numpy, and to write to it writes to the rows."""
    one = state()
    one.links["before"] = [1, 2, 3, -4]
    one.links["after"][1:] += 5
    one.clock["ticks"] = 7
    assert type(one.links["key"]) is np.ndarray
    assert [int(one.links[at].before) for at in range(4)] == [1, 2, 3, -4]
    assert one.shown["first"].tolist() == [0, 5, 5, 5] and one.shown["last"].tolist() == [1, 2, 3, -4]
    assert one.clock.ticks == 7 and isinstance(one.clock.ticks, np.int64)


def test_memory_that_two_layouts_share_has_words_at_the_same_places() -> None:
    """What a kernel stores as a node and reads as a return of room is one word for the optimizer, too."""
    node, back = Node.words, Return.words
    assert node.itemsize == back.itemsize
    assert [node.fields[word] for word in node.names] == [back.fields[word] for word in back.names]


def test_what_makes_the_code_makes_it_anew() -> None:
    """A kernel in the cache is of the flags, helpers and code generator that there are now."""
    folder = Path(door.__file__).parent
    assert set(folder.glob("*.py")) <= set(door._SOURCES)


def test_there_is_no_other_word() -> None:
    one = state()
    for at in (one.clock, one.links[0]):
        with pytest.raises((AttributeError, KeyError)):
            at.late = at.early


@pytest.mark.parametrize("make", [
    lambda: rows(Link, 3), lambda: rows(Link, np.zeros(8, np.int64)), lambda: rows(Shown, rows(Link, 3)),
    lambda: row(Clock), lambda: row(Clock, np.zeros(2, np.int64)), lambda: rows(Link, _longer(rows(Link, 3), 2)),
])
def test_rows_go_when_nobody_has_them_any_more(make: Callable[[], Rows[Any]]) -> None:
    """Python's collector does not see arrays: rows that their own columns keep would stay for ever."""
    made = make()
    assert made.columns
    kept = weakref.ref(made)
    del made
    assert kept() is None
