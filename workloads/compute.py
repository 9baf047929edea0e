"""Compute time from floating-point operations and a stated efficiency."""

import math
from dataclasses import dataclass

from topologies.checks import Share, checked
from topologies.units import BytesPerSecond, Flops, from_nanoseconds

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
        """Nanoseconds taken by a number of operations.

        WeftError: longer than the clock runs.
        """
        rate = self.peak_flops * self.efficiency
        what = f"computing {flops:.4g} operations at {rate:.4g} FLOP/s (peak x efficiency)"
        return _on_the_clock(flops / rate * 1e9 if rate else math.inf, what)

    def update_ns(self, parameters: float) -> float:
        """Nanoseconds of Adam's update of a number of parameters; 0 where the memory is not given.

        WeftError: longer than the clock runs.
        """
        if self.memory_Bps is None:
            return 0.0
        what = f"updating {parameters:.4g} parameters at {self.memory_Bps:.4g} B/s of memory"
        return _on_the_clock(parameters * ADAM_BYTES / self.memory_Bps * 1e9, what)


def _on_the_clock(time_ns: float, what: str) -> float:
    from_nanoseconds(time_ns, what)
    return time_ns


LIBRA_AS_SHIPPED = Accelerator(60 * 2**40, 1.0)
"""The rate behind LIBRA's text workloads: 65.97e12 operations per second (60 x 2^40)."""
