"""A design problem: a network, what runs on it, what it costs and what limits its bandwidths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.analytic.constraints import Constraint, Feasible, budget, parse_constraint
from sim.analytic.cost import PRICES, TIERS, Cost, network_cost, usual_tiers
from sim.analytic.libra import Placed
from topologies import Topology, WeftError, from_spec
from topologies.multidim import DimensionOrderRouter
from topologies.units import Quantity, parse_bandwidth
from workloads.compute import Accelerator
from workloads.iteration import training_workload
from workloads.libra_files import NetworkFile, Prices, read_communicator, read_network
from workloads.models import MODELS, model
from workloads.parallelism import parse_parallelism
from workloads.text_workload import read_text_workload

NETWORK_FILES = (".yml", ".yaml")

USUAL_TENSOR = {"gpt-3": 16, "msft-1t": 128}
"""Tensor parallelism of LIBRA's evaluation, where none is given; 1 for other models."""

USUAL_SAMPLES = {"token": 32768, "image": 32, "row": 2048}
"""Samples of a tensor-parallel group in an iteration, where none are given."""

BUDGET_RULES = ("spent", "at-most")


@dataclass(frozen=True)
class Network:
    """A product of blocks and the price tier of each dimension (none where nobody named them).

    Attributes
    ----------
    name : str
    topology : Topology
        With latencies; bandwidths do not matter.
    tiers : tuple of str
    """

    name: str
    topology: Topology
    tiers: tuple[str, ...]

    @property
    def n_dims(self) -> int:
        return int(self.topology.dimension.max(initial=-1)) + 1

    @property
    def has_usual_prices(self) -> bool:
        """Whether the published tiers are meant for such a network: up to four dimensions, the last one switches."""
        router = self.topology.router
        if not isinstance(router, DimensionOrderRouter):
            return False
        return bool(self.tiers) or (router.blocks[-1].kind == "SW" and len(router.blocks) <= len(TIERS))

    def cost(self, prices: Mapping[str, Prices] = PRICES, *, counting: str = "2024", fixed: float = 0.0) -> Cost:
        """What it costs.

        Raises
        ------
        WeftError
            It is no product of priced blocks, or a tier has no price.
        """
        router = self.topology.router
        if not isinstance(router, DimensionOrderRouter):
            raise WeftError(f"{self.name} has no price list: it is no product of blocks RI, FC and SW")
        blocks = [block.kind for block in router.blocks]
        tiers = self.tiers or usual_tiers(blocks)
        return network_cost(blocks, self.topology.shape, tiers, prices, counting=counting, fixed=fixed)


def read_any_network(
    text: str, latency: Quantity | None = None, hop_latency: Quantity | None = None
) -> Network:
    """A network from a LIBRA file (.yml) or from a spec, such as "RI(4)_FC(8)_SW(32)" or "torus:64x16"."""
    if text.endswith(NETWORK_FILES):
        file: NetworkFile = read_network(text)
        return Network(file.spec, from_spec(file.spec, None, latency, hop_latency), file.tiers)
    topology = from_spec(text, None, latency, hop_latency)
    return Network(text, topology, ())


def place_workload(
    name: str,
    network: Network,
    *,
    communicator: str | None = None,
    parallelism: str | None = None,
    samples: float | None = None,
    accelerator: Accelerator | None = None,
    compute_scale: float = 1.0,
    weight: float = 1.0,
) -> Placed:
    """A workload on the dimensions of a network.

    Parameters
    ----------
    name : str
        A model of `workloads.models`, or a text workload file.
    network : Network
    communicator : str, optional
        File with the groups of a text workload.
    parallelism : str, optional
        Of a model: "tp=16,dp=256"; that of LIBRA's evaluation unless given.
    samples : float, optional
        Of a tensor-parallel group of a model in the iteration.
    accelerator : Accelerator, optional
        For a model, which has no compute times of its own.
    compute_scale : float
        Multiplies the compute times.
    weight : float

    Raises
    ------
    WeftError
        Flags that do not go with the kind of workload, or groups that do not fit the network.
    """
    shape = network.topology.shape
    if name not in MODELS:
        if not Path(name).is_file():
            raise WeftError(f"workload {name!r} is neither a file nor a model: models are {', '.join(MODELS)}")
        if communicator is None:
            raise WeftError(f"workload {name} does not say who communicates with whom: give a communicator file")
        workload = read_text_workload(name).scaled(compute_scale)
        return Placed(workload, read_communicator(communicator, shape), weight)
    if communicator is not None:
        raise WeftError(f"model {name} has groups by its parallelism: leave out the communicator file {communicator}")
    if accelerator is None:
        raise WeftError(f"model {name} needs an accelerator: operations a second, and the share that training reaches")
    chosen = model(name)
    how = parse_parallelism(
        f"tp={USUAL_TENSOR.get(name, 1)}" if parallelism is None else parallelism, math.prod(shape)
    )
    count = USUAL_SAMPLES[chosen.sample] if samples is None else samples
    workload = training_workload(chosen, how, accelerator, count, bundled=True).scaled(compute_scale)
    return Placed(workload, how.groups(shape), weight)


def limits(
    n_dims: int,
    *,
    total: Quantity | None = None,
    rule: str = "spent",
    constraints: Sequence[str] = (),
    cost: Cost | None = None,
    dollars: float | None = None,
) -> Feasible:
    """The bandwidths that are allowed.

    Parameters
    ----------
    n_dims : int
    total : quantity, optional
        Of an NPU over all dimensions: "500GB/s".
    rule : {"spent", "at-most"}
        Whether the total is spent in full, as LIBRA's files do, or may be less.
    constraints : sequence of str
        "B1 >= B2", "B3 + B4 = 200GB/s", ...
    cost : Cost, optional
    dollars : float, optional
        The most that the network may cost; needs `cost`.

    Raises
    ------
    WeftError
        A contradiction, an unknown rule, or $ without prices.
    """
    if rule not in BUDGET_RULES:
        raise WeftError(f"budget rule {rule!r} is unknown: choose one of {', '.join(BUDGET_RULES)}")
    rows = [parse_constraint(text, n_dims) for text in constraints]
    if total is not None:
        rows.insert(0, budget(parse_bandwidth(total, "budget") / 1e9, n_dims, spent=rule == "spent"))
    if dollars is not None:
        if cost is None:
            raise WeftError("a limit in $ needs the prices of the network")
        rows.append(Constraint(tuple(cost.price.tolist()), dollars - cost.fixed, False, f"cost <= {dollars:g} $"))
    if not rows:
        raise WeftError("nothing limits the bandwidths: give a budget such as 500GB/s, a limit in $, or constraints")
    return Feasible(rows, n_dims)
