"""One training iteration from the servers' view: operations, traffic between them, and non-blocking all-reduces."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topologies import WeftError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AllReduce:
    """Gradients that a group of servers adds up; begins on each server when its operation ends there."""

    size_bytes: int
    group: tuple[int, ...] | None = None  # servers in the order of the ring +1; None for all


@dataclass(frozen=True, eq=False)
class Flows:
    """What an operation gives another: (n,) transfers."""

    producer: int  # the operation at the sources
    src: Ints  # (n,)
    dst: Ints  # (n,)
    size_bytes: Ints  # (n,)


@dataclass(frozen=True, eq=False)
class Op:
    """A computation on some servers.

    It begins on a server when the operations before it have ended there, and what flows to it there has arrived.
    """

    name: str
    duration_ps: int
    servers: tuple[int, ...] | None = None  # None for all
    after: tuple[int, ...] = ()  # earlier operations
    receives: tuple[Flows, ...] = ()
    all_reduces: tuple[AllReduce, ...] = ()


@dataclass(frozen=True, eq=False)
class Iteration:
    """Operations of one iteration, in an order that respects what they wait for; no optimizer step."""

    name: str
    n: int  # servers
    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        for number, op in enumerate(self.ops):
            for other in (*op.after, *(flows.producer for flows in op.receives)):
                if not 0 <= other < number:
                    raise WeftError(f"{self.name}: operation {op.name} waits for {other}, which is not an earlier one")
            for server in op.servers or ():
                if not 0 <= server < self.n:
                    raise WeftError(f"{self.name}: operation {op.name} is on server {server} of {self.n}")

    def servers(self, op: Op) -> tuple[int, ...]:
        """Where an operation runs."""
        return tuple(range(self.n)) if op.servers is None else op.servers

    def compute_ps(self) -> int:
        """Computation of the busiest server."""
        busy = np.zeros(self.n, np.int64)
        for op in self.ops:
            busy[list(self.servers(op))] += op.duration_ps
        return int(busy.max(initial=0))

    def all_reduce_bytes(self) -> dict[tuple[int, ...], int]:
        """Bytes that each group adds up."""
        total: Counter[tuple[int, ...]] = Counter()
        for op in self.ops:
            for one in op.all_reduces:
                total[one.group or tuple(range(self.n))] += one.size_bytes
        return dict(total)

    def flow_bytes(self) -> npt.NDArray[np.float64]:
        """Bytes between every two servers, all-reduces left out, (n, n)."""
        demand = np.zeros((self.n, self.n))
        for op in self.ops:
            for flows in op.receives:
                np.add.at(demand, (flows.src, flows.dst), flows.size_bytes)
        np.fill_diagonal(demand, 0.0)
        return demand

    def is_uniform(self) -> bool:
        """Whether every server does the same, and only all-reduces join them."""
        return all(
            op.servers is None and not op.receives and all(one.group is None for one in op.all_reduces)
            for op in self.ops
        )


def chain(name: str, n: int, ops: list[Op]) -> Iteration:
    """An iteration in which each operation waits for the one before it."""
    linked = [
        Op(op.name, op.duration_ps, op.servers, (at - 1,) if at else (), op.receives, op.all_reduces)
        for at, op in enumerate(ops)
    ]
    return Iteration(name, n, tuple(linked))
