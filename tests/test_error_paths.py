"""Whatever is asked of a run, it ends or says in one line why not: any exception but ours is a failure.

Pairs of features that run, with values at and beyond the ends of what they take, and faults that let nothing end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build
from docs.composition import FEATURES, LINK, Both
from sim import FaultPlan, simulate
from sim.faults.plan import Fault, Jitter, LinkDown, Loss, NodeDown, SlowLink, Straggler
from sim.program.model_options import OPTIONS as OPTION_TABLE
from topologies import WeftError, from_spec
from workloads.job import Job

SIZES = ["0B", "1B", "100B", "3MB", "1PiB", 2**62]
TIMES = ["0s", "1ps", "777ns", "2us", "1e6s", "4.6e6s"]
RATES = ["1e-300B/s", "7b/s", "33.3GB/s", "1e300GB/s"]
COUNTS = [1, 2, 7, 65_536, 2**31]
OPTIONS: dict[str, list[Any]] = {
    "chunk": ["100B", "3MB", "1PiB"], "chunks": [1, 100, 2**31], "header": SIZES, "packet_header": SIZES,
    "buffer": SIZES, "nic_queue": SIZES, "endpoint_latency": TIMES, "credit_latency": TIMES, "post_time": TIMES,
    "push_time": TIMES, "injection_rate": RATES, "ejection_rate": RATES, "nic_engines": COUNTS, "vcs": [1, 2],
    "nic_order": ["fifo", "rotate"], "send_complete": ["pushed", "delivered"], "seed": [2**63 - 1],
    "rank_progress": ["all", "any", "authors"], "forwarding": ["store-and-forward"], "tie": ["ecmp", "alternating"],
}
PLANS: dict[str, list[Any]] = {
    "timeout": TIMES[1:], "reroute": TIMES, "in_flight": ["lost", "wait", "complete"], "retry": ["source", "npu"],
}
BEYOND: list[Any] = [
    "1e400B", "1e400s", "1e400B/s", "8e99EiB", "1e300s", 10**400, -1, float("inf"), float("nan"), True, 2.5, "",
    "1:30", [],
]
"""Beyond a float, beyond the clock, of no unit, of another kind."""


def faults() -> st.SearchStrategy[Any]:
    """One fault that nothing repairs, or that slows a run beyond the clock."""
    at, link = st.sampled_from(TIMES), st.sampled_from([LINK, "*"])
    share = st.sampled_from([1e-300, 1e-9, 0.3, 0.9, 1])
    return st.one_of(
        st.builds(LinkDown, link=link, at=at), st.builds(NodeDown, node=st.just("npu1"), at=at),
        st.builds(SlowLink, link=link, at=at, share=share, latency=at),
        st.builds(Straggler, npu=st.sampled_from(["npu1", "npu2"]), delay=at, speed=share),
        st.builds(Loss, link=link, probability=st.sampled_from([0, 0.3, 0.9])), st.builds(Jitter, link=link, mean=at),
    )


def some(values: dict[str, list[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    one = st.sampled_from([*values]).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(values[name])))
    return st.lists(one, max_size=most).map(dict)


def _with_nic(options: dict[str, Any]) -> dict[str, Any]:
    """Options, with a NIC where one is of it."""
    of_nic = any(OPTION_TABLE[name].field.startswith("nic.") for name in options)
    return options | ({"nic": "shared"} if of_nic else {})


def refused(run: Any) -> str:
    """The one line of a refusal; "" where something ran."""
    try:
        run()
    except WeftError as wrong:
        told = str(wrong)
    else:
        return ""
    assert told and "\n" not in told
    return told


@pytest.mark.table
@pytest.mark.parametrize("engine", [pytest.param("chunk", marks=pytest.mark.compiled), "reference", "analytic"])
@settings(max_examples=100, deadline=None)
@given(
    names=st.lists(st.sampled_from([*FEATURES]), min_size=1, max_size=3, unique=True), options=some(OPTIONS, 1),
    plan=some(PLANS, 1), wrong=st.lists(faults(), max_size=2),
)
def test_a_run_ends_or_says_why_not(
    engine: str, names: list[str], options: dict[str, Any], plan: dict[str, Any], wrong: list[Fault]
) -> None:
    both = Both(names)
    arguments = {"engine": engine} | both.arguments() | _with_nic(options)
    if "chunk" in options:
        arguments.pop("chunks", None)
    if arguments["engine"] == "chunk":
        arguments["max_events"] = 100_000
    if wrong or plan:
        known = arguments.get("faults") or FaultPlan()
        arguments["faults"] = replace(known, faults=(*known.faults, *wrong), **plan)
    refused(lambda: simulate(both.work(), **arguments))


@pytest.mark.parametrize("value", BEYOND, ids=repr)
def test_a_value_beyond_is_refused_whatever_it_is_for(value: Any) -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:2"), "1KiB")
    for name in OPTIONS:
        told = refused(lambda name=name: simulate(schedule, **_with_nic({name: value})))
        assert told or name == "seed", name  # any integer
    for make in (
        lambda: from_spec("torus:2x2", bandwidth=value), lambda: from_spec("torus:2x2", latency=value),
        lambda: build("ring", "all-reduce", schedule.topology, value),
        lambda: Job(schedule.topology, speed=cast("Any", [value, 1])),
        lambda: Job(schedule.topology).compute("x", value), lambda: FaultPlan(timeout=value),
        lambda: Loss(link="*", probability=value), lambda: from_spec(f"torus:{value}x2"),
    ):
        assert refused(make)


def test_extents_beyond_a_float_are_too_large() -> None:
    assert "memory" in refused(lambda: from_spec("torus:" + "x".join(["999999"] * 60)))
