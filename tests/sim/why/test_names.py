"""What the pieces of a critical path are called where circuits switch."""

from __future__ import annotations

import pytest

from collectives import recursive_doubling
from collectives.reconfigured import menu
from sim.program.model import make_model
from sim.scenarios.optical import simulate_plan
from topologies import torus
from workloads.reconfigured import plan_job


@pytest.mark.parametrize("delay_us", [0, 1, 10])
@pytest.mark.parametrize("per_port", [False, True])
def test_switching_and_starts_have_their_names(delay_us: int, per_port: bool) -> None:
    base = torus((16,), bandwidth="50GB/s", latency="100ns", hop_latency=0)
    one = menu(recursive_doubling.all_reduce(base, "1MiB", form="bandwidth"), start_up="500ns")
    delay = f"{delay_us}us"
    plan = one.every_step(delay)
    job, model = plan_job(one, plan, delay, per_port=per_port), make_model(chunks=1, forwarding="store-and-forward")
    result = simulate_plan(job, one.start_up_ps, model, log=True)
    why = result.why()
    assert sum(why.parts.values()) == result.time_ps
    switching = why.parts.get("reconfiguration", 0)
    if per_port:  # circuits that two fabrics share stay up, and others need not wait for all
        assert switching <= plan.reconfigurations * delay_us * 10**6
    else:
        assert switching == plan.reconfigurations * delay_us * 10**6
    assert why.parts["endpoint"] == len(one.steps) * 500_000
    assert set(why.parts) <= {"reconfiguration", "endpoint", "propagation", "serialization, links"}
