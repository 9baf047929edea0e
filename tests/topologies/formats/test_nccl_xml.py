"""Topology XML of NCCL and RCCL as they read it: what is absent, unknown, of other vendors, and filled in later."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.topologies.formats.test_files import BOX, bridge, gpu, nic, rates, route, system
from topologies import Topology, WeftError
from topologies.formats.nccl_schema import ABSENT
from topologies.formats.nccl_xml import parse_nccl_xml
from topologies.text.schema import Absent, InputNote

PEER = '<nvlink target="{}" count="2" tclass="0x030200"/>'
PAIR = system(gpu("0000:01:00.0", 0, PEER.format("0000:02:00.0")), gpu("0000:02:00.0", 1, PEER.format("0000:01:00.0")))


def quad(gcn: str, links: int = 1) -> str:
    """Four AMD GPUs, xGMI between every two, as RCCL writes them."""
    buses = [f"0000:{bus}:00.0" for bus in ("c1", "c9", "d1", "d6")]
    gpus = []
    for rank, bus in enumerate(buses):
        xgmi = "".join(f'<xgmi target="{other}" count="{links}" tclass="0x038000"/>' for other in buses if other != bus)
        gpus.append(f'<pci busid="{bus}" class="0x038000" link_speed="16 GT/s" link_width="16"><gpu dev="{rank}" '
                    f'sm="90" gcn="{gcn}" arch="3538" rank="{rank}" gdr="1">{xgmi}</gpu></pci>')
    return system("".join(gpus)).replace('version="1"', 'version="2"')


def same(one: Topology, other: Topology) -> bool:
    return all(np.array_equal(getattr(one, field), getattr(other, field))
               for field in ("src", "dst", "bandwidth_Bps", "latency_ps", "kind"))


@pytest.mark.parametrize(
    ("gcn", "rate"),
    [
        ("906", 24e9), ("908", 24e9), ("910", 36e9), ("gfx90a", 36e9),
        ("940", 48e9), ("gfx942", 48e9), ("gfx950", 48e9), ("new", 24e9),
    ],
)
def test_xgmi_has_the_rate_of_its_generation(gcn: str, rate: float) -> None:
    t = parse_nccl_xml(quad(gcn), "quad.xml")
    assert (t.n_npus, t.n_nodes, t.n_links) == (4, 4, 12)
    assert set(t.bandwidth_Bps.tolist()) == {rate}
    assert set(parse_nccl_xml(quad(gcn, 4), "quad.xml").bandwidth_Bps.tolist()) == {4 * rate}


class TestAbsent:
    """What is absent has the value that its tool takes."""

    @pytest.mark.parametrize("row", ABSENT, ids=lambda row: f"{row.where} {row.name}")
    def test_absent_equals_explicit(self, row: Absent) -> None:
        text = quad("910") if row.where == "xgmi" or row.name == "gcn" else BOX
        text = re.sub(rf'(<{row.where}\b[^>]*?) {row.name}="[^"]*"', r"\1", text)
        assert not re.search(rf'<{row.where}\b[^>]* {row.name}="', text)
        explicit = re.sub(rf"<{row.where}\b", f'<{row.where} {row.name}="{row.value}"', text)
        if row.name == "tclass" and row.where == "xgmi":  # an end that is a GPU of the file says what it is
            text, explicit = (re.sub('target="[^"]*"', 'target="away"', one) for one in (text, explicit))
        assert explicit != text
        assert same(parse_nccl_xml(text, "a", boxes=1 + ("<nic>" in text)),
                    parse_nccl_xml(explicit, "b", boxes=1 + ("<nic>" in text)))

    @pytest.mark.parametrize(
        ("speed", "width", "rate"),
        [("", "0", 12e9), ("Unknown", "", 12e9), ("8 GT/s", "16", 12e9), ("16 GT/s PCIe", "8", 12e9),
         ("32.0 GT/s PCIe", "16", 48e9), ("32.0 GT/s", "16", 12e9), ("64.0 GT/s PCIe", "16", 96e9)],
    )
    def test_pcie_has_the_rate_of_the_dictionary_or_its_fallback(self, speed: str, width: str, rate: float) -> None:
        pair = system(gpu("a", 0) + gpu("b", 1)).replace("16.0 GT/s PCIe", speed)
        pair = pair.replace('width="16"', f'width="{width}"')
        assert set(parse_nccl_xml(pair, "box.xml").bandwidth_Bps.tolist()) == {rate}

    def test_a_class_that_is_not_there_is_that_of_the_gpu_it_names(self) -> None:
        assert same(parse_nccl_xml(PAIR.replace(' tclass="0x030200"', ""), "a"), parse_nccl_xml(PAIR, "b"))

    def test_without_any_rank_the_order_is_that_of_dev(self) -> None:
        swapped = re.sub(' rank="[0-9]"', "", PAIR).replace('dev="0"', 'dev="9"')
        t = parse_nccl_xml(swapped, "box.xml")
        assert (t.n_npus, t.n_links) == (2, 2)

    def test_a_gpu_without_a_rank_takes_no_part(self) -> None:
        with pytest.warns(InputNote, match=r"1 GPU without a rank"), pytest.warns(InputNote, match="to none of this"):
            assert parse_nccl_xml(PAIR.replace(' rank="1"', ""), "box.xml").n_npus == 1

    def test_ranks_may_begin_anywhere(self) -> None:
        """A dump of the second node of a job has its ranks."""
        later = PAIR.replace('rank="0"', 'rank="8"').replace('rank="1"', 'rank="9"')
        assert same(parse_nccl_xml(later, "a"), parse_nccl_xml(PAIR, "b"))


@pytest.mark.parametrize(
    ("cpu", "rate"),
    [
        ('vendor="GenuineIntel" familyid="6" modelid="79"', 6e9),
        ('vendor="GenuineIntel" familyid="6" modelid="85"', 10e9),
        ('vendor="GenuineIntel" familyid="6" modelid="143"', 22e9),
        ('vendor="GenuineIntel" familyid="6" modelid="207"', 40e9),
        ('vendor="AuthenticAMD"', 16e9), ('vendor="CentaurHauls" familyid="7" modelid="91"', 9e9),
        ('vendor="CentaurHauls" familyid="7" modelid="59"', 6e9), ('vendor="Acme"', 5e12),
    ],
)
def test_between_cpus_the_model_counts(cpu: str, rate: float) -> None:
    text = system(gpu("a", 0), gpu("b", 1)).replace('vendor="AuthenticAMD"', cpu)
    t = parse_nccl_xml(text, "box.xml")
    assert rates(t, "cpu0", "cpu1") == rate


def test_rccl_knows_fewer_models_of_intel() -> None:
    text = system(gpu("a", 0), gpu("b", 1)).replace('"AuthenticAMD"', '"GenuineIntel" familyid="6" modelid="143"')
    t = parse_nccl_xml(text.replace('version="1"', 'version="2"'), "box.xml")
    assert rates(t, "cpu0", "cpu1") == 10e9


@pytest.mark.parametrize(("arch", "rate"), [("arm64", 6e9), ("ppc64", 32e9), ("z80", 5e12)])
def test_other_architectures(arch: str, rate: float) -> None:
    text = system(gpu("a", 0), gpu("b", 1)).replace("x86_64", arch)
    assert rates(parse_nccl_xml(text, "box.xml"), "cpu0", "cpu1") == rate


def test_a_cpu_that_does_not_say_what_it_is_matters_between_cpus_alone() -> None:
    def bare(text: str) -> str:
        return text.replace(' vendor="AuthenticAMD" arch="x86_64"', "")

    assert parse_nccl_xml(bare(system(gpu("a", 0) + gpu("b", 1))), "box.xml").n_npus == 2
    assert parse_nccl_xml(bare(BOX), "box.xml").n_npus == 2
    with pytest.raises(WeftError, match="<cpu> lacks the attribute 'arch'"):
        parse_nccl_xml(bare(system(gpu("a", 0), gpu("b", 1))), "box.xml")


class TestPassedOver:
    def test_what_the_library_ignores_is_noted_once(self) -> None:
        odd = BOX.replace('gdr="1"', 'gdr="1" magic="2"').replace("<nic>", "<nic><c2c/>", 1)
        with pytest.warns(InputNote) as notes:
            assert same(parse_nccl_xml(odd, "box.xml"), parse_nccl_xml(BOX, "box.xml"))
        assert [str(one.message) for one in notes] == [
            "box.xml: passed over, as NCCL does: magic of <gpu>, <c2c> in <nic>"]

    def test_links_to_the_gpu_itself_are_none(self) -> None:
        """As the file of Azure's NC A100 v4 has them: what joins the GPUs is PCIe then."""
        text = system(*[gpu(bus, rank, PEER.format(bus)) for rank, bus in enumerate(("0001:00:00.0", "0002:00:00.0"))])
        with pytest.warns(InputNote, match="2 links of a GPU to itself or to none of this file"):
            t = parse_nccl_xml(text, "vm.xml")
        assert route(t, 0, 1)[1] == "port-gpu0->cpu0"

    def test_two_nics_may_be_of_one_rail(self) -> None:
        with pytest.warns(InputNote, match="dev=0, as another NIC has"):
            t = parse_nccl_xml(BOX.replace('dev="1" speed', 'dev="0" speed'), "box.xml", boxes=2)
        assert rates(t, "box0-nic0-2", "rail0") == rates(t, "box0-nic0", "rail0") == 25e9

    @pytest.mark.parametrize("slow", [0, 1])
    def test_of_two_nics_of_one_number_the_faster_is_used(self, slow: int) -> None:
        """As an Ethernet card beside InfiniBand, each of which its plugin calls 0."""
        speeds = [200_000, 200_000]
        speeds[slow] = 1000
        nics = "".join(f'<nic><net dev="0" speed="{speed}"/></nic>' for speed in speeds)
        with pytest.warns(InputNote, match="dev=0, as another NIC has: the faster of them is used"):
            t = parse_nccl_xml(system(gpu("g0", 0) + nics), "box.xml", boxes=2)
        rails = [int(link) for link in np.flatnonzero(t.dst >= t.n_npus) if t.node_name(int(t.dst[link])) == "rail0"]
        assert sorted(t.bandwidth_Bps[rails].tolist()) == [25e9, 25e9]


class TestNics:
    def test_functions_of_a_card_share_its_slot(self) -> None:
        card = nic("0000:81:00.0", 0) + nic("0000:81:00.1", 1)
        t = parse_nccl_xml(system(gpu("g0", 0) + card), "box.xml", boxes=2)
        assert rates(t, "box0-cpu0", "box0-card-0000:81:00.0") == 24e9
        assert rates(t, "box0-nic1", "rail1") == 25e9

    @pytest.mark.parametrize(("net", "rate"), [('dev="3"', 1.25e9), ('dev="3" speed="-1"', 1.25e9)])
    def test_an_unknown_speed_is_10_gigabits(self, net: str, rate: float) -> None:
        text = system(gpu("g0", 0) + f"<nic><net {net}/><net speed='7'/><net dev='4' net='0'/></nic>")
        t = parse_nccl_xml(text, "box.xml", boxes=2)
        assert rates(t, "box0-nic3", "rail3") == rate
        assert sum(t.node_name(node).startswith("rail") for node in range(t.n_nodes)) == 1


def test_a_grace_reaches_its_cpu_beside_pcie() -> None:
    text = system(gpu("g0", 0, '<c2c bw="44712" count="10"/>'), gpu("g1", 1))
    t = parse_nccl_xml(text, "box.xml")
    assert rates(t, "gpu0", "cpu0") == 447.12e9
    assert route(t, 0, 1)[0] == "gpu0->cpu0"


def test_hosts_of_one_file_meet_in_the_nvswitch_and_at_rails() -> None:
    """As a dump of an NVLink domain of several hosts has them: the same buses on each."""
    link = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    hosts = [f'<cpu host_hash="0x{host}" numaid="0" arch="arm64">{gpu("g0", host, link, 100)}{nic("n0", 0)}</cpu>'
             for host in (0, 1)]
    t = parse_nccl_xml(f'<system version="1">{"".join(hosts)}</system>', "rack.xml")
    assert (t.n_npus, t.n_nodes) == (2, 3)
    assert set(t.bandwidth_Bps.tolist()) == {18 * 40.1e9}
    apart = f'<system version="1">{"".join(hosts)}</system>'.replace(link, "")
    assert "rail0" in " ".join(route(parse_nccl_xml(apart, "rack.xml"), 0, 1))


class TestCompleted:
    """Files without <gpu>, as clouds ship them: NCCL completes them on the machine."""

    VM = re.sub("<gpu.*?</gpu>", "", BOX)

    def test_its_gpus_are_devices_of_their_class(self) -> None:
        with pytest.warns(InputNote, match="all 12 NVLinks of each of its 2 GPUs go to one NVSwitch"):
            t = parse_nccl_xml(self.VM, "vm.xml", nvlink="3")
        assert same(t, parse_nccl_xml(BOX, "box.xml"))
        alone = parse_nccl_xml(self.VM, "vm.xml", nvlink="none")
        assert route(alone, 0, 1)[0] == "gpu0->port-gpu0"

    def test_whoever_reads_it_says_which_links_join_them(self) -> None:
        with pytest.raises(WeftError, match="links of its 2 GPUs on the machine; give --nvlink 3 for A100"):
            parse_nccl_xml(self.VM, "vm.xml")
        with pytest.raises(WeftError, match="NVLink generation '9' is unknown"):
            parse_nccl_xml(self.VM, "vm.xml", nvlink="9")

    def test_nics_without_a_speed_join_no_boxes(self) -> None:
        bare = re.sub("<nic>.*?</nic>", "", self.VM)
        with pytest.raises(WeftError, match="NICs without <net>, of which NCCL asks the machine"):
            parse_nccl_xml(bare, "vm.xml", nvlink="3", boxes=2)
        with pytest.warns(InputNote):
            given = parse_nccl_xml(bare, "vm.xml", nvlink="3", boxes=2, nic_bandwidth="200Gb/s")
        assert same(given, parse_nccl_xml(BOX, "box.xml", boxes=2))
        for text, why in ((BOX, "lists its NICs"), (system(bridge("a", gpu("g", 0))), "has no NICs")):
            with pytest.raises(WeftError, match=f"{why}: omit NIC bandwidth '200Gb/s'"):
                parse_nccl_xml(text, "box.xml", nic_bandwidth="200Gb/s")


def test_versions_that_no_library_reads_are_refused() -> None:
    with pytest.raises(WeftError, match="has version='3': accepted are 1, 2"):
        parse_nccl_xml(BOX.replace('version="1"', 'version="3"'), "box.xml")


def test_bridges_of_one_bus_are_two() -> None:
    twice = system(bridge("a", gpu("g0", 0) + gpu("g1", 1)) + bridge("a", gpu("g2", 2) + gpu("g3", 3)))
    assert parse_nccl_xml(twice, "box.xml").n_npus == 4


def test_both_ends_of_links_list_the_same_number() -> None:
    """NCCL takes each way from its own end; one cable here has one rate."""
    text = quad("gfx942").replace('count="1"', 'count="3"', 1)
    with pytest.raises(WeftError, match=r"uneven: links from gpu0 to gpu1 have 144 GB/s, and those back 48 GB/s"):
        parse_nccl_xml(text, "uneven")
