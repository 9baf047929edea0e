"""Rings: the Hamiltonian cycles, and a schedule that never leaves them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from collectives import ring as ring_algorithm
from collectives.ring import hamiltonian_cycles
from sim import simulate
from topologies import WeftError, from_spec, fully_connected, mesh, ring, torus
from topologies.flows.load import link_loads

VALID = [(3, 3), (4, 4), (5, 5), (6, 6), (8, 8), (64, 64), (8, 4), (9, 3), (64, 16)]
INVALID = [(4, 8), (16, 64), (6, 3), (12, 4), (10, 5), (6, 4), (2, 2), (4, 2), (4, 1)]


def test_cycles_of_four_by_four():
    first, second = hamiltonian_cycles(4, 4)
    assert first.tolist() == [0, 1, 2, 3, 7, 4, 5, 6, 10, 11, 8, 9, 13, 14, 15, 12]
    assert second.tolist() == [0, 4, 8, 12, 13, 1, 5, 9, 10, 14, 2, 6, 7, 11, 15, 3]


@pytest.mark.parametrize(("rows", "columns"), VALID)
def test_cycles_are_hamiltonian_and_disjoint(rows, columns):
    fabric = nx.grid_2d_graph(rows, columns, periodic=True)
    used = set()
    for cycle in hamiltonian_cycles(rows, columns):
        assert sorted(cycle) == list(range(rows * columns))
        nodes = [divmod(int(node), columns) for node in cycle]
        edges = {frozenset(edge) for edge in zip(nodes, nodes[1:] + nodes[:1], strict=True)}
        assert all(fabric.has_edge(*edge) for edge in edges)
        assert not edges & used
        used |= edges
    assert len(used) == fabric.number_of_edges()


@pytest.mark.parametrize(("rows", "columns"), INVALID)
def test_other_extents_are_refused(rows, columns):
    with pytest.raises(WeftError, match="two edge-disjoint Hamiltonian cycles need extents of at least 3"):
        hamiltonian_cycles(rows, columns)


@pytest.mark.parametrize("shape", [(4, 4), (4, 8), (8, 4), (3, 9), (5, 5), (7,), (2,)])
def test_every_link_carries_the_same(shape):
    pattern = ring_algorithm.all_reduce(torus(shape), "1MiB").pattern
    t = pattern.transfers()
    assert set(np.diff(pattern.topology.paths(t.src, t.dst).ptr)) == {1}
    p = pattern.p
    for step in range(2 * (p - 1)):
        now = t.step == step
        loads = link_loads(pattern.topology, t.src[now], t.dst[now], 1.0)
        assert set(loads) == {2.0 if shape == (2,) else 1.0}


def test_one_direction_of_a_ring():
    t = ring_algorithm.all_reduce(ring(5), "1KiB", directions=1).pattern.transfers()
    assert np.array_equal(t.dst, (t.src + 1) % 5)
    assert t.src.size == 5 * 8


def test_a_rank_of_64x64_is_emitted_alone():
    t = ring_algorithm.all_reduce(torus((64, 64)), "1GiB").pattern.emit(np.array([0]))
    assert t.src.size == 4 * 8190 and not t.src.any()


TIERED = ("fat-tree:4", "fat-tree:2", "leaf-spine:3x2x2", "leaf-spine:4x4x2", "leaf-spine:2x1x3")


@pytest.mark.parametrize("spec", TIERED)
def test_behind_tiers_of_switches_the_cycle_is_the_rank_order(spec):
    """A leaf's uplinks carry what one rank sends; whole pods move onto each other."""
    fabric = from_spec(spec)
    pattern = ring_algorithm.all_reduce(fabric, "1MiB").pattern
    t = pattern.transfers()
    steps = (t.dst - t.src) % fabric.n_npus
    assert set(steps.tolist()) <= {1, fabric.n_npus - 1}
    one_step = t.step == 0
    assert link_loads(fabric, t.src[one_step], t.dst[one_step], 1.0).max() <= 2.0
    whole = simulate(ring_algorithm.all_reduce(fabric, "1MiB"), symmetry="off")
    assert simulate(ring_algorithm.all_reduce(fabric, "1MiB"), check=True).time_ps == whole.time_ps


def test_refusals_say_what_is_possible():
    with pytest.raises(WeftError, match=r"ring on torus:2x2x2: 3 dimensions; ring needs one dimension, tiers"):
        ring_algorithm.all_reduce(torus((2, 2, 2)), "1KiB")
    with pytest.raises(WeftError, match=r"ring on torus:6x4: .* the extents are 6 and 4"):
        ring_algorithm.all_gather(torus((6, 4)), "1KiB")
    with pytest.raises(WeftError, match="directions is 3: give an integer from 1 to 2"):
        ring_algorithm.reduce_scatter(ring(4), "1KiB", directions=3)


@pytest.mark.parametrize(
    ("fabric", "name", "generators"),
    [
        (torus((4, 4)), "rotation of each ring", 1),
        (torus((8, 4)), "rotation of each ring", 1),
        (torus((4, 4), bandwidth=["400Gb/s", "100Gb/s"]), "slides along the rings", 1),
        (from_spec("hx2mesh:4x4"), "slides along the rings", 1),
        (mesh((4, 4)), "slides along the rings", 0),
        (fully_connected(4), "translations", 1),
    ],
)
def test_groups(fabric, name, generators):
    group = ring_algorithm.all_reduce(fabric, "1KiB").pattern.groups[0]
    assert (group.name, len(group.generators)) == (name, generators)
