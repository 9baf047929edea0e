"""How a transfer becomes chunks, and how long a server takes for one."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from topologies import WeftError
from topologies.checks import Count, Integer, InUnit, checked
from topologies.units import PS_PER_S, PositiveBytes, parse_size

MOST_WORK = 2**62
"""Of a task, in bytes or ps."""

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
