"""What NCCL and RCCL know of a topology XML: elements, defaults and dictionaries, as their sources have them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from topologies.accelerators import link_of_sm
from topologies.text.plain_xml import Element
from topologies.text.schema import Absent, Known, Producer

KNOWN: Known = {
    "system": (("version", "name"), ("cpu",)),
    "cpu": (("host_hash", "numaid", "affinity", "arch", "vendor", "familyid", "modelid"), ("pci", "nic")),
    "pci": (("busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"),
            ("pci", "gpu", "nic")),
    "gpu": (("dev", "sm", "rank", "gdr", "gcn", "arch"), ("nvlink", "xgmi", "c2c")),
    "nic": ((), ("net",)),
    "net": (("name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "coll", "rail", "plane", "keep",
             "net"), ()),
    "nvlink": (("target", "count", "tclass"), ()),
    "xgmi": (("target", "count", "tclass"), ()),
    "c2c": (("count", "bw"), ()),
}
"""Attributes that say nothing else than what is read, and children, of each element."""

ABSENT = (
    Absent("pci", "link_speed", "", "xml.cc, ncclTopoGetXmlFromSys: a device that /sys does not have; topo.cc, "
           "kvDictPciGen: 60 units of 100 Mb/s a lane"),
    Absent("pci", "link_width", "0", "xml.cc, ncclTopoGetXmlFromSys; topo.cc, ncclTopoAddPci: 0 counts as 16"),
    Absent("pci", "class", "0x060400", "topo.cc, kvDictPciClass: what is unknown is a bridge"),
    Absent("gpu", "sm", "0", "topo.h, ncclTopoNVLinkBw: what is unknown counts as 80"),
    Absent("gpu", "gcn", "", "RCCL, topo.h, ncclTopoXGMISpeed: what is unknown counts as Vega"),
    Absent("nvlink", "tclass", "0x068000", "xml.cc, ncclTopoGetXmlFromGpu: what /sys does not have is an NVSwitch"),
    Absent("xgmi", "tclass", "0x068000", "as of `<nvlink>`"),
    Absent("net", "speed", "0", "topo.cc, ncclTopoAddNet: 10 Gb/s where it is not positive"),
    Absent("net", "net", "1", "topo.cc, ncclTopoAddNic"),
    Absent("cpu", "host_hash", "0", "topo.cc, ncclGetSystemId"),
)
"""A file of a machine is completed on that machine; these are the values of what it does not say there either."""

LOC_BPS = 5e12
"""`LOC_BW`: between parts of a chip, and between CPUs that no dictionary has."""

LEAST_NET_MBPS = 10_000
GPU_CLASS, AMD_GPU_CLASS, NIC_CLASS, CPU_LINK_CLASS = "0x03", "0x120000", "0x02", "0x068001"

_LANES = {
    "2.5 GT/s": 15, "5 GT/s": 30, "8 GT/s": 60, "16 GT/s": 120, "32 GT/s": 240, "5.0 GT/s PCIe": 30,
    "8.0 GT/s PCIe": 60, "16.0 GT/s PCIe": 120, "32.0 GT/s PCIe": 240, "64.0 GT/s PCIe": 480,
}
_OTHER_LANE = 60
"""`kvDictPciGen`: how a link speed begins, and units of 100 Mb/s of a lane; of any other."""

_XGMI_BPS = {"gfx90a": 36e9, "910": 36e9, "gfx94": 48e9, "gfx95": 48e9, "940": 48e9, "941": 48e9, "942": 48e9}
_OTHER_XGMI_BPS = 24e9
"""`ncclTopoXGMISpeed`, by how `gcn` begins, and by its older numbers."""


GPUS_OF_SM = {"70": ("v100", 25.0), "80": ("a100", 25.0), "90": ("h100", 25.0), "100": ("b200", 50.0),
              "103": ("b300", 50.0)}
"""Profiles of NVIDIA's GPUs, and GB/s of a link, by their data sheets."""

GPUS_OF_GCN = {"gfx942": "mi300x", "gfx950": "mi350x", "gfx90a": "mi250x", "942": "mi300x", "910": "mi250x"}


class _Tool(NamedTuple):
    """A library: its name, and what it takes between CPUs of Intel from a model of family 6 on."""

    name: str
    intel: Sequence[tuple[int, float]]


_TOOLS = {"1": _Tool("NCCL", ((0xCF, 40e9), (0x8F, 22e9), (0x55, 10e9))), "2": _Tool("RCCL", ((0x55, 10e9),))}
"""By the version of the file."""

_OLDER_INTEL_BPS = 6e9
_ARCH_BPS = {"arm64": 6e9, "ppc64": 32e9}
_VENDOR_BPS = {"AuthenticAMD": 16e9, "CentaurHauls": 6e9, "  Shanghai  ": 6e9}
_YONGFENG, _YONGFENG_BPS = ("7", "91"), 9e9

PRODUCERS = (
    Producer(
        "NCCL topology XML, version 1", "NVIDIA NCCL, Azure azhpc-images, aws-ofi-nccl, infragraph",
        "NCCL 5067397c, June 2026", "--topology FILE.xml --boxes N; --machine FILE.xml:N",
        "NVLink, NVSwitch, C2C, PCIe, NICs, several hosts; files without `<gpu>` or `<net>`, which NCCL completes on "
        "the machine, with --nvlink and --nic-bandwidth",
        "`<pcilink>`: ways between bridges; halves of a GPU (mlopart); devices without a class (AWS g5)", ABSENT,
    ),
    Producer(
        "RCCL topology XML, version 2", "ROCm RCCL (topo_expl/models)", "0cbce2a7, October 2024",
        "--topology FILE.xml --boxes N; --machine FILE.xml:N", "xGMI by `gcn`, PCIe, NICs; what is absent as in NCCL's",
    ),
    Producer(
        "NCCL and RCCL graph XML", "NCCL_GRAPH_DUMP_FILE", "NCCL 5067397c, June 2026", "", "",
        "named: rings and trees of a search, whose network is in the topology file",
    ),
)


def tool_of(root: Element) -> str:
    """The library that reads a file of this version."""
    return _TOOLS[root.choice("version", _TOOLS)].name


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
    return next((rate for least, rate in _TOOLS[version].intel if family == 6 and model >= least), _OLDER_INTEL_BPS)
