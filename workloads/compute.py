"""Compute time from floating-point operations and a stated efficiency."""

from __future__ import annotations

from dataclasses import dataclass

from topologies.checks import Positive, Share, checked

TERA = 10**12


@checked
@dataclass(frozen=True)
class Accelerator:
    """Compute rate of an NPU.

    Attributes
    ----------
    peak_flops : float
        Operations per second, as the data sheet counts them (a multiply-add is two).
    efficiency : float
        Share of the peak that training reaches; depends on the user's system, so there is no default.
    """

    peak_flops: Positive
    efficiency: Share

    def time_ns(self, flops: float) -> float:
        """Nanoseconds taken by a number of operations."""
        return flops / (self.peak_flops * self.efficiency) * 1e9


LIBRA_AS_SHIPPED = Accelerator(60 * 2**40, 1.0)
"""The rate behind LIBRA's text workloads: 65.97e12 operations per second (60 x 2^40)."""
