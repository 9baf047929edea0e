"""Walks back in time that meet: what paths have in common is walked once, and each path is a list of stretches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

State = int | tuple[int, int]
"""Where a walk is: a row of the log or journal (the start of that service), or the delivery of a (task, chunk)."""


class Piece(NamedTuple):
    """A stretch of the critical path: [start, end) ps, its name, and the task and server it was spent on (-1: none)."""

    start_ps: int
    end_ps: int
    name: str
    task: int
    server: int


@dataclass(eq=False)
class Branch:
    """Pieces from late to early, as far as requested, and where they continue."""

    # not walked on from yet; None at the beginning of time, and where the branch has met another one
    state: State | None
    pieces: list[Piece] = field(default_factory=list)
    meets: tuple[Branch, int] | None = None  # the other branch, and its first piece from there on

    def reaches(self, since_ps: int) -> bool:
        """Whether its pieces go back to a time."""
        return bool(self.pieces) and self.pieces[-1].start_ps <= since_ps


class Stretch(NamedTuple):
    """The pieces [begin, end) of a branch."""

    branch: Branch
    begin: int
    end: int


class Walks(ABC):
    """Walks over one run; each state is left once, whichever walk reaches it."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []  # of the branch that is being walked
        self.places: dict[State, tuple[Branch, int]] = {}

    @abstractmethod
    def step(self, state: State) -> State | None:
        """Account from a state back to the one before it, in `pieces`; None at the beginning of time."""

    def stretches(self, state: State | None, since_ps: int) -> list[Stretch]:
        """The path from a state back to a time, from late to early; the last piece may begin before that time."""
        if state is None:
            return []
        found = []
        where: tuple[Branch, int] | None = self.places.get(state, (Branch(state), 0))
        while where is not None:
            branch, begin = where
            self._extend(branch, since_ps)
            end = bisect_left(branch.pieces, -since_ps, lo=begin, key=lambda piece: -piece.start_ps)
            found.append(Stretch(branch, begin, min(end + 1, len(branch.pieces))))
            where = None if branch.reaches(since_ps) else branch.meets
        return found

    def _extend(self, branch: Branch, since_ps: int) -> None:
        """Walk on to a time, or until the branch meets another one."""
        self.pieces = branch.pieces
        while branch.state is not None and not branch.reaches(since_ps):
            state = branch.state
            branch.meets = self.places.get(state)
            if branch.meets is None:
                self.places[state] = branch, len(branch.pieces)
                branch.state = self.step(state)
            else:
                branch.state = None


def clipped(stretches: list[Stretch], since_ps: int) -> tuple[Piece, ...]:
    """The pieces of a path in time order, without what lies before a time."""
    pieces = [piece for branch, begin, end in stretches for piece in branch.pieces[begin:end]]
    cut = (piece._replace(start_ps=since_ps) if piece.start_ps < since_ps else piece for piece in reversed(pieces))
    return tuple(piece for piece in cut if piece.end_ps > piece.start_ps)
