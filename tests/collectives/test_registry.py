"""The registry, and schedules with sizes."""

from __future__ import annotations

import pytest

from collectives import ALGORITHMS, COLLECTIVES, algorithm, algorithms_for, build
from collectives.core.collective import collective
from collectives.core.schedule import Schedule
from sim import cut_bound, roof
from tests.collectives.cases import CASES, every_case, torus_for
from topologies import WeftError, ring, torus


def test_every_entry_is_named_and_described():
    for name, one in ALGORITHMS.items():
        assert name == one.name
        for line in (one.help, one.limits):
            assert line
            assert "\n" not in line
        assert set(one.functions) <= set(COLLECTIVES)
        assert set(one.forms) <= set(one.functions)


def test_an_algorithm_is_found_however_it_is_spelled():
    for name in ALGORITHMS:
        for one in (name.upper(), name.title(), name.replace("-", "_"), name.replace("-", "")):
            assert algorithm(one) is ALGORITHMS[name]
    assert build("Recursive_Doubling", "all_reduce", ring(4), 64).name == "recursive-doubling (latency)"


def test_every_collective_has_an_algorithm():
    assert all(algorithms_for(kind) for kind in COLLECTIVES)


@pytest.mark.table
@every_case
def test_build_gives_what_was_asked_for(case):
    fabric = torus_for(case, (4,), (2, 2))
    schedule = case.build(fabric)
    assert schedule.kind.name == case.collective
    assert schedule.pattern.algorithm == case.algorithm
    assert schedule.pattern.form == (case.form or "")  # what is printed is what a flag takes
    assert schedule.name.startswith(case.algorithm)
    assert schedule.topology.name == fabric.name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("swnig", "all-reduce"), "algorithm 'swnig' is unknown: choose one of swing, recursive-doubling"),
        (("swing", "all-reduced"), "collective 'all-reduced' is unknown: choose one of all-reduce, reduce-scatter"),
        (("swing", "broadcast"), "swing does not implement broadcast, only all-reduce, .*by bine, tree"),
        (("swing", "all-gather", "latency"), "swing all-gather form 'latency' is unknown: choose one of bandwidth"),
        (("bucket", "all-gather", "latency"), "bucket all-gather has no form 'latency': omit the form"),
        (("swing", "all-reduce", "chain"), "swing all-reduce form 'chain' is unknown: choose one of latency"),
    ],
)
def test_what_is_not_there_is_refused(arguments, message):
    name, kind, *form = arguments
    with pytest.raises(WeftError, match=message):
        build(name, kind, ring(4), "1KiB", *form)


def test_options():
    assert build("ring", "all-reduce", ring(4), "1KiB", directions=1).pattern.n_blocks == 4
    assert build("tree", "reduce", ring(4), "1KiB", root=2).pattern.root == 2
    with pytest.raises(WeftError, match="option 'directions' is unknown: choose one of element_bytes"):
        build("swing", "all-reduce", ring(4), "1KiB", directions=1)
    with pytest.raises(WeftError, match="option 'root' is unknown: choose one of directions, element_bytes"):
        build("ring", "all-reduce", ring(4), "1KiB", root=1)


@pytest.mark.table
@every_case
@pytest.mark.parametrize("size", [0, 1, 4, 1000, "1MiB"])
def test_blocks_hold_the_array_and_are_whole_elements(case, size):
    schedule = case.build(torus_for(case, (8,), (2, 4)), size)
    blocks = schedule.kind.blocks_per_rank(schedule.pattern.n_blocks, schedule.pattern.p)
    assert schedule.block_bytes % 4 == 0
    assert schedule.size_bytes <= schedule.block_bytes * blocks < schedule.size_bytes + 4 * blocks
    assert (schedule.block_bytes == 0) == (schedule.size_bytes == 0)


def test_bad_sizes_are_refused():
    pattern = CASES[0].build(ring(4)).pattern
    with pytest.raises(WeftError, match="size_bytes is -1: give an integer from 0"):
        Schedule(pattern, -1)
    with pytest.raises(WeftError, match="element_bytes is 0: give an integer from 1"):
        build("swing", "all-reduce", ring(4), "1KiB", element_bytes=0)
    with pytest.raises(WeftError, match="size '1Ki' is not a size"):
        build("swing", "all-reduce", ring(4), "1Ki")


def test_a_sweep_proves_once():
    fabric = torus((4, 4))
    assert build("swing", "all-reduce", fabric, "1KiB", "bandwidth").pattern is (
        build("swing", "all-reduce", fabric, "1GiB", "bandwidth").pattern
    )


@pytest.mark.parametrize(
    ("name", "factor"),
    [("all-reduce", 1.5), ("reduce-scatter", 0.75), ("all-gather", 0.75), ("all-to-all", 0.75), ("broadcast", 1.0),
     ("reduce", 1.0), ("gather", 0.75), ("scatter", 0.75)],
)  # fmt: skip
def test_bus_factors_are_those_of_nccl_tests(name, factor):
    assert collective(name).bus_factor(4) == factor


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_is_known_with_and_without_its_marks(name: str) -> None:
    fabric, by = torus((4, 4)), algorithms_for(name)[0]
    for spelled in (name, name.replace("-", "_"), name.replace("-", ""), name.title()):
        assert collective(spelled) is collective(name)
        assert algorithms_for(spelled) == algorithms_for(name)
        assert ALGORITHMS[by].forms_of(spelled) == ALGORITHMS[by].forms_of(name)
        assert build(by, spelled, fabric, "1KiB").name == build(by, name, fabric, "1KiB").name
        assert cut_bound(fabric, spelled) == cut_bound(fabric, name)
        assert roof(fabric, spelled) == roof(fabric, name)
