"""Design problems of a spec: its section `[optimize]`, one study per network."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from collectives import bfb, concurrent_flow, pipelined
from collectives.registry import algorithm
from collectives.trees.transitive import has_free_translations
from sim.analytic.cost import PRICES, Cost
from sim.analytic.libra import LOOPS as ANALYTIC_LOOPS
from sim.analytic.libra import Placed
from sim.how import AS_USUAL, How
from sim.optimizer.knobs import HIERARCHICAL, Asked
from sim.optimizer.network import Network, circulants, read_any_network
from sim.optimizer.problem import Microbatches, limits, place_workload
from sim.optimizer.study import Study
from sim.study.keys import OptimizeKeys, filled
from sim.study.plans import ALGORITHM, label_of, no_model, plan_on
from sim.study.spec import DEFAULT_SIZE, Spec
from sim.study.workload_keys import said
from topologies.checks import WeftError, number
from topologies.units import parse_bandwidth, parse_size
from workloads.compute import TERA, Accelerator
from workloads.formats.libra_files import read_prices
from workloads.models import MODELS
from workloads.passes.plan import Plan
from workloads.training import LOOPS as SIMULATED_LOOPS

LOOP, PEAK, EFFICIENCY = "no-overlap", 312.0, 0.75
"""Where none is given."""


def make_studies(spec: Spec, how: How = AS_USUAL) -> list[Study]:
    """One study for each network.

    `how`: the engine runs.

    WeftError: keys that contradict each other, and errors in the files.
    """
    return [_make_study(one, str(one.fabric), how) for one in each_network(spec)]


def each_network(spec: Spec) -> list[Spec]:
    """The spec with each of its networks alone."""
    asked = spec.optimize
    names = [name for text in asked.network or () for name in circulants(text, asked.degrees)]
    return [replace(spec, optimize=replace(asked, network=(name,), degrees=None)) for name in names]


def label_of_design(spec: Spec) -> str:
    """What a network is designed for: "gpt-3 budget=100GB/s"."""
    of = label_of(spec) if spec.iteration.model else spec.collective.name or "+".join(spec.optimize.workload or ())
    given = {name: value for name, value in vars(spec.optimize).items() if value != getattr(OptimizeKeys(), name)}
    more = [f"{name}={cell_of(value)}" for name, value in given.items() if name not in ("network", "workload")]
    return " ".join([of, *more])


def cell_of(value: Any) -> Any:
    """A value of a key in a cell of a table."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def files_of_design(spec: Spec) -> list[str]:
    """Networks, workloads, groups and prices that are files; those that are not there are told as the study is made."""
    asked = spec.optimize
    some = (*(asked.network or ()), *(asked.workload or ()), *(asked.communicator or ()), asked.cost or "")
    return [name for name in some if name and Path(name).is_file()]


def design_row(study: Study) -> dict[str, Any]:
    """The row of a network in a sweep."""
    begun = perf_counter()
    (row,) = study.rows()
    return row | {"wall_s": perf_counter() - begun}


def _make_study(spec: Spec, name: str, how: How) -> Study:
    asked, loop, kind = spec.optimize, spec.training.loop or LOOP, spec.kind.name if spec.collective.name else ""
    network = read_any_network(name, spec.topology.link_latency, spec.topology.hop_latency)
    plan = _plan(spec, name, network)
    placed = () if plan else _place(spec, network)
    cost = _cost(spec, network)
    if asked.objective == "time-cost" and cost is None:
        raise WeftError("--objective time-cost needs prices: give --cost FILE, or a network of RI, FC and SW")
    feasible = limits(
        network.n_dims, total=asked.budget, rule=asked.budget_rule, constraints=asked.constraint or (), cost=cost,
        dollars=asked.budget_cost,
    )
    _check(spec, placed)
    if placed and asked.evaluator == "analytic" and not network.has_formulas:
        raise WeftError(f"{name}: LIBRA's formulas need dimensions of NPUs: omit --evaluator analytic")
    names, any_of = _algorithms(spec), is_open(spec)
    others = {one: why for one in names if any_of and (why := _unsearched(spec, one, network))}
    names = tuple(one for one in names if one not in others)
    if not names:
        raise WeftError(f"no algorithm can be searched; {'; '.join(f'{one}: {why}' for one, why in others.items())}")
    knobs = Asked(
        algorithms=names, chunks=_chunks(asked.chunks or ((1,) if plan else (16,))),
        options=asked.option or (), orders=asked.orders,
        dimension_algorithms=asked.dimension_algorithms, forms=_forms(spec, names),
    )
    begin = spec.sweep.begin
    return Study(
        network=network, plan=plan, placed=placed, collective=kind,
        size_bytes=parse_size(DEFAULT_SIZE if begin is None else begin), feasible=feasible, cost=cost,
        goal=asked.objective, evaluator=asked.evaluator, loop=loop, checkpointed=asked.checkpointed,
        knobs=knobs.choices(network.topology.shape, placed, kind),
        lane_GBps=None if asked.lane is None else parse_bandwidth(asked.lane, "--lane") / 1e9,
        evaluations=asked.evaluations, wants_sensitivity=asked.sensitivity, symmetry=spec.symmetry,
        counting=asked.counting, how=how, is_open=any_of, not_searched=others,
    )


def _check(spec: Spec, placed: Sequence[Placed]) -> None:
    asked, loop = spec.optimize, spec.training.loop or LOOP
    loops = ANALYTIC_LOOPS if asked.evaluator == "analytic" else SIMULATED_LOOPS
    if asked.evaluator == "analytic" and spec.iteration.model:
        raise WeftError("--evaluator analytic is of collectives and layers, and --model has no formulas: omit it")
    if loop not in loops:
        known = ", ".join(loops)
        raise WeftError(f"--loop {loop!r} is unknown to the {asked.evaluator} evaluator: choose one of {known}")
    if asked.checkpointed and loop not in ANALYTIC_LOOPS:
        raise WeftError(f"--checkpointed cannot be combined with --loop {loop}")
    if asked.checkpointed and any(one.pipeline for one in placed):
        raise WeftError("--checkpointed cannot be combined with pipeline stages")
    if asked.evaluations < 1:
        raise WeftError(f"--evaluations {asked.evaluations}: at least 1")
    if placed and asked.evaluator == "analytic":
        given = {
            "--algorithms": spec.collective.algorithms, "--option": asked.option, "--orders": asked.orders,
            "--dimension-algorithms": asked.dimension_algorithms,
        }
        for flag, value in given.items():
            if value:
                raise WeftError(f"{flag} has no effect in LIBRA's formulas of a workload: omit --evaluator analytic")


def _plan(spec: Spec, name: str, network: Network) -> Plan | None:
    """The plan of a language model; None where none is named."""
    asked = spec.optimize
    if spec.iteration.model is None:
        no_model(spec)
        return None
    for key in ("workload", "communicator", "parallelism", "weight", "checkpointed", *_OF_KNOBS):
        if value := getattr(asked, key):
            what = "collectives, which --model has as in weft train" if key in _OF_KNOBS else "layers"
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            raise WeftError(f"{said(key, shown)} is of {what}: omit it beside --model")
    return plan_on(spec, name, network.topology.n_npus)


_OF_KNOBS = ("option", "orders", "dimension_algorithms")


def _place(spec: Spec, network: Network) -> tuple[Placed, ...]:
    asked = spec.optimize
    names = asked.workload or ()
    if bool(names) == bool(spec.collective.name):
        raise WeftError("give either --workload, --collective or --model")
    of_both = (spec.workload, spec.training)
    of_workloads: list[tuple[Any, str]] = [(keys, name) for keys in of_both for name in vars(keys)]
    of_workloads += [(asked, name) for name in ("weight", "communicator", "parallelism", "checkpointed")]
    for keys, name in of_workloads if not names else ():
        if (value := getattr(keys, name)) not in (None, False):
            value = ",".join(map(str, value)) if isinstance(value, tuple) else value
            raise WeftError(f"{said(name, value)} is of workloads, and --collective is given: omit it")
    if spec.training.microbatches is None:
        for name in ("activation", "pipeline_order"):
            if (value := getattr(spec.training, name)) is not None:
                raise WeftError(f"{said(name, value)} is of a pipeline: give --microbatches, or omit it")
    if spec.sweep.begin is not None and names:
        raise WeftError("--size belongs to --collective; a workload has its own sizes")
    files = [name for name in names if name not in MODELS]
    models = [name for name in names if name in MODELS]
    communicator = _one_each(asked.communicator, files, "--communicator", "text workloads", None)
    parallelism = _one_each(asked.parallelism, models, "--parallelism", "models", None)
    weight = _one_each(asked.weight, names, "--weight", "workloads", 1.0)
    work = filled(spec.workload)
    for name in ("samples", "peak", "efficiency") if not models else ():
        if (value := getattr(work, name)) is not None:
            raise WeftError(f"{said(name, value)} is for models: a workload file states its own compute times")
    peak, efficiency = PEAK if work.peak is None else work.peak, work.efficiency
    accelerator = Accelerator(
        number(peak, "peak", 0, above=True) * TERA, EFFICIENCY if efficiency is None else efficiency)
    return tuple(
        place_workload(
            name, network, communicator=communicator.pop(0) if name in files else None,
            parallelism=parallelism.pop(0) if name in models else None, samples=work.samples,
            accelerator=accelerator, compute_scale=work.compute_scale, weight=weight.pop(0),
            microbatches=_microbatches(spec),
        )
        for name in names
    )


def _microbatches(spec: Spec) -> Microbatches | None:
    training = filled(spec.training)
    if training.microbatches is None:
        return None
    activation = None if training.activation is None else parse_size(training.activation, "--activation")
    return Microbatches(training.microbatches, activation, training.pipeline_order)


def _one_each(given: Sequence[Any] | None, names: Sequence[str], flag: str, what: str, default: Any) -> list[Any]:
    """As many values as names."""
    if not given:
        return [default] * len(names)
    if len(given) != len(names):
        raise WeftError(f"{flag} is given {len(given)} times for {len(names)} {what}: one each, in their order")
    return list(given)


def _cost(spec: Spec, network: Network) -> Cost | None:
    asked = spec.optimize
    prices = PRICES if asked.cost is None else read_prices(asked.cost)
    wanted = asked.cost is not None or asked.budget_cost is not None or asked.objective == "time-cost"
    if not wanted and not network.has_usual_prices:
        return None
    return network.cost(prices, counting=asked.counting, fixed=asked.fixed_cost)


def is_open(spec: Spec) -> bool:
    """Whether all algorithms of a collective are searched: none is named, nor anything that only one has."""
    asked = spec.optimize
    return bool(spec.collective.name) and not (spec.collective.algorithms or asked.orders or asked.dimension_algorithms)


def _algorithms(spec: Spec) -> tuple[str, ...]:
    if is_open(spec):
        return spec.algorithms
    names = spec.collective.algorithms or (ALGORITHM if spec.iteration.model else HIERARCHICAL,)
    for name in names:
        algorithm(name)
    return names


def _unsearched(spec: Spec, name: str, network: Network) -> str:
    """Why an algorithm that nobody named is not searched; empty if it is."""
    form, one = spec.collective.form, algorithm(name)
    if form is not None and form not in one.forms_of(spec.kind.name):
        return f"it has no {form} form"
    if spec.optimize.evaluator == "analytic" and one.built_from_rates:
        return "it is built anew at each split, and has no formula: omit --evaluator analytic"
    if name in SLOWLY_BUILT and network.topology.n_npus > MOST_BUILT and not has_free_translations(network.topology):
        return f"it takes long to build anew at each split, for more than {MOST_BUILT} NPUs that are not alike"
    if (why := spec.unasked(name, network.topology)) and one.reducing:
        return f"{network.name} does not say that its switches reduce: name it to search it"
    return why


SLOWLY_BUILT, MOST_BUILT = (pipelined.NAME, concurrent_flow.NAME, bfb.NAME), 64
"""Algorithms that take up to 9 s of CPU at a split of RI(4)_FC(8)_SW(4), where others that are built from bandwidths
take 0.6, and the limit on NPUs that are not alike for searching them unnamed: up to 2 s."""


def _forms(spec: Spec, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Forms to choose from, by algorithm; the collectives of a workload are in their algorithm's own choice.

    WeftError: a form is asked for a workload, or of algorithms that have no such form.
    """
    form = spec.collective.form
    if not spec.collective.name:
        if form is not None:
            raise WeftError("--form belongs to --collective; each collective of a workload has its algorithm's choice")
        return {}
    for name in names:
        if form is not None and form not in (known := algorithm(name).forms_of(spec.kind.name)):
            raise WeftError(f"--form {form}: {name} {spec.kind.name} has {', '.join(known) or 'one form only'}")
    return {name: spec.forms_of(name) for name in names}


def _chunks(counts: tuple[int, ...]) -> tuple[int, ...]:
    if any(count < 1 for count in counts):
        raise WeftError(f"--chunks {','.join(map(str, counts))}: write integers of at least 1, joined by commas")
    return counts
