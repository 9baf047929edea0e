"""The library's model: does it choose and take what NCCL is known to, on every machine?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, product

import pytest

from sim.library.described import asked_of, gpu_of, machine_of, nic_of, processes_of, version_of
from sim.library.expected import expected
from sim.library.tuner import (
    ALGORITHMS,
    COLLECTIVES,
    NEWEST,
    SENDRECV,
    Setting,
    candidates,
    channel_GBps,
    of_version,
    runs_on,
    tables,
    version,
)
from sim.study.library_runs import simulated
from tests.oracles import library_tuner
from topologies import WeftError
from topologies.machines.profile import Gpu, Machine, machine, part, profiles

MIB = 2**20
MODELED = [name for name in profiles("boxes") if machine(name).gpu.architecture in tables()["architecture"]]


def setting(name: str = "dgx-h100", nodes: int = 1, collective: str = "all-reduce", **more: object) -> Setting:
    found = machine(name)
    return Setting(machine=found, nodes=nodes, gpus=found.gpus, collective=collective, **more)  # type: ignore[arg-type]  # by name


@pytest.mark.table
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


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_profile_with_slower_links_is_slower_everywhere(collective: str) -> None:
    """Also by reducing switches: an H800 by its links reaches 4 / 9 of an H100, 215 GB/s measured (nccl 1374)."""
    fast = machine("dgx-h100")
    slow = replace(fast, gpu=part(Gpu, "gpus", {"like": "h100", "link": "200GB/s"}, "test"))
    times = [expected(replace(setting("dgx-h100", 1, collective), machine=one), 2**34).time_s for one in (fast, slow)]
    assert times[1] / times[0] == pytest.approx(450 / 200, rel=0.02)
    if collective == "all-reduce":
        assert 2**34 / times[1] / 1e9 * 1.75 == pytest.approx(213, rel=0.02)
        off = replace(slow, gpu=part(Gpu, "gpus", {"like": "h800", "multicast": False}, "test"))
        assert "NVLS" not in {one.algorithm for one in candidates(replace(setting(), machine=off))}


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


@pytest.mark.parametrize(("name", "older", "newer", "size", "changed"), [
    ("dgx-h100", (2, 20), (2, 21), MIB, ("NVLS", "Ring")),  # LL was taken to have a quarter of the rate, now half
    ("dgx-b200", (2, 24), (2, 25), 4 * MIB, ("LL128", "LL128")),  # Blackwell was unknown: no LL128
    ("polaris", (2, 20), (2, 21), 2 * MIB, ("Simple", "LL")),
])
def test_versions_choose_by_their_own_constants(
    name: str, older: tuple[int, int], newer: tuple[int, int], size: int, changed: tuple[str, str],
) -> None:
    """tuning.cc at 2.20.5, 2.21.5, 2.22.3 and 2.25.1."""
    nodes = 2 if name == "polaris" else 1
    before, after = (expected(setting(name, nodes, version=one), size) for one in (older, newer))
    if name == "dgx-b200":
        has = [{one.protocol for one in candidates(setting(name, nodes, version=one))} for one in (older, newer)]
        assert ("LL128" in has[0], "LL128" in has[1]) == (False, True)
        return
    assert changed[0] in (before.algorithm, before.protocol)
    assert changed[1] in (after.algorithm, after.protocol)


def test_every_older_table_changes_what_the_newest_has() -> None:
    """A misspelled constant would change nothing."""
    def keys(one: Mapping[str, object]) -> set[str]:
        return {f"{key}.{below}" for key, value in one.items()
                for below in (keys(value) if isinstance(value, Mapping) else ("",))}

    numbers = [version(f"nccl:{older['before']}") for older in tables()["older"]]
    assert numbers == sorted(numbers, reverse=True)
    for older in tables()["older"]:
        assert keys(older) - {"before."} <= keys(tables())
    assert len({str(of_version((2, minor))) for minor in range(12, 31)}) == len(numbers) + 1


def test_nics_are_believed_in_and_not_measured_when_a_library_chooses() -> None:
    """A NIC that reaches less is slower, but NCCL, which knows its port alone, chooses as before."""
    fast = setting("perlmutter", 4)
    slow = replace(fast, machine=replace(fast.machine, nic=replace(fast.machine.nic, reached=0.3)))
    for power in range(10, 33):
        one, other = expected(fast, 2**power), expected(slow, 2**power)
        assert (one.algorithm, one.protocol) == (other.algorithm, other.protocol)
    assert other.time_s > 2 * one.time_s


def test_trees_have_a_level_more_beyond_each_power_of_two() -> None:
    """trees.cc builds binary trees; tuning.cc counts log2i(nodes), a level less, when it chooses."""
    times = {nodes: expected(setting("dgx-h100", nodes, algorithms=("Tree",), protocols=("LL",)), 1024).time_s
             for nodes in range(2, 18)}
    assert times[9] == pytest.approx(times[12]) == pytest.approx(times[14]) == pytest.approx(times[16])
    assert times[8] < times[9]
    assert times[16] < times[17]


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
    ("", "", ("ib-ndr", None)), ("32x EFA 100Gb/s", "AWS p5", ("efa-v2-100", 32)), ("EFA", "AWS p4d", ("efa-100", 4)),
    ("16x EFAv3 200Gb/s", "AWS p5en", ("efa-v2-100", 32)), ("3200 Gb/s EFA", "AWS p5", ("efa-v2-100", 32)),
    ("4x EFA", "AWS p4d", ("efa-100", 4)), ("400 Gb/s EFA", "AWS p4d", ("efa-100", 4)),
    ("EFA", "p5", ("efa-v2-100", 32)),
])
def test_nics_are_found_in_words(nic: str, system: str, found: tuple[str, int | None]) -> None:
    assert nic_of(nic, system) == found


@pytest.mark.parametrize(("gpu", "found"), [
    ("MI325X", "mi300x"), ("MI355X", "mi350x"), ("NVIDIA A100 80GB PCIe", "rtx-pcie"), ("A100-PCIE-40GB", "rtx-pcie"),
    ("H100 PCIe", "h100-pcie"), ("A100-SXM4-80GB", "a100"), ("Tesla V100-PCIE-16GB", "rtx-pcie"), ("GH200", "h100"),
])
def test_gpus_are_found_in_words(gpu: str, found: str) -> None:
    assert gpu_of(gpu) == found


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


@pytest.mark.parametrize(("number", "nodes", "algorithm", "has"), [
    ((2, 16), 1, "NVLS", False), ((2, 17), 1, "NVLS", True), ((2, 17), 2, "NVLSTree", False),
    ((2, 18), 2, "NVLSTree", True),
])
def test_a_version_has_only_its_own_algorithms(number: tuple[int, int], nodes: int, algorithm: str, has: bool) -> None:
    found = {one.algorithm for one in candidates(setting("dgx-h100", nodes, version=number))}
    assert (algorithm in found) == has


@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter"])
def test_pat_is_chosen_with_one_gpu_a_node(collective: str) -> None:
    """tuning.cc counts a ring's hops as those of a tree there: 63 x 5 us, more than PAT's 2.8 us a rank."""
    for number, algorithm in (((2, 22), "Ring"), ((2, 23), "PAT")):
        assert expected(setting("dgx-spark", 64, collective, version=number), 1024).algorithm == algorithm
    assert expected(setting("dgx-spark", 64, collective), 2**30).algorithm == "Ring"


@pytest.mark.parametrize("name", MODELED)
def test_a_library_runs_on_its_own_gpus(name: str) -> None:
    found = machine(name)
    own, other = ("rccl", "nccl") if found.gpu.architecture == "cdna" else ("nccl", "rccl")
    runs_on(own, found)
    with pytest.raises(WeftError, match=f"--library {own}"):
        runs_on(f"{other}:2.27", found)


@pytest.mark.parametrize("name", MODELED)
def test_an_all_to_all_says_which_links_limit_it(name: str) -> None:
    """Between nodes those of the NICs, wherever they carry less than the share that stays inside needs."""
    for nodes in (1, 2, 8) if machine(name).gpus > 1 else (2, 8):
        asked = setting(name, nodes, "all-to-all")
        one = expected(asked, 2**34)
        inside = (asked.gpus - 1) / machine(name).gpu.ring
        port = asked.nics * machine(name).nic.port * machine(name).nic.messages / asked.gpus
        assert one.limit == ("between" if nodes > 1 and (asked.n - asked.gpus) / port > inside else "inside")


@pytest.mark.table
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("name", MODELED)
def test_a_chain_over_more_nodes_takes_longer(name: str, collective: str) -> None:
    """Of one protocol; a library that counts one hop, however long the chain, may choose another for more nodes."""
    for protocol in ("LL", "Simple"):
        for power in (10, 14, 20, 24, 30):
            times = [expected(setting(name, nodes, collective, protocols=(protocol,)), 2**power).time_s
                     for nodes in (2, 3, 4, 8, 16)]
            assert times == sorted(times)


CLIFFS = {"a100": 2.7, "gb200": 2.4, "gb300": 2.4}
"""Where the ramp, which the library does not know when it chooses, was calibrated to be 15 us."""


@pytest.mark.table
@pytest.mark.parametrize("collective", [one for one in COLLECTIVES if one not in ("broadcast", "reduce")])
@pytest.mark.parametrize("name", [one for one in MODELED if machine(one).gpus > 1])
def test_twice_the_bytes_inside_a_node_take_at_most_twice_the_time(name: str, collective: str) -> None:
    """No cliff where the library changes its choice: 28 to 79 us from 2 to 4 MiB was one, by a ramp of larger sizes.

    Broadcast and reduce have them: the library counts one hop of a chain, and goes to Simple early.
    """
    times = [expected(setting(name, 1, collective), 2**power).time_s for power in range(10, 34)]
    worst = max(large / small for small, large in pairwise(times))
    assert worst <= CLIFFS.get(machine(name).gpu.name, 2.1)


@pytest.mark.parametrize(("nodes", "tree", "tree_LL128", "tree_LL", "ring_LL", "nvls"), [
    # GB/s of the array on 8 H100 with 8 NDR ports each, by hand from the library's constants: rings inside 370.8,
    # between nodes 390; a tree has 0.92 of the slower, or of twice the NICs on two nodes, and moves the array twice.
    (1, 0.92 * 370.8 / 2, 0.92 * 0.778 * 370.8 / 2, 0.92 * 0.263 * 370.8 / 2, 141.0, None),
    (2, 0.92 * 370.8 / 2, 0.92 * 0.9375 * 370.8 / 2, 39.0 / 2, 39.0, 309 * 8 / 9),
    (3, 0.92 * 370.8 / 2, 0.92 * 0.9375 * 370.8 / 2, 20.4 / 2, 20.4, 390 / 2),
    (4, 0.92 * 370.8 / 2, 0.92 * 0.9375 * 370.8 / 2, 20.4 / 2, 20.4, 390 / 2),
])
def test_what_changes_at_two_and_three_nodes(
    nodes: int, tree: float, tree_LL128: float, tree_LL: float, ring_LL: float, nvls: float | None
) -> None:
    asked = setting("dgx-h100", nodes)
    found = {(one.algorithm, one.protocol): one.algbw_GBps for one in candidates(asked)}
    n = 8 * nodes
    assert found["Tree", "Simple"] == pytest.approx(tree)
    assert found["Tree", "LL128"] == pytest.approx(tree_LL128)
    assert found["Tree", "LL"] == pytest.approx(tree_LL)
    assert found["Ring", "LL"] == pytest.approx(ring_LL * n / (2 * (n - 1)))
    assert found["Ring", "Simple"] == pytest.approx(370.8 * n / (2 * (n - 1)))
    if nvls is not None:
        assert found["NVLSTree", "Simple"] == pytest.approx(nvls)


@pytest.mark.parametrize(("gpus", "nics", "each"), [
    (2, 2, 1), (2, 4, 2), (3, 2, 1 / 2), (4, 2, 1 / 2), (5, 4, 1 / 2), (8, 1, 1 / 8),
])
def test_an_all_to_all_ends_with_the_nic_that_most_gpus_share(gpus: int, nics: int, each: float) -> None:
    box = replace(machine("dgx-h100"), gpus=gpus, nics=nics)
    asked = Setting(machine=box, nodes=3, gpus=gpus, collective="all-to-all")
    port_GBps = box.nic.port * box.nic.messages / 1e9
    away = 2 * gpus / (3 * gpus)
    assert candidates(asked)[0].algbw_GBps == pytest.approx(min(each * port_GBps / away, candidates(
        replace(asked, machine=replace(box, nics=64)))[0].algbw_GBps))


VERSIONS = ((2, 12), (2, 17), (2, 18), (2, 20), (2, 22), (2, 24), (2, 25), (2, 27), NEWEST)


def settings(box: Machine) -> Iterator[Setting]:
    """With all, some and one of the GPUs; with algorithms that are chosen only where they are asked for, too."""
    for gpus, nodes in product(sorted({1, 3, box.gpus} & set(range(1, box.gpus + 1))), (1, 2, 3, 9)):
        for collective, number in product(COLLECTIVES, VERSIONS):
            if gpus * nodes > 1:
                one = Setting(machine=box, nodes=nodes, gpus=gpus, collective=collective, version=number)
                yield from (one, replace(one, algorithms=ALGORITHMS))
                yield replace(one, machine=replace(box, nics=3 * box.gpus))


@pytest.mark.parametrize("name", MODELED)
def test_all_that_is_chosen_among_is_the_oracles(name: str) -> None:
    """Latency and rate of each, on the machine and as each version believes."""
    for one in settings(machine(name)):
        told = {(each.algorithm, each.protocol): each for each in candidates(one)}
        menu = library_tuner.menu(one)
        assert set(told) == set(menu)
        for key, (own, believed) in menu.items():
            _, _, *found, _, _ = told[key]
            for value, right in zip(found, (*own, *believed), strict=True):
                assert math.isclose(value, right, rel_tol=1e-12)


@pytest.mark.parametrize(("size", "channels"), [(2**24, 4), (2**26, 4), (2**26 + 4, 8), (2**28, 16), (2**28 + 16, 32),
                                                (2**40, 32)])
def test_a_channel_more_is_used_beyond_sixteen_mebibytes_of_each(size: int, channels: int) -> None:
    asked = setting(collective=SENDRECV)
    assert channel_GBps(asked, size) == channels * asked.machine.gpu.channel / 1e9


@pytest.mark.parametrize(("text", "number"), [
    ("nccl", NEWEST), ("rccl", NEWEST), ("nccl:2.12", (2, 12)), ("nccl:2.99", (2, 99)), ("nccl:2.18.5", (2, 18)),
])
def test_versions(text: str, number: tuple[int, int]) -> None:
    assert version(text) == number


@pytest.mark.parametrize("text", [
    "nccl:3.0", "nccl:2.11", "nccl:2", "nccl:2.x", "nccl:2.18.5.1", "nccl:2.18.x", "2.18",
])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(WeftError, match="library"):
        version(text)
