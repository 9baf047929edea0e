"""Tenants of a shared fabric as users write them: a text of words and NAME=VALUE, or a table [[tenant]] in TOML.

A tenant is a collective (`collective algorithm size`, and the options of the algorithm), a training iteration
(`workload=NAME` and the flags of `weft train`), or a file (`job=FILE`, GOAL or Chakra).
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sim.cli.flags import Parser
from topologies import WeftError
from topologies.units import format_size, parse_sweep_size

if TYPE_CHECKING:
    from collectives import Schedule
    from sim.shared_fabric import Tenant
    from topologies import Topology
    from workloads.job import Job

Table = Mapping[str, Any]

POSITIONS = ("collective", "algorithm", "size")
"""What words without a name are, in their order."""

EVERY = ("name", "start", "priority")
"""Keys of every tenant."""

OF_COLLECTIVES = (*POSITIONS, "form", "root", "element_bytes", "npus")
"""Further keys of a collective; others are options of its algorithm."""


class Described(NamedTuple):
    """A tenant, and its work in a few words for tables."""

    tenant: Tenant
    what: str


def read_tenant(text: str) -> dict[str, Any]:
    """The table of a text: "all-reduce ring 64MiB priority=1 start=10us".

    Raises
    ------
    WeftError
        A word that means nothing, or a key that is given twice.
    """
    where, table, words = f"tenant {text!r}", {}, 0
    try:
        parts = shlex.split(text)
    except ValueError as wrong:
        raise WeftError(f"{where}: {wrong}") from None
    for word in parts:
        key, equals, value = word.partition("=")
        if not equals:
            if words == len(POSITIONS):
                raise WeftError(f"{where}: {word!r} is one too many: write COLLECTIVE ALGORITHM SIZE, then NAME=VALUE")
            key, value, words = POSITIONS[words], word, words + 1
        key = key.replace("-", "_")
        if not key or not value:
            raise WeftError(f"{where}: {word!r}: write NAME=VALUE")
        if key in table:
            raise WeftError(f"{where}: {key} is given twice")
        table[key] = value
    if not table:
        raise WeftError("a tenant is empty: write COLLECTIVE ALGORITHM SIZE, workload=NAME or job=FILE")
    return table


def make_tenant(table: Table, topology: Topology, number: int) -> Described:
    """The tenant of a table.

    Parameters
    ----------
    table : mapping
        Of `read_tenant`, or of TOML.
    topology : Topology
    number : int
        It is called t1, t2, ... unless it has a name.

    Raises
    ------
    WeftError
        A key or a value that is not accepted.
    """
    from sim.shared_fabric import Tenant

    name = str(table.get("name", f"t{number}"))
    try:
        for key, value in table.items():
            if isinstance(value, (Mapping, list)) and key != "npus":
                raise WeftError(f"{key} is {value!r}: give text or a number")
        rest = {key.replace("-", "_"): value for key, value in table.items() if key not in EVERY}
        kinds = [kind for kind in WORK if kind in rest]
        if len(kinds) != 1:
            raise WeftError(f"give one of {', '.join(WORK)}; {' and '.join(kinds) or 'none'} is given")
        npus = _npus(rest.pop("npus")) if kinds[0] == "collective" and "npus" in rest else None
        work, what = WORK[kinds[0]](rest, topology)
        priority = _whole(table.get("priority", 0), "priority")
    except WeftError as wrong:
        raise WeftError(f"tenant {name!r}: {wrong}") from None
    return Described(Tenant(name=name, work=work, arrival=table.get("start", "0s"), priority=priority, npus=npus), what)


def _collective(table: dict[str, Any], topology: Topology) -> tuple[Schedule | Job, str]:
    from collectives import algorithm, build
    from sim.options import parse_value

    for key in POSITIONS:
        if key not in table:
            raise WeftError(f"no {key} is given: write COLLECTIVE ALGORITHM SIZE")
    kind, named = str(table["collective"]), str(table["algorithm"])
    taken = algorithm(named).options
    options: dict[str, Any] = {}
    for key, value in table.items():
        if key in ("root", "element_bytes"):
            options[key] = _whole(value, key)
        elif key not in OF_COLLECTIVES:
            if key not in taken:
                accepted = ", ".join([*EVERY, *OF_COLLECTIVES, *taken])
                raise WeftError(f"unknown key {key!r}; accepted are {accepted}")
            options[key] = parse_value(value) if isinstance(value, str) else value
    if not isinstance(table["size"], str):
        raise WeftError(f"size {table['size']!r} is not a text such as 64MiB")
    size = parse_sweep_size(table["size"], "size")
    form = str(table["form"]) if "form" in table else None
    schedule = build(named, kind, topology, size, form, **options)
    return schedule, f"{kind} {schedule.name} {format_size(size)}"


def _workload(table: dict[str, Any], topology: Topology) -> tuple[Schedule | Job, str]:
    """An iteration; the keys are the flags of `weft train`."""
    from sim.cli.train import add_workload, job_of

    class Keys(Parser):
        def error(self, message: str) -> NoReturn:
            raise WeftError(f"{message.replace('--', '')}")

    parser = Keys(add_help=False)
    add_workload(parser).add_argument("--algorithm", default="hierarchical")
    flags: dict[str, argparse.Action] = {
        flag.removeprefix("--").replace("-", "_"): action for action in parser._actions
        for flag in action.option_strings if flag != "--npu-bandwidth"  # links are those of the fabric
    }
    words = []
    for key, value in table.items():
        if key not in flags:
            raise WeftError(f"unknown key {key!r}; accepted are {', '.join([*EVERY, *flags])}")
        flag = flags[key].option_strings[0]
        if flags[key].nargs != 0:
            words.append(f"{flag}={value}")
        elif value in (True, "true"):
            words.append(flag)
        elif value not in (False, "false"):
            raise WeftError(f"{key} is {value!r}: true or false")
    workload, job = job_of(parser.parse_args(words), topology)
    return job, f"iteration of {workload.name}"


def _job(table: dict[str, Any], topology: Topology) -> tuple[Schedule | Job, str]:
    from sim.cli.trace import read_job

    for key in table:
        if key not in ("job", "algorithm"):
            raise WeftError(f"unknown key {key!r}; accepted are {', '.join([*EVERY, 'job', 'algorithm'])}")
    return read_job(str(table["job"]), topology, str(table.get("algorithm", "ring"))), str(table["job"])


Make = Callable[[dict[str, Any], "Topology"], tuple["Schedule | Job", str]]

WORK: Mapping[str, Make] = {"collective": _collective, "workload": _workload, "job": _job}
"""How the work of a tenant is made, by the key that says what it is."""


def _whole(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value)
    if not isinstance(value, str) or not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise WeftError(f"{what} {value!r} is not a whole number")
    return int(text)


def _npus(value: object) -> tuple[int, ...]:
    """NPUs of "0-31,40", or of a list of numbers."""
    if isinstance(value, list):
        return tuple(_whole(npu, "NPU") for npu in value)
    found: list[int] = []
    for part in str(value).split(","):
        first, dash, last = part.partition("-")
        ends = _whole(first.strip(), "NPU"), _whole((last if dash else first).strip(), "NPU")
        if not 0 <= ends[0] <= ends[1] < 2**24:
            raise WeftError(f"npus {part!r}: the first number is above the last, or not an NPU")
        found += range(ends[0], ends[1] + 1)
    return tuple(found)
