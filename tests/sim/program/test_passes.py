"""Do passes over rows find what dictionaries of the same rows say?"""

from __future__ import annotations

import numpy as np
import pytest

from sim.program.passes import children, farthest_child, look_up, mark, rows_of


def table(seed: int) -> tuple[np.ndarray, np.ndarray, dict[tuple[int, int], int]]:
    """Rows by slot and source, some sources in none: the first row of each slot, the sources, and the row of each."""
    draw = np.random.default_rng(seed)
    sources = [np.flatnonzero(draw.random(7) < draw.choice([0.3, 1.0])) for _ in range(5)]
    first = np.concatenate(([0], np.cumsum([one.size for one in sources])))
    keys = [(slot, source) for slot, some in enumerate(sources) for source in some.tolist()]
    return first, np.concatenate(sources).astype(np.int32), {key: row for row, key in enumerate(keys)}


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_found_by_slot_and_source(seed: int) -> None:
    first, src, row_of = table(seed)
    slot, source = (np.array(one, np.int32) for one in zip(*row_of, strict=True))
    found = np.zeros(slot.size, np.int32)
    assert rows_of(first, src, slot, source, found) and found.tolist() == list(row_of.values())
    absent = [(slot, source) for slot in range(-1, 7) for source in range(8) if (slot, source) not in row_of]
    for slot, source in absent:
        assert not rows_of(first, src, np.array([slot], np.int32), np.array([source], np.int32), found[:1])


@pytest.mark.parametrize("seed", range(12))
def test_children_are_parents_turned_round(seed: int) -> None:
    """Each row waits for some earlier ones; where one waits for a later one, or for none that there is, it says so."""
    first, src, row_of = table(seed)
    draw, keys = np.random.default_rng(seed + 100), list(row_of)
    parents = [sorted(draw.choice(row, draw.integers(0, min(row, 3) + 1), replace=False)) if row else []
               for row in range(src.size)]
    ptr = np.concatenate(([0], np.cumsum([*map(len, parents)])))
    named = np.array([keys[one] for some in parents for one in some], np.int32).reshape(-1, 2)
    of_row, child = np.zeros(src.size + 1, np.int32), np.zeros(len(named), np.int32)
    assert children(first, src, ptr, named[:, 0].copy(), named[:, 1].copy(), of_row, child)
    expected = [[row for row, some in enumerate(parents) if parent in some] for parent in range(src.size)]
    assert [part.tolist() for part in np.split(child, of_row[1:-1])] == expected
    far = max((row - parent for row, some in enumerate(parents) for parent in some), default=0)
    assert farthest_child(of_row, child) == far
    for wrong in (keys[-1], (9, 0)):  # itself, and none
        last = np.array([wrong], np.int32)
        ptr = np.array([0] * src.size + [1])
        again = np.zeros(src.size + 1, np.int32)
        assert not children(first, src, ptr, last[:, 0].copy(), last[:, 1].copy(), again, np.zeros(1, np.int32))


def test_a_child_that_is_not_behind_its_parent_is_told() -> None:
    assert farthest_child(np.array([0, 1, 1], np.int32), np.array([0], np.int32)) == -1


def test_values_are_numbered_from_the_lowest() -> None:
    values = np.array([7, -2, 7, 3], np.int64)
    there, found = np.zeros(10, np.bool_), np.zeros(4, np.int32)
    mark(there, values, -2)
    assert np.flatnonzero(there).tolist() == [0, 5, 9]
    look_up(np.cumsum(there, dtype=np.int32) - 1, values, -2, found)
    assert found.tolist() == [2, 0, 2, 1]
