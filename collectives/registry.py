"""All algorithms by name: the one place to register a new one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from inspect import Parameter, signature
from types import ModuleType
from typing import Any

from collectives import (
    bfb,
    bine,
    bruck,
    bucket,
    concurrent_flow,
    dimension_wise,
    direct,
    double_binary_tree,
    fast,
    hierarchical,
    in_network,
    mirrored_recursive_doubling,
    nccl_rings,
    nccl_trees,
    nvls_trees,
    pairwise,
    parameter_server,
    pat,
    pipelined,
    recursive_doubling,
    recursive_multiplying,
    ring,
    stragglar,
    swing,
    synthesis,
    themis,
    totient_rings,
    tree,
    trivance,
)
from collectives.core.collective import COLLECTIVES, collective, plain_name
from collectives.core.schedule import Schedule
from collectives.formats.names import SUFFIX
from topologies import Topology, WeftError
from topologies.checks import checked, choice
from topologies.lazy import later
from topologies.stages import staged
from topologies.text.brief import Registry, one_line
from topologies.units import Quantity

functions_of, options_of, check_is_no_file = (
    later(f"collectives.formats.files:{name}") for name in ("functions_of", "options_of", "check_is_no_file")
)


def _never(topology: Topology) -> bool:
    return False


Build = Callable[..., Schedule]
"""A function (topology, size, *, options) -> Schedule."""


@checked
@one_line
@dataclass(frozen=True)
class Algorithm:
    """An algorithm, and the collectives it implements.

    Attributes
    ----------
    name : str
        As on the command line: "recursive-doubling".
    help : str
        One line: what it is.
    limits : str
        One line: where it applies.
    functions : mapping from collective name to function
    forms : mapping from collective name to tuple of str
        Forms that the function takes, or the one that it has; collectives whose form has no name are omitted.
    options : mapping from option name to help
        Options of the functions other than `form` and `element_bytes`.
    discipline : str
        Order of service of links that its schedules were designed for.
    built_from_rates : bool
        Whether the transfers depend on the bandwidths of the links, and not on the wiring alone.
    reducing : str
        Which switches must reduce and multicast for it: "all", those of "boxes", or "" for none.
    is_long : callable (Topology) -> bool
        Whether it takes more than a few seconds to build on a fabric, so that it runs there only if it is named.
    """

    name: str
    help: str
    limits: str
    functions: Mapping[str, Build]
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    discipline: str = "fifo"
    built_from_rates: bool = False
    reducing: str = ""
    is_long: Callable[[Topology], bool] = _never

    def forms_of(self, kind: str) -> tuple[str, ...]:
        """Forms for one collective; empty if there is no choice."""
        return self.forms.get(collective(kind).name, ())


_HIERARCHICAL_OPTIONS = {
    "pipeline_chunks": "chunks pipelined through the dimensions",
    "active_chunks": "chunks a rank works on at once in a dimension (None: no limit)",
    "service": "which waiting chunk a dimension serves next: fifo or smallest-first",
    "algorithms": "ring, direct or halving-doubling per dimension: \"ring,,direct\"",
    "group": "NPUs per process group along each dimension, -1 for unused: \"16,-1,-1\", \"-1,2@4,32\"",
    "order": "dimensions in the order of the reduce-scatter, 0 the innermost: \"2,0,1\"; not for themis",
}


@lru_cache(maxsize=256)
def _parameters(function: Build) -> Mapping[str, Parameter]:
    return signature(function).parameters


def _entry(
    module: ModuleType, help: str, limits: str, bound: Mapping[str, object] | None = None, **more: Any
) -> Algorithm:
    """The algorithm of a module: its NAME, its functions that are called as the collectives are, and their FORMS.

    Functions that take no form have the only one of the module, ONLY_FORM, if that has a name.
    `bound`: arguments that naming the algorithm gives.
    """
    own = {kind: vars(module)[kind.replace("-", "_")] for kind in COLLECTIVES if kind.replace("-", "_") in vars(module)}
    only = vars(module).get("ONLY_FORM", ())
    taken = {kind: getattr(one, "__annotations__", None) or _parameters(one) for kind, one in own.items()}
    forms = {kind: found for kind, one in taken.items() if (found := module.FORMS if "form" in one else only)}
    functions = {kind: partial(one, **bound) for kind, one in own.items()} if bound else own
    return Algorithm(
        module.NAME, help, limits, functions, forms, is_long=vars(module).get("is_long", _never), **more
    )


_ROUTERS = {"routers": True}
"""The routers of NPUs reduce, which matters on networks without switches."""

_ALGORITHMS = (
    _entry(
        swing,
        "peers on alternating sides at distances 1, 1, 3, 5, 11, ..., on 2D ports",
        "latency form: any shape; bandwidth form: even extents, or one dimension of any extent",
    ),
    _entry(
        recursive_doubling,
        "peers at distances 1, 2, 4, ... along each dimension in turn, on a single port",
        "all-reduce: any shape; reduce-scatter and all-gather: extents that are powers of two",
        options={"pairs": "aligned, 0 and 1 first, or shifted, 1 and 2 first (default: aligned); all-reduce only"},
    ),
    _entry(
        mirrored_recursive_doubling,
        "recursive doubling and its mirror image, starting in every dimension, on 2D ports",
        "all-reduce: any shape; reduce-scatter and all-gather: extents that are powers of two",
    ),
    _entry(
        recursive_multiplying,
        "groups of a few ranks exchange all with all, digit by digit of their numbers, on a single port",
        "any shape",
        options={"radix": "most ranks that exchange in a step (default: 8)"},
    ),
    _entry(
        trivance,
        "both neighbors at distances 1, 3, 9, ..., along each dimension in turn, on D ports",
        "bandwidth form: any shape; latency form: extents that are powers of three",
    ),
    _entry(
        bine,
        "trees and butterflies by digits in base -2, over the ranks in their order, on a single port",
        "all-reduce (latency) and from or to a root: any shape; the rest: an even number of ranks",
        options={"peers": "aligned, 0 and 1 meet, or shifted, 1 and 2, for jobs that begin at an odd place of a group "
                          "(default: aligned)"},
    ),
    _entry(
        bruck,
        "to the ranks ahead by powers of a radix, all that goes that way at once",
        "any shape",
        options={"radix": "messages that are sent at once, and one (default: 2)"},
    ),
    _entry(
        ring,
        "blocks go around cycles of all ranks, in both directions",
        "one dimension, tiers of switches, or two dimensions that admit two edge-disjoint Hamiltonian cycles",
        options={"directions": "1 or 2: directions in which each cycle is used"},
    ),
    _entry(
        totient_rings,
        "blocks go around several rings at once, each with its own jump",
        "any shape; best on a circulant, whose links are the rings",
        options={"jumps": 'the rings: "1,5,11,15" (default: those of the circulant)'},
    ),
    _entry(pairwise, "p - 1 steps; in step s to the rank s further on", "any shape"),
    _entry(bucket, "rings along one dimension after the other, on 2D ports", "any shape"),
    _entry(direct, "every rank sends to every other at once", "any shape"),
    _entry(dimension_wise, "blocks travel and regroup dimension by dimension", "any shape"),
    _entry(
        hierarchical,
        "reduce-scatter up the dimensions and all-gather down, in pipelined chunks",
        "products of dimensions: torus, mesh, switches, RI(4)_FC(8)_SW(32)",
        options=_HIERARCHICAL_OPTIONS,
    ),
    _entry(
        themis,
        "hierarchical, with an order of dimensions per chunk that balances their loads",
        "products of dimensions: torus, mesh, switches, RI(4)_FC(8)_SW(32)",
        options=_HIERARCHICAL_OPTIONS,
        built_from_rates=True,
    ),
    _entry(tree, "a binomial tree, or a chain that forwards chunks", "any shape and root"),
    _entry(
        in_network,
        "switches, or else the routers of NPUs, reduce along trees; results are multicast",
        "any network whose nodes can reduce; optical switches cannot",
        _ROUTERS,
        options={
            "trees": "edge-disjoint trees over which the array is striped (default: 1); not for rail-wise",
            "slots": "chunks of a rank in flight per tree; all-reduce (push) only",
            "routers": "whether the routers of NPUs reduce (default: true)",
        },
        reducing="all",
    ),
    _entry(
        parameter_server,
        "ranks send to one of them; switches reduce what finds a slot",
        "any network",
        _ROUTERS,
        options={
            "server": "the rank that reduces (default: 0)",
            "fallback": "fraction that switches do not aggregate (default: 1)",
            "parts": "parts that fall back as a unit (default: 64, or as many as the fraction needs)",
            "seed": "which parts fall back (default: 0)",
            "routers": "whether the routers of NPUs aggregate (default: true)",
        },
    ),
    _entry(
        pipelined,
        "packed spanning trees that reach the bandwidth optimum of the network, chunk by chunk",
        "any fabric of alike NPUs or no switches (1,140 NPUs), or up to 256; switches must send what they receive",
        options={
            "k": "trees per root (default: as many as the optimum takes)",
            "most_k": "limit on k by default: fewer trees than the optimum takes lose bandwidth (default: 128)",
            "loss": "loss accepted with fewer trees, as a fraction (default: 0.01, or the smallest that is reached)",
            "paths": "past switches any, or the fabric's routes, which programs take that name ranks (default: any)",
            "switches": "all-reduce: whether they forward, or reduce and multicast inside the trees (default: forward)",
        },
        discipline="lowest-chunk-first",
        built_from_rates=True,
    ),
    _entry(
        concurrent_flow,
        "an all-to-all along the routes of a linear program, which load the links evenly",
        "any fabric of up to 512 NPUs; up to 20,000 links x NPUs if they are not alike",
        built_from_rates=True,
    ),
    _entry(
        fast,
        "an all-to-all balanced inside boxes, in phases of one box to one box (FAST)",
        "equal boxes; up to 2,000,000 places for pieces, phases by pairs of NPUs",
    ),
    _entry(
        bfb,
        "breadth-first broadcast: shortest paths with balanced loads in every step",
        "direct networks; up to 128 NPUs if they are not alike",
        built_from_rates=True,
    ),
    _entry(double_binary_tree, "two binary trees, each with half of the array, up and down", "any number of ranks"),
    _entry(
        nccl_rings,
        "several rings along the fast links of boxes and their rails, as built by NCCL",
        "boxes, switches, and networks with a cycle of direct links through all NPUs",
        options={
            "share_links": "two rings use each link of a mesh, so that all are filled: true or false (default: false)",
            "posted": "forward without waiting for one's own previous send: true or false (default: false)",
        },
        built_from_rates=True,
    ),
    _entry(
        nccl_trees,
        "chains inside boxes and double binary trees between them, as built by NCCL",
        "equal boxes",
    ),
    _entry(
        nvls_trees,
        "boxes reduce in their switches, double binary trees between them: NVLSTree of NCCL",
        "equal boxes",
        _ROUTERS,
        options={"routers": "whether the routers of NPUs reduce (default: true)"},
        reducing="boxes",
    ),
    _entry(
        pat,
        "binomial trees from all ranks at once, far ranks first, messages of a step together",
        "any shape",
        options={"aggregation": "most blocks of a message, a power of two (default: no limit)"},
    ),
    _entry(
        stragglar,
        "all but a late rank reduce and scatter; it exchanges with one after another, who hand on the sums (StragglAR)",
        "powers of two up to 512",
        options={"late": "the rank that begins late, by a fault plan (default: 0)"},
    ),
    _entry(
        synthesis,
        "a randomized greedy search that fills the links over time (TACOS)",
        "any fabric of up to 2,500,000 transfers, 300,000 past switches: blocks x NPUs, twice as many in an all-reduce",
        options={
            "parts": "blocks per rank (default: 1)", "seed": "random seed (default: 0)",
            "runs": "searches, of which the best is used (default: 3)",
        },
        built_from_rates=True,
    ),
)

PAIRS = "pairs"
"""The option of an all-to-all that says how much each rank sends every other."""

BUILT_IN = frozenset(map(id, _ALGORITHMS))
"""Identities of weft's own algorithms, whose changes `sim.version.RESULTS_VERSION` tells."""

ALGORITHMS = Registry("algorithms", {algorithm.name: algorithm for algorithm in _ALGORITHMS})
"""The registry: an algorithm added here appears in the comparisons, the tests and the tables."""


REDUCING = frozenset(one.name for one in _ALGORITHMS if one.reducing)
"""Names of weft's own that take switches which reduce."""

REDUCES = "switches, or routers, reduce and multicast"
"""The note of a schedule that takes them."""


@checked
def algorithm(name: str) -> Algorithm:
    """Look up an algorithm by name, as `spelled` reads it; one that ends in .xml or .json is a file.

    Raises
    ------
    WeftError
        No such algorithm.
    """
    if name.endswith(SUFFIX):
        return Algorithm(
            name, "a schedule from a file", "as many ranks as in the file", functions_of(name),
            options=options_of(name),
        )
    if name not in ALGORITHMS:
        check_is_no_file(name)
    return ALGORITHMS[choice(spelled(name), ALGORITHMS, "algorithm", f", or a file {' or '.join(SUFFIX)}")]


@checked
def spelled(name: str) -> str:
    """The name under which an algorithm is registered: "recursive_doubling" is "recursive-doubling"; else the name.

    Examples
    --------
    >>> spelled("Swing"), spelled("recursive_doubling"), spelled("mine.xml")
    ('swing', 'recursive-doubling', 'mine.xml')
    """
    if name in ALGORITHMS or name.endswith(SUFFIX):
        return name
    alike = [one for one in ALGORITHMS if plain_name(one) == plain_name(name)]
    return alike[0] if len(alike) == 1 else name


@checked
def algorithms_for(kind: str, *, pairs: bool = False) -> tuple[str, ...]:
    """Names of the algorithms that implement a collective; with `pairs`, of those that take sizes per pair of ranks."""
    wanted = collective(kind).name
    found = [(name, one.functions[wanted]) for name, one in ALGORITHMS.items() if wanted in one.functions]
    return tuple(name for name, function in found if not pairs or PAIRS in _parameters(function))


@staged("pattern")
def check_implements(name: str, kind: str) -> None:
    """Reject an algorithm that does not have a collective."""
    chosen = algorithm(name)
    if kind not in chosen.functions:
        raise WeftError(
            f"{name} does not implement {kind}, only {', '.join(chosen.functions)}; {kind} is implemented by "
            f"{', '.join(algorithms_for(kind)) or 'none'}"
        )


@checked
def build(
    name: str, kind: str, topology: Topology, size: Quantity, form: str | None = None, **options: object
) -> Schedule:
    """The schedule of an algorithm for a collective.

    Parameters
    ----------
    name : str
        An algorithm: "swing".
    kind : str
        A collective: "all-reduce".
    topology : Topology
    size : quantity
        Bytes of the array, as nccl-tests counts it.
    form : str, optional
        If the algorithm has several (default: the algorithm's choice).
    **options
        Options of the algorithm, and `element_bytes`.

    Raises
    ------
    WeftError
        An unknown algorithm, collective, form or option, or a shape that the algorithm does not support.
    """
    chosen, kind = algorithm(name), collective(kind).name
    check_implements(name, kind)
    accepted = _options_of(chosen, kind)
    for option in options:
        choice(option, accepted, f"{name} {kind} option")
    if form is not None:
        if not chosen.forms_of(kind):
            raise WeftError(f"{name} {kind} has no form {form!r}: omit the form")
        choice(form, chosen.forms_of(kind), f"{name} {kind} form")
        if "form" in _parameters(chosen.functions[kind]):
            options["form"] = form
    return chosen.functions[kind](topology, size, **options)


def _options_of(chosen: Algorithm, kind: str) -> tuple[str, ...]:
    """Options of an algorithm that apply to one collective."""
    parameters = _parameters(chosen.functions[kind])
    any_name = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    taken = (option for option in chosen.options if any_name or option in parameters)
    more = ("root", COLLECTIVES[kind].rooted), (PAIRS, PAIRS in parameters)
    return (*taken, "element_bytes", *(name for name, there in more if there))
