"""Units in headers of measured tables: what a number counts, in bytes, us and GB/s."""

import re

from topologies.checks import WeftError

TIMES = {
    "ns": 1e-3, "nsec": 1e-3, "us": 1.0, "usec": 1.0, "μs": 1.0, "µs": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6,
    "sec": 1e6,
}
SIZES: dict[str, float] = {"b": 1, "bytes": 1, "byte": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_RATE = re.compile(r"([KMGT]?)(i?)(B|bits?|b)(?:/s(?:ec)?|ps)")
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def scale(column: str, unit: str, where: str) -> float:
    """What a number of a column is multiplied by: 1 of bytes, of us, of GB/s.

    `column`: size, time, algbw or busbw.
    WeftError: a unit that is not known, or that may be of bits or bytes.
    """
    known: float | None
    if column == "size":
        known, accepted = SIZES.get(unit.lower()), "B, KiB, MiB, GiB (KB may be of 1000 or 1024)"
    elif column == "time":
        known, accepted = TIMES.get(unit.lower()), "ns, us, ms, s"
    else:
        known, accepted = _rate(unit), "GB/s and GiB/s of bytes, Gb/s and Gbps of bits, also with K, M, T"
    if known is None:
        raise WeftError(f"{where}: the unit {unit!r} of {column} is not known: {accepted} are")
    return known


def _rate(unit: str) -> float | None:
    found = _RATE.fullmatch(unit)
    if found is None:
        return None
    base = 1024 if found[2] else 1000
    return float(base ** _POWER[found[1]]) / 1e9 / (1 if found[3] == "B" else 8)
