"""How long nodes of a trace take: memory, by ASTRA-sim's remote memory files (JSON), and operations, by a roofline."""

from pathlib import Path
from typing import NamedTuple

from topologies.checks import WeftError, choice, integer, number
from topologies.text.plain_data import read_json_object
from topologies.text.schema import tell_over
from topologies.units import PS_PER_S

KINDS = ("NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL")
OF_LOCAL = ("local-mem-latency", "local-mem-bw")
"""Of files of 2022, which the system file has since."""

KEYS = ("memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node")


class RemoteMemory(NamedTuple):
    """A latency and a rate, for one access at a time of an NPU, of a node or of all."""

    latency_ns: int
    bytes_per_ns: float
    sharing: int  # NPUs that share one: 1, those of a node, or 0 for all

    def time_ns(self, size: int) -> int:
        """Of an access alone, truncated as ASTRA-sim does."""
        return self.latency_ns + int(size / self.bytes_per_ns)

    def of(self, npu: int) -> int:
        """Number of the memory that an NPU accesses."""
        return npu // self.sharing if self.sharing else 0


def read_remote_memory(path: str | Path) -> RemoteMemory | None:
    """The remote memory of a file; None of one that has none (NO_MEMORY_EXPANSION).

    WeftError: names the file and the key.
    """
    data, where = read_json_object(path, "remote memory file"), f"remote memory file {path}"
    tell_over(where, [key for key in data if key in OF_LOCAL], "ASTRA-sim")
    for key in data:
        if key not in OF_LOCAL:
            choice(key, KEYS, f"{where}: key")
    kind = choice(data.get("memory-type"), KINDS, f"{where}: memory-type")
    if kind == KINDS[0]:
        return None
    if "remote-mem-bw" not in data:
        raise WeftError(f"{where}: key 'remote-mem-bw' is missing, in GB/s")
    sharing = {KINDS[2]: 1, KINDS[3]: 0}.get(kind)
    if sharing is None:
        sharing = integer(data.get("num-npus-per-node"), f"{where}: num-npus-per-node", 1)
    return RemoteMemory(
        integer(data.get("remote-mem-latency", 0), f"{where}: remote-mem-latency", 0, 10**12),
        number(data["remote-mem-bw"], f"{where}: remote-mem-bw", 0, 1e9, above=True), sharing,
    )


class Roofline(NamedTuple):
    """Rates of an NPU, per second."""

    peak_flops: float
    memory_Bps: float | None = None

    def time_ps(self, operations: int, size: int) -> int:
        """Of some operations on some bytes."""
        of_memory = size / self.memory_Bps if self.memory_Bps else 0.0
        return round(max(operations / self.peak_flops, of_memory) * PS_PER_S)
