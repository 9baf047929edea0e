"""The time of operations on data: by the peak of an NPU, or by its memory, whichever bounds it."""

from typing import NamedTuple

from topologies.units import PS_PER_S


class Roofline(NamedTuple):
    """Rates of an NPU, per second."""

    peak_flops: float
    memory_Bps: float | None = None

    def time_ps(self, operations: int, size: int) -> int:
        """Of some operations on some bytes."""
        of_memory = size / self.memory_Bps if self.memory_Bps else 0.0
        return round(max(operations / self.peak_flops, of_memory) * PS_PER_S)
