import numpy as np
import pytest

from topologies import REDUCER, from_spec, read_topology, torus, with_reduction_units, write_topology
from topologies.core.reduction_units import unit_of
from topologies.core.symmetry import link_permutation, translation

SPECS = ["switch:4", "fat-tree:4", "leaf-spine:2x3x2", "hx2mesh:2x2", "RI(3)_SW(2)"]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("per", ["switch", "port"])
def test_every_switch_gets_a_unit_of_the_rate(spec, per):
    bare = from_spec(spec)
    t = with_reduction_units(bare, "800Gb/s", per=per, latency="70ns")
    switches = np.flatnonzero(bare.kind == 1)
    units = np.flatnonzero(t.kind == REDUCER)
    assert units.size == switches.size and t.n_npus == bare.n_npus
    assert sorted(unit_of(t)[switches].tolist()) == units.tolist()
    assert np.array_equal(unit_of(t)[: t.n_npus], np.arange(t.n_npus))
    into = np.isin(t.dst, units)
    assert set(t.bandwidth_Bps[into].tolist()) == {1e11} and set(t.latency_ps[into].tolist()) == {70_000}
    ports = np.bincount(bare.dst, minlength=bare.n_nodes)[switches].sum() if per == "port" else switches.size
    assert np.count_nonzero(into) == ports
    assert len({tuple(row) for row in t.coords.tolist()}) == t.n_nodes


@pytest.mark.parametrize("spec", SPECS)
def test_routes_between_npus_stay(spec):
    bare = from_spec(spec)
    t = with_reduction_units(bare, "800Gb/s")
    src, dst = (ends.ravel() for ends in np.indices((bare.n_npus, bare.n_npus)))
    before, after = bare.paths(src, dst), t.paths(src, dst)
    assert np.array_equal(bare.dst[before.links], t.dst[after.links])


def test_units_move_with_their_switches():
    t = with_reduction_units(from_spec("fat-tree:4"), "800Gb/s", per="port")
    for dim in range(3):
        assert link_permutation(t, translation(t, dim)) is not None


@pytest.mark.parametrize("suffix", [".json", ".graphml"])
def test_a_file_keeps_them(tmp_path, suffix):
    t = with_reduction_units(torus((3, 3)), "800Gb/s", nodes=[0, 4], latency="10ns")
    path = str(tmp_path / f"net{suffix}")
    write_topology(t, path)
    again = read_topology(path)
    assert np.array_equal(again.kind, t.kind) and np.array_equal(unit_of(again), unit_of(t))
