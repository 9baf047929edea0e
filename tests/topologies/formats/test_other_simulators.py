"""Topologies of SimGrid, ns-3 (ASTRA-sim, SimAI) and htsim, and files that are recognized and not read."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.topologies.formats.test_files import rates, route
from topologies import WeftError, from_spec, torus
from topologies.core.topology import Topology
from topologies.formats import htsim_topo, simgrid
from topologies.formats.graph import foreign_Bps, foreign_ps
from topologies.formats.htsim_topo import looks_like_htsim, parse_htsim
from topologies.formats.ns3_text import looks_like_ns3, parse_ns3
from topologies.formats.simgrid import looks_like_simgrid, parse_simgrid
from topologies.text.schema import Absent, InputNote

DOCTYPE = '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'


def cluster(shape: str, parameters: str, hosts: int, more: str = "") -> str:
    """A platform of one cluster, as SimGrid's examples are."""
    return (f'{DOCTYPE}<platform version="4.1"><zone id="world" routing="Full"><cluster id="a" prefix="n" suffix="" '
            f'radical="0-{hosts - 1}" speed="1Gf" bw="125MBps" lat="50us" topology="{shape}" '
            f'topo_parameters="{parameters}" loopback_bw="100MBps" loopback_lat="0" {more}/></zone></platform>')


def same(one: Topology, other: Topology) -> bool:
    return all(np.array_equal(getattr(one, field), getattr(other, field))
               for field in ("src", "dst", "bandwidth_Bps", "latency_ps", "hop_latency_ps"))


def time_ps(t: Topology, src: int, dst: int) -> int:
    """Latency of a path."""
    paths = t.paths(np.array([src]), np.array([dst]))
    return int(t.latency_ps[paths.links].sum() + t.hop_latency_ps[t.dst[paths.links]].sum())


class TestSimGrid:
    def test_a_torus_is_our_torus(self) -> None:
        ours = torus((3, 2, 2), bandwidth="125MB/s", latency="50us", hop_latency=0)
        theirs = parse_simgrid(cluster("TORUS", "3,2,2", 12), "t.xml")
        assert (same(ours, theirs), theirs.shape, theirs.name) == (True, (3, 2, 2), "t.xml")

    def test_a_fat_tree_has_the_cables_of_the_paper(self) -> None:
        """Figure 1b of the paper that the example of SimGrid names: 4 leaves of 4 nodes, 2 cores, 2 cables each."""
        t = parse_simgrid(cluster("FAT_TREE", "2;4,4;1,2;1,2", 16), "f.xml")
        assert (t.n_npus, t.n_nodes, t.n_links) == (16, 16 + 4 + 2, 2 * (16 + 4 * 2 * 2))
        assert [len(route(t, 0, other)) for other in (3, 4, 15)] == [2, 4, 4]
        assert (time_ps(t, 0, 3), time_ps(t, 0, 15)) == (100_000_000, 200_000_000)
        assert set(t.bandwidth_Bps.tolist()) == {125e6}

    def test_a_tree_of_three_levels(self) -> None:
        t = parse_simgrid(cluster("FAT_TREE", "3;2,3,2;1,2,2;1,1,1", 12), "f.xml")
        assert t.n_nodes == 12 + 6 + 4 + 4
        assert {len(route(t, 0, other)) for other in range(1, 12)} == {2, 4, 6}

    def test_a_dragonfly_has_links_of_several_cables(self) -> None:
        t = parse_simgrid(cluster("DRAGONFLY", "3,4;4,3;5,1;2", 120), "d.xml")
        assert (t.n_npus, t.n_nodes) == (120, 180)
        assert t.n_links == 2 * (120 + 12 * math.comb(5, 2) + 15 * math.comb(4, 2) + 3)
        assert set(t.bandwidth_Bps.tolist()) == {125e6, 375e6, 500e6}
        assert len(route(t, 0, 119)) == 6
        assert len(route(t, 0, 1)) == 2

    def test_a_backbone_is_crossed_by_all(self) -> None:
        t = parse_simgrid(cluster("FLAT", "", 100, 'bb_bw="2.25GBps" bb_lat="500us"'), "b.xml")
        assert route(t, 0, 2) == ["n0->a in", "a in->a out", "a out->n2"]
        assert time_ps(t, 0, 2) == 600_000_000
        assert (t.n_links, rates(t, "a in", "a out")) == (201, 2.25e9)
        assert parse_simgrid(cluster("FLAT", "", 4), "b.xml").n_links == 8

    def test_a_limiter_is_crossed_once_a_node_whichever_way(self) -> None:
        t = parse_simgrid(cluster("FLAT", "", 4, 'limiter_link="150MBps"'), "b.xml")
        limiter = "a_link_{}_limiter in->a_link_{}_limiter out".format
        assert route(t, 0, 2) == ["n0->a_link_0_limiter in", limiter(0, 0), "a_link_0_limiter out->a in",
                                  "a in->a_link_2_limiter in", limiter(2, 2), "a_link_2_limiter out->n2"]
        assert time_ps(t, 0, 2) == 100_000_000
        wide = parse_simgrid(cluster("DRAGONFLY", "2,1;2,1;2,1;2", 16, 'limiter_link="150MBps"'), "d.xml")
        assert sum("-in->" in name for name in route(wide, 0, 15)) == 2 + 5  # hosts and routers

    @pytest.mark.parametrize("row", simgrid.ABSENT, ids=lambda row: f"{row.where}-{row.name}")
    def test_absent_equals_explicit(self, row: Absent) -> None:
        beside = ('<zone id="m" routing="Full"><host id="h"/><host id="i"/><link id="l" bandwidth="1Bps"/>'
                  '<route src="h" dst="i"><link_ctn id="l"/></route></zone><zoneRoute src="a" dst="m" gw_src="n0" '
                  'gw_dst="h"><link_ctn id="l"/></zoneRoute></zone></platform>')
        text = cluster("FLAT", "", 4).replace("</zone></platform>", beside)
        text = re.sub(rf'(<{row.where} [^>]*?) {row.name}="[^"]*"', r"\1", text)
        if row.name == "bb_lat":
            text = text.replace("<cluster", '<cluster bb_bw="1GBps"')
        explicit = text.replace(f"<{row.where} ", f'<{row.where} {row.name}="{row.value}" ')
        assert same(parse_simgrid(text, "a.xml"), parse_simgrid(explicit, "a.xml"))

    def test_what_is_beside_the_cluster_is_passed_over(self) -> None:
        """A host of a master and its way: nothing between the nodes of the cluster crosses them."""
        plain = cluster("DRAGONFLY", "2,1;2,1;2,1;2", 16)
        beside = ('<zone id="m" routing="None"><host id="h" speed="1Gf"><prop id="a" value="b"/></host></zone><link '
                  'id="l" bandwidth="1GBps" latency="0"/><zoneRoute src="a" dst="m"><link_ctn id="l"/></zoneRoute>')
        with pytest.warns(InputNote, match="passed over.*: <link> in <zone>, <zoneRoute> in <zone>, <host> in <zone>$"):
            found = parse_simgrid(plain.replace("</zone></platform>", f"{beside}</zone></platform>"), "a.xml")
        assert same(found, parse_simgrid(plain, "a.xml"))

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ('topology="FLAT"', 'topology="TORUS" sharing_policy="SHARED"', "has sharing_policy='SHARED': links that"),
            ('topology="FLAT"', 'topology="VIVALDI"', "topology='VIVALDI': accepted are FLAT, TORUS, FAT_TREE"),
            ("125MBps", "fast", "bandwidth is 'fast': a rate such as 10Gbps"),
            ("50us", "late", "latency is 'late': a time such as 50us"),
            ("0-3", "3-0", "has radical='3-0': ranges"),
            ("0-3", "0-999999999", "has 1,000,000,000 nodes; at most"),
            ('[]>', '[]>', ""),
        ],
    )
    def test_what_is_wrong_is_named(self, old: str, new: str, message: str) -> None:
        text = cluster("FLAT", "", 4)
        if not message:
            text, message = text.replace('simgrid.dtd">', 'simgrid.dtd" [<!ENTITY a "b">]>'), "declares a document type"
        with pytest.raises(WeftError, match=re.escape(message)):
            parse_simgrid(text.replace(old, new), "p.xml")

    @pytest.mark.parametrize(
        ("shape", "parameters", "hosts", "message"),
        [
            ("TORUS", "", 4, "extents such as 4,4 are expected"),
            ("TORUS", "2,x", 4, "numbers from 1 are expected"),
            ("TORUS", "2,3", 4, "has 4 hosts by its radical, and 6 by its topo_parameters"),
            ("FAT_TREE", "2;4,4;1,2", 16, "levels;down;up;cables, such as"),
            ("FAT_TREE", "2;4,4;1;1,2", 16, "a number of levels, and as many of links down"),
            ("FAT_TREE", ";4,4;1,2;1,2", 16, "a number of levels, and as many of links down"),
            ("DRAGONFLY", "3;4,3;5,1;2", 120, "two numbers are expected"),
            ("DRAGONFLY", "3,1;1,1;2,1;1", 6, "3 groups of 2 routers"),
        ],
    )
    def test_shapes_that_do_not_fit_are_named(self, shape: str, parameters: str, hosts: int, message: str) -> None:
        with pytest.raises(WeftError, match=re.escape(message)):
            parse_simgrid(cluster(shape, parameters, hosts), "p.xml")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("125MBps", 125e6), ("1Gbps", 125e6), ("1GiBps", 2**30), ("8bps", 1.0), ("100Mb/s", 12.5e6), ("4.5kBps", 4500.0),
     ("1e3", 1000.0)],
)
def test_units_of_rates(text: str, rate: float) -> None:
    assert foreign_Bps(text, "rate") == rate


@pytest.mark.parametrize(
    ("text", "ps"), [("50us", 50_000_000), ("0.0005ms", 500_000), ("1e-6", 10**6), ("0", 0), ("2m", 12 * 10**13)]
)
def test_units_of_times(text: str, ps: int) -> None:
    assert foreign_ps(text, "time") == ps


NS3 = "5 1 4\n4\n" + "".join(f"{at} 4 400Gbps 0.0005ms 0\n" for at in range(4))
SIMAI = ("9 4 1 4 20 H100\n4 5 6 7 8 \n" + "".join(f"{at} 4 3600Gbps 0.000025ms 0\n{at} {5 + at} 400Gbps 0.0005ms 0\n"
                                                for at in range(4))
         + "".join(f"{a} {b} 400Gbps 0.0005ms 0.0\n" for a in range(5, 9) for b in range(5, 9) if a < b)
         + "".join(f"{at} {5 + at} 400Gbps 0.0005ms 0\n" for at in range(4))
         + "0 5 400Gbps 0.0005ms 0\n" * 2)


class TestNs3:
    def test_nodes_that_are_no_switches_are_npus(self) -> None:
        assert looks_like_ns3(NS3)
        t = parse_ns3(NS3, "n.txt")
        assert (t.n_npus, t.n_nodes, t.n_links) == (4, 5, 8)
        assert set(t.bandwidth_Bps.tolist()) == {50e9}
        assert time_ps(t, 0, 3) == 1_000_000

    def test_nvswitches_come_first(self) -> None:
        assert looks_like_ns3(SIMAI)
        t = parse_ns3(SIMAI, "s")
        assert (t.n_npus, t.n_nodes) == (4, 9)
        assert route(t, 0, 3) == ["npu0->nvswitch4", "nvswitch4->npu3"]
        assert rates(t, "npu1", "nvswitch4") == 450e9

    def test_switches_need_not_be_last(self) -> None:
        t = parse_ns3("3 1 2\n0\n0 1 10Gbps 1us 0\n0 2 10Gbps 1us 0\n", "n.txt")
        assert [t.node_name(node) for node in range(3)] == ["npu1", "npu2", "switch0"]

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("5 1 4", "5 1 5", "line 6: the file ends before all links"),
            ("5 1 4", "5 1 3", "'3' after the 3 links that its first line announces"),
            ("\n4\n", "\n9\n", "line 2: node 9 of 5, which are numbered from 0"),
            ("0 4 400Gbps", "0 4 fast", "line 3: rate is 'fast'"),
            ("0 4 400Gbps 0.0005ms", "0 4 400Gbps soon", "line 3: delay is 'soon'"),
            ("0.0005ms 0\n1", "0.0005ms 0.01\n1", "line 3: the link loses packets"),
            ("0 4 ", "4 4 ", "line 3: a link from node 4 to itself"),
            ("5 1 4", "999999999 1 4", "has 999,999,999 nodes; at most"),
        ],
    )
    def test_what_is_wrong_is_named(self, old: str, new: str, message: str) -> None:
        with pytest.raises(WeftError, match=re.escape(message)):
            parse_ns3(NS3.replace(old, new, 1), "n.txt")


TOPO = """# three tiers
Nodes 8
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 500
Switch_Latency_ns 30
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 2
"""


class TestHtsim:
    def test_a_fat_tree_of_three_tiers(self) -> None:
        assert looks_like_htsim(TOPO)
        t = parse_htsim(TOPO, "a.topo")
        assert (t.n_npus, t.n_nodes, t.n_links) == (8, 8 + 4 + 4 + 4, 2 * (8 + 8 + 16))
        assert [len(route(t, 0, other)) for other in (1, 2, 4)] == [2, 4, 6]
        assert time_ps(t, 0, 2) == 2 * 1_000_000 + 2 * 500_000 + 30_000
        assert rates(t, "tor0", "agg0") == 25e9

    def test_a_leaf_spine_of_two(self) -> None:
        text = ("Nodes 32\nTiers 2\nPodsize 32\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 8\nRadix_Up 2\n"
                "Downlink_Latency_ns 1000\nOversubscribed 4\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
                "Downlink_Latency_ns 1000\n")
        t = parse_htsim(text, "a.topo")
        assert (t.n_npus, t.n_nodes, t.n_links) == (32, 38, 80)

    @pytest.mark.parametrize("row", htsim_topo.ABSENT, ids=lambda row: row.name)
    def test_absent_equals_explicit(self, row: Absent) -> None:
        text = "\n".join(line for line in TOPO.splitlines() if not line.lower().startswith(row.name))
        text = text.replace("Radix_Up 4", "Radix_Up 2").replace("Radix_Down 4", "Radix_Down 2")
        explicit = re.sub(r"(Tier \d)\n", rf"\1\n{row.name} {row.value}\n", text)
        bundles = "" if row.name == "bundle" else "Bundle 2\n"
        if bundles:
            text, explicit = (one.replace("Bundle 2", "") for one in (text, explicit))
        assert same(parse_htsim(text, "a.topo"), parse_htsim(explicit, "a.topo"))

    def test_what_htsim_does_not_know_is_noted(self) -> None:
        with pytest.warns(InputNote, match="passed over, as htsim does: Color"):
            parse_htsim(TOPO + "Color 3\n", "a.topo")

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("Tiers 3", "Tiers 4", "has 4 tiers: htsim has 2 or 3"),
            ("Podsize 4\n", "", "lacks podsize"),
            ("Radix_Down 2\nRadix_Up 4", "Radix_Down 4\nRadix_Up 4", "tier 1 radix_down is 4, and 2 switches below"),
            ("Radix_Down 4", "Radix_Down 5", "tier 2 radix_down is 5, and 2 pods with 2 links each need 4"),
            ("Nodes 8", "Nodes 6", "6 hosts do not divide by 4, podsize"),
            ("Nodes 8", "Nodes eight", "nodes is 'eight'"),
            ("Downlink_Latency_ns 500", "Downlink_Latency_ns 0", "tier 1: downlink_latency_ns is '0'"),
            ("Tier 2", "Tier 5", "tier '5': htsim has 0, 1 and 2"),
            ("Bundle 2", "Bundle", "line 20: 'Bundle' has no value"),
            ("Bundle 2", "Bundle 2\nBundle 1", "line 21: bundle is given twice"),
        ],
    )
    def test_what_is_wrong_is_named(self, old: str, new: str, message: str) -> None:
        with pytest.raises(WeftError, match=re.escape(message)):
            parse_htsim(TOPO.replace(old, new, 1), "a.topo")


class TestRecognized:
    def test_a_file_without_a_suffix_is_known_by_its_text(self, tmp_path: Path) -> None:
        files = {"Spectrum-X_4g_8gps_400Gbps_H100": SIMAI, "fabric": TOPO, "platform": cluster("TORUS", "2,2", 4)}
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
            assert from_spec(str(tmp_path / name)).n_npus in (4, 8)

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("a.xml", '<graphs version="1"><graph id="0"/></graphs>', "is an NCCL graph"),
            ("a.xml", '<algo name="a"/>', "is an MSCCL program: give it as --algorithm"),
            ("a.xml", '<?xml version="1.0"?><topology version="2.0"/>', "is an lstopo file of hwloc"),
            ("a.cm", "Nodes 4\nConnections 1\n0->1 id 1 start 0 size 8\n", "is a connection matrix of htsim"),
            ("a.json", '{"logical-dims": ["8"]}', "is the logical dimensions of ASTRA-sim's ns-3"),
            ("a.json", '{"scheduling-policy": "LIFO"}', "is a system file of ASTRA-sim: give it as --system"),
            ("a.txt", "+-----+\n| NVIDIA-SMI 550 |\n", "is the status of nvidia-smi"),
            ("a.txt", "GPU 0: NVIDIA A100\n\t Link 0: 25 GB/s\n", "is the status of NVLinks"),
            ("a.conf", "SwitchName=s0 Nodes=n[0-3]\n", "is Slurm's topology.conf"),
            ("a.log", "h:1:1 [0] NCCL INFO Bootstrap : Using eth0\n", "a log of NCCL: NCCL_TOPO_DUMP_FILE writes"),
            ("a.txt", 'vendid=0x2c9\nSwitch\t36 "S-0002"\t# "sw"\n[1]\t"H-0003"[1]\n', "the output of ibnetdiscover"),
            ("a.conf", "hello\n", "has an unknown format: expected GraphML or"),
        ],
    )
    def test_what_is_not_read_is_named(self, name: str, text: str, message: str, tmp_path: Path) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(WeftError, match=re.escape(message)):
            from_spec(str(tmp_path / name))

    def test_a_named_type_is_no_declaration(self) -> None:
        assert looks_like_simgrid(cluster("FLAT", "", 2))
