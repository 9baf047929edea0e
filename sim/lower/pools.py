"""Who takes and gives back the units of pools: those of a schedule alone, and those that operations of a job share."""

import numpy as np
import numpy.typing as npt

from collectives.core.pattern import Pattern
from collectives.core.transfers import Pool
from sim.lower.shape import Shape
from sim.program import DISCIPLINES, I32, I64, NO_POOLS, PER_TASK, Pools
from topologies import WeftError
from topologies.core.paths import distinct_of


def pools_alone(pattern: Pattern, shape: Shape) -> Pools:
    """The pools of every source, and who uses them; joins take and give, so that no task is a half."""
    transfers = shape.quotient.transfers
    assert transfers.pool is not None
    n_pools = len(pattern.pools)
    owners, owner = np.unique(shape.task_src, return_inverse=True)
    uses = []
    for column in (0, 1):
        key = transfers.pool[shape.task_row, column]
        tasks = np.flatnonzero(key >= 0)
        pool = owner[tasks] * n_pools + key[tasks]
        uses.append(_one_each(tasks, pool))
    return Pools(
        [pool.capacity for pool in pattern.pools] * owners.size,
        [DISCIPLINES.index(pool.discipline) for pool in pattern.pools] * owners.size,
        *uses,
    )


def _one_each(task: I64, pool: I64) -> I64:
    """Rows of `Pools`: a unit of a pool for each task."""
    return np.stack([task, pool, np.ones_like(task), np.full_like(task, PER_TASK)], axis=1)


class PoolUses:
    """Collects the uses of pools, operation by operation: pools of one name on one NPU are one pool."""

    def __init__(self) -> None:
        self.first: list[int] = []  # task of each use of a shape
        self.uses: list[tuple[I64, I64]] = []  # asks, gives: task, rank and pool in one number, place in line
        self.limits: dict[str, Pool] = {}
        self._of_shape: dict[tuple[Shape, tuple[Pool, ...]], tuple[I64, I64]] = {}

    def add(self, operation: str, pools: tuple[Pool, ...], shape: Shape, first: int) -> None:
        """The uses of an operation, whose tasks begin at `first`.

        WeftError: an earlier operation has another pool of that name.
        """
        if shape.quotient.transfers.pool is None:
            return
        if (known := (shape, pools)) not in self._of_shape:
            self._of_shape[known] = self._uses(operation, pools, shape, shape.quotient.transfers.pool[shape.task_row])
        self.first.append(first)
        self.uses.append(self._of_shape[known])

    def _uses(self, operation: str, pools: tuple[Pool, ...], shape: Shape, pool_of: I32) -> tuple[I64, I64]:
        for pool in pools:
            before = self.limits.setdefault(pool.name, pool)
            if before[:2] != pool[:2]:
                raise WeftError(
                    f"operation {operation!r} has a pool of {pool.capacity} ({pool.discipline}) for {pool.name}, "
                    f"an earlier one {before.capacity} ({before.discipline}): operations, of all tenants too, share "
                    "the windows of their NPUs: give all the same active_chunks and service"
                )
        names = list(self.limits)
        number = np.array([names.index(pool.name) for pool in pools], np.int64)
        tasks = [np.flatnonzero(key >= 0) for key in pool_of[:, :2].T]
        asks, gives = (
            np.stack([some, shape.task_src[some].astype(np.int64) << 32 | number[key[some]], pool_of[some, 2]])
            for some, key in zip(tasks, pool_of[:, :2].T, strict=True)
        )
        return asks, gives

    def _all(self, at: int) -> I64:
        """All asks, or all gives."""
        some = [uses[at] for uses in self.uses]
        found = np.concatenate(some, axis=1)
        found[0] += np.repeat(self.first, [one.shape[1] for one in some])
        return found

    def build(self, priority: npt.NDArray[np.integer]) -> tuple[Pools, npt.NDArray[np.integer]]:
        """Pools, and priorities in which the place in a pool's line comes after the priority of the operation."""
        if not self.limits:
            return NO_POOLS, priority
        asks, gives = self._all(0), self._all(1)
        ids, pool = np.unique(np.concatenate([asks[1], gives[1]]), return_inverse=True)
        limits = list(self.limits.values())
        mine = [limits[number] for number in (ids & 0xFFFFFFFF).tolist()]
        by_size = np.array([limit.discipline == "priority" for limit in mine])[pool[: asks.shape[1]]]
        place = np.where(by_size, asks[2], 0)
        span = int(place.max(initial=0)) + 1
        ordered = span > 1 or distinct_of(priority).size > 1
        if (int(np.abs(priority).max(initial=0)) + 1) * span >= 2**31:
            raise WeftError(f"priorities up to {np.abs(priority).max()} are too far apart for pools of {span} sizes")
        merged = priority.copy()
        merged[asks[0]] = priority[asks[0]] * span + place
        uses = np.split(pool, [asks.shape[1]])
        ask, give = (_one_each(rows[0], use) for rows, use in zip((asks, gives), uses, strict=True))
        discipline = DISCIPLINES.index("priority" if ordered else "fifo")
        return Pools([limit.capacity for limit in mine], [discipline] * len(mine), ask, give), merged
