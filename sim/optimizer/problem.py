"""A design problem: a network, what runs on it, what it costs and what limits its bandwidths."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sim.analytic.constraints import Constraint, Feasible, budget, parse_constraint
from sim.analytic.cost import Cost
from sim.analytic.libra import Placed
from sim.optimizer.network import Network
from topologies.checks import WeftError, choice, nearest
from topologies.units import Quantity, parse_bandwidth
from workloads.compute import Accelerator
from workloads.formats.comm_groups import read_extents
from workloads.formats.recognize import LAYERS, format_of
from workloads.formats.text_workload import read_text_workload
from workloads.model_workload import training_workload
from workloads.models import MODELS, model
from workloads.parallelism import parse_parallelism
from workloads.pipeline import Pipeline, activation_bytes
from workloads.text_groups import own_groups
from workloads.training import process_groups

USUAL_TENSOR = {"gpt-3": 16, "msft-1t": 128}
"""Default tensor parallelism: that of LIBRA's evaluation; 1 for other models."""

USUAL_SAMPLES = {"token": 32768, "image": 32, "row": 2048}
"""Default samples per tensor-parallel group and iteration."""

LEAST_GBPS = 1e-6
"""Ten times what linear programs take for nothing."""

BUDGET_RULES = ("spent", "at-most")


class Microbatches(NamedTuple):
    """Number of microbatches, activation size of each (default: from the model), and their order."""

    number: int
    activation_bytes: int | None
    order: str


def place_workload(
    name: str, network: Network, *, communicator: str | None = None, parallelism: str | None = None,
    samples: float | None = None, accelerator: Accelerator | None = None, compute_scale: float = 1.0,
    weight: float = 1.0, microbatches: Microbatches | None = None,
) -> Placed:
    """A workload on the dimensions of a network.

    `name`: a model of `workloads.models`, or a text workload file.
    `communicator`: file with the groups of a text workload.
    `parallelism`: of a model: "tp=16,dp=256"; default: that of LIBRA's evaluation.
    `samples`: per tensor-parallel group of a model and iteration; per microbatch if there is a pipeline.
    `accelerator`: for a model, which does not include compute times.
    `compute_scale`: multiplies the compute times.
    `microbatches`: of a model with pipeline stages.
    WeftError: flags that do not go with the kind of workload, or groups that do not fit the network.
    """
    shape = network.topology.shape
    if name not in MODELS:
        if (source := format_of(name)) != LAYERS:
            raise WeftError(f"bandwidth is split by collectives of layers, and {name} is {source}: weft train times "
                            "it on a given network")
        if not Path(name).is_file():
            raise WeftError(f"workload {name!r} is neither a file nor a model: models are {', '.join(MODELS)}"
                            f"{nearest(name, MODELS)}")
        if microbatches is not None:
            raise WeftError(f"workload {name} has no pipeline stages: microbatches are of a model with pp above 1")
        workload = read_text_workload(name, network.topology.n_npus).scaled(compute_scale)
        if communicator is not None:
            place = partial(process_groups, workload, shape=shape)
            return Placed(workload, read_extents(communicator, shape, place), weight)
        if (found := own_groups(workload, shape)) is None:
            raise WeftError(f"workload {name} does not define its process groups: give --communicator FILE")
        return Placed(*found, weight)
    if communicator is not None:
        raise WeftError(f"model {name} has groups by its parallelism: leave out the communicator file {communicator}")
    if accelerator is None:
        raise WeftError(f"model {name} needs an accelerator: operations per second and the share that training reaches")
    chosen = model(name)
    how = parse_parallelism(f"tp={USUAL_TENSOR.get(name, 1)}" if parallelism is None else parallelism, math.prod(shape))
    if (how.pp > 1) != (microbatches is not None):
        raise WeftError(f"model {name} with pp={how.pp}: microbatches need pipeline stages, and stages microbatches")
    if microbatches is not None and microbatches.number < 1:
        raise WeftError(f"model {name} with {microbatches.number} microbatches: at least 1")
    usual = USUAL_SAMPLES[chosen.sample]
    if microbatches is None:
        count = usual if samples is None else samples
        workload = training_workload(chosen, how, accelerator, count, bundled=True).scaled(compute_scale)
        return Placed(workload, how.groups(shape), weight)
    count = usual / microbatches.number if samples is None else samples
    workload = training_workload(chosen, replace(how, pp=1), accelerator, count).scaled(compute_scale)
    own = activation_bytes(chosen, count, how.tp)
    size = own if microbatches.activation_bytes is None else microbatches.activation_bytes
    pipeline = Pipeline(microbatches=microbatches.number, activation_bytes=size, order=microbatches.order)
    return Placed(workload, how.groups(shape), weight, pipeline)


def limits(
    n_dims: int, *, total: Quantity | None = None, rule: str = "spent", constraints: Sequence[str] = (),
    cost: Cost | None = None, dollars: float | None = None,
) -> Feasible:
    """The bandwidths that are allowed.

    `total`: per NPU, over all dimensions: "500GB/s".
    `rule`: {"spent", "at-most"}; whether the total is spent in full, as LIBRA's files do, or may be less.
    `constraints`: "B1 >= B2", "B3 + B4 = 200GB/s", ...
    `dollars`: upper limit of the network's cost; needs `cost`.
    WeftError: a contradiction, an unknown rule, or $ without prices.
    """
    choice(rule, BUDGET_RULES, "budget rule")
    rows = [parse_constraint(text, n_dims) for text in constraints]
    if total is not None:
        rows.insert(0, budget(parse_bandwidth(total, "budget") / 1e9, n_dims, spent=rule == "spent"))
    if (small := next((one for one in rows if 0 < abs(one.bound) < LEAST_GBPS), None)) is not None:
        raise WeftError(f"constraint {small.text}: the least that a solver tells apart from nothing is "
                        f"{LEAST_GBPS:g} GB/s")
    if dollars is not None:
        if cost is None:
            raise WeftError("a limit in $ needs the prices of the network")
        rows.append(Constraint(tuple(cost.price.tolist()), dollars - cost.fixed, False, f"cost <= {dollars:g} $"))
    if not rows:
        raise WeftError("nothing limits the bandwidths: give a budget such as 500GB/s, a limit in $, or constraints")
    return Feasible(rows, n_dims)
