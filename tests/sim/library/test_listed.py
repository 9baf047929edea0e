"""GPUs by the names that drivers print: cards for slots are not taken for boxes, whatever chip they have."""

from __future__ import annotations

import pytest

from sim.library.described import PCIE, listed_gpu, listed_machine
from topologies.checks import WeftError
from topologies.machines.profile import machine, profiles

CARDS = (
    "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA A800 80GB PCIe", "NVIDIA A800 40GB Active",
    "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA H800 PCIe", "Tesla V100-PCIE-16GB",
    "Tesla V100S-PCIE-32GB", "Tesla T4", "NVIDIA A10", "NVIDIA A10G", "NVIDIA A30", "NVIDIA A40", "NVIDIA L4",
    "NVIDIA L40S", "NVIDIA L20", "NVIDIA GeForce RTX 4090", "NVIDIA RTX A6000", "Quadro RTX 8000",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
)
BOXES = {
    "Tesla V100-SXM2-16GB": "v100", "Tesla V100-SXM3-32GB": "v100", "NVIDIA A100-SXM4-40GB": "a100",
    "NVIDIA A100-SXM4-80GB": "a100", "NVIDIA A800-SXM4-80GB": "a800", "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H20": "h20", "NVIDIA H20-3e": "h20", "NVIDIA H800": "h800", "NVIDIA H200": "h200", "NVIDIA B200": "b200",
    "NVIDIA B300 SXM6 AC": "b300", "NVIDIA GB200": "gb200", "NVIDIA GB300": "gb300", "NVIDIA GB10": "gb10",
    "NVIDIA GH200 480GB": "h100", "AMD Instinct MI250X": "mi250x", "AMD Instinct MI250X/MI250": "mi250x",
    "AMD Instinct MI300X": "mi300x", "AMD Instinct MI325X": "mi300x", "AMD Instinct MI355X": "mi350x",
}


def test_names_of_drivers() -> None:
    assert {name: listed_gpu(name) for name in CARDS} == dict.fromkeys(CARDS, PCIE)
    assert {name: listed_gpu(name) for name in BOXES} == BOXES
    own = set(profiles("gpus")) - {PCIE, "h100-pcie"}
    assert {name for name in own if name.startswith(("gaudi", "tpu"))} | {
        name for name in own if not name.startswith(("gaudi", "tpu")) and listed_gpu(name.upper()) == name} == own


@pytest.mark.parametrize("name", ["AMD Instinct MI210", "AMD Instinct MI300A", "Tesla P100-SXM2-16GB", "gfx942"])
def test_unknown_names_are_no_guess(name: str) -> None:
    with pytest.raises(WeftError, match=r"no profile is of the GPU .* give --machine"):
        listed_machine(name, 8)


def test_machines_of_names() -> None:
    for name in CARDS:
        assert (listed_machine(name, 8).gpu.name, listed_machine(name, 8).inside) == (PCIE, "switch")
    assert listed_machine("NVIDIA H100 80GB HBM3", 4) == machine("dgx-h100")
    assert listed_machine("Tesla V100-SXM3-32GB", 16).gpus == 16
    assert listed_machine("NVIDIA H800", 8).gpu.name == "h800"
    assert [listed_machine("NVIDIA GH200 120GB", each).inside for each in (1, 4)] == ["alone", "mesh"]
    with pytest.raises(WeftError, match="8 x NVIDIA GH200 480GB a host are no machine that is known"):
        listed_machine("NVIDIA GH200 480GB", 8)
