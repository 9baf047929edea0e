"""Walks that meet: the same paths as one by one, and no state is left twice."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.why.walks import Piece, State, Walks, clipped


class Forest(Walks):
    """State k was reached at `time[k]` ps, from state `before[k]` with `gaps[k]` pieces in between."""

    def __init__(self, before: list[int], lengths: list[list[int]]) -> None:
        super().__init__()
        self.before, self.lengths, self.left = before, lengths, list[State]()
        self.time: list[int] = []
        for one, pieces in zip(before, lengths, strict=True):
            self.time.append((self.time[one] if one >= 0 else 0) + sum(pieces))

    def step(self, state: State) -> State | None:
        assert isinstance(state, int)
        self.left.append(state)
        time = self.time[state]
        for length in self.lengths[state]:
            self.pieces.append(Piece(time - length, time, f"to {state}", -1, -1))
            time -= length
        return self.before[state] if self.before[state] >= 0 else None


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    size = draw(st.integers(1, 12))
    before = [draw(st.integers(-1, one - 1)) for one in range(size)]
    return Forest(before, [draw(st.lists(st.integers(0, 3), max_size=2)) for _ in range(size)])


@settings(max_examples=60, deadline=None)
@given(forests(), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 20)), max_size=6))
def test_paths_that_meet_are_the_paths_one_by_one(forest: Forest, asked: list[tuple[int, int]]) -> None:
    for wish, since in asked:
        state = min(wish, len(forest.before) - 1)
        alone = Forest(forest.before, forest.lengths)
        path = clipped(forest.stretches(state, since), since)
        assert path == clipped(alone.stretches(state, since), since)
        assert sum(piece.end_ps - piece.start_ps for piece in path) == max(forest.time[state] - since, 0)
        assert all(one.end_ps == other.start_ps for one, other in pairwise(path))
    assert len(forest.left) == len(set(forest.left))
    assert forest.stretches(None, 0) == []
