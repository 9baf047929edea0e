"""Do few numbers for each slot say what a table says row by row?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collectives import ALGORITHMS, algorithms_for, build
from collectives.core.emission import Emission
from collectives.core.laid import Laid, NotLaid, unbuilt
from collectives.core.proof import ScheduleError
from collectives.core.transfers import UNBUILT, Transfers, TransferTable
from sim.program.waits import slot_waits
from topologies import WeftError, from_spec

EVERY = np.arange(4)
LAID = ("ring", "bucket", "direct")


@pytest.mark.table
@pytest.mark.parametrize("fabric", ["ring:6", "torus:4x4", "fat-tree:4", "random-regular:10x3x1"])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", ["all-reduce", "all-to-all"])
def test_rows_of_some_ranks_are_those_of_the_table(fabric: str, name: str, kind: str) -> None:
    """Of every algorithm whose transfers are laid out; and who waits for each, one by one."""
    if name not in algorithms_for(kind):
        return
    try:
        pattern = build(name, kind, from_spec(fabric), "64KiB").pattern
    except WeftError:
        return
    found, sources = None, np.arange(pattern.n_sources or pattern.p)
    try:
        with unbuilt() as tables:
            emitted = pattern.emission._emit(sources)
            found = tables[0] if emitted is UNBUILT and len(tables) == 1 else None
    except NotLaid:
        pass
    if found is None:
        assert name not in LAID, "it is laid out where it is large"
        return
    for some in (sources, sources[1::2]):
        table = pattern.emission._emit(some)
        for column, values in found.of(some).items():
            assert np.array_equal(values, getattr(table, column)), column
        assert np.all(table.dep_lag == -1)
    assert_children(found, pattern.emission._emit(sources))


def assert_children(found: Laid, table: Transfers) -> None:
    waits = slot_waits(found.child, found.parent, found.source, found.sources, found.shape[0])
    row_of = {pair: row for row, pair in enumerate(zip(table.src.tolist(), table.slot.tolist(), strict=True))}
    children: list[list[int]] = [[] for _ in row_of]
    for row, (begin, end) in enumerate(zip(table.dep_ptr[:-1].tolist(), table.dep_ptr[1:].tolist(), strict=True)):
        for source, slot in zip(table.dep_src[begin:end].tolist(), table.dep_slot[begin:end].tolist(), strict=True):
            children[row_of[source, slot]].append(row)
    if waits is None:
        assert not any(children)
        return
    ptr, child = waits.columns["whole_ptr"], waits.columns["whole_child"].tolist()
    assert [child[ptr[row] : ptr[row + 1]] for row in range(len(children))] == children


def laid(**changes: object) -> Laid | None:
    """Two slots of four ranks, the second after the first of the rank behind."""
    given = {"slot": np.array([[3], [5]]), "dst": (EVERY + 1) % 4, "after": [((EVERY - 1) % 4, np.array([[-1], [3]]))]}

    def emit(ranks: np.ndarray) -> Transfers:
        def of(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(map(of, value))
            return value[..., ranks] if np.shape(value)[-1:] == (4,) else value

        table = TransferTable(ranks)
        table.add(**{name: of(value) for name, value in {**given, **changes}.items()})
        return table.build()

    try:
        return emission(emit).laid(0)
    except ScheduleError:
        return None


def emission(emit: object) -> Emission:
    pattern = build("ring", "all-gather", from_spec("ring:4"), 64).pattern
    return Emission(emit, pattern.topology, pattern.emission._accepted, "tried")  # type: ignore[arg-type]  # as `emit` is typed for weft's own


def test_what_ranks_do_unlike_has_rows() -> None:
    """As has what waits chunk by chunk, for itself, two for one, for what nobody sends, and what is out of range."""
    assert laid() is not None
    for changes in (
        {"dst": np.where(EVERY == 2, -1, 0)},
        {"step": EVERY},
        {"after": [(EVERY, np.where(EVERY == 1, -1, np.array([[-1], [3]])))]},
        {"after": [(EVERY, np.array([[-1], [4]]))]},
        {"after": [(EVERY, np.array([[5], [-1]]))]},
        {"after": [(EVERY + 1, np.array([[-1], [3]]))]},
        {"after": [(EVERY // 2, np.array([[-1], [3]]))]},
        {"after": [], "stream": [(EVERY, np.array([[-1], [3]]))]},
        {"after": [], "window": [(EVERY, np.array([[-1], [3]]), 2)]},
        {"dst": EVERY + 1},
        {"blocks": -1},
    ):
        assert laid(**changes) is None, changes


def test_a_generator_that_changes_its_mind_has_rows() -> None:
    """What is kept of some sources has to be what all of them are now; or what it did with its table."""
    shift = [1]

    def emit(ranks: np.ndarray) -> Transfers:
        table = TransferTable(ranks)
        table.add(0, (ranks + shift[0]) % 4)
        return table.build()

    one = emission(emit)
    one(EVERY[:2])
    assert one.laid(0) is not None
    shift[0] = 3
    assert one.laid(0) is None
    assert emission(lambda ranks: emit(ranks)._replace(rounds=None)).laid(0) is None


def test_few_and_those_that_are_all_kept_have_rows() -> None:
    """They need not be emitted again."""
    pattern = build("ring", "all-gather", from_spec("ring:5"), 64).pattern
    assert pattern.emission.laid(0) is None
    assert emission(lambda ranks: UNBUILT).laid(0) is None


def test_ports_that_wait_together_by_two_names_have_rows() -> None:
    """So have those that wait for their own step, and ranks that send to themselves; () stands for all steps."""
    found = laid(step=np.array([[0], [1]]))
    assert found is not None
    joined = found.together(())
    assert joined is not None and joined.child.tolist() == found.child.tolist()
    again = found.together((0,))
    assert again is not None and again.parent.tolist() == found.parent.tolist()
    assert laid(step=7).together(()) is None  # type: ignore[union-attr]  # there is one
    assert laid(dst=EVERY).together(()) is None  # type: ignore[union-attr]  # there is one
    before = np.array([[-1], [3]])
    twice = laid(step=np.array([[0], [1]]), after=[(EVERY, before), (np.array([0, 2, 1, 3]), before)])
    assert twice is not None and twice.together(()) is None
