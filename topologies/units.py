"""Quantities with units: text in, exact integers or SI floats out, and back to text.

Sizes print base 2 (1 MiB), rates and times base 10 (50 GB/s, 7.14 us), as nccl-tests does.
`GB` is 10^9 and `GiB` is 2^30; a bit is written `b`, a byte `B`. A bare size is in bytes, and its suffix base 2 (8K,
1.5M). A bare rate is rejected, because 400 could be Gb/s or GB/s. Numbers that a program computes get their unit from
`bytes_per_s` or `seconds`.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, TypeAlias

from topologies.checks import UNCHECKED, Integer, InUnit, Number, Reads, WeftError, checked, integer, told

Quantity: TypeAlias = Annotated[str | int, UNCHECKED]
"""Text with a unit ("400Gb/s"). A size may be an integer, in bytes; a time may be 0; a bandwidth is always text."""

Quantities: TypeAlias = Annotated[str | int | Sequence[str | int], UNCHECKED]
"""One quantity for all dimensions, or one per dimension; text may separate them with commas ("400Gb/s,100Gb/s")."""

PS_PER_S = 10**12
PS_PER_NS = 1000

MOST_PS = 2**62 - 1
"""The end of the clock, 53 days."""

MOST_READ = 64
"""Limit on rates, and on times, that are remembered as read: a fabric reads one of them for each of its dimensions."""

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_PREFIX = _DECIMAL | _BINARY
_SECONDS = {
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
    "ps": Fraction(1, 10**12),
}
# Enough digits for any real input, and few enough that the exact conversion is instant.
_NUMBER = r"(?P<number>-?[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,3})?|-?\.[0-9]{1,400})"
_RATE = re.compile(rf"^{_NUMBER}\s*(?P<prefix>[KMGTP]i|[kKMGTP]|)(?P<unit>[bB])(?:/s|ps)$")
_FLOPS = re.compile(rf"^{_NUMBER}\s*(?P<prefix>[kKMGTP]|)FLOP(?:S|/s)$")
_SIZE = re.compile(rf"^{_NUMBER}\s*(?:(?P<prefix>[KMGTP]i|[kKMGTP]|)(?P<unit>B)|(?P<power>[kKMGT]?))$")
_TIME = re.compile(rf"^{_NUMBER}\s*(?P<unit>s|ms|us|ns|ps)$")


@checked
def bytes_per_s(rate_Bps: Annotated[float, Number(0)]) -> str:
    """A computed bandwidth as text with its unit; no digit is lost.

    Parameters
    ----------
    rate_Bps : float
        Bytes per second.

    Examples
    --------
    >>> bytes_per_s(0.835 * 370e9)
    '308950000000.0B/s'
    >>> parse_bandwidth(bytes_per_s(0.1)) == 0.1
    True
    """
    return f"{float(rate_Bps)!r}B/s"


@checked
def seconds(time_s: float) -> str:
    """A computed time as text with its unit, rounded to picoseconds.

    Parameters
    ----------
    time_s : float
        Seconds.

    Raises
    ------
    WeftError
        Negative, not finite, or beyond the clock.

    Examples
    --------
    >>> seconds(1e-6)
    '1000000ps'
    """
    return f"{from_seconds(time_s)}ps"


def parse_bandwidth(value: object, what: str = "bandwidth") -> float:
    """Bandwidth in bytes per second.

    `value`: text such as "400Gb/s", "50GB/s" or "50GiB/s".
    `what`: name of the item, for error messages.
    WeftError: no unit, not a number, zero, negative or not finite.
    """
    if not isinstance(value, str):
        raise WeftError(
            f"{what} {told(value)} has no unit: write text such as 400Gb/s or 50GB/s, or bytes_per_s(number)"
        )
    rate_Bps = _exact_rate(value)
    if rate_Bps is None:
        raise WeftError(f"{what} {told(value)} is not a rate: write a number with b/s or B/s, such as 400Gb/s, 50GB/s")
    return _above_zero(rate_Bps, value, what)


@lru_cache(maxsize=MOST_READ)
def _exact_rate(text: str) -> Fraction | None:
    match = _RATE.match(text.strip())
    if match is None:
        return None
    return Fraction(match["number"]) * _PREFIX[match["prefix"]] / (8 if match["unit"] == "b" else 1)


def from_bytes_per_s(rate_Bps: float, what: str = "bandwidth") -> float:
    """A bandwidth that is a number of bytes per second, checked: of a file whose keys name the unit.

    WeftError: zero, negative or not finite.
    """
    return _above_zero(_exact(rate_Bps, what), rate_Bps, what)


def _above_zero(exact: Fraction, value: object, what: str) -> float:
    rate = _float(exact)
    if not 0 < rate < float("inf"):
        raise WeftError(f"{what} {told(value)} must be above zero and finite")
    return rate


def parse_flops(value: str, what: str = "peak") -> float:
    """Floating-point operations per second: "312TFLOPS" or "312TFLOP/s".

    WeftError: another unit, zero, negative or not finite.
    """
    match = _FLOPS.match(value.strip())
    if match is None:
        raise WeftError(f"{what} {told(value)} is no rate of operations: write text such as 312TFLOPS or 312TFLOP/s")
    return _above_zero(Fraction(match["number"]) * _PREFIX[match["prefix"]], value, what)


def parse_size(value: object, what: str = "size", least: int = 0) -> int:
    """Size in bytes: "8KiB", "2MB", an integer, or as -b of nccl-tests: "32", "8K", "1.5M" (base 2).

    WeftError: another unit, a fraction of a byte, a negative size, or one below `least`.
    """
    if isinstance(value, str):
        match = _SIZE.match(value.strip())
        if match is None:
            raise WeftError(f"{what} {told(value)} is not a size: write bytes, such as 512, 8K, 1.5M, 8KiB or 2MB")
        factor = _PREFIX[match["prefix"]] if match["unit"] else 1024 ** " KMGT".index(match["power"].upper() or " ")
        size = Fraction(match["number"]) * factor
    else:
        size = Fraction(integer(value, what, least))
    if size.denominator != 1:
        raise WeftError(f"{what} {told(value)} is not an integer number of bytes")
    if size < 0:
        raise WeftError(f"{what} {told(value)} is negative")
    if size < least:
        raise WeftError(f"{what} {told(value)} is less than {least}B")
    return int(size)


def parse_time(value: object, what: str = "time") -> int:
    """Time in integer picoseconds: "300ns", "1.5us", or 0.

    WeftError: no unit, a fraction of a picosecond, negative, or beyond the clock.
    """
    if not isinstance(value, str):
        if type(value) is not int or value != 0:
            raise WeftError(f"{what} {told(value)} has no unit: write text such as 300ns or 1.5us, or seconds(number)")
        return 0
    time_ps = _exact_time_ps(value)
    if time_ps is None:
        raise WeftError(f"{what} {told(value)} is not a time: write a number with s, ms, us, ns or ps, such as 300ns")
    if time_ps.denominator != 1:
        raise WeftError(f"{what} {told(value)} is not an integer number of picoseconds")
    return _on_the_clock(int(time_ps), value, what)


@lru_cache(maxsize=MOST_READ)
def _exact_time_ps(text: str) -> Fraction | None:
    match = _TIME.match(text.strip())
    return Fraction(match["number"]) * _SECONDS[match["unit"]] * PS_PER_S if match else None


def from_seconds(time_s: float, what: str = "time") -> int:
    """Picoseconds of a time that is a number of seconds, rounded: of a file whose keys name the unit.

    WeftError: negative, not finite, or beyond the clock.
    """
    return _on_the_clock(round(_exact(time_s, what) * PS_PER_S), time_s, what)


def from_nanoseconds(time_ns: float, what: str) -> int:
    """Picoseconds of a computed time in nanoseconds, rounded.

    WeftError: negative, not finite, or beyond the clock.
    """
    if not time_ns <= MOST_PS / PS_PER_NS:
        raise WeftError(f"{what} takes {time_ns / 1e9:.4g} s, which exceeds the range of the clock, "
                        f"{format_time(MOST_PS)}")
    return _on_the_clock(round(time_ns * PS_PER_NS), time_ns, what)


def _on_the_clock(time_ps: int, value: object, what: str) -> int:
    if time_ps < 0:
        raise WeftError(f"{what} {told(value)} is negative")
    if time_ps > MOST_PS:
        raise WeftError(f"{what} {told(value)} exceeds the range of the clock, {format_time(MOST_PS)}")
    return time_ps


def _float(value: Fraction) -> float:
    """The nearest float; infinity beyond the largest."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _exact(value: float, what: str) -> Fraction:
    try:
        return Fraction(value)
    except (ValueError, OverflowError, TypeError):
        raise WeftError(f"{what} {told(value)} is not a finite number") from None


Rate: TypeAlias = Annotated[str | int, Reads(parse_bandwidth, keep=True)]
Size: TypeAlias = Annotated[str | int, Reads(parse_size, keep=True)]
Time: TypeAlias = Annotated[str | int, Reads(parse_time, keep=True)]
"""Quantities that are checked where they are given, and kept as they are written."""

Flops: TypeAlias = Annotated[float, InUnit(Number(0, above=True), parse_flops, "312TFLOPS")]
BytesPerSecond: TypeAlias = Annotated[float, InUnit(Number(0, above=True), parse_bandwidth, "2TB/s")]
Bytes: TypeAlias = Annotated[int, InUnit(Integer(0), parse_size, "8KiB")]
PositiveBytes: TypeAlias = Annotated[int, InUnit(Integer(1), parse_size, "8KiB")]
Picoseconds: TypeAlias = Annotated[int, InUnit(Integer(0, MOST_PS), parse_time, "1.5us")]
"""Numbers whose names say the unit; text with a unit is read into them."""


def counted(count: int, noun: str, plural: str = "s") -> str:
    """A number of things: 1 chunk, 16 chunks; with "es" 2 boxes."""
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def format_size(size_bytes: int) -> str:
    """Human-readable size, base 2: 512 B, 8 KiB, 1.5 MiB."""
    if size_bytes > 10**300:  # may exceed the range of a float
        return "more than 1e+300 B"
    for prefix in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = _BINARY[prefix]
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {prefix}B"
    return f"{size_bytes} B"


def format_time(time_ps: float) -> str:
    """Human-readable time, base 10: 7.14 us."""
    if abs(time_ps) > 10**300:  # may exceed the range of a float
        return "more than 1e+288 s"
    for name, unit in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if abs(time_ps) >= unit:
            return f"{time_ps / unit:.4g} {name}"
    return f"{time_ps:.4g} ps"


def format_rate(rate_Bps: float) -> str:
    """Human-readable rate, base 10: 50 GB/s."""
    for prefix in ("T", "G", "M", "k"):
        if rate_Bps >= _DECIMAL[prefix]:
            return f"{rate_Bps / _DECIMAL[prefix]:.4g} {prefix}B/s"
    return f"{rate_Bps:.4g} B/s"
