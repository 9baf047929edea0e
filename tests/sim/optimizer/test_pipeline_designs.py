"""Pipeline stages in the optimizer: the formula, the simulation, and the bubbles between them."""

from __future__ import annotations

import numpy as np
import pytest

from sim.analytic.libra import Placed, iteration_time
from sim.engine.run import run
from sim.lower.job import lower
from sim.optimizer.network import read_any_network
from sim.optimizer.problem import Microbatches, place_workload
from sim.optimizer.programs import iteration_objective
from sim.optimizer.retime import with_bandwidths
from sim.program.model import Model
from topologies import WeftError, from_spec
from workloads.compute import Accelerator
from workloads.models import model
from workloads.pipeline import PIPELINE_ORDERS, Pipeline, activation_bytes, ideal_bubble, pipeline_job
from workloads.training import Training
from workloads.workload import Call, Layer, Phase, Workload

GPU = Accelerator(312e12, 0.5)


def placed(stages: int, microbatches: int, activation: int = 0, order: str = "1f1b", reduced: float = 0.0) -> Placed:
    gradients = (Call("all-reduce", reduced, "dp"),) if reduced else ()
    layers = tuple(Layer(f"l{k}", Phase(1e6), Phase(1e6), Phase(1e6, gradients)) for k in range(stages))
    pipeline = Pipeline(microbatches=microbatches, activation_bytes=activation, order=order)
    return Placed(Workload("w", layers), {"dp": (2, 1), "pp": (1, stages)}, 1.0, pipeline)


@pytest.mark.parametrize("order", PIPELINE_ORDERS)
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (2, 5), (4, 2), (4, 8)])
def test_bubbles(stages: int, microbatches: int, order: str) -> None:
    """Equal stages, messages of nothing: (M+S-1) microbatches long, of which (S-1)/(M+S-1) is idle."""
    one = placed(stages, microbatches, order=order)
    rates = np.array([100.0, 100.0])
    formula = iteration_time([one]).time_ns(rates)
    assert formula == one.compute_ns == 3e6 * (microbatches + stages - 1)
    assert 1 - 3e6 * microbatches / formula == pytest.approx(ideal_bubble(stages, microbatches))
    topology = from_spec(f"SW(2)_SW({stages})", None, 0, 0)
    simulated = iteration_objective(topology, [one], Training(loop="no-overlap")).evaluate(rates).time_ns
    assert simulated == pytest.approx(formula, rel=1e-6)


def test_unequal_stages_go_at_the_pace_of_the_slowest() -> None:
    layers = tuple(Layer(f"l{k}", Phase(ns), Phase(ns), Phase(ns)) for k, ns in enumerate((1e6, 4e6)))
    one = Placed(Workload("w", layers), {"dp": (2, 1), "pp": (1, 2)}, 1.0, Pipeline(microbatches=6, activation_bytes=0))
    assert one.compute_ns == iteration_time([one]).time_ns(np.ones(2)) == 15e6 + 5 * 12e6


def test_gradients_and_messages() -> None:
    """The simulation at chosen bandwidths is the job lowered there; messages cost, and want their dimension."""
    topology, rates = from_spec("SW(2)_SW(4)", None, "100ns", 0), np.array([60.0, 40.0])
    training = Training(loop="no-overlap", bucket_bytes=None, options={"pipeline_chunks": 1})
    one = placed(4, 3, activation=2_000_000, reduced=8e6)
    found = iteration_objective(topology, [one], training).evaluate(rates)
    assert one.pipeline is not None
    job = pipeline_job(with_bandwidths(topology, rates), one.workload, one.groups, one.pipeline, training)
    assert found.time_ns * 1e3 == run(lower(job, Model(chunks=1)).program).makespan_ps
    assert found.slope_ns[1] < 0
    fewer = iteration_objective(topology, [placed(4, 3, reduced=8e6)], training).evaluate(rates)
    assert found.time_ns > fewer.time_ns
    assert iteration_time([one]).time_ns(rates) == one.compute_ns + 8e6 / 60


def test_models_in_stages() -> None:
    network = read_any_network("SW(2)_SW(4)")
    one = place_workload("bert-base", network, parallelism="tp=2,pp=4", accelerator=GPU, samples=512,
                         microbatches=Microbatches(4, None, "gpipe"))
    assert one.pipeline is not None and one.n_stages == 4
    assert one.pipeline.activation_bytes == activation_bytes(model("bert-base"), 512, 2) == 512 * 768 * 2 // 2


@pytest.mark.parametrize(
    ("name", "parallelism", "microbatches", "message"),
    [
        ("bert-base", "tp=2,pp=4", None, "microbatches need pipeline stages"),
        ("bert-base", "tp=2", Microbatches(4, None, "1f1b"), "microbatches need pipeline stages"),
        ("resnet-50", "pp=4", Microbatches(4, None, "1f1b"), "no equal layers between pipeline stages"),
        ("bert-base", "tp=2,pp=4", Microbatches(0, None, "1f1b"), "at least 1"),
    ],
)
def test_what_is_refused(name: str, parallelism: str, microbatches: Microbatches | None, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        place_workload(name, read_any_network("SW(2)_SW(4)"), parallelism=parallelism, accelerator=GPU,
                       microbatches=microbatches)
    with pytest.raises(WeftError, match="without overlap and without checkpoints"):
        iteration_time([placed(2, 2)], "overlap")
