"""The profile of a machine from a topology file of NCCL or RCCL: its GPUs, how they are joined, NICs, CPU."""

from typing import Any

from topologies.checks import WeftError
from topologies.formats.nccl_schema import GPUS_OF_GCN, GPUS_OF_SM, NIC_CLASS, pcie_Bps
from topologies.formats.nccl_xml import read_system
from topologies.text.input_text import read_input
from topologies.text.plain_xml import Element
from topologies.text.schema import note

_NICS = {"ib": ("ib-edr", "ib-hdr", "ib-ndr", "ib-xdr"), "eth": ("roce-100", "roce-200", "roce-400", "roce-800")}
_RATES = (100, 200, 400, 800)
_CPUS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "arm64": "arm"}
_INFINIBAND = NIC_CLASS + "07"
_OF_A_LANE = 1.3
"""Bits of a lane of PCIe, of those that NCCL counts of it: a port that is slower is not held back."""


def machine_table(path: str) -> dict[str, Any]:
    """What a profile (`topologies.machines.profile`) would say; NICs by their rate and the class of their device.

    WeftError: several hosts, GPUs that no profile has, or that PCIe alone or a part of the links joins.
    """
    where = f"machine {path}"
    root, _ = read_system(read_input(path, "machine"), path)
    if len({cpu.attributes["host_hash"] for cpu in root.children}) > 1:
        raise WeftError(f"{where} has several hosts: a machine is one node")
    every = [one for one in root.every() if one.tag == "gpu"]
    gpus = [one for one in every if "rank" in one.attributes] or every
    if not gpus:
        raise WeftError(f"{where} has no <gpu>, which its library finds on the machine: give a profile FILE.toml")
    kinds = {(one.attributes["gcn"], one.attributes["sm"]) for one in gpus}
    gcn, sm = min(kinds)
    known = next((name for begin, name in GPUS_OF_GCN.items() if gcn.startswith(begin)), "") or GPUS_OF_SM.get(sm)
    if len(kinds) > 1 or known is None:
        raise WeftError(f"{where}: GPUs with {'gcn' if gcn else 'sm'}={gcn or sm} have no profile: give a FILE.toml")
    name, each = known if isinstance(known, tuple) else (known, 0.0)
    links = {sum(one.whole("count", 1) for one in gpu.children if one.tag == "nvlink") for gpu in gpus}
    gpu: Any = {"like": name, "link": f"{max(links) * each:g}GB/s"} if each else name
    return {"gpu": gpu, "gpus": len(gpus), "inside": _inside(gpus, where), "cpu": _cpu(root), **_nics(root, where)}


def _inside(gpus: list[Element], where: str) -> str:
    ends = [[one for one in gpu.children if one.tag in ("nvlink", "xgmi")] for gpu in gpus]
    to_gpus = [[one for one in links if one.attributes["tclass"][:4] in ("0x03", "0x12")] for links in ends]
    if len(gpus) == 1:
        return "alone"
    if all(ends) and not any(to_gpus):
        return "switch"
    if all(len({one.attributes.get("target") for one in links}) == len(gpus) - 1 for links in to_gpus):
        return "mesh"
    raise WeftError(f"{where}: its GPUs are neither on a switch nor linked two by two: --topology {where.split()[1]} "
                    "simulates it")


def _cpu(root: Element) -> str:
    first = root.children[0].attributes
    found = _CPUS.get(first.get("vendor", "")) or _CPUS.get(first.get("arch", ""))
    if found is None:
        note(f"the CPU is taken as intel, for the file says {first.get('vendor') or 'nothing of it'}")
    return found or "intel"


def _nics(root: Element, where: str) -> dict[str, Any]:
    """One kind of NIC, and how many."""
    found: dict[int, tuple[int, bool]] = {}
    for card in root.every():
        for net in (net for nic in card.all("nic") for net in nic.all("net") if "dev" in net.attributes):
            fast = net.attributes.get("class", card.attributes.get("class", "")).startswith(_INFINIBAND)
            mbps, slot = net.whole("speed", -1), round(pcie_Bps(card) * 8e-6)
            if card.attributes.get("link_speed") and mbps > _OF_A_LANE * slot:
                note(f"NICs of {mbps / 1000:g} Gb/s are taken at {slot / 1000:g}, as their PCIe is")
                mbps = slot
            found[net.whole("dev")] = max(found.get(net.whole("dev"), (0, False)), (mbps, fast))
    if not found:
        return {}
    kinds = {*found.values()}
    mbps, infiniband = max(kinds)
    kind = next((at for at, rate in enumerate(_RATES) if rate * 1000 >= mbps), len(_RATES) - 1)
    name = _NICS["ib" if infiniband else "eth"][kind]
    used = [speed for speed, _ in found.values() if speed == mbps]
    note(f"{len(used)} NICs of {mbps / 1000:g} Gb/s are taken as {name}: a profile FILE.toml says another")
    return {"nic": {"like": name, "port": f"{mbps / 1000:g}Gb/s"}, "nics": len(used)}
