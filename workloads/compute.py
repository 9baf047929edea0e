"""Compute time from floating-point operations and a stated efficiency."""

from __future__ import annotations

from dataclasses import dataclass

from topologies.checks import Share, checked
from topologies.units import BytesPerSecond, Flops

TERA = 10**12

ADAM_BYTES = 34
"""Memory traffic of an update per parameter: the gradient in fp32 (4) and once more for its norm (4); master weight and
two moments, read and written (24); the weight in half precision (2)."""


@checked
@dataclass(frozen=True)
class Accelerator:
    """Compute rate of an NPU.

    Attributes
    ----------
    peak_flops : float
        Operations per second, as the data sheet counts them (a multiply-add is two); may be given as "312TFLOPS".
    efficiency : float
        Share of the peak that training reaches; depends on the user's system, so there is no default.
    memory_Bps : float or None
        Bytes per second of its memory, which bound the update of the weights; None leaves updates out. May be given
        as "2TB/s".

    Examples
    --------
    >>> Accelerator("312TFLOPS", 0.5) == Accelerator(312e12, 0.5)
    True
    """

    peak_flops: Flops
    efficiency: Share
    memory_Bps: BytesPerSecond | None = None

    def time_ns(self, flops: float) -> float:
        """Nanoseconds taken by a number of operations."""
        return flops / (self.peak_flops * self.efficiency) * 1e9

    def update_ns(self, parameters: float) -> float:
        """Nanoseconds of Adam's update of a number of parameters; 0 where the memory is not given."""
        return 0.0 if self.memory_Bps is None else parameters * ADAM_BYTES / self.memory_Bps * 1e9


LIBRA_AS_SHIPPED = Accelerator(60 * 2**40, 1.0)
"""The rate behind LIBRA's text workloads: 65.97e12 operations per second (60 x 2^40)."""
