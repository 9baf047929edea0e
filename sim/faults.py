"""Fault plans: what goes wrong on a fabric, when, and what the transport makes of it; in TOML or in Python.

Nodes and links have the names of the topology: "npu3", "switch0", "npu0->npu1" for one direction of a cable,
"npu0--npu1" for both, "dimension 1" for all links of a dimension, "*" for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from sim.contract import I64, check_choice
from topologies import Topology, WeftError
from topologies.plain_data import read_toml
from topologies.units import MOST_PS, Quantity, format_time, parse_time

IN_FLIGHT = ("lost", "wait", "complete")
"""What becomes of a chunk that is being sent when its link goes down; `complete` drains."""
DISTRIBUTIONS = ("exponential", "uniform", "lognormal")
QUANTILES = 256
MOST_LOSS = 0.9


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """A link serves at a share of its bandwidth, with more latency, from a time on."""

    link: str
    at: Quantity = "0s"
    share: float = 1.0
    latency: Quantity = "0s"


@dataclass(frozen=True, kw_only=True)
class LinkDown:
    """A link fails."""

    link: str
    at: Quantity = "0s"


@dataclass(frozen=True, kw_only=True)
class NodeDown:
    """A node fails, and all its links with it; what an NPU computes waits."""

    node: str
    at: Quantity = "0s"


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A link or a node is as it was built: up, at its own bandwidth and latency."""

    link: str | None = None
    node: str | None = None
    at: Quantity = "0s"


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """An NPU begins late, and computes and sends at a share of its speed."""

    npu: str
    delay: Quantity = "0s"
    speed: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """A random time, drawn for every chunk on a link (added to its latency) or every computation of an NPU."""

    mean: Quantity
    link: str | None = None
    npu: str | None = None
    distribution: str = "exponential"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A link loses each chunk with a probability."""

    link: str
    probability: float


Fault = SlowLink | LinkDown | NodeDown | Repair | Straggler | Jitter | Loss

TABLES: dict[str, type[Any]] = {
    "slow-link": SlowLink, "link-down": LinkDown, "node-down": NodeDown, "repair": Repair, "straggler": Straggler,
    "jitter": Jitter, "loss": Loss,
}
"""Kinds of fault by the name of their TOML table; its keys are their fields."""


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """Faults, and how the transport deals with them.

    Attributes
    ----------
    faults : tuple of Fault
    in_flight : {"lost", "wait", "complete"}
        What becomes of a chunk that is being sent when its link goes down. "lost": it is cut off, and what comes to
        the link while it is down is lost too. "wait": it is not sent unless it can be finished, and the link's queue
        waits for the repair. "complete": what is being sent is finished, and the queue waits. With `reroute`, a queue
        does not wait: what is in front of a link that is down is sent again after the timeout.
    timeout : quantity
        From the loss of a chunk until its source sends it again.
    reroute : quantity, optional
        How long after a link or a node goes down, or comes back, chunks that are sent (again) take the shortest way
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
    in_flight: str = "lost"
    timeout: Quantity = "100us"
    reroute: Quantity | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.in_flight, IN_FLIGHT, "in-flight")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise WeftError(f"seed {self.seed!r} is out of range: a whole number from 0 to 2^63 - 1")
        if parse_time(self.timeout, "timeout") < 1:
            raise WeftError("timeout 0: at least 1ps")
        if self.reroute is not None:
            parse_time(self.reroute, "reroute")
        for fault in self.faults:
            _check(fault)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "fault plan") -> FaultPlan:
        """A plan from the tables of a TOML file.

        Raises
        ------
        WeftError
            An unknown key (named, with the accepted ones), one that is missing, or a value that is not accepted.
        """
        settings = {key.name.replace("_", "-"): key.name for key in fields(cls) if key.name != "faults"}
        values: dict[str, Any] = {}
        found: list[Fault] = []
        for key, value in data.items():
            if key in TABLES:
                found += _tables(key, value, where)
            elif key in settings:
                values[settings[key]] = value
            else:
                raise WeftError(f"{where}: unknown key {key!r}; accepted are {', '.join([*settings, *TABLES])}")
        try:
            return cls(faults=tuple(found), **values)
        except WeftError as wrong:
            raise WeftError(f"{where}: {wrong}") from None

    @classmethod
    def read(cls, path: str | Path) -> FaultPlan:
        """A plan from a TOML file.

        Raises
        ------
        WeftError
            The file cannot be read, or is not a plan.
        """
        return cls.from_dict(read_toml(path, "fault plan"), f"fault plan {path}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads back; faults in the order of their kinds."""
        data: dict[str, Any] = {"in-flight": self.in_flight, "timeout": self.timeout, "seed": self.seed}
        if self.reroute is not None:
            data["reroute"] = self.reroute
        for name, kind in TABLES.items():
            tables = [asdict(fault) for fault in self.faults if type(fault) is kind]
            if tables:
                data[name] = [{key: value for key, value in one.items() if value is not None} for one in tables]
        return data


def _tables(name: str, tables: object, where: str) -> list[Fault]:
    """The faults of one kind."""
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise WeftError(f"{where}: {name} is {tables!r}: write it as [[{name}]] with its keys below")
    keys = {key.name: key for key in fields(TABLES[name])}
    made = []
    for number, table in enumerate(tables, 1):
        here = f"{where}: [[{name}]] {number}"
        for key in table:
            if key not in keys:
                raise WeftError(f"{here}: unknown key {key!r}; accepted are {', '.join(keys)}")
        try:
            made.append(TABLES[name](**table))
            _check(made[-1])
        except TypeError:
            missing = [key for key in ("link", "node", "npu", "mean", "probability") if key in keys
                       and key not in table and keys[key].default is not None]
            raise WeftError(f"{here}: {' and '.join(missing)} is missing") from None
        except WeftError as wrong:
            raise WeftError(f"{here}: {wrong}") from None
    return made


def _check(fault: Fault) -> None:
    """Refuse values that mean nothing, whatever the topology."""
    for key in ("at", "delay", "latency", "mean"):
        if hasattr(fault, key):
            value = getattr(fault, key)
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise WeftError(f"{key} {value!r} is not a time: write a number with a unit, such as 10us")
            parse_time(value, key)
    for key, least, most in (("share", 0, 1), ("speed", 0, 1), ("probability", -1, MOST_LOSS)):
        value = getattr(fault, key, None)
        if value is not None and not (isinstance(value, (int, float)) and least < value <= most and value >= 0):
            raise WeftError(f"{key} {value!r} is out of range: above 0 and at most {most}")
    if isinstance(fault, (Repair, Jitter)):
        one, other = ("link", "node") if isinstance(fault, Repair) else ("link", "npu")
        if (getattr(fault, one) is None) == (getattr(fault, other) is None):
            raise WeftError(f"give either {one} or {other}, and not both")
    if isinstance(fault, Jitter):
        check_choice(fault.distribution, DISTRIBUTIONS, "distribution")
    for key in ("link", "node", "npu"):
        value = getattr(fault, key, None)
        if value is not None and not isinstance(value, str):
            raise WeftError(f"{key} {value!r} is not a name")


def links_named(topology: Topology, name: str) -> list[int]:
    """Links that a name stands for.

    Raises
    ------
    WeftError
        No link has that name.
    """
    if name == "*":
        return list(range(topology.n_links))
    word, _, number = name.partition(" ")
    if word == "dimension" and number.isdecimal():
        found = np.flatnonzero(topology.dimension == int(number)).tolist()
    else:
        both = name.split("--")
        names = {name} if len(both) != 2 else {f"{both[0]}->{both[1]}", f"{both[1]}->{both[0]}"}
        found = [link for link in range(topology.n_links) if topology.link_name(link) in names]
    if not found:
        some = ", ".join(topology.link_name(link) for link in range(min(3, topology.n_links)))
        raise WeftError(f"topology {topology.name} has no link {name!r}: its links are {some}, ...; or write a--b for "
                        "both directions, dimension 0, or *")
    return found


def node_named(topology: Topology, name: str, *, npu: bool = False) -> int:
    """The node of a name.

    Raises
    ------
    WeftError
        There is none, or it is no NPU where one is needed.
    """
    n_nodes = topology.n_npus if npu else topology.n_nodes
    for node in range(n_nodes):
        if topology.node_name(node) == name:
            return node
    first, last = topology.node_name(0), topology.node_name(n_nodes - 1)
    raise WeftError(f"topology {topology.name} has no {'NPU' if npu else 'node'} {name!r}: they are {first} to {last}")


def quantiles_ps(fault: Jitter) -> I64:
    """Equally likely values of a distribution, (QUANTILES,); their mean is that of the distribution, nearly."""
    mean = parse_time(fault.mean, "mean")
    middle = [(at + 0.5) / QUANTILES for at in range(QUANTILES)]
    if fault.distribution == "uniform":
        values = [2 * mean * u for u in middle]
    elif fault.distribution == "exponential":
        values = [-mean * math.log1p(-u) for u in middle]
    else:
        normal = NormalDist()
        values = [mean * math.exp(normal.inv_cdf(u) - 0.5) for u in middle]
    if max(values) > MOST_PS:
        raise WeftError(
            f"jitter of mean {fault.mean!r} would draw {format_time(max(values))}; the clock ends at "
            f"{format_time(MOST_PS)}"
        )
    return np.array([round(value) for value in values], np.int64)
