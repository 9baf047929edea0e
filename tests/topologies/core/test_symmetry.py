import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import from_links, from_spec, mesh, multidim, torus
from topologies.core.symmetry import follow_npus, link_permutation, move_nodes, reflection, translation


def assert_automorphism(t, nodes):
    links = link_permutation(t, nodes)
    assert nodes is not None and links is not None
    assert sorted(nodes.tolist()) == list(range(t.n_nodes))
    assert sorted(links.tolist()) == list(range(t.n_links))
    assert np.array_equal(t.src[links], nodes[t.src]) and np.array_equal(t.dst[links], nodes[t.dst])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_translations_and_reflections_of_a_torus(shape, data):
    t = torus(shape)
    dim = data.draw(st.integers(0, len(shape) - 1))
    by = data.draw(st.integers(0, shape[dim] - 1))
    shift, mirror = translation(t, dim, by), reflection(t, dim, by)
    assert_automorphism(t, shift)
    assert_automorphism(t, mirror)
    moved = t.coords.copy()
    moved[:, dim] = (moved[:, dim] + by) % shape[dim]
    assert np.array_equal(t.coords[shift], moved)


@pytest.mark.parametrize("spec", ["fc:5", "switch:4", "RI(4)_SW(2)", "SW(2)_SW(3)", "FC(3)_RI(2)_SW(2)"])
def test_translations_of_products_move_the_switches_along(spec):
    t = from_spec(spec)
    for dim in range(len(t.shape)):
        assert_automorphism(t, translation(t, dim))


def test_translations_of_a_mesh_are_refused_and_its_reflections_are_not():
    t = mesh((3, 4))
    assert link_permutation(t, translation(t, 0)) is None
    assert link_permutation(t, translation(t, 1, by=2)) is None
    assert_automorphism(t, reflection(t, 0, center=2))
    assert link_permutation(t, reflection(t, 0, center=1)) is None


@pytest.mark.parametrize("what", ["bandwidth_Bps", "latency_ps"])
def test_one_unequal_link_breaks_the_symmetry(what):
    t = torus((4, 4))
    values = getattr(t, what).copy()
    values[5] *= 2
    assert link_permutation(t.with_links(**{what: values}), translation(t, 0)) is None
    assert_automorphism(t, translation(t, 0))


def test_unequal_dimensions_keep_the_translations_of_each():
    t = torus((4, 4), bandwidth=["400Gb/s", "100Gb/s"])
    assert_automorphism(t, translation(t, 0))
    assert_automorphism(t, translation(t, 1, by=3))


def test_parallel_links_keep_their_order():
    ends = [(0, 1, "1GB/s"), (0, 1, "2GB/s"), (1, 0, "1GB/s"), (1, 0, "2GB/s")]
    t = from_links([(src, dst, rate, 0) for src, dst, rate in ends], n_npus=2)
    assert link_permutation(t, translation(t, 0)).tolist() == [2, 3, 0, 1]
    swapped = from_links([(0, 1, "1GB/s", 0), (0, 1, "2GB/s", 0), (1, 0, "2GB/s", 0), (1, 0, "1GB/s", 0)], n_npus=2)
    assert link_permutation(swapped, translation(swapped, 0)) is None


def test_different_numbers_of_parallel_links_are_no_automorphism():
    t = from_links([(0, 1, "1GB/s", 0), (0, 1, "1GB/s", 0), (1, 2, "1GB/s", 0), (2, 0, "1GB/s", 0)], n_npus=3)
    assert link_permutation(t, translation(t, 0)) is None


def test_nodes_without_an_image_give_none():
    t = multidim("RI(4)_SW(2)")
    assert move_nodes(t, {0: np.array([1, 2, 3, 9])}) is None
    assert move_nodes(t, {0: np.array([0, 0, 1, 2])}) is None
    assert link_permutation(t, None) is None


@pytest.mark.parametrize("spec", ["dgx-h100:2", "dgx-h100:3", "dgx-h100:8", "dgx-a100:2", "dgx-a100:5"])
def test_nics_and_rails_follow_the_npus_behind_them(spec):
    t = from_spec(spec)
    gpus, boxes = t.shape
    name = t.node_name
    for rank, box in ((1, 0), (2, 0), (0, 1)):
        npus = (np.arange(gpus * boxes) % gpus + rank) % gpus + (np.arange(gpus * boxes) // gpus + box) % boxes * gpus
        nodes = follow_npus(t, npus.astype(np.int32))
        assert_automorphism(t, nodes)
        for node in range(t.n_npus, t.n_nodes):
            near = set(t.dst[t.link_ptr[node] : t.link_ptr[node + 1]].tolist())
            image = nodes[node]
            assert set(t.dst[t.link_ptr[image] : t.link_ptr[image + 1]].tolist()) == {int(nodes[one]) for one in near}
            assert name(node).rstrip("0123456789") == name(image).rstrip("0123456789")
    assert_automorphism(t, translation(t, 0))  # rails have coordinates that go nowhere on dgx-a100


def test_switches_that_cannot_follow_give_none():
    line = from_links([(0, 2, "1GB/s", 0), (2, 0, "1GB/s", 0), (1, 3, "1GB/s", 0), (3, 1, "1GB/s", 0)], n_npus=2)
    assert follow_npus(line, np.array([1, 0], np.int32)).tolist() == [1, 0, 3, 2]
    uneven = from_links([(0, 2, "1GB/s", 0), (0, 3, "1GB/s", 0), (1, 2, "1GB/s", 0)], n_npus=2)
    assert follow_npus(uneven, np.array([1, 0], np.int32)) is None
    lonely = from_links([(0, 1, "1GB/s", 0), (1, 0, "1GB/s", 0), (2, 0, "1GB/s", 0)], n_npus=2)
    assert follow_npus(lonely, np.array([1, 0], np.int32)) is None
