"""Several tables together, by tables that are made up: each limit at the value itself, and on both sides of it."""

from __future__ import annotations

from typing import Any

import pytest

from sim.measured.diagnosis import Diagnosis, Interval, Rate
from sim.measured.fabric_run import FabricRun
from sim.measured.judge import Judgment, judge


class Told(FabricRun):
    """A run whose diagnosis is given."""

    found: dict[str, Any]

    def __init__(self, **found: Any) -> None:  # not one of a fabric: its diagnosis is all that is asked
        object.__setattr__(self, "found", found)

    def diagnosis(self) -> Diagnosis:
        usual: dict[str, Any] = {
            "source": "a", "ran": "all-reduce on 4 nodes", "collective": "all-reduce", "nodes": 4, "n_ranks": 32,
            "nics": 8, "verdict": "slow-hw", "cause": "link", "limit": "a link", "share": 0.5,
            "rates": (Rate("network", Interval(0.5, 0.4, 0.6), True, ""),),
        }
        empty: dict[str, Any] = {
            "points": (), "algorithm": "", "best_bytes": 0, "share_of_any": 1.0, "share_of_bound": None,
            "bound_reduces": False, "switches": (), "breaks": (), "outliers": (), "contradictions": (), "repeats": (),
            "condition": "", "but": "", "notes": (), "expected": (),
        }
        return Diagnosis(**empty | usual | self.found)


def judged(*tables: dict[str, Any]) -> Judgment:
    return judge([Told(**one) for one in tables])


GOOD = {"verdict": "good", "cause": "healthy"}


def test_what_is_slow_all_the_same_is_said_where_the_verdict_is_fine() -> None:
    odd = GOOD | {"but": "small messages are slow"}
    assert judged(GOOD, odd).but == odd["but"] and judged(GOOD, GOOD).but == judged({}, odd).but == ""


@pytest.mark.parametrize(("slow", "fast", "cause"), [
    (0.5, 0.55, "link"), (0.5, 0.56, "dead-rail"), (0.875, 1.0, "dead-rail"), (0.85, 1.0, "dead-rail"),
    (0.84, 1.0, "other-nodes"), (0.9, 1.0, "dead-rail"), (0.902, 1.0, "other-nodes"),
])
def test_the_same_run_twice(slow: float, fast: float, cause: str) -> None:
    """Another by more than a tenth; a dead rail within three hundredths of seven NICs of eight."""
    tables = {"source": "fast", "share": fast, **GOOD}, {"source": "slow", "share": slow}
    found = judged(*tables)
    assert (found.cause, found.rates[0].apart) == (cause, cause != "link")
    assert judged(*tables[::-1]).cause == cause
    ends = {"dead-rail": "one NIC of 8 is dead", "other-nodes": "its nodes, links or sockets", "link": "a link"}
    assert found.limit.endswith(ends[cause])
    assert cause == "link" or found.limit.startswith(f"slow reaches {slow / fast:.0%} of what fast does")
    assert judged(tables[0] | {"ran": "on other ranks"}, tables[1]).cause == "link"


@pytest.mark.parametrize(("nics", "cause"), [(1, "other-nodes"), (2, "dead-rail"), (3, "other-nodes")])
def test_half_of_the_rate_is_a_rail_of_two(nics: int, cause: str) -> None:
    assert judged({"share": 1.0, **GOOD}, {"share": 0.5, "nics": nics}).cause == cause


def test_what_a_library_was_told_is_of_no_nodes() -> None:
    slow = {"share": 0.5, "verdict": "wrong-config", "cause": "nvls-off"}
    assert judged({"share": 1.0, **GOOD}, slow).cause == "nvls-off"


@pytest.mark.parametrize(("fewer", "more", "cause"), [
    ({"nodes": 2}, {}, "spine"), ({"nodes": 3}, {}, "spine"), ({"nodes": 4}, {}, "link"), ({"nodes": 1}, {}, "link"),
    ({"nodes": 2, "verdict": "tree-2n"}, {}, "spine"), ({"nodes": 2, "verdict": "too-small"}, {}, "link"),
    ({"nodes": 1}, {"nodes": 2}, "link"), ({"nodes": 2}, {"nodes": 3}, "spine"), ({"nodes": 2}, GOOD, "healthy"),
    ({"nodes": 2}, {"cause": "per-step"}, "per-step"), ({"nodes": 2}, {"cause": "protocol"}, "protocol"),
])
def test_more_nodes_share_the_spine(fewer: dict[str, Any], more: dict[str, Any], cause: str) -> None:
    found = judged({"ran": "fewer", "share": 1.0} | GOOD | fewer, {"ran": "more"} | more)
    assert found.cause == cause
    assert found.rates[0].apart is False


def test_collisions_on_more_nodes_are_of_the_configuration() -> None:
    few = {"ran": "fewer", "nodes": 2, "share": 1.0, **GOOD}
    verdicts = {judged(few, {"cause": cause}).verdict: cause for cause in ("collisions", "link")}
    assert verdicts == {"wrong-config": "collisions", "slow-hw": "link"}


LATENCY = {"rates": tuple(Rate(name, Interval(0.5, 0.4, 0.6), True, "") for name in ("network", "latency"))}
LINKS = {"rates": LATENCY["rates"][::-1]}


@pytest.mark.parametrize(("fast", "slow", "cause"), [
    ({"share": 0.76}, LATENCY, "per-step"), ({"share": 0.75}, LATENCY, "link"), ({"share": 0.76}, LINKS, "link"),
    ({"share": 0.76, "collective": "all-reduce"}, LATENCY, "link"), ({"share": 0.76, "n_ranks": 16}, LATENCY, "link"),
    ({"share": 0.76, "nodes": 3}, LATENCY, "link"), ({"share": 0.76, "verdict": "too-small"}, LATENCY, "link"),
    ({"share": 0.76}, LATENCY | GOOD, "link"),
])
def test_collectives_that_lose_differently(fast: dict[str, Any], slow: dict[str, Any], cause: str) -> None:
    found = judged({"ran": "fast", "collective": "all-gather"} | fast, {"ran": "slow"} | slow)
    assert found.cause == cause
    if cause == "per-step":
        assert found.limit.startswith("all-reduce reaches 50% and all-gather 76% on the same nodes")


@pytest.mark.parametrize(("low", "name", "determined", "apart"), [
    (0.61, "network", True, True), (0.6, "network", True, False), (0.61, "latency", True, False),
    (0.61, "network", False, False),
])
def test_rates_of_which_tables_disagree(low: float, name: str, determined: bool, apart: bool) -> None:
    other = {"ran": "other", "rates": (Rate(name, Interval(0.5, low, 0.7), determined, ""),)}
    assert judged({}, other).rates[0].apart is apart


def test_the_gravest_of_tables_leads_and_of_equals_the_slowest() -> None:
    tables = {"ran": "a", **GOOD}, {"ran": "b", "share": 0.4, "limit": "b"}, {"ran": "c", "share": 0.3, "limit": "c"}
    assert judged(*tables).limit == "c"
    assert judged(*tables, {"ran": "d", "verdict": "corrupt", "limit": "d", "share": 1.0}).limit == "d"
