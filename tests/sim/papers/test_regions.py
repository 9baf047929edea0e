"""MixNet's iterations: loads counted message by message, circuits by what they are for, and how far ours are."""

import numpy as np
import pytest

from sim.papers.optics import STUDIES
from sim.papers.regions import (
    DRAWS,
    EXAMPLE,
    FABRICS,
    MIXTURES,
    circuits,
    computed_s,
    demand,
    iteration_s,
    layer_s,
    switching,
)


def busiest_s(name: str, rate: int, fabric: str, sent: np.ndarray) -> float:
    """What the busiest interfaces of a region take, token by token's rank: alone, and of a switch with room enough."""
    per = 8 // MIXTURES[name].tp
    loads: dict[tuple[object, ...], float] = {}
    for a in range(len(sent)):
        for b in range(len(sent)):
            if a // per != b // per:
                at = (b % per,) if fabric == "rails" else ()
                for end in (("out", a // per, *at), ("in", b // per, *at)):
                    loads[end] = loads.get(end, 0.0) + sent[a, b]
    return max(loads.values()) / (rate * 1e9 / 8 * (MIXTURES[name].tp if fabric == "rails" else 8))


@pytest.mark.parametrize("fabric", ["fat-tree", "rails"])
@pytest.mark.parametrize(("name", "rate"), [("Mixtral 8x22B", 800), ("Mixtral 8x7B", 100), ("LLaMA-MoE", 200)])
def test_a_layer_takes_its_computation_and_busiest_interfaces(name: str, rate: int, fabric: str) -> None:
    """Of an even gate to the microsecond; of a skewed one ranks run ahead, and chunks wait for each other."""
    for skew in (0.0, 0.6):
        bound = sum(computed_s(name, False))
        for draw in range(DRAWS):
            sent = demand(name, skew, draw, False)
            there = busiest_s(name, rate, fabric, sent)
            back = there if fabric == "rails" else busiest_s(name, rate, fabric, sent.T)
            bound += 2 * (there + back) / DRAWS
        assert layer_s(name, rate, fabric, skew) == pytest.approx(bound, rel=0.05 if skew else 2e-3)


@pytest.mark.parametrize("name", MIXTURES)
def test_even_gates_use_six_of_eight_interfaces(name: str) -> None:
    """All pairs of few servers have as many circuits; of eight servers one a pair, seven for six ports."""
    sent, servers = demand(name, 0.0, 0, False), MIXTURES[name].ep * MIXTURES[name].tp // 8
    if servers <= 4:
        communicated = layer_s(name, 100, "regions", 0.0) - sum(computed_s(name, False))
        assert communicated == pytest.approx(4 * busiest_s(name, 100, "fat-tree", sent) * 8 / 6, rel=2e-3)


@pytest.mark.parametrize(("servers", "ports"), [(2, 6), (3, 5), (4, 6), (5, 1), (7, 3), (8, 6)])
def test_circuits_go_to_the_largest_pairs(servers: int, ports: int) -> None:
    sizes = np.random.default_rng(servers).integers(1, 99, (servers, servers)) * 1.0
    np.fill_diagonal(sizes, 0)
    both, chosen = sizes + sizes.T, circuits(sizes, ports)
    used = [sum(server in pair for pair in chosen) for server in range(servers)]
    assert max(used) <= ports and sum(ports - one > 0 for one in used) <= 1  # no two servers have ports left
    first = next(pair for pair in chosen)
    assert both[first] == both.max()
    if servers <= 4:
        assert len(set(chosen)) == servers * (servers - 1) // 2  # none is left out


def test_the_example_has_the_tokens_of_a_microbatch() -> None:
    assert {sum(row) for row in EXAMPLE} == {8 * 4096}
    for name, mixture in MIXTURES.items():
        once, theirs = (demand(name, 0.6, 0, own).sum() for own in (True, False))
        assert theirs == pytest.approx(mixture.ep / 8 * once)


def test_how_far_ours_are() -> None:
    within = {row["fabric"]: row["within_15_percent"] for row in STUDIES["gates"](True)}
    assert within == {"fat-tree": 16, "regions": 15, "rails": 14, "patch panels": 2, "all but patch panels": 45}


def test_what_switching_adds() -> None:
    """A single change an iteration is added once, and those of layers layer by layer."""
    alone = iteration_s("Mixtral 8x7B", 400, "regions", switching_s=0.0)
    for row in switching(True):
        times = 32 if row["switched"] == "for every layer" else 1
        delay_s = {"1us": 1e-6, "25ms": 25e-3, "1s": 1.0}[row["delay"]]
        assert row["Mixtral 8x7B"] == pytest.approx(1 + times * delay_s / alone)
    assert all(iteration_s("LLaMA-MoE", 400, one, switching_s=9.0) < 9 for one in FABRICS if one != "regions")
