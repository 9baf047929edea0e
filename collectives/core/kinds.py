"""The public functions of an algorithm, one for each collective: made from one builder, and named after their kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from inspect import cleandoc, signature
from typing import Concatenate, ParamSpec, Protocol

from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from topologies import Topology
from topologies.checks import checked
from topologies.units import Quantity

P = ParamSpec("P")


class Plain(Protocol):
    """The function of a collective that has no options."""

    def __call__(self, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
        """The schedule, of blocks that are padded to a multiple of `element_bytes`."""


def of_kind(kind: str, build: Callable[Concatenate[str, P], Schedule], doc: str) -> Callable[P, Schedule]:
    """The function of one collective: `build`, given its kind, with its arguments checked and its signature without it.

    Examples
    --------
    >>> from collectives import ring
    >>> ring.all_gather.__name__, list(signature(ring.all_gather).parameters)
    ('all_gather', ['topology', 'size', 'directions', 'element_bytes'])
    """
    return _named(kind, build, doc, build.__module__)


def plain(kind: str, pattern: Callable[[Topology, str], Pattern], doc: str) -> Plain:
    """The function of one collective whose pattern follows from the topology alone."""

    def build(kind: str, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
        return schedule(pattern(topology, kind), size, element_bytes)

    return _named(kind, build, doc, pattern.__module__)


def _named(
    kind: str, build: Callable[Concatenate[str, P], Schedule], doc: str, module: str
) -> Callable[P, Schedule]:
    given, whole, name = partial(build, kind), signature(build), kind.replace("-", "_")
    vars(given).update(
        __name__=name, __qualname__=name, __module__=module, __doc__=cleandoc(doc),
        __annotations__=build.__annotations__, __globals__=vars(sys.modules[build.__module__]),
        __signature__=whole.replace(parameters=list(whole.parameters.values())[1:]),
    )
    function = checked(given)
    del function.__wrapped__  # type: ignore[attr-defined]  # a partial, in which nobody would look for a docstring
    return function
