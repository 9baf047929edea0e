"""How a transfer becomes chunks, and how long a server takes for one."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import Annotated

import numpy as np

from sim.program.contract import CLOCK_END_PS, I64
from topologies.checks import Count, Integer, InUnit, WeftError, checked
from topologies.units import PS_PER_S, PositiveBytes, parse_size

MOST_WORK = 2**62
"""Of a task, in bytes or ps."""

MOST_EXACT, MOST_FACTOR = 2**49, 2**60
"""A quotient of floats below 2^50 is one off at most; what is left then of a division by so much fits a word."""

FEW_TIMES = 256
"""Service times that are computed one by one in less time than arrays take."""

Bytes = Annotated[int, InUnit(Integer(0, MOST_WORK - 1), parse_size, "40B")]


@checked
@dataclass(frozen=True)
class Cutting:
    """How a transfer is cut into chunks; give `chunks` or `chunk_bytes`, not both.

    `chunks` cuts evenly: sizes differ by at most one byte, and a transfer of fewer bytes than chunks has one
    chunk per byte. `chunk_bytes` cuts full chunks and a remainder, after `header_bytes` are added to the transfer.
    `packet_header_bytes` are added to every chunk. A transfer of zero bytes is one chunk.
    """

    chunks: Count | None = 1
    chunk_bytes: PositiveBytes | None = None
    header_bytes: Bytes = 0
    packet_header_bytes: Bytes = 0

    def __post_init__(self) -> None:
        if (self.chunks is None) == (self.chunk_bytes is None):
            raise WeftError("cutting needs either a number of chunks or a chunk size, and not both")

    def cut(self, work: int) -> tuple[int, int, int, int]:
        """Cut `work` bytes: (chunks, how many lead, size of those, size of the rest)."""
        work += self.header_bytes
        if self.chunk_bytes is None:
            assert self.chunks is not None
            count = min(self.chunks, max(work, 1))
            small, larger = divmod(work, count)
            leading, first, rest = (larger, small + 1, small) if larger else (count, small, small)
        else:
            count = max(1, -(-work // self.chunk_bytes))
            first, rest = self.chunk_bytes, work - (count - 1) * self.chunk_bytes
            leading = count - 1
            if rest == first or leading == 0:
                leading, first = count, rest
        if work + count * self.packet_header_bytes >= MOST_WORK:
            raise WeftError(f"a transfer of {work} bytes and headers of its {count} chunks are more than 2^62 bytes")
        if count >= 2**31:
            raise WeftError(f"a transfer of {work} bytes would be cut into {count} chunks; at most 2147483647")
        return count, leading, first + self.packet_header_bytes, rest + self.packet_header_bytes


def service_time_ps(work: int, rate_per_s: Fraction) -> int:
    """Exact service time rounded up to a whole picosecond, at least one."""
    return max(1, -(-work * PS_PER_S * rate_per_s.denominator // rate_per_s.numerator))


class Rates:
    """Rates at which many service times are computed; `service_time_ps` has them one by one.

    Examples
    --------
    >>> Rates([Fraction(10**12), Fraction(3)]).times_ps(np.array([[6], [7]]), np.array([0, 1])).tolist()
    [[6, 2000000000000], [7, 2333333333334]]
    """

    def __init__(self, per_s: Sequence[Fraction]) -> None:
        self.per_s = per_s

    def times_ps(self, work: I64, rate: I64) -> I64:
        """Service times of chunks at some of the rates, as arrays that broadcast; beyond the clock they are its end."""
        if work.size * rate.size <= FEW_TIMES:
            return self._one_by_one(work, rate)
        up, down, most_work = (column[rate] for column in self._words)
        beyond = work > most_work
        found: I64 = np.clip(_times_ps(np.where(beyond, 0, work), up, down), 1, CLOCK_END_PS)
        if beyond.any():
            work, rate = np.broadcast_arrays(work, rate)
            found[beyond] = self._one_by_one(work[beyond], rate[beyond])
        return found

    def _one_by_one(self, work: I64, rate: I64) -> I64:
        pairs = np.broadcast(work, rate)
        times = [min(service_time_ps(int(one), self.per_s[at]), CLOCK_END_PS) for one, at in pairs]
        return np.array(times, np.int64).reshape(pairs.shape)

    @cached_property
    def _words(self) -> tuple[I64, I64, I64]:
        """Picoseconds of a unit of work as a fraction in words, and the most work that is computed with it."""
        pairs = [_ps_per_unit(rate) for rate in self.per_s]
        fits = np.array([max(pair) <= MOST_FACTOR for pair in pairs], np.bool_)
        words = [pair if fit else (1, 1) for pair, fit in zip(pairs, fits, strict=True)]
        up, down = np.array(words, np.int64).reshape(-1, 2).T
        most = np.minimum(MOST_EXACT * (down / up), float(CLOCK_END_PS)).astype(np.int64)
        return up, down, np.where(fits, most, -1)


def _times_ps(work: I64, up: I64, down: I64) -> I64:
    """`work * up / down`, rounded up, of quotients below 2^50.

    That of floats is one off at most; what it leaves is small, so that the products may wrap around meanwhile.
    """
    times = np.floor(work * (up / down)).astype(np.int64)
    left = work * up - times * down
    rounded: I64 = times + (left > 0) + (left > down) - (left <= -down)
    return rounded


def _ps_per_unit(rate: Fraction) -> tuple[int, int]:
    """Picoseconds of a unit of work, as a reduced fraction."""
    up, down = PS_PER_S * rate.denominator, rate.numerator
    common = gcd(up, down)
    return up // common, down // common
