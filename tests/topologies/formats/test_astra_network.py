"""ASTRA-sim's network files: what is read, the rule of its GB/s, and what is said about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.producers import absent_of
from tests.astra_inputs import DATA, network_text
from topologies import WeftError, from_spec
from topologies.formats.astra_network import BLOCKS, parse_astra_network
from topologies.text.schema import Absent, InputNote

TEXT = network_text(("Ring", 4), ("FullyConnected", 3), ("Switch", 2))


def test_three_dimensions(tmp_path: Path) -> None:
    """The same network as the spec says, at 2^30 bytes a GB, and the name tells."""
    path = tmp_path / "net.yml"
    path.write_text(TEXT, encoding="utf-8")
    found, wanted = from_spec(str(path)), from_spec("RI(4)_FC(3)_SW(2)")
    assert found.name == "RI(4)_FC(3)_SW(2) (net.yml, 1 GB/s = 2^30 B/s)"
    assert np.array_equal(found.src, wanted.src) and np.array_equal(found.dst, wanted.dst) and found.shape == (4, 3, 2)
    assert set(found.bandwidth_Bps) == {50 * 2.0**30}
    assert set(found.latency_ps) == {500_000} and set(found.hop_latency_ps) == {0}


def test_a_single_block_need_not_be_a_list() -> None:
    rest = "npus_count: [5]\nbandwidth: [25.0]\nlatency: [1.0]\n"
    one, other = (parse_astra_network(f"topology: {block}\n{rest}", "a") for block in ("Switch", "[Switch]"))
    assert one == other
    with pytest.raises(WeftError, match="block 'Mesh2D' is unknown"):
        parse_astra_network(f"topology: Mesh2D\n{rest}", "a")


def test_networks_before_1_0_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text('{"topology-name": "Torus2D", "dims-count": 1}', encoding="utf-8")
    with pytest.raises(WeftError, match="a network of ASTRA-sim before 1"):
        from_spec(str(path))


def test_each_dimension_has_its_own() -> None:
    text = "topology: [Switch, Ring]\nnpus_count: [2, 3]\nbandwidth: [400.0, 0.5]\nlatency: [936.25, 0]\n"
    network = parse_astra_network(text, "net.yml")
    assert (network.npus, network.spec) == (6, "SW(2)_RI(3)")
    found = network.topology("net.yml")
    by_dim = {int(dim): (rate, time) for dim, rate, time in
              zip(found.dimension, found.bandwidth_Bps, found.latency_ps, strict=True)}
    assert by_dim == {0: (400 * 2.0**30, 936_250), 1: (2.0**29, 0)}
    assert [network.line(4, dim) for dim in (0, 1)] == [(4, 5), (0, 2, 4)]


@pytest.mark.parametrize("block", BLOCKS)
def test_two_of_every_block(block: str) -> None:
    assert parse_astra_network(network_text((block, 2)), "net").topology("net").n_npus == 2


def test_published_files() -> None:
    """Those of ASTRA-sim's repository, where they are at hand."""
    specs = {path.stem: from_spec(str(path)).name.split()[0] for path in (DATA / "network").glob("*.yml")}
    assert specs in ({}, {"HGX-H100-validated": "SW(8)", "Ring_16npus": "RI(16)", "Ring_4npus": "RI(4)"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("npus_count", "npus"), "key 'npus_count' is missing"),
        (("latency: [ 500.0, 500.0, 500.0 ]\n", ""), "key 'latency' is missing"),
        (("latency: [ 500.0, 500.0, 500.0 ]", "latency: [ 500.0 ]"), "latency: has 1 entries; topology has 3"),
        (("Ring", "Torus"), "block 'Torus' is unknown: choose one of Ring, FullyConnected, Switch"),
        (("[ 4, 3, 2 ]", "[ 4, 3, 1 ]"), "npus_count is 1: give an integer from 2"),
        (("[ 4, 3, 2 ]", "[ 4, 3, 2.5 ]"), "npus_count is 2.5: give an integer"),
        (("[ 4, 3, 2 ]", "[ 400000, 300, 2 ]"), "240000000 NPUs in all; at most 1,048,576"),
        (("[ 50.0,", "[ 0,"), "bandwidth is 0: give a number from 1e-09"),
        (("[ 50.0,", "[ .nan,"), "bandwidth is nan: give a number"),
        (("[ 500.0,", "[ -1,"), "latency is -1: give a number from 0"),
        (("[ 500.0,", "[ 0.0001,"), "not an integer number of picoseconds"),
        (("topology: [", "topology: [" * 3000), ""),
        (("topology: [", "#" * 2**20 + "\ntopology: ["), "is larger than the limit of 1 MiB"),
        (("topology:", "topology: [Ring]\ntopology:"), "key 'topology' is given twice"),
        (("[ 4, 3, 2 ]", "&a [ *a, *a, *a ]"), "aliases (*name) are not read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "net.yml"
    path.write_text(TEXT.replace(*change), encoding="utf-8")
    with pytest.raises(WeftError, match=r"net\.yml") as wrong:
        from_spec(str(path))
    assert message in str(wrong.value) and "\n" not in str(wrong.value)


def test_quantities_beside_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.yml"
    path.write_text(TEXT, encoding="utf-8")
    with pytest.raises(WeftError, match="omit bandwidth"):
        from_spec(str(path), bandwidth="400Gb/s")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.text(max_size=3))
def test_damaged_texts_are_refused_or_read(at: int, put: str) -> None:
    """Whatever stands there, the answer is a network or one clear line."""
    said = "net.yml"
    try:
        parse_astra_network(TEXT[:at] + put + TEXT[at + 1 :], "net.yml")
    except WeftError as wrong:
        said = str(wrong)
    assert "net.yml" in said


def older(**changes: object) -> str:
    """The JSON of ASTRA-sim 1.0."""
    data = {
        "topology-name": "Hierarchical", "topologies-per-dim": ["Ring", "FullyConnected", "Switch"],
        "dimension-type": ["N", "N", "P"], "dimensions-count": 3, "units-count": [4, 3, 2], "links-count": [4, 2, 3],
        "link-latency": [10, 20, 30], "link-bandwidth": [100, 50, 25], "nic-latency": [1, 2, 3],
        "router-latency": [0, 0, 8],
    }
    return json.dumps(data | changes)


class TestOlderJson:
    def test_links_of_an_npu_are_shared_as_its_tool_does(self) -> None:
        network = parse_astra_network(older(), "net.json")
        assert [(one.kind, one.npus, one.bandwidth) for one in network.dimensions] == [
            ("Ring", 4, 200), ("FullyConnected", 3, 50), ("Switch", 2, 75)]

    def test_a_message_between_neighbors_takes_what_it_took_there(self) -> None:
        """Links, two NICs, and a router at a switch."""
        ring, full, switch = parse_astra_network(older(), "net.json").dimensions
        assert [ring.latency_ns, full.latency_ns, 2 * switch.latency_ns] == [10 + 2, 20 + 4, 2 * 30 + 2 * 3 + 8]

    @pytest.mark.parametrize("row", absent_of("ASTRA-sim 1.0, analytical"), ids=lambda row: row.name)
    def test_absent_equals_explicit(self, row: Absent) -> None:
        data = json.loads(older())
        del data[row.name]
        assert row.value == "0 in every dimension"
        absent = parse_astra_network(json.dumps(data), "net.json")
        assert absent == parse_astra_network(older(**{row.name: [0, 0, 0]}), "net.json")

    def test_a_ring_of_two_has_one_link(self) -> None:
        """As the samples of 1.0 say; two links are one each way."""
        one, two = (parse_astra_network(older(**{"units-count": [2, 3, 2], "links-count": [links, 2, 1]}), "net.json")
                    for links in (1, 2))
        assert one == two

    def test_it_is_known_by_its_keys(self, tmp_path: Path) -> None:
        path = tmp_path / "net.json"
        path.write_text(older(), encoding="utf-8")
        assert from_spec(str(path)).shape == (4, 3, 2)

    def test_what_carries_no_message_is_noted(self) -> None:
        with pytest.warns(InputNote, match="passed over, as the analytical backend does: hbm-scale"):
            parse_astra_network(older(**{"hbm-scale": [0, 0, 0]}), "net.json")
        with pytest.warns(InputNote, match="does: color"):
            parse_astra_network(TEXT + "color: red\n", "net.yml")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"topology-name": "Torus2D"}, "'Torus2D' is not read: only Hierarchical is"),
            ({"links-count": [4, 1, 3]}, "1 links of an NPU are too few for FullyConnected of 3"),
            ({"links-count": [4, 2]}, "links-count: has 2 entries; topologies-per-dim has 3"),
            ({"topologies-per-dim": ["Ring", "Torus", "Switch"]}, "block 'Torus' is unknown"),
        ],
    )
    def test_what_is_wrong_is_named(self, changes: dict[str, object], message: str) -> None:
        with pytest.raises(WeftError, match=message):
            parse_astra_network(older(**changes), "net.json")
