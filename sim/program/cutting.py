"""How a transfer becomes chunks, and how long a server takes for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Annotated

import numpy as np

from sim.program.contract import CLOCK_END_PS, I64
from topologies import WeftError
from topologies.checks import Count, Integer, InUnit, checked
from topologies.units import PS_PER_S, PositiveBytes, parse_size

MOST_WORK = 2**62
"""Of a task, in bytes or ps."""

EXACT_BITS, MOST_FACTOR = 50, 2**60
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


def service_times_ps(work: I64, rates: Sequence[Fraction]) -> I64:
    """Exact service times of chunks at rates, as `service_time_ps` each, (Z, R); beyond the clock they are its end."""
    if work.size * len(rates) <= FEW_TIMES:
        times = [[min(service_time_ps(one, rate), CLOCK_END_PS) for rate in rates] for one in work.tolist()]
        return np.array(times, np.int64).reshape(work.size, len(rates))
    found, reduced = np.empty((work.size, len(rates)), np.int64), [_ps_per_unit(rate) for rate in rates]
    top = int(work.max())
    fits = np.array([max(up, down) <= MOST_FACTOR and top * up < down << EXACT_BITS for up, down in reduced])
    for column in np.flatnonzero(~fits).tolist():
        found[:, column] = [min(service_time_ps(one, rates[column]), CLOCK_END_PS) for one in work.tolist()]
    if fits.any():
        up, down = np.array([pair for pair, fit in zip(reduced, fits, strict=True) if fit], np.int64).T
        for row in range(work.size):
            found[row, fits] = np.clip(_times_ps(work[row], up, down), 1, CLOCK_END_PS)
    return found


def _times_ps(work: np.int64, up: I64, down: I64) -> I64:
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
