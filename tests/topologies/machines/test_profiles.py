"""Profiles of machines: is every constant sourced, and is every profile a fabric of the size that it says?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.topologies.formats.test_files import bridge, gpu, nic, system
from tests.topologies.formats.test_nccl_xml import quad
from topologies import WeftError
from topologies.machines.profile import FIELDS, Gpu, Nic, machine, machine_and_nodes, part, profiles, sources
from topologies.text.schema import InputNote

BOXES = tuple(profiles("boxes"))


@pytest.mark.parametrize(("file", "kind"), [("gpus", Gpu), ("nics", Nic)])
def test_every_constant_is_known_and_has_its_source(file: str, kind: type) -> None:
    for name, found in sources(file).items():
        assert set(found) <= set(FIELDS[kind]), name
        assert [key for key, source in found.items() if len(source) < 5] == [], name


@pytest.mark.parametrize("name", BOXES)
def test_a_machine_is_a_fabric_of_its_gpus(name: str) -> None:
    found = machine(name)
    topology = found.topology(2)
    assert topology.n_npus == 2 * found.gpus
    assert found.gpu.ring <= found.gpu.link
    every = np.arange(1, topology.n_npus)
    assert np.diff(topology.paths(np.zeros_like(every), every).ptr).min() >= 1


@pytest.mark.parametrize("name", [name for name in BOXES if not machine(name).dimensions])
def test_what_leaves_a_box_is_the_rate_of_its_nics(name: str) -> None:
    found = machine(name)
    topology = found.topology(2)
    outside = topology.bandwidth_Bps[topology.dimension == 1]
    into_rails = [  # cables from a NIC to its rail
        rate for rate, node in zip(outside, topology.dst[topology.dimension == 1], strict=True)
        if topology.node_name(int(node)).startswith("ib")
    ]
    assert sum(into_rails) == pytest.approx(2 * found.nics * found.nic.port)


def test_a_user_writes_a_profile_in_ten_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'gpu = { like = "h100", link = "200GB/s" }\ngpus = 8\ninside = "switch"\n'
        'nic = { like = "roce-400", reached = 0.82 }\nnics = 4\ncpu = "amd"\n'
    )
    found, nodes = machine_and_nodes(f"{file}:3")
    assert (nodes, found.gpu.link, found.gpu.ring, found.nic.reached) == (3, 200e9, pytest.approx(164.8e9), 0.82)
    assert machine_and_nodes(str(file))[1] == 1


@pytest.mark.parametrize(("text", "said"), [
    ("gpus = 8", "lacks the key 'gpu'"),
    ('gpu = "h1000"', "lacks the key"),
    ("color = 1", "unknown key 'color'"),
    ('gpu = "h1000"\ngpus = 8\ninside = "switch"\nnic = "ib-ndr"\nnics = 8\ncpu = "intel"', "h1000"),
    ('gpu = { like = "h100", speed = "1GB/s" }\ngpus = 8\ninside = "switch"\nnic = "ib-ndr"\nnics = 8\ncpu = "arm"',
     "speed"),
    ('gpu = "h100"\ngpus = 0\ninside = "switch"\nnic = "ib-ndr"\nnics = 8\ncpu = "intel"', "gpus is 0"),
    ('gpu = "h100"\ngpus = 8\ninside = "tube"\nnic = "ib-ndr"\nnics = 8\ncpu = "intel"', "tube"),
    ('gpu = "h100"\ngpus = 8\ninside = "switch"\nnic = { like = "ib-ndr", reached = 1.5 }\nnics = 8\ncpu = "intel"',
     "reached"),
    ('gpu = { like = "h100", link = "200GB/s", ring = "370.8GB/s" }\ngpus = 8\ninside = "switch"\nnic = "ib-ndr"\n'
     'nics = 8\ncpu = "intel"', "ring is 370.8GB/s, more than the link of 200GB/s"),
    ('gpu = { like = "h100", multicast = true }\ngpus = 8\ninside = "switch"\nnic = "ib-ndr"\nnics = 8\ncpu = "amd"',
     "multicast is True"),
])
def test_a_bad_profile_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(WeftError, match=said):
        machine(str(file))


@pytest.mark.parametrize("name", sorted(profiles("gpus")))
def test_what_is_reached_of_a_link_follows_the_link(name: str) -> None:
    """A GPU with links of another rate reaches the same shares of them, and no profile passes its links."""
    known = part(Gpu, "gpus", name, "test")
    for factor in (0.25, 2.0):
        own = part(Gpu, "gpus", {"like": name, "link": f"{known.link * factor / 1e9:.6f}GB/s"}, "test")
        assert (own.ring, own.multicast) == pytest.approx((known.ring * factor, known.multicast * factor))
    assert max(known.ring, known.multicast) <= known.link
    assert part(Gpu, "gpus", {"like": name, "multicast": False}, "test").multicast == 0


def test_an_unknown_machine_is_named() -> None:
    with pytest.raises(WeftError, match="dgx-h200"):
        machine("dgx-h2000")


def test_accelerators_in_a_torus_take_extents() -> None:
    found, nodes = machine_and_nodes("tpu-v4:4x4x8")
    assert (nodes, found.topology(nodes).shape) == (128, (4, 4, 8))
    assert set(found.topology(nodes).bandwidth_Bps.tolist()) == {45e9}
    found, nodes = machine_and_nodes("tpu-v5e:8")
    assert found.topology(nodes).shape == (8,)
    for spec, said in (("tpu-v5e:4x4x4", "more than torus-2d has"), ("dgx-h100:4x4", "only a torus has extents")):
        with pytest.raises(WeftError, match=said):
            machine_and_nodes(spec)


@pytest.mark.table
@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_every_machine_is_a_fabric_for_any_number_of_nodes(name: str, nodes: int) -> None:
    found, count = machine_and_nodes(f"{name}:{nodes}")
    assert found.topology(count).n_npus == nodes * found.gpus


def _dgx(sm: int, links: int, rate: int, cpu: str, nics: int = 8) -> str:
    """The topology file of eight GPUs behind NVSwitches."""
    switched = f'<nvlink target="0000:f0:00.0" count="{links}" tclass="0x068000"/>'
    parts = [bridge(f"b{at}", gpu(f"g{at}", at, switched, sm) + (nic(f"n{at}", at, rate) if at < nics else ""))
             for at in range(8)]
    whole = system("".join(parts[:4]), "".join(parts[4:])).replace("AuthenticAMD", cpu)
    return whole.replace("16.0 GT/s", "32.0 GT/s") if rate > 200000 else whole


@pytest.mark.filterwarnings("ignore::topologies.text.schema.InputNote")
@pytest.mark.parametrize(("name", "text"), [
    ("dgx-a100", _dgx(80, 12, 200000, "AuthenticAMD")), ("dgx-h100", _dgx(90, 18, 400000, "GenuineIntel")),
    ("dgx-b200", _dgx(100, 18, 400000, "GenuineIntel")),
])
def test_a_topology_of_nccl_is_the_machine(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.xml"
    path.write_text(text, encoding="utf-8")
    assert machine(str(path)) == machine(name)
    found, nodes = machine_and_nodes(f"{path}:3")
    assert (found, nodes) == (machine(name), 3)


@pytest.mark.filterwarnings("ignore::topologies.text.schema.InputNote")
def test_a_topology_of_rccl_is_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "mi300x.xml"
    path.write_text(quad("gfx942"), encoding="utf-8")
    found = machine(str(path))
    assert (found.gpu, found.gpus, found.inside, found.nics) == (machine("mi300x").gpu, 4, "mesh", 0)


@pytest.mark.parametrize(("speed", "Gbps"), [("16.0", 200), ("8.0", 96), ("2.5", 24)])
def test_nics_are_no_faster_than_their_pcie(speed: str, Gbps: float, tmp_path: Path) -> None:
    """As NCCL counts lanes; ports that a slot carries are not held back by what it counts less."""
    path = tmp_path / "box.xml"
    path.write_text(_dgx(80, 12, 200000, "AuthenticAMD").replace("16.0 GT/s", f"{speed} GT/s"), encoding="utf-8")
    with pytest.warns(InputNote, match="as their PCIe is" if Gbps < 200 else "are taken as ib-hdr"):
        assert machine(str(path)).nic.port == Gbps * 1e9 / 8


@pytest.mark.parametrize(("text", "message"), [
    (_dgx(61, 2, 100000, "GenuineIntel"), "GPUs with sm=61 have no profile: give a FILE.toml"),
    (_dgx(80, 12, 200000, "AuthenticAMD").replace("0x068000", "0x030200"), "neither on a switch nor linked two by two"),
    (system(nic("n", 0)), "has no <gpu>, which its library finds on the machine"),
    ("<graphs/>", "is an NCCL graph"), ("<trees/>", "is not the root of an NCCL topology"),
])
def test_topologies_that_are_no_machine(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "box.xml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WeftError, match=message):
        machine(str(path))
