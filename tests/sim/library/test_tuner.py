"""The library's model: does it choose and take what NCCL is known to, on every machine?"""

from __future__ import annotations

import math

import pytest

from sim.library.described import asked_of, machine_of, nic_of, processes_of, version_of
from sim.library.expected import expected
from sim.library.simulated import simulated
from sim.library.tuner import COLLECTIVES, NEWEST, SENDRECV, Setting, candidates, tables, version
from topologies import WeftError
from topologies.machines.profile import machine, profiles

MIB = 2**20
MODELED = [name for name in profiles("boxes") if machine(name).gpu.architecture in tables()["architecture"]]


def setting(name: str = "dgx-h100", nodes: int = 1, collective: str = "all-reduce", **more: object) -> Setting:
    found = machine(name)
    return Setting(machine=found, nodes=nodes, gpus=found.gpus, collective=collective, **more)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(("name", "nodes"), [
    (name, nodes) for name in MODELED for nodes in (1, 2, 4) if machine(name).gpus * nodes > 1
])
def test_busbw_stays_below_what_the_links_carry(name: str, nodes: int, collective: str) -> None:
    """Rings never beat their slowest link; only reducing switches, and trees of two nodes, pass busbw's factor."""
    asked = setting(name, nodes, collective)
    before = 0.0
    for power in range(10, 34):
        one = expected(asked, 2**power)
        busbw = 2**power / one.time_s / 1e9 * asked.bus_factor
        slowest = min(asked.inside_GBps, asked.between_GBps)
        if collective == "all-to-all":  # only a part of it leaves a node
            slowest = min(asked.inside_GBps, asked.between_GBps * asked.n / (asked.n - asked.gpus) if nodes > 1
                          else math.inf)
        most = {"NVLS": 1.5, "NVLSTree": 2.0, "Tree": 2.0}.get(one.algorithm, 1.0)
        assert busbw <= slowest * most * (1 + 1e-9)
        assert one.time_s >= asked.launch_s
        assert one.time_s > 0.5 * before  # a switch of protocol may gain, but not a factor
        before = one.time_s


@pytest.mark.parametrize(("size", "choice"), [
    (2**10, ("Ring", "LL")), (2**20, ("Ring", "LL")), (2**22, ("NVLS", "Simple")), (2**34, ("NVLS", "Simple")),
])
def test_h100_chooses_as_reported(size: int, choice: tuple[str, str]) -> None:
    """nccl-tests 309: Ring/LL up to 1 MB, NVLS/Simple from 2 MB to 16 GB."""
    one = expected(setting(), size)
    assert (one.algorithm, one.protocol) == choice


def test_multicast_follows_the_number_of_gpus() -> None:
    """nccl 1455: algbw 258, 265, 270, 273 GB/s on 5 to 8 H100."""
    found = machine("dgx-h100")
    for gpus, algbw in ((5, 258), (6, 265), (7, 270), (8, 273)):
        asked = Setting(machine=found, nodes=1, gpus=gpus, collective="all-reduce", algorithms=("NVLS",))
        assert candidates(asked)[0].algbw_GBps == pytest.approx(algbw, rel=0.01)


def test_two_nodes_pass_the_nics_by_a_tree() -> None:
    """nccl-tests 196: busbw beyond the NICs on two nodes, not on four."""
    over = {}
    for nodes in (2, 4):
        asked = setting("dgx-a100", nodes)
        over[nodes] = 2**33 / expected(asked, 2**33).time_s / 1e9 * asked.bus_factor / asked.between_GBps
    assert over[2] > 1.03
    assert over[4] <= 1.0


def test_a_version_changes_the_choice_and_not_the_time() -> None:
    """2.18 believes a hop of a Tree in Simple to take twice as long."""
    sizes = [2**power for power in range(16, 33)]
    old, new = ([expected(setting("p4de", 64, version=one), size) for size in sizes] for one in ((2, 18), NEWEST))
    assert any(a.algorithm != b.algorithm or a.protocol != b.protocol for a, b in zip(old, new, strict=True))
    assert all(a.time_s == b.time_s for a, b in zip(old, new, strict=True)
               if (a.algorithm, a.protocol) == (b.algorithm, b.protocol))


def test_processes_that_drive_several_gpus_start_slower() -> None:
    assert expected(setting(), 8).time_s == pytest.approx(17e-6)
    assert expected(setting(gpus_per_process=8), 8).time_s == pytest.approx(35e-6)


@pytest.mark.parametrize("name", ["dgx-h100", "p4de"])
@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter"])
def test_the_engine_agrees_on_a_ring_inside_a_node(name: str, collective: str) -> None:
    asked = setting(name, 1, collective, algorithms=("Ring",), protocols=("Simple",))
    for size in (4 * MIB, 256 * MIB):
        one = expected(asked, size)
        engine = simulated(asked, one).time_s
        ramp = machine(name).gpu.ramp * math.sqrt(size / MIB)  # which the engine does not know
        assert engine == pytest.approx(one.time_s - ramp, rel=0.03)


@pytest.mark.parametrize(("text", "wrong"), [("mpi", "mpi"), ("nccl:two", "nccl:2.27"), ("nccl:1.3", "2.12")])
def test_an_unknown_library_is_named(text: str, wrong: str) -> None:
    with pytest.raises(WeftError, match=wrong):
        version(text)


@pytest.mark.parametrize(("more", "said"), [
    ({"algorithms": ("Spiral",)}, "Spiral"), ({"protocols": ("LL64",)}, "LL64"), ({"gpus_per_process": 9}, "9 GPUs"),
    ({"algorithms": ("PAT",)}, "has no PAT"),
])
def test_what_a_library_does_not_have_is_named(more: dict[str, object], said: str) -> None:
    with pytest.raises(WeftError, match=said):
        expected(setting(**more), MIB)  # type: ignore[arg-type]  # by name


def test_other_accelerators_are_rejected() -> None:
    with pytest.raises(WeftError, match="only NCCL and RCCL"):
        setting("gaudi2")


@pytest.mark.parametrize(("nic", "system", "found"), [
    ("2x HPE Slingshot-11 200Gb/s", "", ("slingshot-11", 2)), ("4x EFA 100Gb/s (400 Gb/s a node)", "", ("efa-100", 4)),
    ("4x 200Gb/s GPUDirect-TCPX (800 Gb/s a node)", "", ("tcpx-200", 4)), ("8x NDR 400Gb/s", "", ("ib-ndr", 8)),
    ("4x HDR 200Gb/s IB a node", "", ("ib-hdr", 4)), ("8x CX-7 400Gb/s RoCE", "GCP A3 Ultra", ("gcp-roce-400", 8)),
    ("400Gb/s class NICs", "", ("ib-ndr", None)), ("8x 400Gb/s RoCE", "OCI", ("roce-400", 8)),
    ("", "", ("ib-ndr", None)),
])
def test_nics_are_found_in_words(nic: str, system: str, found: tuple[str, int | None]) -> None:
    assert nic_of(nic, system) == found


def test_settings_are_found_in_words() -> None:
    assert asked_of("Ring/LL128 (forced)") == (("Ring",), ("LL128",))
    assert asked_of("Ring (NCCL_NVLS_ENABLE=0)") == (("Ring",), ())
    assert asked_of("auto") == ((), ())
    assert (version_of("2.18.5"), version_of("RCCL")) == ((2, 18), NEWEST)
    assert (processes_of("1 process, -g 8", 8), processes_of("", 8)) == (8, 1)
    polaris = machine_of("ALCF Polaris", "A100-SXM4-40GB", 4, "NVLink3 all-to-all", "2x HPE Slingshot-11 200Gb/s")
    assert (polaris.gpu.name, polaris.inside, polaris.nics, polaris.cpu) == ("a100", "mesh", 2, "amd")


def test_messages_inside_a_node_use_more_channels_as_they_grow() -> None:
    asked = setting(collective=SENDRECV)
    rates = [2**power / expected(asked, 2**power).time_s / 1e9 for power in (26, 27, 28, 29)]
    assert rates == pytest.approx([80, 160, 300, 355], rel=0.08)  # as measured on 8 H100


def test_every_step_of_a_ring_between_nodes_posts_to_a_nic() -> None:
    """tuning.cc: at least the network's post overhead, which AMD doubles; 22 us of an all-gather of 2 x 4 (Polaris)."""
    asked = setting("polaris", 2, "all-gather", algorithms=("Ring",), protocols=("LL",))
    assert expected(asked, 1024).time_s * 1e6 == pytest.approx(6.6 + 6 * 2.0 + 2.7, rel=0.01)
    alone = setting("polaris", 1, "all-gather", algorithms=("Ring",), protocols=("LL",), graphs=True)
    assert expected(alone, 1024).time_s * 1e6 == pytest.approx(6.6 + 3 * 0.6, rel=0.01)


def test_two_directly_linked_nodes_start_by_a_tree_and_go_on_by_rings() -> None:
    """Measured on Polaris, Sirius and Perlmutter: 22 us to 1 KiB, and no bandwidth beyond the NICs."""
    asked = setting("polaris", 2)
    assert expected(asked, 256).algorithm == "Tree"
    large = expected(asked, 2**30)
    assert large.algorithm == "Ring"
    assert 2**30 / large.time_s / 1e9 * asked.bus_factor <= asked.between_GBps


def test_links_between_two_gpus_carry_more_where_a_ring_leaves_the_node() -> None:
    """A ring of eight has seven hops inside each of several nodes: 358 GB/s measured (OCI MI300X), 315 inside one."""
    assert setting("mi300x", 2).inside_GBps == pytest.approx(setting("mi300x", 1).inside_GBps * 8 / 7)
    assert setting("dgx-h100", 2).inside_GBps == setting("dgx-h100", 1).inside_GBps
