"""What NCCL and RCCL know of a topology XML: elements, defaults and dictionaries, as their sources have them."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from topologies.accelerators import link_of_sm
from topologies.text.plain_xml import Element
from topologies.text.schema import Absent, Known

_TABLES = tomllib.loads((Path(__file__).parent / "nccl.toml").read_text(encoding="utf-8"))
KNOWN: Known = _TABLES["known"]
ABSENT = tuple(Absent(*row) for row in _TABLES["absent"])
GPUS_OF_SM: Mapping[str, tuple[str, float]] = {sm: (name, rate) for sm, (name, rate) in _TABLES["gpus_of_sm"].items()}
GPUS_OF_GCN: Mapping[str, str] = _TABLES["gpus_of_gcn"]
_LANES, _XGMI_BPS, _INTEL = (_TABLES[name] for name in ("lanes", "xgmi", "intel"))
_ARCH_BPS: Mapping[str, float] = _TABLES["arch"]
_VENDOR_BPS: Mapping[str, float] = _TABLES["vendor"]
_OTHER_LANE, _OTHER_XGMI_BPS = 60, 24e9
_TOOLS = {"1": "NCCL", "2": "RCCL"}
"""By the version of the file."""

LOC_BPS = 5e12
"""`LOC_BW`: between parts of a chip, and between CPUs that no dictionary has."""

LEAST_NET_MBPS = 10_000
GPU_CLASS, AMD_GPU_CLASS, NIC_CLASS, CPU_LINK_CLASS = "0x03", "0x120000", "0x02", "0x068001"

_OLDER_INTEL_BPS = 6e9
_YONGFENG, _YONGFENG_BPS = ("7", "91"), 9e9


def tool_of(root: Element) -> str:
    """The library that reads a file of this version."""
    return _TOOLS[root.choice("version", _TOOLS)]


def pcie_Bps(element: Element) -> float:
    """Rate of a link of PCIe; a width of 0 is unknown, and counts as 16."""
    speed, width = element.attributes["link_speed"], element.attributes["link_width"]
    lane = next((rate for name, rate in _LANES.items() if speed.startswith(name)), _OTHER_LANE)
    return ((element.whole("link_width", 0, 1024) if width else 0) or 16) * lane * 1e8 / 8


def nvlink_Bps(gpu: Element) -> float:
    """Rate of one NVLink of a GPU."""
    return link_of_sm(gpu.whole("sm"))


def xgmi_Bps(gpu: Element) -> float:
    """Rate of one xGMI link of a GPU."""
    gcn = gpu.attributes["gcn"]
    return next((rate for name, rate in _XGMI_BPS.items() if gcn.startswith(name)), _OTHER_XGMI_BPS)


def between_cpus_Bps(cpu: Element, version: str) -> float:
    """Rate of the links from a CPU to others.

    WeftError: it does not say which one it is, and the library asks the machine.
    """
    said: Mapping[str, str] = cpu.attributes
    arch = "x86_64" if "arch" not in said and "vendor" in said else cpu.text("arch")
    if arch != "x86_64":
        return _ARCH_BPS.get(arch, LOC_BPS)
    vendor = cpu.text("vendor")
    if (said.get("familyid"), said.get("modelid")) == _YONGFENG and vendor not in ("GenuineIntel", "AuthenticAMD"):
        return _YONGFENG_BPS
    if vendor != "GenuineIntel":
        return _VENDOR_BPS.get(vendor, LOC_BPS)
    family, model = cpu.whole("familyid"), cpu.whole("modelid")
    return next((rate for least, rate in _INTEL[version] if family == 6 and model >= least), _OLDER_INTEL_BPS)
