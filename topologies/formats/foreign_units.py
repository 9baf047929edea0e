"""Rates and times as SimGrid and ns-3 write them: 125MBps, 10Gbps, 50us, or a number in the unit of the tool."""

import re
from fractions import Fraction

from topologies.checks import WeftError, told
from topologies.units import from_bytes_per_s, from_seconds

_RATE = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(?:([kKMGTPE]?)(i?)([bB])(?:ps|/s))?")
_TIME = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(ps|ns|us|ms|s|min|m|h|d|w)?")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SECONDS = {
    "ps": Fraction(1, 10**12), "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "ms": Fraction(1, 1000),
    "s": Fraction(1), "m": Fraction(60), "min": Fraction(60), "h": Fraction(3600), "d": Fraction(86400),
    "w": Fraction(7 * 86400),
}


def foreign_Bps(text: str, what: str, bare: int = 8) -> float:
    """A rate in bytes per second; `bare`: bits of the unit of a number without one.

    WeftError: no rate, or zero.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise WeftError(f"{what} is {told(text)}: a rate such as 10Gbps or 125MBps is expected")
    number, prefix, binary, unit = found.groups()
    base = 1024 if binary else 1000
    bits = bare if unit is None else 1 if unit == "b" else 8
    return from_bytes_per_s(float(Fraction(number) * base ** _POWERS[prefix or ""] * bits / 8), what)


def foreign_ps(text: str, what: str) -> int:
    """A time in integer picoseconds; a number without a unit is in seconds.

    WeftError: no time.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise WeftError(f"{what} is {told(text)}: a time such as 50us is expected")
    return from_seconds(float(Fraction(found[1]) * _SECONDS[found[2] or "s"]), what)
