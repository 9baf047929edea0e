import numpy as np
import pytest

import topologies
from topologies import TOPOLOGIES, WeftError, from_spec, torus, write_topology

SAMPLES = [sample for family in TOPOLOGIES.values() for sample in family.samples]


def test_the_public_names_are_there_and_sorted_families_have_what_they_need():
    assert all(hasattr(topologies, name) for name in topologies.__all__)
    assert callable(topologies.torus) and callable(topologies.ring) and callable(topologies.switch)
    for name, family in TOPOLOGIES.items():
        assert name == family.name and family.help and family.samples
        assert family.example.startswith(f"{name}:")
        assert all(sample.startswith(f"{name}:") for sample in family.samples)


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
def test_the_name_of_a_network_builds_it_again(spec):
    once = from_spec(spec)
    twice = from_spec(once.name)
    assert twice.name == once.name and twice.shape == once.shape and twice.router == once.router
    for name in ("kind", "src", "dst", "bandwidth_Bps", "latency_ps", "hop_latency_ps", "dimension", "coords"):
        assert np.array_equal(getattr(twice, name), getattr(once, name)), name


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
def test_every_family_takes_the_quantities(spec):
    t = from_spec(spec, bandwidth="1GB/s", latency="2ns", hop_latency="3ns")
    assert set((t.bandwidth_Bps % 1e9).tolist()) <= {0}  # boxes bundle links into one of several GB/s
    traces = {0} if spec.startswith("hx") else set()  # of boards have a latency of their own
    assert set(t.latency_ps.tolist()) <= {2_000} | traces
    assert set(t.hop_latency_ps.tolist()) <= {0, 3_000}


@pytest.mark.parametrize("family", TOPOLOGIES.values(), ids=lambda family: family.name)
def test_examples_build(family):
    assert from_spec(family.example).n_npus > 1


@pytest.mark.parametrize(
    ("spec", "n_npus", "shape"),
    [
        ("torus:8x8", 64, (8, 8)),
        ("ring:16", 16, (16,)),
        ("mesh:4x4", 16, (4, 4)),
        ("fc:8", 8, (8,)),
        ("switch:64", 64, (64,)),
        ("hx2mesh:16x16", 1024, (32, 32)),
        ("hx4mesh:4x4", 256, (16, 16)),
        ("hx2x3mesh:4x1", 24, (8, 3)),
        ("multidim:RI(4)_FC(8)_SW(2)", 64, (4, 8, 2)),
        ("RI(4)_FC(8)_SW(2)", 64, (4, 8, 2)),
        (" RI(4) ", 4, (4,)),
    ],
)
def test_specs(spec, n_npus, shape):
    t = from_spec(spec)
    assert (t.n_npus, t.shape) == (n_npus, shape)


def test_per_dimension_quantities():
    t = from_spec("RI(4)_SW(2)", bandwidth=["400Gb/s", "100Gb/s"], latency="1ns,5ns")
    assert sorted(set(zip(t.dimension.tolist(), t.bandwidth_Bps.tolist(), t.latency_ps.tolist(), strict=True))) == [
        (0, 50e9, 1_000), (1, 12.5e9, 5_000),
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tours:8x8", "'tours:8x8' is unknown: choose one of torus:8x8, ring:16"),
        ("", "'' is unknown"),
        ("8x8", "'8x8' is unknown"),
        ("torus", "'torus' has no size: write torus:8x8"),
        ("hx2mesh:", "'hx2mesh:' has no size: write hx2mesh:16x16"),
        ("torus:0x4", "torus:0x4 has the extent '0'"),
        ("mesh:-1", "mesh:-1 has the extent '-1'"),
        ("torus:2.5x2", "extent '2.5'"),
        ("ring:2x2", "ring:2x2 has 2 extents: ring takes one"),
        ("hx0mesh:2x2", "hx0mesh:2x2 has the extent '0'"),
        ("hx2x2mesh:2", "boards 2 of 2x2"),
        ("RI(4)_ZZ(2)", "is not a block"),
        ("torus:100000x100000", "10000000000 nodes and 40000000000 links .* limit is 4,194,304 links"),
        ("switch:9999999999", "switch:9999999999 has 10000000000 nodes"),
        ("hx4mesh:99999x99999", "links and would need about"),
    ],
)
def test_bad_specs_are_named(spec, message):
    with pytest.raises(WeftError, match=message):
        from_spec(spec)


@pytest.mark.parametrize("suffix", [".graphml", ".json"])
def test_a_file_is_a_spec_and_says_its_own_times(tmp_path, suffix):
    path = str(tmp_path / f"net{suffix}")
    write_topology(torus((4, 4), bandwidth="7GB/s"), path)
    t = from_spec(path)
    assert t.n_npus == 16 and set(t.bandwidth_Bps.tolist()) == {7e9} and t.name == f"net{suffix}"
    for keyword in ("bandwidth", "latency", "hop_latency"):
        with pytest.raises(WeftError, match=f"specifies its own {keyword}: omit {keyword} 1"):
            from_spec(path, **{keyword: 1})


def test_a_missing_file_is_named():
    with pytest.raises(WeftError, match=r"nowhere\.json cannot be read: No such file"):
        from_spec("nowhere.json")
