"""All algorithms by name: the one place to register a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from inspect import Parameter, signature

from collectives import (
    bfb,
    bucket,
    concurrent_flow,
    dimension_wise,
    direct,
    double_binary_tree,
    hierarchical,
    in_network,
    mirrored_recursive_doubling,
    nccl_rings,
    pairwise,
    parameter_server,
    pipelined,
    recursive_doubling,
    ring,
    swing,
    synthesis,
    themis,
    totient_rings,
    tree,
)
from collectives.core.collective import COLLECTIVES, collective
from collectives.core.schedule import Schedule
from collectives.formats.files import SUFFIX, functions_of
from collectives.formats.msccl_program import RUNTIMES
from topologies import Topology, WeftError
from topologies.checks import checked, choice
from topologies.text.brief import Registry, one_line
from topologies.units import Quantity

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
        Forms that the function takes; collectives with a single form are omitted.
    options : mapping from option name to help
        Options of the functions other than `form` and `element_bytes`.
    discipline : str
        Order of service of links that its schedules were designed for.
    built_from_rates : bool
        Whether the transfers depend on the bandwidths of the links, and not on the wiring alone.
    """

    name: str
    help: str
    limits: str
    functions: Mapping[str, Build]
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    discipline: str = "fifo"
    built_from_rates: bool = False

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

_ANYWHERE = {
    function.__name__.replace("_", "-"): partial(function, routers=True)
    for function in (
        in_network.all_reduce, in_network.reduce_scatter, in_network.all_gather, in_network.broadcast,
        in_network.reduce,
    )
}
"""Naming this algorithm lets the routers of NPUs reduce, which matters on networks without switches."""

_ALGORITHMS = (
    Algorithm(
        swing.NAME,
        "peers on alternating sides at distances 1, 1, 3, 5, 11, ..., on 2D ports",
        "latency form: any shape; bandwidth form: even extents, or one dimension of any extent",
        {"all-reduce": swing.all_reduce, "reduce-scatter": swing.reduce_scatter, "all-gather": swing.all_gather},
        {"all-reduce": swing.FORMS},
    ),
    Algorithm(
        recursive_doubling.NAME,
        "peers at distances 1, 2, 4, ... along each dimension in turn, on a single port",
        "all-reduce: any shape; reduce-scatter and all-gather: extents that are powers of two",
        {
            "all-reduce": recursive_doubling.all_reduce,
            "reduce-scatter": recursive_doubling.reduce_scatter,
            "all-gather": recursive_doubling.all_gather,
        },
        {"all-reduce": recursive_doubling.FORMS},
    ),
    Algorithm(
        mirrored_recursive_doubling.NAME,
        "recursive doubling and its mirror image, starting in every dimension, on 2D ports",
        "all-reduce: any shape; reduce-scatter and all-gather: extents that are powers of two",
        {
            "all-reduce": mirrored_recursive_doubling.all_reduce,
            "reduce-scatter": mirrored_recursive_doubling.reduce_scatter,
            "all-gather": mirrored_recursive_doubling.all_gather,
        },
        {"all-reduce": mirrored_recursive_doubling.FORMS},
    ),
    Algorithm(
        ring.NAME,
        "blocks go around cycles of all ranks, in both directions",
        "one dimension, tiers of switches, or two dimensions that admit two edge-disjoint Hamiltonian cycles",
        {"all-reduce": ring.all_reduce, "reduce-scatter": ring.reduce_scatter, "all-gather": ring.all_gather},
        options={"directions": "1 or 2: directions in which each cycle is used"},
    ),
    Algorithm(
        totient_rings.NAME,
        "blocks go around several rings at once, each with its own jump",
        "any shape; best on a circulant, whose links are the rings",
        {"all-reduce": totient_rings.all_reduce},
        options={"jumps": 'the rings: "1,5,11,15" (default: those of the circulant)'},
    ),
    Algorithm(
        pairwise.NAME,
        "p - 1 steps; in step s to the rank s further on",
        "any shape",
        {"all-to-all": pairwise.all_to_all},
    ),
    Algorithm(
        bucket.NAME,
        "rings along one dimension after the other, on 2D ports",
        "any shape",
        {"all-reduce": bucket.all_reduce, "reduce-scatter": bucket.reduce_scatter, "all-gather": bucket.all_gather},
    ),
    Algorithm(
        direct.NAME,
        "every rank sends to every other at once",
        "any shape",
        {
            "all-reduce": direct.all_reduce,
            "reduce-scatter": direct.reduce_scatter,
            "all-gather": direct.all_gather,
            "all-to-all": direct.all_to_all,
        },
    ),
    Algorithm(
        dimension_wise.NAME,
        "blocks travel and regroup dimension by dimension",
        "any shape",
        {"all-to-all": dimension_wise.all_to_all},
    ),
    Algorithm(
        hierarchical.NAME,
        "reduce-scatter up the dimensions and all-gather down, in pipelined chunks",
        "products of dimensions: torus, mesh, switches, RI(4)_FC(8)_SW(32)",
        {
            "all-reduce": hierarchical.all_reduce,
            "reduce-scatter": hierarchical.reduce_scatter,
            "all-gather": hierarchical.all_gather,
            "all-to-all": hierarchical.all_to_all,
        },
        options=_HIERARCHICAL_OPTIONS,
    ),
    Algorithm(
        themis.NAME,
        "hierarchical, with an order of dimensions per chunk that balances their loads",
        "products of dimensions: torus, mesh, switches, RI(4)_FC(8)_SW(32)",
        {"all-reduce": themis.all_reduce, "reduce-scatter": themis.reduce_scatter, "all-gather": themis.all_gather},
        options=_HIERARCHICAL_OPTIONS,
        built_from_rates=True,
    ),
    Algorithm(
        tree.NAME,
        "a binomial tree, or a chain that forwards chunks",
        "any shape and root",
        {"broadcast": tree.broadcast, "reduce": tree.reduce},
        {"broadcast": tree.FORMS, "reduce": tree.FORMS},
    ),
    Algorithm(
        in_network.NAME,
        "switches, or else the routers of NPUs, reduce along trees; results are multicast",
        "any network whose nodes can reduce; optical switches cannot",
        _ANYWHERE,
        {"all-reduce": in_network.FORMS},
        options={
            "trees": "edge-disjoint trees over which the array is striped (default: 1); not for rail-wise",
            "slots": "chunks of a rank in flight per tree; all-reduce (push) only",
            "routers": "whether the routers of NPUs reduce (default: true)",
        },
    ),
    Algorithm(
        parameter_server.NAME,
        "ranks send to one of them; switches reduce what finds a slot",
        "any network",
        {"all-reduce": partial(parameter_server.all_reduce, routers=True)},
        options={
            "server": "the rank that reduces (default: 0)",
            "fallback": "fraction that switches do not aggregate (default: 1)",
            "parts": "parts that fall back as a unit (default: 64, or as many as the fraction needs)",
            "seed": "which parts fall back (default: 0)",
            "routers": "whether the routers of NPUs aggregate (default: true)",
        },
    ),
    Algorithm(
        pipelined.NAME,
        "packed spanning trees that reach the bandwidth optimum of the network, chunk by chunk",
        "any fabric with identical NPUs, or up to 256 NPUs; switches must send as much as they receive",
        {
            "all-reduce": pipelined.all_reduce,
            "reduce-scatter": pipelined.reduce_scatter,
            "all-gather": pipelined.all_gather,
            "broadcast": pipelined.broadcast,
            "reduce": pipelined.reduce,
        },
        {"all-reduce": pipelined.FORMS},
        options={
            "k": "trees per root (default: as many as the optimum takes)",
            "most_k": "limit on k by default: fewer trees than the optimum takes lose bandwidth (default: 128)",
            "loss": "loss accepted with fewer trees, as a fraction (default: 0.01, or the smallest that is reached)",
        },
        discipline="lowest-chunk-first",
        built_from_rates=True,
    ),
    Algorithm(
        concurrent_flow.NAME,
        "an all-to-all along the routes of a linear program, which load the links evenly",
        "any fabric of up to 64 NPUs; up to 20,000 links x NPUs if they are not alike",
        {"all-to-all": concurrent_flow.all_to_all},
        built_from_rates=True,
    ),
    Algorithm(
        bfb.NAME,
        "breadth-first broadcast: shortest paths with balanced loads in every step",
        "direct networks; up to 128 NPUs if they are not alike",
        {"all-reduce": bfb.all_reduce, "reduce-scatter": bfb.reduce_scatter, "all-gather": bfb.all_gather},
        built_from_rates=True,
    ),
    Algorithm(
        double_binary_tree.NAME,
        "two binary trees, each with half of the array, up and down",
        "any number of ranks",
        {"all-reduce": double_binary_tree.all_reduce},
    ),
    Algorithm(
        nccl_rings.NAME,
        "several rings along the fast links of boxes and their rails, as built by NCCL",
        "boxes, switches, and networks with a cycle of direct links through all NPUs",
        {
            "all-reduce": nccl_rings.all_reduce,
            "reduce-scatter": nccl_rings.reduce_scatter,
            "all-gather": nccl_rings.all_gather,
        },
        built_from_rates=True,
    ),
    Algorithm(
        synthesis.NAME,
        "a randomized greedy search that fills the links over time (TACOS)",
        "any fabric of up to 100,000 blocks x NPUs",
        {
            "all-reduce": synthesis.all_reduce,
            "reduce-scatter": synthesis.reduce_scatter,
            "all-gather": synthesis.all_gather,
        },
        options={
            "parts": "blocks per rank (default: 1)", "seed": "random seed (default: 0)",
            "runs": "searches, of which the best is used (default: 3)",
        },
        built_from_rates=True,
    ),
)

BUILT_IN = frozenset(map(id, _ALGORITHMS))
"""Identities of weft's own algorithms, whose changes `sim.version.RESULTS_VERSION` tells."""

ALGORITHMS = Registry("algorithms", {algorithm.name: algorithm for algorithm in _ALGORITHMS})
"""The registry: an algorithm added here appears in the comparisons, the tests and the tables."""


@checked
def algorithm(name: str) -> Algorithm:
    """Look up an algorithm by name; a name that ends in .xml is an MSCCL or ForestColl file.

    Raises
    ------
    WeftError
        No such algorithm.
    """
    if name.endswith(SUFFIX):
        runtime = f"of MSCCL, whose limits hold: {', '.join(RUNTIMES)} (default: the widest; others are noted)"
        return Algorithm(
            name, "a schedule from a file", "as many ranks as in the file", functions_of(name),
            options={"runtime": runtime},
        )
    return ALGORITHMS[choice(name, ALGORITHMS, "algorithm", f", or a file {SUFFIX}")]


@checked
def algorithms_for(kind: str) -> tuple[str, ...]:
    """Names of the algorithms that implement a collective."""
    return tuple(name for name, one in ALGORITHMS.items() if collective(kind).name in one.functions)


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
    if kind not in chosen.functions:
        raise WeftError(
            f"{name} does not implement {kind}, only {', '.join(chosen.functions)}; {kind} is implemented by "
            f"{', '.join(algorithms_for(kind)) or 'none'}"
        )
    accepted = _options_of(chosen, kind)
    for option in options:
        choice(option, accepted, f"{name} {kind} option")
    if form is not None:
        if not chosen.forms_of(kind):
            raise WeftError(f"{name} {kind} has no form {form!r}: omit the form")
        choice(form, chosen.forms_of(kind), f"{name} {kind} form")
        options["form"] = form
    return chosen.functions[kind](topology, size, **options)


def _options_of(chosen: Algorithm, kind: str) -> tuple[str, ...]:
    """Options of an algorithm that apply to one collective."""
    parameters = _parameters(chosen.functions[kind])
    any_name = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    taken = (option for option in chosen.options if any_name or option in parameters)
    return (*taken, "element_bytes", *(["root"] if COLLECTIVES[kind].rooted else []))


@lru_cache(maxsize=256)
def _parameters(function: Build) -> Mapping[str, Parameter]:
    return signature(function).parameters
