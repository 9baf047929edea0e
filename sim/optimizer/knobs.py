"""Discrete knobs: chosen by the outer search; the inner one finds the bandwidths."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations, product

from collectives.core.process_groups import process_group
from collectives.core.stages import STAGE_ALGORITHMS, check_algorithm
from collectives.registry import algorithm
from sim.analytic.libra import Placed
from sim.program.model_options import parse_value
from topologies import WeftError
from workloads.training import kind_of

HIERARCHICAL, THEMIS = "hierarchical", "themis"
EVERY = "all"
"""Stands for all values, instead of a list."""
MOST_CHOICES = 512

Option = tuple[str, object]
Order = tuple[int, ...]


@dataclass(frozen=True)
class Knobs:
    """A choice of everything but the bandwidths."""

    algorithm: str
    chunks: int  # in the pipeline
    options: tuple[Option, ...] = ()  # of the algorithm
    # order of dimensions of collectives of a workload, by group and kind ("dp all-reduce")
    orders: tuple[tuple[str, Order], ...] = ()
    form: str = ""  # of the algorithm; "" where it has one, or picks its own

    @property
    def is_pipelined(self) -> bool:
        """Whether the algorithm itself cuts the array into pipelined chunks."""
        return self.algorithm in (HIERARCHICAL, THEMIS)

    @property
    def words(self) -> str:
        """For people."""
        said = [self.algorithm, f"{self.form} form"][: 2 if self.form else 1]
        said.append(f"{self.chunks} chunk{'s' * (self.chunks != 1)}")
        said += [f"{name} {value}" for name, value in self.options]
        said += [f"{name} in order {','.join(map(str, order))}" for name, order in self.orders]
        return ", ".join(said)


@dataclass(frozen=True)
class Asked:
    """Requested values of the knobs."""

    algorithms: tuple[str, ...]
    chunks: tuple[int, ...]
    # "trees=1;2;4": values of an option, of which each algorithm takes those that it knows
    options: tuple[str, ...] = ()
    orders: str | None = None  # "0,1,2;2,1,0", or "all": every order, for each collective separately
    dimension_algorithms: str | None = None  # "ring,direct;direct,direct", or "all"
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # to choose from, by algorithm

    def choices(self, shape: tuple[int, ...], placed: Sequence[Placed], collective: str) -> list[Knobs]:
        """All choices, in the requested order.

        `shape`: NPUs of the network along each dimension.
        `placed`: workloads; empty for a single collective.
        WeftError: a value that is not accepted, an option that no algorithm takes, or too many choices.
        """
        options = [parse_axis(text) for text in self.options]
        for name, _ in options:
            if not any(name in algorithm(one).options for one in self.algorithms):
                raise WeftError(f"--option {name}: none of the algorithms {', '.join(self.algorithms)} takes it")
        if not {HIERARCHICAL, THEMIS}.intersection(self.algorithms):
            for flag, value in (("--orders", self.orders), ("--dimension-algorithms", self.dimension_algorithms)):
                if value is not None:
                    raise WeftError(f"{flag} is for hierarchical collectives, not for {', '.join(self.algorithms)}")
        extents = _extents(shape, placed)
        kinds = [collective] if collective else sorted({call.kind for one in placed for call in one.workload.calls()})
        found: dict[Knobs, None] = {}
        for name in self.algorithms:
            axes = [[(option, value) for value in values] for option, values in options
                    if option in algorithm(name).options]
            if name in (HIERARCHICAL, THEMIS) and self.dimension_algorithms is not None:
                ways = dimension_algorithms(self.dimension_algorithms, extents, kinds)
                axes.append([("algorithms", way) for way in ways])
            by_collective: list[list[tuple[str, Order]]] = []
            if name == HIERARCHICAL and self.orders is not None:
                if self.orders == EVERY and placed:
                    by_collective = orders_of_collectives(placed)
                else:
                    axes.append([("order", order) for order in orders_of_dimensions(self.orders, extents[0])])
            for chunks, chosen, orders in product(self.chunks, product(*axes), product(*by_collective)):
                found.setdefault(Knobs(name, chunks, chosen, orders))
                if len(found) > MOST_CHOICES:
                    raise WeftError(f"the knobs make more than {MOST_CHOICES} choices: give fewer values")
        return [replace(one, form=form) for one in found for form in self.forms.get(one.algorithm) or ("",)]


def _extents(shape: tuple[int, ...], placed: Sequence[Placed]) -> list[tuple[int, ...]]:
    """NPUs of the groups along each dimension."""
    groups = [extents for one in placed for extents in one.groups.values()]
    return list(dict.fromkeys(tuple(extents) for extents in groups)) or [shape]


def parse_axis(text: str) -> tuple[str, list[object]]:
    """"trees=1;2;4" as a name and values, numbers where they look so.

    WeftError: no name, or no value.
    """
    name, _, values = text.partition("=")
    words = [word.strip() for word in values.split(";") if word.strip()]
    if not name.strip() or not words:
        raise WeftError(f"--option {text!r}: write NAME=VALUE;VALUE")
    return name.strip(), [parse_value(word) for word in words]


def orders_of_dimensions(text: str, extents: tuple[int, ...]) -> list[str]:
    """ "2,1,0;0,1,2", or for "all" every order of the dimensions that have more than one NPU."""
    if text != EVERY:
        return [word.strip() for word in text.split(";") if word.strip()]
    used = [dim for dim, extent in enumerate(extents) if extent > 1]
    unused = [dim for dim, extent in enumerate(extents) if extent == 1]
    return [",".join(map(str, [*order, *unused])) for order in _orders(used)]


def orders_of_collectives(placed: Iterable[Placed]) -> list[list[tuple[str, Order]]]:
    """For each collective of a workload whose group uses several dimensions, its name with every order of them.

    An all-to-all sends the same bytes in every order, and is left out.
    """
    groups: dict[str, tuple[int, ...]] = {}
    for one in placed:
        for call in one.workload.calls():
            if call.kind != "all-to-all":
                groups.setdefault(kind_of(call), tuple(one.groups[call.group]))
    found = []
    for name, extents in groups.items():
        used = process_group(extents, extents).dims
        unused = tuple(dim for dim in range(len(extents)) if dim not in used)
        if len(used) > 1:
            found.append([(name, (*order, *unused)) for order in _orders(used)])
    return found


def _orders(used: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Every order; of too many to choose from, one more than are accepted."""
    return islice(permutations(used), MOST_CHOICES + 1)


def dimension_algorithms(text: str, extents: Sequence[tuple[int, ...]], kinds: Sequence[str]) -> list[str]:
    """ "ring,direct;direct,direct", or for "all" every algorithm that all groups and collectives can run there."""
    if text != EVERY:
        return [word.strip() for word in text.split(";") if word.strip()]
    axes = []
    for dim in range(len(extents[0])):
        sizes = {one[dim] for one in extents if one[dim] > 1}
        axes.append([name for name in STAGE_ALGORITHMS if _can_run(name, sizes, kinds, dim)] if sizes else [""])
    return [",".join(names) for names in islice(product(*axes), MOST_CHOICES + 1)]


def _can_run(name: str, extents: Iterable[int], kinds: Sequence[str], dim: int) -> bool:
    try:
        for extent, kind in product(extents, kinds):
            check_algorithm(name, extent, kind, dim)
    except WeftError:
        return False
    return True
