"""Fields of dataclasses that take an integer in the unit of their name, or text with a unit.

    @dataclass(frozen=True)
    class Job:
        size_bytes: Bytes = Bytes()
        latency_ps: Time = Time(2_000_000)

`Job(size_bytes="1MiB", latency_ps="2us")` and `Job(size_bytes=1048576, latency_ps=2000000)` are the same.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from sim.program.cutting import MOST_WORK
from topologies import WeftError
from topologies.units import MOST_PS, format_time, from_bytes_per_s, parse_bandwidth, parse_size, parse_time

N = TypeVar("N", int, float)

MOST_COUNT = 2**31 - 1
"""Of anything that programs number."""


class _Field(ABC, Generic[N]):
    """A data descriptor that reads what it is given; without a default the field is required."""

    def __init__(self, default: N | None = None) -> None:
        self.default: N | None = default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> N:
        value = self.default if instance is None else instance.__dict__[self.name]
        if value is None:
            raise AttributeError(self.name)
        return value

    def __set__(self, instance: Any, value: N | str) -> None:
        instance.__dict__[self.name] = self.read(value)

    @abstractmethod
    def read(self, value: N | str) -> N:
        """The value, checked."""


class Count(_Field[int]):
    """An integer from `least` to `most`."""

    def __init__(self, default: int | None = None, *, least: int = 1, most: int = MOST_COUNT) -> None:
        super().__init__(default)
        self.least, self.most = least, most

    def read(self, value: int | str) -> int:
        return whole(value, self.name, self.least, self.most)


class Bytes(Count):
    """A size: bytes, or text such as "1MiB"."""

    def __init__(self, default: int | None = None, *, least: int = 0) -> None:
        super().__init__(default, least=least, most=MOST_WORK - 1)

    def read(self, value: int | str) -> int:
        return super().read(parse_size(value, self.name) if isinstance(value, str) else value)


class Time(_Field[int]):
    """A time: picoseconds, or text such as "2us"."""

    def read(self, value: int | str) -> int:
        return picoseconds(value, self.name)


class Rate(_Field[float]):
    """A bandwidth: bytes per second, or text such as "100Gb/s"."""

    def read(self, value: float | str) -> float:
        return parse_bandwidth(value, self.name) if isinstance(value, str) else from_bytes_per_s(value, self.name)


def whole(value: object, what: str, least: int = 0, most: int | None = None) -> int:
    """An integer from `least` to `most`, both included.

    Raises
    ------
    WeftError
        Not an integer, or one out of range.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # what is no number raises
    except TypeError:
        raise WeftError(f"{what} {value!r} is not an integer: give an integer of at least {least}") from None
    if number < least or (most is not None and number > most):
        limit = f" and at most {most}" if most is not None and number > most else ""
        raise WeftError(f"{what} {value!r} is out of range: at least {least}{limit}")
    return number


def picoseconds(value: object, what: str) -> int:
    """A time in whole picoseconds: as it is, or from text with a unit."""
    time_ps = parse_time(value, what) if isinstance(value, str) else whole(value, what)
    if time_ps > MOST_PS:
        raise WeftError(f"{what} {value!r} is beyond the clock, which ends at {format_time(MOST_PS)}")
    return time_ps
