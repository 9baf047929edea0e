import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import TIES, TOPOLOGIES, from_spec, link_loads, ring, torus

SAMPLES = [sample for family in TOPOLOGIES.values() for sample in family.samples]


@pytest.mark.table
@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("spec", SAMPLES)
def test_loads_are_bytes_times_hops(spec, tie, all_pairs):
    t = from_spec(spec)
    src, dst = all_pairs(t.n_npus)
    size_bytes = 1.0 + np.arange(src.size)
    paths = t.paths(src, dst, tie)
    share = 1 / np.bincount(paths.pair)[paths.pair]  # of two routes under `split`, which need not be equally long
    carried = size_bytes[paths.pair] * share * np.diff(paths.ptr)
    assert link_loads(t, src, dst, size_bytes, tie).sum() == pytest.approx(carried.sum())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=2), st.sampled_from(TIES), st.integers(0, 99))
def test_loads_equal_those_of_a_loop(shape, tie, seed):
    t = torus(shape)
    src, dst = np.random.default_rng(seed).integers(0, t.n_npus, (2, 20))
    paths = t.paths(src, dst, tie, seed)
    expected = [0.0] * t.n_links
    for route, pair in enumerate(paths.pair.tolist()):
        for link in paths.links[paths.ptr[route] : paths.ptr[route + 1]]:
            expected[link] += 100.0 / paths.pair.tolist().count(pair)
    assert link_loads(t, src, dst, 100, tie, seed).tolist() == pytest.approx(expected)


def test_split_halves_the_bytes_of_a_tie():
    t = ring(4)
    assert sorted(link_loads(t, np.array([0]), np.array([2]), 8, "split").tolist()) == [0, 0, 0, 0, 4, 4, 4, 4]


def test_all_to_all_on_an_even_torus_is_balanced_only_by_split(all_pairs):
    t = torus((4, 4))
    src, dst = all_pairs(16)
    assert np.ptp(link_loads(t, src, dst, 1, "split")) == 0
    assert np.ptp(link_loads(t, src, dst, 1, "first")) > 0
