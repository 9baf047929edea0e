"""Fault plans: what goes wrong on a fabric, when, and what the transport makes of it; in TOML or in Python.

Nodes and links have the names of the topology: "npu3", "switch0", "npu0->npu1" for one direction of a cable,
"npu0--npu1" for both, "dimension 1" for all links of a dimension, "*" for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from sim.faults.names import breadth
from sim.faults.retry import RETRIES, SOURCE
from sim.program.contract import I64
from topologies.checks import Choice, Natural, Reads, WeftError, checked, number, told
from topologies.text.brief import one_line
from topologies.text.plain_data import read_toml
from topologies.units import MOST_PS, PS_PER_S, format_time, parse_time

IN_FLIGHT = ("lost", "wait", "complete")
"""What becomes of a chunk that is being sent when its link goes down; `complete` drains."""
DISTRIBUTIONS = ("exponential", "uniform", "lognormal")
QUANTILES = 256
MOST_LOSS = 0.9
_UNITS = (("s", PS_PER_S), ("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("ps", 1))
LONGEST_FRACTION = 700
"""Characters: enough for any double, written exactly."""


def _time(value: object, key: str) -> str:
    """A time as an integer number of the largest unit that it is an integer of."""
    time_ps = parse_time(value, key)
    unit, length_ps = next((unit, length_ps) for unit, length_ps in _UNITS if time_ps % length_ps == 0)
    return f"{time_ps // length_ps}{unit}"


def _part(value: object, key: str) -> float:
    return float(number(value, key, 0, 1, above=key != "probability"))


def _share(text: object, key: str) -> float | str:
    """A share as a number, or written as an exact fraction, "1/3"; a number where that is the same."""
    if not isinstance(text, str):
        return _part(text, key)
    try:
        share = Fraction(text) if len(text) <= LONGEST_FRACTION else Fraction(0)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise WeftError(f"{key} {told(text)} is out of range: above 0 and at most 1, a number or a fraction like 1/3")
    return float(share) if Fraction(str(float(share))) == share else str(share)


Time = Annotated[str | int, Reads(_time)]
Part = Annotated[float, Reads(_part)]


def _either(fault: Repair | Jitter, one: str, other: str) -> None:
    if (getattr(fault, one) is None) == (getattr(fault, other) is None):
        raise WeftError(f"give either {one} or {other}, and not both")


@checked
@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """A link serves at a share of its bandwidth, with more latency, from a time on."""

    link: str
    at: Time = "0s"
    share: Annotated[float | str, Reads(_share)] = 1.0
    latency: Time = "0s"


@checked
@dataclass(frozen=True, kw_only=True)
class LinkDown:
    """A link fails."""

    link: str
    at: Time = "0s"


@checked
@dataclass(frozen=True, kw_only=True)
class NodeDown:
    """A node fails, and all its links with it; what an NPU computes waits."""

    node: str
    at: Time = "0s"


@checked
@dataclass(frozen=True, kw_only=True)
class Repair:
    """A link or a node is as it was built: up, at its own bandwidth and latency."""

    link: str | None = None
    node: str | None = None
    at: Time = "0s"

    def __post_init__(self) -> None:
        _either(self, "link", "node")


@checked
@dataclass(frozen=True, kw_only=True)
class Straggler:
    """An NPU begins late, and computes and sends at a share of its speed."""

    npu: str
    delay: Time = "0s"
    speed: Part = 1.0


@checked
@dataclass(frozen=True, kw_only=True)
class Jitter:
    """A random time, drawn for every chunk on a link (added to its latency) or every computation of an NPU."""

    mean: Time
    link: str | None = None
    npu: str | None = None
    distribution: Annotated[str, Choice(DISTRIBUTIONS)] = "exponential"

    def __post_init__(self) -> None:
        _either(self, "link", "npu")


@checked
@dataclass(frozen=True, kw_only=True)
class Loss:
    """A link loses each chunk with a probability."""

    link: str
    probability: Part


Fault = SlowLink | LinkDown | NodeDown | Repair | Straggler | Jitter | Loss

TABLES: dict[str, type[Any]] = {
    "slow-link": SlowLink, "link-down": LinkDown, "node-down": NodeDown, "repair": Repair, "straggler": Straggler,
    "jitter": Jitter, "loss": Loss,
}
"""Kinds of fault by the name of their TOML table; its keys are their fields."""


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """Faults, and how the transport deals with them.

    Attributes
    ----------
    faults : tuple of Fault
        Kept in the order of kinds, times and names, so that equal sets of faults are equal plans. At one time repairs
        come first, then what slows, then what fails. Where one entry is of a link and another of a cable, a dimension
        or all links (`npu0->npu1`, `npu0--npu1`, `dimension 0`, `*`), the more specific one counts.
    in_flight : {"lost", "wait", "complete"}
        What happens to a chunk in service when its link goes down. "lost": it is cut off, and what reaches
        the link while it is down is lost too. "wait": it is not sent unless it can be finished, and the link's queue
        waits for the repair. "complete": what is being sent is finished, and the queue waits. With `reroute`, a queue
        does not wait: what is in front of a link that is down is sent again after the timeout.
    timeout : quantity
        From the loss of a chunk until its source sends it again.
    retry : {"source", "npu"}
        Who sends again what was lost by a `Loss`: whoever sent it over that link, as often as it takes, or the NPU that
        waits for it, once, as in the slot pool of a switch; see `sim.faults.retry`.
    reroute : quantity, optional
        How long after a link or a node goes down, or comes back, chunks that are sent (again) take the shortest path
        over what is up; never unless given.
    seed : int
        Of jitter and loss.

    Examples
    --------
    >>> plan = FaultPlan(faults=(Straggler(npu="npu1", delay="10us"), Loss(link="*", probability=0.001)))
    >>> FaultPlan.from_dict(plan.to_dict()) == plan
    True
    """

    faults: tuple[Fault, ...] = ()
    in_flight: Annotated[str, Choice(IN_FLIGHT)] = "lost"
    timeout: Time = "100us"
    retry: Annotated[str, Choice(RETRIES)] = SOURCE
    reroute: Time | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        if parse_time(self.timeout) < 1:
            raise WeftError("timeout 0: at least 1ps")
        object.__setattr__(self, "faults", tuple(sorted(self.faults, key=_order)))
        most = max((fault.probability for fault in self.faults if isinstance(fault, Loss)), default=0.0)
        if most > MOST_LOSS and self.retry == SOURCE:
            raise WeftError(f"probability {most} is out of range: from 0 to {MOST_LOSS}, or to 1 where NPUs retry")

    @property
    def moves_routes(self) -> bool:
        """Whether chunks may take other routes than on the healthy fabric."""
        return self.reroute is not None and any(isinstance(fault, (LinkDown, NodeDown)) for fault in self.faults)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "fault plan") -> FaultPlan:
        """A plan from the tables of a TOML file.

        WeftError: an unknown key (named, with the accepted ones), one that is missing, or a value that is not accepted.
        """
        settings = {key.name.replace("_", "-"): key.name for key in fields(cls) if key.name != "faults"}
        values: dict[str, Any] = {}
        found: list[Fault] = []
        if not isinstance(data, Mapping):
            raise WeftError(f"{where}: {told(data)} is not a table of keys")
        try:
            for key, value in data.items():
                if key in TABLES:
                    found += _tables(key, value)
                elif key in settings:
                    values[settings[key]] = _written(settings[key], value)
                else:
                    raise WeftError(f"unknown key {told(key)}; accepted are {', '.join([*settings, *TABLES])}")
            return cls(faults=tuple(found), **values)
        except WeftError as wrong:
            raise WeftError(f"{where}: {wrong}") from None

    @classmethod
    def read(cls, path: str | Path) -> FaultPlan:
        """A plan from a TOML file.

        WeftError: the file cannot be read, or is not a plan.
        """
        return cls.from_dict(read_toml(path, "fault plan"), f"fault plan {path}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads back."""
        data: dict[str, Any] = {"in-flight": self.in_flight, "timeout": self.timeout, "seed": self.seed}
        if self.retry != SOURCE:
            data["retry"] = self.retry
        if self.reroute is not None:
            data["reroute"] = self.reroute
        for name, kind in TABLES.items():
            tables = [asdict(fault) for fault in self.faults if type(fault) is kind]
            if tables:
                data[name] = [{key: value for key, value in one.items() if value is not None} for one in tables]
        return data


TIMES = ("at", "delay", "latency", "mean", "timeout", "reroute")


def _written(key: str, value: object) -> object:
    """A value of a file, where bare numbers are no times."""
    if key in TIMES and not isinstance(value, str):
        raise WeftError(f"{key} {told(value)} is not a time: write a number with a unit, such as 10us")
    return value


def _tables(name: str, tables: object) -> list[Fault]:
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise WeftError(f"{name} is {told(tables)}: write it as [[{name}]] with its keys below")
    keys = {key.name: key for key in fields(TABLES[name])}
    made = []
    for at, table in enumerate(tables, 1):
        here = f"[[{name}]] {at}"
        for key in table:
            if key not in keys:
                raise WeftError(f"{here}: unknown key {told(key)}; accepted are {', '.join(keys)}")
        try:
            made.append(TABLES[name](**{key: _written(key, value) for key, value in table.items()}))
        except TypeError:
            missing = [key for key in ("link", "node", "npu", "mean", "probability") if key in keys
                       and key not in table and keys[key].default is not None]
            raise WeftError(f"{here}: {' and '.join(missing)} is missing") from None
        except WeftError as wrong:
            raise WeftError(f"{here}: {wrong}") from None
    return made


def _order(fault: Fault) -> tuple[int, int, int, str]:
    """Kind, time, and what is broad before what is special, so that equal sets of faults are equal plans."""
    kind = [*TABLES.values()].index(type(fault))
    return kind, parse_time(getattr(fault, "at", "0s")), breadth(getattr(fault, "link", None) or ""), repr(fault)


def quantiles_ps(fault: Jitter) -> I64:
    """Equally likely values of a distribution, (QUANTILES,); their mean is that of the distribution, nearly."""
    mean = parse_time(fault.mean, "mean")
    middle = [(at + 0.5) / QUANTILES for at in range(QUANTILES)]
    if fault.distribution == "uniform":
        values = [2 * mean * u for u in middle]
    elif fault.distribution == "exponential":
        values = [-mean * math.log1p(-u) for u in middle]
    else:
        from statistics import NormalDist  # a fiftieth of the start of a small command

        normal = NormalDist()
        values = [mean * math.exp(normal.inv_cdf(u) - 0.5) for u in middle]
    if max(values) > MOST_PS:
        raise WeftError(
            f"jitter of mean {fault.mean!r} would draw {format_time(max(values))}; the clock ends at "
            f"{format_time(MOST_PS)}"
        )
    return np.array([round(value) for value in values], np.int64)
