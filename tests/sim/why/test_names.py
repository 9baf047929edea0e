"""What the pieces of a critical path are called where circuits switch."""

from __future__ import annotations

import pytest

from collectives import build
from sim.program.model import make_model
from sim.study.policies import switched_rows
from topologies import from_spec


@pytest.mark.parametrize("delay_us", [0, 1, 10])
@pytest.mark.parametrize("options", ["", ",per-port"])
def test_switching_and_starts_have_their_names(delay_us: int, options: str) -> None:
    fabric = from_spec(f"ocs:16x2,delay={delay_us}us{options}", "50GB/s", "100ns", 0)
    schedule = build("recursive-doubling", "all-reduce", fabric, "1MiB", "bandwidth")
    model = make_model(chunks=1, forwarding="store-and-forward", endpoint_latency="500ns")
    ((plan, result),) = switched_rows(schedule, model, ["every step"])
    why = result.why()
    assert sum(why.parts.values()) == result.time_ps
    # circuits that two fabrics share stay up, and others need not wait for all
    assert why.parts.get("reconfiguration", 0) == plan.changes * delay_us * 10**6 or (
        options and why.parts.get("reconfiguration", 0) < plan.changes * delay_us * 10**6)
    assert why.parts["endpoint"] == len(plan.fabrics) * 500_000
    assert set(why.parts) <= {"reconfiguration", "endpoint", "propagation", "serialization, links"}
