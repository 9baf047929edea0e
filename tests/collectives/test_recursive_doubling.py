"""Recursive doubling and its mirror image: peers, loads, and the fold of other extents."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import mirrored_recursive_doubling, recursive_doubling
from collectives.core.pattern import Pattern
from sim import simulate
from topologies import WeftError, from_spec, ring, switch, torus
from topologies.flows.load import link_loads

MIRRORED8 = [[7, 2, 1, 4, 3, 6, 5, 0], [6, 7, 4, 5, 2, 3, 0, 1], [4, 5, 6, 7, 0, 1, 2, 3]]


def plain(shape, form="latency") -> Pattern:
    return recursive_doubling.all_reduce(torus(shape), "1MiB", form=form).pattern


def mirrored(shape, form="latency") -> Pattern:
    return mirrored_recursive_doubling.all_reduce(torus(shape), "1MiB", form=form).pattern


def peers(pattern: Pattern, port: int) -> list[list[int]]:
    t = pattern.transfers()
    return [t.dst[(t.port == port) & (t.step == step)].tolist() for step in range(int(t.step.max()) + 1)]


def busiest(pattern: Pattern, tie: str) -> list[float]:
    t = pattern.transfers()
    steps = [t.step == step for step in range(int(t.step.max()) + 1)]
    return [float(link_loads(pattern.topology, t.src[now], t.dst[now], 1.0, tie).max()) for now in steps]


def test_peers_flip_one_bit_after_the_other():
    expected = [[r ^ 1 for r in range(8)], [r ^ 2 for r in range(8)], [r ^ 4 for r in range(8)]]
    assert peers(plain(8), 0) == expected
    assert peers(mirrored(8), 0) == expected
    assert peers(mirrored(8), 1) == MIRRORED8


def test_shifted_pairs_are_those_of_the_mirror_image_on_one_port():
    shifted = recursive_doubling.all_reduce(torus(8), "1MiB", form="latency", pairs="shifted").pattern
    assert peers(shifted, 0) == MIRRORED8
    assert set(shifted.transfers().port.tolist()) == {0}
    with pytest.raises(WeftError, match="omit pairs=shifted"):
        recursive_doubling.all_reduce(torus(8), "1MiB", mirrored=True, pairs="shifted")


@pytest.mark.parametrize("spec", ["torus:4x8", "hx2mesh:2x2", "torus:3x6"])
@pytest.mark.parametrize("form", ["latency", "bandwidth"])
def test_shifted_pairs_keep_their_symmetry(spec: str, form: str) -> None:
    """Proved, certified, and the same as without."""
    schedule = recursive_doubling.all_reduce(from_spec(spec), "64KiB", form=form, pairs="shifted")
    times = [simulate(schedule, check=True, symmetry=symmetry).time_ps for symmetry in ("auto", "off")]
    assert schedule.proof == "proved"
    assert times[0] == times[1]


def test_dimensions_take_turns():
    assert [step[0] for step in peers(plain((4, 8)), 0)] == [1, 4, 2, 8, 16]
    assert [step[0] for step in peers(mirrored((4, 8)), 1)] == [4, 1, 8, 2, 16]


def test_messages_halve():
    t = plain(16, "bandwidth").emit(np.array([3]))
    assert t.blocks.tolist() == [8, 4, 2, 1, 1, 2, 4, 8]
    assert t.reduces.tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize(
    ("tie", "loads"),
    [("split", [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 16, 16]), ("first", [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32])],
)
def test_messages_per_link_of_64x64(tie, loads):
    assert busiest(plain((64, 64)), tie) == loads


def test_mirrored_messages_per_link_are_the_distances():
    assert busiest(mirrored((16, 16)), "split") == [1, 1, 2, 2, 4, 4, 8, 8]


@pytest.mark.parametrize(("shape", "hops"), [((8, 8), 14), ((64, 64), 126), ((64, 16), 78), ((8, 8, 8), 21)])
def test_hops_of_the_latency_form(shape, hops):
    pattern = plain(shape)
    t = pattern.emit(np.array([0]))
    assert pattern.topology.paths(t.src, t.dst).links.size == hops


def test_other_extents_fold():
    pattern = plain(6)
    t = pattern.transfers()
    assert [t.dst[t.src == rank].tolist() for rank in (4, 5)] == [[2], [3]]
    assert t.dst[t.src == 2].tolist() == [3, 0, 4]
    assert set(t.step[t.src == 4]) == {0}


@pytest.mark.parametrize("module", [recursive_doubling, mirrored_recursive_doubling])
def test_scattering_needs_powers_of_two(module):
    for function in (module.reduce_scatter, module.all_gather):
        with pytest.raises(WeftError, match=r"on switch:6: the extents \(6,\) must all be powers of two"):
            function(switch(6), "1KiB")


def test_the_mirrored_form_is_its_own_algorithm():
    with pytest.raises(WeftError, match="form 'x' is unknown: choose"):
        mirrored_recursive_doubling.all_reduce(ring(4), "1KiB", form="x")
    assert mirrored((4, 4)).algorithm == "mirrored-recursive-doubling"
