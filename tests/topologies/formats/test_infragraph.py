"""InfraGraph files as their blueprints write them: links named without rates, generic switches, rings."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from docs.producers import absent_of
from tests.topologies.formats.test_files import infra, rates
from topologies import Topology, WeftError
from topologies.accelerators import gpu_links_Bps, nvlinks_Bps, of_cpu_Bps, pcie_Bps
from topologies.formats.infragraph import parse_infragraph
from topologies.text.schema import Absent, InputNote

MANY = {"scheme": "many2many"}


def box(name: str = "dgx_h100", links: tuple[tuple[str, str], ...] = (("xpu_fabric", "nvlink_4"),), switches: int = 4,
        xpu: str = "NVIDIA H100") -> dict[str, Any]:
    """Two GPUs at some NVSwitches, and a PCIe switch if the links have one."""
    joined = dict(links)
    components = [{"name": "cpu", "count": 2, "choice": "cpu"},
                  {"name": "xpu", "count": 2, "choice": "xpu", "description": xpu},
                  {"name": "nvsw", "count": switches, "choice": "switch"}]
    edges = [{"ep1": {"component": "xpu"}, "ep2": {"component": "nvsw"}, "link": links[0][0], **MANY}]
    if "pcie" in joined:
        components.append({"name": "pciesw", "count": 1, "choice": "switch"})
        edges += [{"ep1": {"component": end}, "ep2": {"component": "pciesw"}, "link": "pcie", **MANY}
                  for end in ("xpu", "cpu")]
    device = {"name": name, "components": components, "edges": edges,
              "links": [{"name": one, "description": words} for one, words in links]}
    return {"name": name, "devices": [device], "instances": [{"name": "box", "device": name, "count": 1}]}


def _paired(text: str) -> set[tuple[int, int]]:
    """Which NIC is joined with which of five GPUs by an edge from some of these, one to one."""
    data = box()
    device = data["devices"][0]
    device["components"] += [{"name": "nic", "count": 5, "choice": "nic"}]
    device["components"][1]["count"] = 5
    device["edges"] += [
        {"ep1": {"component": f"xpu{text}"}, "ep2": {"component": "nic"}, "link": "xpu_fabric", "scheme": "one2one"},
        {"ep1": {"component": "nic"}, "ep2": {"component": "nvsw"}, "link": "xpu_fabric", **MANY}]
    t = read(data)
    ends = {(t.node_name(int(a)), t.node_name(int(b))) for a, b in zip(t.src, t.dst, strict=True)}
    return {(nic, gpu) for nic in range(5) for gpu in range(5) if (f"box.0.nic.{nic}", f"box.0.xpu.{gpu}") in ends}


def read(data: dict[str, Any], **given: Any) -> Topology:
    return parse_infragraph(json.dumps(data), "i.json", **given)


class TestRates:
    @pytest.mark.parametrize(
        ("device", "words", "xpu", "switches", "rate"),
        [
            ("box", "nvlink_4", "", 4, 112.5e9), ("box", "NVLINK 3.0", "", 6, 50e9), ("dgx_h100", "", "", 1, 450e9),
            ("box", "", "NVIDIA A100 SXM4", 6, 50e9), ("dgx_gb200", "nvlink_c2c", "", 18, 50e9),
            ("box", "NVLink v5", "", 1, 900e9),
        ],
    )
    def test_links_of_a_gpu_share_what_their_words_say(
        self, device: str, words: str, xpu: str, switches: int, rate: float
    ) -> None:
        t = read(box(device, (("xpu_fabric", words),), switches, xpu))
        assert set(t.bandwidth_Bps.tolist()) == {rate}

    @pytest.mark.parametrize(
        ("words", "rate"),
        [("PCI Express PCIE_GEN5 x16", 63.0154e9), ("PCIe 3.0", 15.7538e9), ("PCIe Gen 4 x8", 15.7538e9),
         ("pcie gen6", 121e9)],
    )
    def test_slots_have_the_rate_of_their_generation(self, words: str, rate: float) -> None:
        t = read(box(links=(("xpu_fabric", "nvlink_4"), ("pcie", words))))
        assert rates(t, "box.0.xpu.0", "box.0.pciesw.0") == pytest.approx(rate, rel=1e-4)

    def test_a_given_bandwidth_is_for_what_no_words_name(self) -> None:
        t = read(box("box", (("xpu_fabric", ""), ("pcie", "gen5")), xpu=""), bandwidth="10GB/s")
        assert rates(t, "box.0.xpu.0", "box.0.nvsw.0") == 10e9
        assert rates(t, "box.0.xpu.0", "box.0.pciesw.0") == pytest.approx(63.0154e9, rel=1e-4)

    def test_what_carries_nothing_is_left_out(self) -> None:
        data = box(links=(("xpu_fabric", "nvlink_4"), ("fabric", "")))
        data["devices"][0]["edges"] += [
            {"ep1": {"component": "cpu"}, "ep2": {"component": other}, "link": "fabric", **MANY}
            for other in ("cpu", "xpu")]
        data["devices"][0]["edges"][0]["ep2"] = {"component": "xpu"}
        with pytest.warns(InputNote, match="link fabric has no bandwidth, and is left out"):
            t = read(data)
        assert set(t.bandwidth_Bps.tolist()) == {450e9}

    def test_what_may_carry_something_needs_a_rate(self) -> None:
        """PCIe is as short a way as the switch of NVLinks that nobody gave a generation."""
        with pytest.raises(WeftError, match="link nvlink has no bandwidth, and no words that name one: give --link"):
            read(box("box", (("nvlink", ""), ("pcie", "PCIe Gen5")), xpu=""))

    def test_inside_a_switch_nothing_is_slower_than_its_ports(self) -> None:
        data = json.loads(json.dumps(infra()))
        del data["devices"][1]["links"][0]["physical"]
        t = read(data)
        assert rates(t, "leaf.0.asic.0", "leaf.0.port.0") == 32e9
        assert rates(t, "host.0.nic.0", "leaf.0.port.0") == 12.5e9

    def test_words(self) -> None:
        assert nvlinks_Bps("nvlink_c2c") is None
        assert nvlinks_Bps("nvlink_1") == 80e9
        assert pcie_Bps("Host PCIe interconnect") is None
        kinds = ("qpi", "UPI", "infinity_fabric", "nvlink_c2c", "")
        assert [of_cpu_Bps(words) for words in kinds] == [6e9, 10e9, 16e9, 450e9, None]
        assert [gpu_links_Bps(words) for words in ("AMD MI300X OAM", "b200x", "dgx")] == [448e9, 900e9, None]


class TestSchemes:
    def test_a_ring_closes(self) -> None:
        data = box("box", (("ici", "nvlink_4"),), 1, "")
        data["devices"][0]["components"][1]["count"] = 5
        data["devices"][0]["edges"] = [
            {"ep1": {"component": "xpu"}, "ep2": {"component": "xpu"}, "link": "ici", "scheme": "ring"}]
        t = read(data)
        assert (t.n_npus, t.n_nodes, t.n_links) == (5, 5, 10)
        assert rates(t, "box.0.xpu.4", "box.0.xpu.0") == 225e9

    def test_a_ring_of_two_is_one_cable(self) -> None:
        data = box("box", (("ici", "nvlink_4"),), 1, "")
        data["devices"][0]["edges"][0] |= {"ep2": {"component": "xpu"}, "scheme": "ring"}
        assert read(data).n_links == 2

    @pytest.mark.parametrize("row", absent_of("infragraph"), ids=lambda row: row.name)
    def test_absent_equals_explicit(self, row: Absent) -> None:
        absent, explicit = {"slice": ("", row.value), "step": ("[1:5]", f"[1:5:{row.value}]")}[row.name]
        assert _paired(absent) == _paired(explicit)

    def test_units_without_a_number_are_absent(self) -> None:
        """As a file has them that is written after its graph was made."""
        data = infra(links=[{"name": "eth", "physical": {
            "bandwidth": {"choice": "gigabits_per_second"}, "latency": {"choice": "ns"}}}])
        t, bare = (parse_infragraph(json.dumps(one), "i", bandwidth="10GB/s")
                   for one in (data, infra(links=[{"name": "eth"}])))
        assert (t.bandwidth_Bps == bare.bandwidth_Bps).all() and (t.latency_ps == bare.latency_ps).all()

    def test_keys_that_the_service_does_not_know_are_noted_once(self) -> None:
        data = infra(color="red")
        data["edges"][0]["speed"] = 3
        with pytest.warns(InputNote) as notes:
            t = read(data)
        assert t.n_npus == 4
        assert [str(one.message) for one in notes] == [
            "i.json: passed over, as the InfraGraph service does: color of a file, speed of a edge"]

    def test_edges_of_a_component_that_is_none_join_nothing(self) -> None:
        """As in the blueprint of a DGX-2, whose edges name "nvlsw" where its switches are "nvsw"."""
        data = box(links=(("xpu_fabric", "nvlink_4"), ("pcie", "PCIe gen5")))
        data["devices"][0]["edges"][0]["ep2"] = {"component": "nvlsw[0:6]"}
        with pytest.warns(InputNote, match="'nvlsw' is no component of the device 'dgx_h100': its edges join nothing"):
            assert len(set(read(data).bandwidth_Bps.tolist())) == 1  # of PCIe

    @pytest.mark.parametrize(("text", "chosen"), [
        ("", range(5)), ("[]", range(5)), ("[:]", range(5)), ("[1]", [1]), ("[-1]", [4]), ("[:-1]", range(4)),
        ("[-2:]", [3, 4]), ("[::2]", [0, 2, 4]), ("[1:5:3]", [1, 4]), ("[::-1]", [4, 3, 2, 1, 0]),
        ("[ 0 : 2 ]", [0, 1]),
    ])
    def test_slices_are_those_of_python(self, text: str, chosen: Sequence[int]) -> None:
        """Paired in their order with NICs, which a switch joins too."""
        assert _paired(text) == set(enumerate(chosen))

    @pytest.mark.parametrize(("text", "chosen"), [("[0:9]", range(5)), ("[5:]", []), ("[-9:1]", [0])])
    def test_slices_beyond_the_last_index_are_told(self, text: str, chosen: Sequence[int]) -> None:
        with pytest.warns(InputNote, match=re.escape(f"xpu{text} selects {len(chosen)} of 5")):
            assert _paired(text) == set(enumerate(chosen))
