"""Trees through switches that multicast and reduce, against real arrays and the linear program."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import Schedule, build
from collectives.core.routes import paths_of
from tests.collectives.test_in_network import on_arrays
from topologies import Topology, WeftError, from_links, from_spec
from topologies.flows.programs import best_roots

FABRICS = {
    "switch:2": 1e-3, "switch:7": 1e-3, "dgx-a100:1": 1e-3, "dgx-h100:1": 1e-3, "dgx-a100:2": 1e-3, "dgx-h100:2": 6e-3,
    "leaf-spine:3x2x2": 1e-3, "leaf-spine:1x3x1": 1e-3, "fat-tree:4": 1e-3, "SW(3)_SW(4)": 0.15,
}


def reducing(t: Topology) -> Schedule:
    return build("pipelined", "all-reduce", t, "1MiB", switches="reduce")


def s_per_byte(built: Schedule) -> float:
    """Of the busiest link, by the routes of all transfers."""
    t, transfers = built.topology, built.pattern.transfers()
    paths = paths_of(transfers, t)
    load = np.zeros(t.n_links)
    np.add.at(load, paths.links, np.repeat(transfers.blocks[paths.pair], np.diff(paths.ptr)))
    return float((load / t.bandwidth_Bps).max() / built.pattern.n_blocks)


def random_star(seed: int) -> Topology:
    """Stars of unlike decimal rates, joined by one switch or two."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, rng.integers(1, 4))
    n = int(sizes.sum())
    cables = [(npu, n + star) for npu, star in enumerate(np.repeat(np.arange(sizes.size), sizes).tolist())]
    if sizes.size > 1:
        cables += [(n + star, n + sizes.size + top) for star in range(sizes.size) for top in range(1 + seed % 2)]
    rates = [f"{rng.integers(10, 99) / 10}GB/s" for _ in cables]
    both = [(*ends, rate, "0s") for (a, b), rate in zip(cables, rates, strict=True) for ends in ((a, b), (b, a))]
    return from_links(both, n)


@pytest.mark.parametrize("spec", FABRICS)
def test_sums_are_right_in_any_order_of_arrival_and_the_loss_is_what_is_said(spec: str) -> None:
    t = from_spec(spec)
    built = reducing(t)
    assert built.proof == "proved"
    on_arrays(built)
    reached = t.as_it_reduces()
    optimum = best_roots(reached, tuple(range(t.n_npus, t.n_nodes)))
    least = 1 / optimum.rate_Bps
    assert least * (1 - 1e-9) < s_per_byte(built) < least / (1 - FABRICS[spec])


@pytest.mark.parametrize("seed", range(12))
def test_random_stars(seed: int) -> None:
    t = random_star(seed)
    built = reducing(t)
    on_arrays(built, seed)
    optimum = best_roots(t, tuple(range(t.n_npus, t.n_nodes))).rate_Bps
    said = built.pattern.note
    loss = float(said.split(" %")[0]) / 100 if said else 0
    assert optimum * (1 - loss - 1e-6) < 1 / s_per_byte(built) < optimum * (1 + 1e-6)


def test_branches_that_lead_to_switches_alone_are_cut_off() -> None:
    built = reducing(from_spec("leaf-spine:2x2x3"))
    transfers, n = built.pattern.transfers(), built.pattern.n_blocks
    edges = 2 * (4 + 2)  # of a tree over four NPUs, two leaves and a spine, or without one; up and down
    assert transfers.blocks.sum() <= edges * n


@pytest.mark.parametrize(("spec", "options", "message"), [
    ("torus:3x3", {}, "torus:3x3 has no switches that reduce"),
    ("switch:1", {}, "switch:1 has no switches that reduce"),
    ("dgx-h100:16", {}, r"221,184 variables \(limit: 12,000\)"),
    ("switch:4", {"k": 1}, "choose roots: omit k, most_k, loss, paths, form"),
    ("switch:4", {"form": "two-phase"}, "choose roots: omit k, most_k, loss, paths, form"),
    ("switch:4", {"switches": "add"}, "switches 'add' is unknown: choose one of forward, reduce"),
])
def test_what_it_does_not_take_is_refused(spec: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        build("pipelined", "all-reduce", from_spec(spec), "1MiB", **{"switches": "reduce"} | options)
