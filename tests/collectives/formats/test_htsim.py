"""The connection matrix of htsim: the same flows, bytes and waits as in the schedule."""

from __future__ import annotations

from collections import Counter

import pytest

from collectives import ALGORITHMS, Schedule, build
from collectives.formats.htsim import to_htsim
from tests.oracles.flow_triggers import Flow, read_flows
from topologies import WeftError, from_spec

RUNS = (
    "swing", "ring", "bucket", "direct", "recursive-doubling", "pipelined", "double-binary-tree", "tree", "pairwise",
)
CASES = [
    (spec, name, kind) for spec in ("ring:4", "switch:8") for name in RUNS for kind in ALGORITHMS[name].functions
]


def expected(schedule: Schedule) -> Counter[tuple[object, ...]]:
    """Every flow with the flows that it waits for, joins followed one by one."""
    t = schedule.pattern.transfers()
    row = {(int(s), int(k)): at for at, (s, k) in enumerate(zip(t.src, t.slot, strict=True))}
    kept: list[set[int]] = []

    def waits(at: int) -> set[int]:
        found: set[int] = set()
        for place in range(int(t.dep_ptr[at]), int(t.dep_ptr[at + 1])):
            if t.dep_lag[place] <= 0:
                parent = row[int(t.dep_src[place]), int(t.dep_slot[place])]
                found |= {parent} if t.src[parent] != t.dst[parent] else waits(parent)
        return found

    kept = [waits(at) for at in range(t.src.size)]

    def flow(at: int) -> tuple[int, int, int]:
        return int(t.src[at]), int(t.dst[at]), int(t.blocks[at]) * schedule.block_bytes

    return Counter(
        (*flow(at), frozenset(Counter(flow(one) for one in kept[at]).items()))
        for at in range(t.src.size) if t.src[at] != t.dst[at]
    )


def written(flows: dict[int, Flow]) -> Counter[tuple[object, ...]]:
    def ends(flow: Flow) -> tuple[int, int, int]:
        return flow.src, flow.dst, flow.size_bytes

    return Counter(
        (*ends(flow), frozenset(Counter(ends(flows[one]) for one in flow.after).items())) for flow in flows.values()
    )


@pytest.mark.table
@pytest.mark.parametrize(("spec", "name", "kind"), CASES)
def test_flows_and_waits_are_those_of_the_schedule(spec: str, name: str, kind: str) -> None:
    schedule = build(name, kind, from_spec(spec), "64KiB")
    assert written(read_flows(to_htsim(schedule))) == expected(schedule)


def test_nothing_to_send_is_a_file_without_flows() -> None:
    assert to_htsim(build("ring", "all-reduce", from_spec("ring:1"), "1KiB")) == "Nodes 1\nConnections 0\n"


@pytest.mark.parametrize(
    ("spec", "name", "size", "message"),
    [
        ("switch:4", "in-network", "1KiB", "its switches (add|reduce) or its ranks have slots"),
        ("ring:2", "ring", "16GiB", r"a flow of 4294967296 B; 1 to 2147483647"),
        ("ring:2", "ring", "0B", "a flow of 0 B"),
    ],
)
def test_what_the_format_cannot_say_is_refused(spec: str, name: str, size: str, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        to_htsim(build(name, "all-reduce", from_spec(spec), size))


def test_a_flow_that_releases_several_groups_is_refused() -> None:
    with pytest.raises(WeftError, match=r"releases several groups of others at its recv end"):
        to_htsim(build("tacos", "all-gather", from_spec("torus:4x4"), "64KiB"))
