"""Machines and settings from the words in which people, and the headers of nccl-tests, describe them.

Such as "2 nodes x 8 H100, 8x 400G RoCE", or the GPU that a driver lists: "NVIDIA H100 80GB HBM3".
"""

import re

from sim.library.tuner import NEWEST, PROTOCOLS
from topologies.checks import WeftError
from topologies.machines.profile import Gpu, Machine, Nic, machine, part, profiles

_GPUS = (
    (r"H100 PCIe|H100-PCIe", "h100-pcie"), (r"RTX|4090|5090|L40|PCIe only|PCIe box|[AV]100[^,]*PCIe", "rtx-pcie"),
    (r"GH200", "h100"), (r"Spark|GB10", "gb10"), (r"MI25\dX?|GCD", "mi250x"), (r"MI3[0-2]\dX?", "mi300x"),
    (r"MI35\dX?", "mi350x"),
    *((name.upper(), name) for name in
      ("gb300", "gb200", "b300", "b200", "h200", "h800", "h20", "a800", "a100", "v100")),
    (r"H100|p5", "h100"), (r"DGX-1\b", "v100"), (r"p4de?\b", "a100"),
)
_SPEEDS = {"HDR100": 100, "NDR200": 200, "XDR": 800, "NDR": 400, "HDR": 200, "EDR": 100}
_SPEED = re.compile(r"(\d+)\s*(?:G\b|Gb|Gbps|Gb/s)")
_PORT = re.compile(
    r"(\d+)\s*x\s*(?:[A-Za-z][\w/-]*[ ])*?(?:(\d+)\s*G|(HDR100|NDR200|XDR|NDR|HDR|EDR)|EFA|IB|Slingshot|CX)"
)


def gpu_of(text: str) -> str:
    """Name of the profile of a GPU in a description.

    WeftError: none is named.
    """
    for pattern, name in _GPUS:
        if re.search(pattern, text, re.IGNORECASE):
            return name
    raise WeftError(f"no GPU that is known is named in {text!r}")


def nic_of(text: str, system: str = "") -> tuple[str, int | None]:
    """Name of the profile of the NICs in a description, and how many a node has, if it says so.

    `system`: name of the machine, which may name a cloud.
    """
    port = _PORT.search(text)
    leading = re.match(r"(\d+)\b(?!\s*G)", text)
    count = int(port[1]) if port else int(leading[1]) if leading else None
    speed = _SPEED.search(text)
    word = next((word for word in _SPEEDS if word in text), "")
    rate = int(port[2]) if port and port[2] else int(speed[1]) if speed else _SPEEDS.get(word, 400)
    if word in ("HDR100", "NDR200"):
        rate = _SPEEDS[word]
    whole = f"{text} {system}"
    if "TCPXO" in whole:
        return "tcpxo-200", count
    if "TCPX" in whole:
        return "tcpx-200", count
    if re.search(r"\bTCP\b|sockets", whole):
        return "tcp-100", count
    if "Spark" in whole or "GB10" in whole:
        return "spark-200", 1
    if "Slingshot" in whole:
        return "slingshot-11", count
    if re.search(r"EFA|\bp4de?\b|\bp5", whole):
        ports = count if rate == 100 else (count or 1) * rate // 100  # of 100 Gb/s, however a node's rate is divided
        if speed is None:
            ports = count or (4 if re.search(r"\bp4", whole) else 32)
        return "efa-v2-100" if ports == 32 else "efa-100", ports
    rates = [one for one in (100, 200, 400, 800) if one <= rate] or [100]
    if re.search(r"A3 Ultra|A3 Mega|A4|\bGCP\b|Google", whole):
        return "gcp-roce-400", count
    if re.search(r"RoCE|Ethernet|\bRDMA\b", whole) and not re.search(r"\bIB\b|InfiniBand", text):
        return f"roce-{rates[-1]}", count
    return {100: "ib-edr", 200: "ib-hdr", 400: "ib-ndr", 800: "ib-xdr"}[rates[-1]], count


def machine_of(name: str, gpu: str, gpus: int, inside: str, nic: str) -> Machine:
    """The machine that some words describe: a system, its GPU, how many are in use of a node, links inside, and NICs.

    `inside`, `nic`: "" where nothing is said.
    """
    whole = f"{gpu} {name} {inside}"
    profile = gpu_of(gpu if re.search(r"\d", gpu) else whole)
    port, count = nic_of(nic, f"{name} {gpu}")
    meshed = re.search(r"all-to-all|no NVSwitch|xGMI|Infinity|links a pair|cube mesh|bridge|PCIe", f"{inside} {gpu}")
    # four GPUs of one node are joined directly unless a switch is named
    quad = gpus == 4 and inside and not re.search(r"Switch|NVL\d", inside) and not profile.startswith("gb")
    joined = "alone" if gpus == 1 else "mesh" if meshed or quad or profile.startswith("mi") else "switch"
    amd = re.search(r"Polaris|Sirius|Perlmutter|Frontier|MI25|DGX A100|ND A100", whole) is not None
    cpu = "arm" if re.search(r"G[BH]\d", gpu) else "amd" if amd else "intel"
    # a box has eight GPUs and a NIC for each unless the words say otherwise
    spare = port.startswith("ib") and count is not None and count > gpus and count % gpus  # ports for other purposes
    nics = gpus if count is None or spare or (count == 8 and gpus < 8) else count
    return Machine(
        name, part(Gpu, "gpus", profile, name), gpus, joined, part(Nic, "nics", port, name), max(1, nics), cpu
    )


def asked_of(algorithm: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Algorithms and protocols that a run was told to use, by the words about it."""
    text = re.sub(r"NCCL_NVLS_ENABLE=0", "", algorithm)
    named = [
        name for name, pattern in (("Ring", r"\bring"), ("Tree", r"(?<!nvls)\btree"), ("CollNet", "collnet"))
        if re.search(pattern, text, re.IGNORECASE)
    ]
    if re.search("nvls", text, re.IGNORECASE):
        named += ["NVLS", "NVLSTree", "Ring"]  # where reducing switches are not the better choice, rings run
    protocols = [name for name in PROTOCOLS if re.search(rf"\b{name}\b", text)]
    return tuple(named), tuple(protocols)


def version_of(text: str) -> tuple[int, int]:
    """Version of NCCL in words, such as "2.18.5"; the newest where they name none."""
    found = re.match(r"2\.(\d+)", text)
    return (2, int(found[1])) if found else NEWEST


def processes_of(notes: str, gpus: int) -> int:
    """GPUs that a process drives: those of `-g N` in the words about a run, or of its one process; otherwise one."""
    each = re.search(r"-g (\d+)", notes)
    if each:
        return min(int(each[1]), gpus)
    return gpus if re.search(r"\b1 process|single process", notes) else 1


PCIE = "rtx-pcie"
"""Profile of cards behind PCIe."""

OF_CARDS = (PCIE, "h100-pcie")

_CARD = r"PCIe|NVL|Active|RTX|GeForce|Quadro|Titan|[ATL]\d{1,2}[GMS]?"
"""Words of cards for slots, whatever chip they have; "NVL" has bridges at most."""

_GRACE = "gh200"
_NAMES = (
    (_CARD, PCIE), ("GH200", _GRACE), ("MI250X?", "mi250x"), ("MI300X|MI308X|MI325X", "mi300x"),
    ("MI350X|MI355X", "mi350x"),
    *((name.upper(), name) for name in ("gb300", "gb200", "gb10", "b300", "b200", "h200", "h800", "h100", "h20",
                                        "a800", "a100", "v100")),
)


def listed_gpu(device: str) -> str:
    """Profile of the GPU that a driver lists, by whole words of its name; `PCIE` for a card.

    WeftError: no profile is of this GPU.

    Examples
    --------
    >>> listed_gpu("NVIDIA A100-SXM4-80GB"), listed_gpu("NVIDIA A100 80GB PCIe")
    ('a100', 'rtx-pcie')
    """
    for words, name in _NAMES:
        if re.search(rf"\b(?:{words})\b", device, re.IGNORECASE):
            return "h100" if name == _GRACE else name
    raise WeftError(f"no profile is of the GPU {device!r}: give --machine, a name or a file, as in mine.toml:1")


def listed_machine(device: str, each: int) -> Machine:
    """A box that is known with this GPU and room for `each`; or else one made of them.

    WeftError: no profile is of this GPU, or nobody builds a box of so many.
    """
    gpu = listed_gpu(device)
    if gpu == PCIE:
        return machine_of(device, "L40S", each, "", "")
    if re.search(_GRACE, device, re.IGNORECASE):
        if each not in (1, 4):
            raise WeftError(f"{each} x {device} a host are no machine that is known (1 is, and 4 linked each to each): "
                            "give --machine")
        return machine_of(device, "H100 of GH200", each, "links a pair", "")
    for name, box in profiles("boxes").items():
        if box["gpu"] == gpu and box["gpus"] >= each:
            return machine(name)
    return machine_of(device, gpu.upper(), each, "", "")
