"""Foreign topology files: what they become, and every broken one in one line that names file and key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.places import SHARED
from topologies import Topology, WeftError, dgx1, dgx_a100, from_spec, write_topology
from topologies.formats.files import FORMATS
from topologies.formats.infragraph import parse_infragraph
from topologies.formats.nccl_xml import parse_nccl_xml
from topologies.formats.nvidia_smi import parse_nvidia_smi
from topologies.text.input_text import read_input
from topologies.text.plain_xml import parse_xml
from topologies.text.schema import InputNote


def gpu(busid: str, rank: int, links: str = "", sm: int = 80) -> str:
    pci = f'<pci busid="{busid}" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
    return f'{pci}<gpu dev="{rank}" sm="{sm}" rank="{rank}" gdr="1">{links}</gpu></pci>'


def nic(busid: str, rail: int, speed: int = 200000) -> str:
    pci = f'<pci busid="{busid}" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">'
    return f'{pci}<nic><net name="mlx5_{rail}" dev="{rail}" speed="{speed}" port="1" latency="0.0"/></nic></pci>'


def bridge(busid: str, inside: str) -> str:
    return f'<pci busid="{busid}" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">{inside}</pci>'


def system(*cpus: str) -> str:
    begin = '<cpu numaid="{}" vendor="AuthenticAMD" arch="x86_64">'
    inside = "".join(f"{begin.format(at)}{one}</cpu>" for at, one in enumerate(cpus))
    return f'<system version="1">{inside}</system>'


SWITCHED = '<nvlink target="0000:f0:00.0" count="12" tclass="0x068000"/>'
BOX = system(
    bridge("a", bridge("a0", gpu("g0", 0, SWITCHED)) + nic("n0", 0)),
    bridge("b", gpu("g1", 1, SWITCHED) + nic("n1", 1)),
    nic("n2", 2),
)


def rates(t: Topology, src: str, dst: str) -> float:
    names = [t.node_name(node) for node in range(t.n_nodes)]
    (link,) = t.link_ids(np.array([names.index(src)]), np.array([names.index(dst)]))
    assert link >= 0, (src, dst)
    return float(t.bandwidth_Bps[link])


def route(t: Topology, src: int, dst: int) -> list[str]:
    paths = t.paths(np.array([src]), np.array([dst]))
    return [t.link_name(int(link)) for link in paths.links]


class TestNcclXml:
    def test_a_box_around_an_nvswitch_is_only_that(self) -> None:
        t = parse_nccl_xml(BOX, "box.xml")
        assert (t.n_npus, t.n_nodes, t.n_links) == (2, 3, 4)
        assert set(t.bandwidth_Bps.tolist()) == {12 * 20e9}

    def test_copies_are_joined_by_a_switch_for_each_nic(self) -> None:
        t = parse_nccl_xml(BOX, "box.xml", boxes=3)
        assert t.n_npus == 6
        assert rates(t, "box1-nic0", "rail0") == 25e9
        names = [t.node_name(node) for node in range(t.n_nodes)]
        assert "rail1" in names
        assert "rail2" not in names  # behind a CPU without a GPU
        assert route(t, 0, 2) == [
            "box0-gpu0->box0-port-gpu0", "box0-port-gpu0->box0-pcie-a", "box0-pcie-a->box0-nic0", "box0-nic0->rail0",
            "rail0->box1-nic0", "box1-nic0->box1-pcie-a", "box1-pcie-a->box1-port-gpu0", "box1-port-gpu0->box1-gpu0",
        ]
        assert all("nvswitch" in name for name in route(t, 2, 3))

    def test_a_chain_of_bridges_has_the_rate_of_its_slowest_link(self) -> None:
        t = parse_nccl_xml(BOX, "box.xml", boxes=2)
        assert rates(t, "box0-pcie-a", "box0-port-gpu0") == 12e9  # 8 GT/s x16 between bridges
        assert rates(t, "box0-pcie-b", "box0-port-gpu1") == 24e9
        assert rates(t, "box0-cpu0", "box0-cpu1") == 16e9

    def test_direct_links_are_cables_of_their_joint_rate(self) -> None:
        one = '<nvlink target="g1" count="2" tclass="0x030200"/>'
        other = '<nvlink target="g0" count="2" tclass="0x030200"/>'
        t = parse_nccl_xml(system(gpu("g0", 0, one, sm=70) + gpu("g1", 1, other, sm=70)), "box.xml")
        assert (t.n_nodes, t.n_links) == (2, 2)
        assert set(t.bandwidth_Bps.tolist()) == {40e9}

    def test_without_nvlink_the_way_is_over_pcie_and_cpus(self) -> None:
        t = parse_nccl_xml(system(gpu("g0", 0), gpu("g1", 1)), "box.xml")
        assert route(t, 0, 1) == [
            "gpu0->port-gpu0", "port-gpu0->cpu0", "cpu0->cpu1", "cpu1->port-gpu1", "port-gpu1->gpu1",
        ]

    def test_what_the_file_leaves_open_is_taken(self) -> None:
        t = parse_nccl_xml(BOX, "box.xml", bandwidth="25GB/s", latency="1us", hop_latency="2us")
        assert set(t.bandwidth_Bps.tolist()) == {300e9}
        assert set(t.latency_ps.tolist()) == {10**6}
        assert sorted(t.hop_latency_ps.tolist()) == [0, 0, 2 * 10**6]

    def test_dumps_number_their_pci_elements(self) -> None:
        numbered = re.sub(r"(<pci [^>]*>)", r"\g<1>7", BOX)
        assert numbered.count(">7") > 1
        ours, theirs = (parse_nccl_xml(text, "box.xml") for text in (BOX, numbered))
        assert np.array_equal(ours.bandwidth_Bps, theirs.bandwidth_Bps)
        assert np.array_equal(ours.dst, theirs.dst)

    @pytest.mark.parametrize("path", sorted((SHARED / "nccl").glob("dgx_a100*.xml")) or [None])
    def test_the_dump_of_a_dgx_a100_is_our_dgx_a100(self, path: Path | None) -> None:
        if path is None:
            return  # the real file is not part of the project
        text = path.read_text(encoding="utf-8")
        ours, theirs = dgx_a100(1), parse_nccl_xml(text, "dgx", bandwidth="25GB/s")
        assert theirs.n_npus == ours.n_npus
        assert np.array_equal(theirs.bandwidth_Bps, ours.bandwidth_Bps)
        assert np.array_equal(theirs.src, ours.src)
        two = parse_nccl_xml(text, "dgx", boxes=2)
        rails = [two.node_name(node) for node in range(two.n_nodes) if two.node_name(node).startswith("rail")]
        assert sorted(rails) == [f"rail{rail}" for rail in (0, 1, 2, 3, 6, 7, 8, 9)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("<system", "box.xml is not XML"),
            (BOX[:200], "box.xml is not XML"),
            ("<graphs/>", "line 1: <graphs> is not the root of an NCCL topology"),
            (BOX.replace('rank="1"', 'rank="0"'), "rank=0, already taken by the GPU at"),
            (BOX.replace('count="12"', 'count="many"', 1), "count='many': give an integer from 1"),
            (system(nic("n0", 0)), "has no <gpu>"),
            ('<!DOCTYPE s [<!ENTITY a "aa">]><system>&a;</system>', "declares a document type or entities"),
        ],
    )
    def test_what_is_wrong_is_named(self, text: str, message: str) -> None:
        with pytest.raises(WeftError) as caught:
            parse_nccl_xml(text, "box.xml")
        assert message in str(caught.value)
        assert str(caught.value).startswith("box.xml")

    def test_copies_need_a_nic(self) -> None:
        with pytest.raises(WeftError, match="has no NIC: 2 copies cannot be connected"):
            parse_nccl_xml(system(gpu("g0", 0)), "box.xml", boxes=2)


def table(cells: list[list[str]], tail: str = "mlx5_0") -> str:
    gpus = [f"GPU{at}" for at in range(len(cells))]
    lines = ["\t" + "\t".join([*gpus, tail, "CPU Affinity", "NUMA Affinity"])]
    lines += ["\t".join([name, *row, "SYS", "0-63", "0"]) for name, row in zip(gpus, cells, strict=True)]
    return "\n".join([*lines, "mlx5_0\t" + "\t".join(["SYS"] * len(cells)) + "\t X ", "", "Legend:", "  X    = Self"])


def all_to_all(n: int, links: int) -> list[list[str]]:
    return [[" X " if a == b else f"NV{links}" for b in range(n)] for a in range(n)]


DGX1 = ("02112000", "20120100", "11020020", "12200001", "20000211", "01002012", "00201102", "00011220")


class TestNvidiaSmi:
    def test_cells_that_a_terminal_glued_together(self) -> None:
        text = table(all_to_all(4, 18)).replace("NV18\tSYS", "NV18SYS").replace("NV18\tNV18", "NV18NV18")
        t = parse_nvidia_smi(text, "a", nvlink="4")
        assert (t.n_npus, t.n_nodes) == (4, 5)

    def test_bundles_beyond_the_links_of_a_gpu_share_an_nvswitch(self) -> None:
        t = parse_nvidia_smi("$ nvidia-smi topo -m\n" + table(all_to_all(8, 12)), "a", nvlink="3")
        assert (t.n_npus, t.n_nodes) == (8, 9)
        assert set(t.bandwidth_Bps.tolist()) == {240e9}

    def test_bundles_that_a_gpu_can_hold_are_cables(self) -> None:
        t = parse_nvidia_smi(table(all_to_all(4, 4)), "a", nvlink="3")
        assert (t.n_nodes, t.n_links) == (4, 12)
        assert set(t.bandwidth_Bps.tolist()) == {80e9}

    def test_the_cube_mesh_of_a_dgx1_is_our_dgx1(self) -> None:
        cells = [[" X " if a == b else f"NV{n}" if n != "0" else "SYS" for b, n in enumerate(row)]
                 for a, row in enumerate(DGX1)]
        with pytest.warns(InputNote, match="the rate given is that of one NVLink, 20 GB/s in its generation"):
            theirs, ours = parse_nvidia_smi(table(cells), "a", nvlink="2", bandwidth="25GB/s"), dgx1(1)
        for name in ("src", "dst", "bandwidth_Bps"):
            assert np.array_equal(getattr(theirs, name), getattr(ours, name))

    def test_escapes_and_a_single_gpu(self) -> None:
        assert parse_nvidia_smi("\x1b[4m\tGPU0\tCPU Affinity\x1b[0m\nGPU0\t X \t0-3\n", "a", nvlink="4").n_npus == 1

    @pytest.mark.parametrize(
        ("text", "nvlink", "message"),
        [
            (table(all_to_all(2, 1)), None, "give the NVLink generation"),
            (table(all_to_all(2, 1)), "9", "NVLink generation '9' is unknown"),
            (table(all_to_all(2, 13)), "3", "bundles of more NVLinks than the 12 of generation 3"),
            ("GPU 0 is fine\n", "3", "has no line of columns"),
            (table(all_to_all(4, 12))[:120], "3", "expected the row of GPU2"),
            (table([[" X ", "WIFI"], ["WIFI", " X "]]), "3", "GPU0 to GPU1 is 'WIFI'"),
            (table([[" X ", "NV1"], ["NV2", " X "]]), "3", "GPU0 to GPU1 is NV1, but the reverse is NV2"),
            (table([[" X ", "SYS"], ["SYS", " X "]]), "3", "has no NVLink: omit NVLink generation '3'"),
        ],
    )
    def test_what_is_wrong_is_named(self, text: str, nvlink: str | None, message: str) -> None:
        with pytest.raises(WeftError) as caught:
            parse_nvidia_smi(text, "smi.txt", nvlink=nvlink)
        assert message in str(caught.value)


def infra(**changes: Any) -> dict[str, Any]:
    """Two servers of two NPUs behind a switch, as the samples of InfraGraph are."""
    eth = {"name": "eth", "physical": {"bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 100},
                                       "latency": {"choice": "ns", "ns": 500}}}
    inside = {"name": "pcie", "physical": {"bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": 32}}}
    many = {"scheme": "many2many"}
    server = {
        "name": "server", "links": [inside],
        "components": [
            {"name": "xpu", "count": 2, "choice": "xpu"}, {"name": "sw", "count": 1, "choice": "switch"},
            {"name": "nic", "count": 2, "choice": "nic"}, {"name": "mem", "count": 1, "choice": "memory"},
        ],
        "edges": [
            {"ep1": {"component": "xpu"}, "ep2": {"component": "sw[0]"}, "link": "pcie", **many},
            {"ep1": {"component": "nic[0:2]"}, "ep2": {"component": "sw"}, "link": "pcie", **many},
            {"ep1": {"component": "mem"}, "ep2": {"component": "sw"}, "link": "pcie", **many},
        ],
    }
    switch = {
        "name": "switch", "links": [inside],
        "components": [{"name": "asic", "count": 1, "choice": "custom", "custom": {"type": "asic"}},
                       {"name": "port", "count": 8, "choice": "port"}],
        "edges": [{"ep1": {"component": "asic"}, "ep2": {"component": "port"}, "link": "pcie", **many}],
    }
    data = {
        "name": "two servers", "devices": [server, switch], "links": [eth],
        "instances": [
            {"name": "host", "device": "server", "count": 2}, {"name": "leaf", "device": "switch", "count": 1},
        ],
        "edges": [
            {"ep1": {"instance": f"host[{at}]", "component": "nic"},
             "ep2": {"instance": "leaf", "component": f"port[{2 * at}:{2 * at + 2}]"},
             "link": "eth", "scheme": "one2one"}
            for at in range(2)
        ],
    }
    return data | changes


class TestInfraGraph:
    def test_instances_edges_and_units(self) -> None:
        t = parse_infragraph(json.dumps(infra()), "i.json")
        assert t.name == "two servers"
        assert [t.node_name(npu) for npu in range(4)] == [
            "host.0.xpu.0", "host.0.xpu.1", "host.1.xpu.0", "host.1.xpu.1",
        ]
        assert rates(t, "host.0.nic.0", "leaf.0.port.0") == 12.5e9
        assert rates(t, "host.1.xpu.0", "host.1.sw.0") == 32e9
        names = [t.node_name(node) for node in range(t.n_nodes)]
        assert not any("mem" in name for name in names)  # nothing passes it
        assert "leaf.0.port.7" not in names
        assert len(route(t, 0, 2)) == 8

    def test_latencies_and_what_charges_them(self) -> None:
        t = parse_infragraph(json.dumps(infra()), "i.json", latency="7ns", hop_latency="1us")
        assert set(t.latency_ps.tolist()) == {500_000, 7_000}
        charged = {t.node_name(int(node)) for node in np.flatnonzero(t.hop_latency_ps)}
        assert charged == {"host.0.sw.0", "host.1.sw.0", "leaf.0.asic.0"}

    def test_a_device_may_be_composed_of_devices(self) -> None:
        data = infra()
        card = {"name": "card", "links": data["devices"][0]["links"], "edges": [
            {"ep1": {"component": "bus"}, "ep2": {"component": "plug"}, "link": "pcie", "scheme": "one2one"}],
            "components": [
                {"name": "bus", "count": 1, "choice": "port"}, {"name": "plug", "count": 1, "choice": "nic"}]}
        server = data["devices"][0]
        server["components"][2] = {"name": "card", "count": 2, "choice": "device"}
        server["edges"][1]["ep1"] = {"device": "card[0:2]", "component": "bus[0]"}
        data["devices"].append(card)
        for edge in data["edges"]:
            edge["ep1"]["component"] = "card.plug"
        t = parse_infragraph(json.dumps(data), "i.json")
        assert rates(t, "host.0.card.1.plug.0", "leaf.0.port.1") == 12.5e9
        assert len(route(t, 0, 2)) == 10

    def test_links_without_a_bandwidth_take_the_given_one(self) -> None:
        data = infra(links=[{"name": "eth"}])
        t = parse_infragraph(json.dumps(data), "i", bandwidth="10GB/s")
        assert rates(t, "host.0.nic.0", "leaf.0.port.0") == 10e9
        with pytest.raises(WeftError, match="link eth has no bandwidth, and no words that name one: give --link"):
            parse_infragraph(json.dumps(data), "i")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"instances": None}, "lacks the key 'instances'"),
            ({"instances": [{"name": "a", "device": "none", "count": 1}]}, "device 'none' is not one of server"),
            ({"instances": [{"name": "a", "device": "server", "count": 0}]}, "instance a: count is 0"),
            ({"instances": [{"name": "a", "device": "server", "count": 10**9}]}, "count is 1000000000"),
            ({"edges": [{"ep1": {}, "ep2": {}, "link": "eth", "scheme": "ring"}]}, "ep1: instance is None"),
            ({"links": [{"name": "eth", "physical": {"bandwidth": {
                "choice": "gigatransfers_per_second", "gigatransfers_per_second": 16}}}]}, "is in transfers"),
            ({"devices": [{"name": "x", "components": [{"name": "g", "count": 1, "choice": "fpga"}]}]},
             "component g: choice is 'fpga'"),
        ],
    )
    def test_what_is_wrong_is_named(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(WeftError) as caught:
            parse_infragraph(json.dumps(infra(**change)), "i.json")
        assert message in str(caught.value)
        assert "i.json" in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("edge", "message"),
        [
            ({"scheme": "star"}, "scheme is 'star': choose one2one, many2many or ring"),
            ({"link": "wifi"}, "link 'wifi' is not one of eth"),
            ({"ep1": {"instance": "host[5]", "component": "nic"}}, "host[5] selects none of indices 0 to 1"),
            ({"ep1": {"instance": "host[-3]", "component": "nic"}}, "host[-3] selects none of indices 0 to 1"),
            ({"ep1": {"instance": "host[::0]", "component": "nic"}}, "host[::0] selects none of indices 0 to 1"),
            ({"ep1": {"instance": "host", "component": "fan.nic"}}, "'fan' is not a component of the device 'server'"),
            ({"ep1": {"instance": "rack", "component": "nic"}}, "instance 'rack' is not one of host, leaf"),
        ],
    )
    def test_a_wrong_edge_is_named(self, edge: dict[str, Any], message: str) -> None:
        data = infra()
        data["edges"][1] |= edge
        with pytest.raises(WeftError) as caught:
            parse_infragraph(json.dumps(data), "i.json")
        assert "i.json: edges[1]" in str(caught.value)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        ["a: [", "- 1\n- 2", "a: &x [1]\ninstances: [*x, *x]\n", "[" * 1000, "instances: !!python/object:os.system x"],
    )
    def test_what_is_no_plain_yaml_is_one_line(self, text: str) -> None:
        with pytest.raises(WeftError) as caught:
            parse_infragraph(text, "i.yaml")
        assert str(caught.value).startswith("i.yaml")


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "text", "given", "npus"),
        [
            ("box.xml", BOX, {"boxes": 2}, 4),
            ("smi.txt", table(all_to_all(4, 12)), {"nvlink": "3"}, 4),
            ("i.json", json.dumps(infra()), {}, 4),
            ("i.yaml", json.dumps(infra(), indent=1), {"hop_latency": "1us"}, 4),
        ],
    )
    def test_a_spec_may_name_any_of_them(
        self, name: str, text: str, given: dict[str, Any], npus: int, tmp_path: Path
    ) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        t = from_spec(str(tmp_path / name), **given)
        assert t.n_npus == npus
        write_topology(t, tmp_path / "back.json")  # every network read can be written as ours
        assert from_spec(str(tmp_path / "back.json")).n_links == t.n_links

    @pytest.mark.parametrize(
        ("name", "text", "given", "message"),
        [
            ("box.xml", BOX, {"nvlink": "3"}, "lists the NVLinks of its GPUs: omit NVLink generation '3'"),
            ("smi.txt", table(all_to_all(4, 12)), {"nvlink": "3", "boxes": 2}, "omit number of boxes 2"),
            ("i.json", json.dumps(infra()), {"boxes": 2}, "omit number of boxes 2"),
            ("notes.txt", "hello", {}, "has an unknown format: expected"),
            ("empty.xml", "  \n", {}, "is empty"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, name: str, text: str, given: dict[str, Any], message: str, tmp_path: Path
    ) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(WeftError) as caught:
            from_spec(str(tmp_path / name), **given)
        assert message in str(caught.value)

    def test_a_huge_a_binary_and_a_missing_file(self, tmp_path: Path) -> None:
        big, binary = tmp_path / "big.xml", tmp_path / "binary.xml"
        big.write_bytes(b"<a/>" + b" " * 200)
        binary.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(WeftError, match="is larger than the limit of 100 B"):
            read_input(big, "topology file", 100)
        with pytest.raises(WeftError, match="is not UTF-8 text"):
            from_spec(str(binary))
        with pytest.raises(WeftError, match="cannot be read: No such file"):
            from_spec(str(tmp_path / "none.xml"))
        with pytest.raises(WeftError, match="is not a file: omit boxes 2"):
            from_spec("torus:2x2", boxes=2)

    def test_deep_nesting_is_refused(self) -> None:
        with pytest.raises(WeftError, match="nested more than 64 deep"):
            parse_xml("<a>" * 100, "deep.xml")

    def test_every_format_has_a_suffix_of_its_own_or_says_how_it_is_recognized(self) -> None:
        for suffix in {suffix for one in FORMATS for suffix in one.suffixes}:
            sure = [one for one in FORMATS if suffix in one.suffixes and one.recognizes("")]
            assert len(sure) <= 1
