"""Where the time of each tenant of a fabric went: the critical paths of all, what they have in common walked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.program import I64
from sim.result import Result
from sim.run.share import Share
from sim.why.faulty_path import walk_of
from sim.why.names import Names
from sim.why.path import Wait
from sim.why.walks import Branch, Piece, Stretch
from topologies.garbage import few_searches

NOBODY = -1
"""Owner of the arrivals, and of what faults delay: they have one name for all tenants."""


class _Columns(NamedTuple):
    """Pieces of a branch: number of the name, start and end, each (n,) int64."""

    key: I64
    start_ps: I64
    end_ps: I64


@few_searches()
def tenant_accounts(run: Result, shares: Sequence[Share]) -> dict[str, dict[str, int]]:
    """The account of each tenant; see `Shares.why`.

    `run`: of all tenants as one job.
    """
    return _Accounts(run, shares).all()


class _Accounts:
    """Names and paths of one run."""

    def __init__(self, run: Result, shares: Sequence[Share]) -> None:
        self.run, self.shares, lowered = run, shares, run.lowered
        owner = np.full(len(run.job.operations), NOBODY, np.int64)
        for number, share in enumerate(shares):
            owner[share.operations] = number
        self.task_owner = owner[lowered.task_operation]
        self.names = Names(lowered)
        self.keys: dict[tuple[int, str], int] = {}
        self.columns: dict[Branch, _Columns] = {}

    def all(self) -> dict[str, dict[str, int]]:
        """Accounts by name, in the order of the tenants."""
        paths = self._paths()
        for path in paths.values():
            for stretch in path:
                if stretch.branch not in self.columns:
                    self.columns[stretch.branch] = self._columns(stretch.branch.pieces)
        return {share.name: self._account(number, paths.get(number, [])) for number, share in enumerate(self.shares)}

    def _paths(self) -> dict[int, list[Stretch]]:
        """Paths of the tenants that took time, by number; the longest first, which the others meet."""
        walk = walk_of(self.run.lowered.program, self.run.logged, self.names.labels)
        last = _last_tasks(self.task_owner, self.run.logged.finish_ps[: self.task_owner.size], len(self.shares))
        late = sorted(
            (share.arrival_ps + share.time_ps, number) for number, share in enumerate(self.shares) if share.time_ps
        )
        return {
            number: walk.back_from(Wait(int(last[number]), self.shares[number].arrival_ps, delivered=True))
            for _, number in reversed(late)
        }

    def _columns(self, pieces: Sequence[Piece]) -> _Columns:
        rows = [(self._key(piece), piece.start_ps, piece.end_ps) for piece in pieces]
        return _Columns(*np.array(rows, np.int64).reshape(-1, 3).T)

    def _key(self, piece: Piece) -> int:
        """Number of the owner and the name of a piece."""
        owner = NOBODY if piece.server in self.run.lowered.late else int(self.task_owner[piece.task])
        said = self.names.name(piece, "operation" if owner == NOBODY else "dimension")
        return self.keys.setdefault((owner, said), len(self.keys))

    def _account(self, number: int, path: Sequence[Stretch]) -> dict[str, int]:
        since_ps = self.shares[number].arrival_ps
        total = np.zeros(len(self.keys), np.int64)
        for branch, begin, end in path:
            key, start, stop = (column[begin:end] for column in self.columns[branch])
            np.add.at(total, key, np.maximum(stop - np.maximum(start, since_ps), 0))
        parts: dict[str, int] = {}
        for (owner, said), time in sorted(zip(self.keys, total.tolist(), strict=True)):
            if time:
                name = said if owner in (NOBODY, number) else f"behind {self.shares[owner].name}: {said}"
                parts[name] = parts.get(name, 0) + time
        return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _last_tasks(owner: I64, finish_ps: I64, n_owners: int) -> I64:
    """The first of the tasks of each owner that end last, (n_owners,); 0 where it has none."""
    order = np.lexsort((-np.arange(owner.size), finish_ps))
    order = order[owner[order] != NOBODY]
    last = np.zeros(n_owners, np.int64)
    last[owner[order]] = order  # of several, the last one stays
    return last
