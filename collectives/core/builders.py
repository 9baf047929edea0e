"""What makes the functions of an algorithm: its pattern once for each wiring, and a public function per collective.

Topologies that differ in rates and latencies only share transfers and proof.
"""

import sys
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from inspect import Parameter, cleandoc, signature
from typing import Annotated, Concatenate, ParamSpec, TypeVarTuple

from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from topologies.checks import Choice, checked
from topologies.core.rateless import wiring_of
from topologies.core.topology import NeedsRates, Topology
from topologies.units import Quantity

Ts = TypeVarTuple("Ts")

EXCHANGED = ("latency", "bandwidth"), ("bandwidth",)
"""Forms of an all-reduce by exchanges, the whole vector in every step or halves; and that of the halves, which are a
reduce-scatter and an all-gather."""

Form = Annotated[str, Choice(EXCHANGED[0])]


def kept_by_wiring(most: int) -> Callable[[Callable[[Topology, *Ts], Pattern]], Callable[[Topology, *Ts], Pattern]]:
    """Decorate a function that builds the pattern of an algorithm on a topology; arguments must be hashable.

    The pattern is built on the wiring, which has no rates and no latencies, and serves all topologies of it. A builder
    that reads some builds for its topology alone. `most`: patterns that are kept.
    """

    def decorated(build: Callable[[Topology, *Ts], Pattern]) -> Callable[[Topology, *Ts], Pattern]:
        @lru_cache(maxsize=most)
        def attempt(wiring: Topology, *args: *Ts) -> Pattern | None:
            try:
                return build(wiring, *args)
            except NeedsRates:
                return None

        alone = lru_cache(maxsize=most)(build)
        placed = lru_cache(maxsize=most)(Pattern.on)

        @wraps(build)
        def pattern(topology: Topology, *args: *Ts) -> Pattern:
            wiring = wiring_of(topology)
            shared = None if wiring is topology else attempt(wiring, *args)
            return alone(topology, *args) if shared is None else placed(shared, topology)

        return pattern

    return decorated


def by_wiring(build: Callable[[Topology, *Ts], Pattern]) -> Callable[[Topology, *Ts], Pattern]:
    """`kept_by_wiring`, for as many patterns as an algorithm usually has."""
    return kept_by_wiring(64)(build)


P = ParamSpec("P")


def of_kind(kind: str, build: Callable[Concatenate[str, P], Schedule], doc: str) -> Callable[P, Schedule]:
    """The function of one collective: `build`, given its kind, with its arguments checked and its signature without it.

    Examples
    --------
    >>> from collectives import ring
    >>> ring.all_gather.__name__, list(signature(ring.all_gather).parameters)
    ('all_gather', ['topology', 'size', 'directions', 'element_bytes'])
    """
    return _named(kind, build, doc, build.__module__)


def plain(kind: str, pattern: Callable[..., Pattern], doc: str, **fixed: object) -> Callable[..., Schedule]:
    """The function of one collective whose pattern follows from the topology and from options, whatever the size.

    `pattern`: (topology, kind, ...); what it takes beyond these and is not `fixed` is an option of the function.
    """
    first = signature(pattern)
    own = list(first.parameters.values())[2:]
    usual = {one.name: one.default for one in own} | fixed

    def build(
        kind: str, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES, **options: object
    ) -> Schedule:
        return schedule(pattern(topology, kind, *(usual | options).values()), size, element_bytes)

    *given, padded, _ = signature(build).parameters.values()
    options = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own if one.name not in fixed]
    vars(build)["__signature__"] = first.replace(parameters=[*given, *options, padded], return_annotation=Schedule)
    build.__annotations__ |= {one.name: one.annotation for one in options}
    return _named(kind, build, doc, pattern.__module__)


def _named(kind: str, build: Callable[Concatenate[str, P], Schedule], doc: str, module: str) -> Callable[P, Schedule]:
    given, whole, name = partial(build, kind), signature(build), kind.replace("-", "_")
    vars(given).update(
        __name__=name, __qualname__=name, __module__=module, __doc__=cleandoc(doc),
        __annotations__=build.__annotations__, __globals__=vars(sys.modules[build.__module__]),
        __signature__=whole.replace(parameters=list(whole.parameters.values())[1:]),
    )
    function = checked(given)
    del function.__wrapped__  # type: ignore[attr-defined]  # a partial, in which nobody would look for a docstring
    return function
