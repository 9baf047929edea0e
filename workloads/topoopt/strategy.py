"""Parallelization strategies: the servers of each operator, and the resulting traffic.

An operator runs on k of the n servers, which are n/k apart; each takes an equal part of the batch and a copy of the
parameters. On all servers that is data parallelism; on one, model parallelism, as for an embedding table.
"""

from functools import cache, lru_cache, partial
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from workloads.topoopt.carriage import PAIRS, Carriage, Ints, Iteration
from workloads.topoopt.models import OperatorModel


class Placement(NamedTuple):
    """Servers `first + i n/k` for i below k."""

    k: int
    first: int


Strategy = tuple[Placement, ...]
"""One placement an operator."""

Shares = npt.NDArray[np.float64]
"""Of each server, (n,)."""


@cache
def servers_of(placement: Placement, n: int) -> tuple[int, ...]:
    """Servers of a placement, in the order of the batch.

    WeftError: a number of servers that does not divide n, or a first one that is out of range.
    """
    k = placement.k
    if k < 1 or n % k or not 0 <= placement.first < n // k:
        raise WeftError(f"placement on {placement.k} servers from {placement.first}: k divides {n}, first is below n/k")
    return tuple(placement.first + n // k * i for i in range(k))


def data_parallel(model: OperatorModel) -> Strategy:
    """Every operator on all servers, except embedding tables: one server each, in turn."""
    tables = 0
    placements = []
    for operator in model.operators:
        if operator.table:
            placements.append(Placement(1, tables % model.n))
            tables += 1
        else:
            placements.append(Placement(model.n, 0))
    return tuple(placements)


def legal_sizes(n: int) -> list[int]:
    """Numbers of servers that the search tries: all, a half, a quarter, an eighth, one."""
    return sorted({n, *(n // part for part in (2, 4, 8) if n % part == 0), 1}, reverse=True)


def iteration_of(model: OperatorModel, strategy: Strategy) -> Iteration:
    """The iteration that a strategy makes of a model: forward, then backward with all-reduces."""
    if len(strategy) != len(model.operators):
        raise WeftError(f"{model.name} has {len(model.operators)} operators; the strategy places {len(strategy)}")
    return Iteration(f"{model.name}-{model.n}", model.n, partial(_add, model, strategy))


def _add(model: OperatorModel, strategy: Strategy, to: Carriage) -> None:
    n, operators = model.n, model.operators
    at = [servers_of(placement, n) for placement in strategy]
    some = [None if len(servers) == n else servers for servers in at]
    consumers: list[list[int]] = [[] for _ in operators]
    forward: list[int] = []
    for number, operator in enumerate(operators):
        name, waits = f"forward {operator.name}", list[int]()
        for source in operator.inputs:
            consumers[source].append(number)
            ends = _between(strategy[source], strategy[number], n, operators[source].output_bytes)
            waits += to.messages(name, *ends, forward[source])
        forward.append(to.compute(name, _time_ps(operator.forward_ms, len(at[number])), some[number], waits))
    backward: dict[int, int] = {}
    for number in reversed(range(len(operators))):
        operator = operators[number]
        name, waits = f"backward {operator.name}", list[int]()
        for user in consumers[number]:
            ends = _between(strategy[user], strategy[number], n, operator.output_bytes)
            waits += to.messages(name, *ends, backward[user])
        backward[number] = to.compute(
            name, _time_ps(operator.backward_ms, len(at[number])), some[number], waits or [forward[number]]
        )
        to.gradients(name, operator.parameter_bytes, backward[number], some[number])


def _time_ps(server_ms: float, k: int) -> int:
    return round(server_ms / k * 1e9)


@lru_cache(PAIRS)
def _between(source: Placement, target: Placement, n: int, size_bytes: int) -> tuple[Ints, Ints, Ints]:
    """Equal parts of the batch, each from the server that has it to the one that takes it: ends and bytes."""
    parts = lcm(source.k, target.k)
    src, dst = (np.repeat(np.array(servers_of(one, n), np.int64), parts // one.k) for one in (source, target))
    return src, dst, np.full(parts, -(-size_bytes // parts), np.int64)


class Load:
    """What a strategy gives each server to do, as a bound of its time that needs no run."""

    def __init__(self, model: OperatorModel) -> None:
        self.model = model
        used = {source for one in model.operators for source in one.inputs}
        self._last = [at for at in range(len(model.operators)) if at not in used]

    def compute_ps(self) -> float:
        """All computations, shared out evenly: no strategy takes less."""
        return 1e9 * sum(one.forward_ms + one.backward_ms for one in self.model.operators) / self.model.n

    def least_ps(self, strategy: Strategy, rate_Bps: float) -> float:
        """No iteration is faster where a server sends, and receives, `rate_Bps`.

        It computes and moves its bytes; what waits for each other is one after the other, there and back, with the
        gradients of each operation behind; and none moves before all is forward.
        """
        n, operators, ms_per_byte = self.model.n, self.model.operators, 1e3 / rate_Bps
        busy_ms, sent, reduced = np.zeros((3, n))
        there_ms, back_ms = [0.0] * len(operators), [0.0] * len(operators)
        moved_ms: dict[tuple[int, int], float] = {}
        for at, (operator, (k, first)) in enumerate(zip(operators, strategy, strict=True)):
            busy_ms[first :: n // k] += (operator.forward_ms + operator.backward_ms) / k
            reduced[first :: n // k] += 2 * (k - 1) / k * operator.parameter_bytes
            for source in operator.inputs:
                if strategy[source] != strategy[at]:
                    out, into, most = _moved(strategy[source], strategy[at], n)
                    size = operators[source].output_bytes
                    sent += size * (out + into)  # activations there, gradients back
                    moved_ms[source, at] = size * most * ms_per_byte
                there_ms[at] = max(there_ms[at], there_ms[source] + moved_ms.get((source, at), 0.0))
            there_ms[at] += operator.forward_ms / k
        last_ms = 0.0
        for at in reversed(range(len(operators))):
            operator, k = operators[at], strategy[at].k
            back_ms[at] = max(back_ms[at], there_ms[at]) + operator.backward_ms / k
            last_ms = max(last_ms, back_ms[at] + 2 * (k - 1) / k * operator.parameter_bytes * ms_per_byte)
            for source in operator.inputs:
                back_ms[source] = max(back_ms[source], back_ms[at] + moved_ms.get((source, at), 0.0))
        most_ms = max(busy_ms.max(), last_ms, (sent + reduced).max() * ms_per_byte,
                      min(there_ms[at] for at in self._last) + reduced.max() * ms_per_byte)
        return float(most_ms) * 1e9


@lru_cache(4 * PAIRS)
def _moved(source: Placement, target: Placement, n: int) -> tuple[Shares, Shares, float]:
    """Parts of the bytes that each server sends to others and receives from them, and the largest part."""
    ends = _between(source, target, n, 1)[:2]
    moves = np.not_equal(*ends)
    out, into = (np.bincount(end[moves], minlength=n) / moves.size for end in ends)
    return out, into, float(max(out.max(), into.max()))
