"""Bounds on steps: never above what they take, and near it, where plans are sought by them."""

import pytest

from collectives import build
from sim.optimizer.circuits import POLICIES, Planner
from sim.program.model import make_model
from topologies import WeftError, from_spec

FABRICS = ("ocs:7x3", "ocs:9x2,duplex", "ocs:5x1,delay=1us", "ocs:8x2,per-port", "hybrid:6x2")
NAMES = ("swing", "recursive-doubling", "trivance", "bine", "ring", "totient-rings", "direct", "double-binary-tree",
         "nccl-rings", "pipelined", "tacos")
MODELS = (
    {"chunks": 4}, {"chunk": "8KiB"}, {"chunks": 1, "forwarding": "store-and-forward", "endpoint_latency": "500ns"},
    {"chunks": 3, "deliver": "head"}, {"chunks": 2, "tie": "split"},
    {"chunks": 2, "rank_progress": "all", "nic": "4x2"},
)
SIZES = {"all-reduce": "1MiB", "all-gather": "1000B", "all-to-all": "77777B"}
PS = 4
"""Of rounding: bounds that are the time itself may be as much above it."""


def planners(fabric, name, model):
    for kind, size in SIZES.items():
        try:
            found = Planner(build(name, kind, from_spec(fabric), size), make_model(**model))
            found.price_ps(0, 0, 0)
        except WeftError:  # no such algorithm there, or a model that it cannot have
            continue
        yield found


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS, ids=lambda one: " ".join(map(str, one.values())))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fabric", FABRICS)
def test_no_steps_take_less(fabric, name, model):
    for planner in planners(fabric, name, model):
        pieces = {piece for policy in POLICIES for piece in planner._pieces(policy) if piece is not None}
        for piece in sorted(pieces)[::11]:
            least_ps, time_ps = planner._bound_ps(*piece), planner.price_ps(*piece)
            assert (least_ps is None) == (time_ps is None) and (least_ps is None or least_ps <= time_ps + PS)
            assert time_ps is None or planner._anywhere_ps(*piece[:2]) <= time_ps


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS[:3], ids=lambda one: " ".join(map(str, one.values())))
@pytest.mark.parametrize("name", ["swing", "ring", "bine", "double-binary-tree"])
@pytest.mark.parametrize("fabric", FABRICS[:4])
def test_a_plan_is_that_of_all_prices(monkeypatch, fabric, name, model):
    """Whatever bounds leave unpriced."""
    found = [[planner.plan(policy) for policy in POLICIES] for planner in planners(fabric, name, model)]
    monkeypatch.setattr(Planner, "_bound_ps", Planner.price_ps)
    for plans, planner in zip(found, planners(fabric, name, model), strict=True):
        for policy, plan in zip(POLICIES, plans, strict=True):
            want = planner.plan(policy)
            assert (plan and plan[2:]) == (want and want[2:])
            assert plan is None or planner.least_ps <= plan.time_ps


def test_steps_of_a_ring_take_what_their_bound_says():
    planner = Planner(build("ring", "all-reduce", from_spec("ocs:12x3"), "1MiB"), make_model(chunks=4))
    for last in range(21):
        assert planner._bound_ps(0, last, 0) == pytest.approx(planner.price_ps(0, last, 0), abs=PS)
