"""Accelerators and software stacks as data: `devices.toml` and `stacks.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from topologies.checks import WeftError, checked, choice
from topologies.text.brief import one_line
from topologies.text.plain_data import parse_toml
from topologies.units import BytesPerSecond, Flops, parse_bandwidth, parse_flops, parse_size, parse_time

FOLDER = Path(__file__).parent
PRECISIONS = ("half", "fp8")


@checked
@one_line
@dataclass(frozen=True)
class Device:
    """An accelerator; see `devices.toml`."""

    name: str
    # half, fp8: peak in FLOP/s; 0: none
    half: Flops
    memory_bytes: int
    hbm: BytesPerSecond  # bytes per second that streaming kernels reach
    kernel_s: float  # fixed time of a kernel
    fp8: float = 0.0
    # flash2, flash3: rates of attention in FLOP/s, forward and backward; empty: as the other one
    flash2: tuple[float, ...] = ()
    flash3: tuple[float, ...] = ()
    spread: float = 0.0  # standard deviation of the speeds of such devices
    between: float = 0.0  # bytes per second of a device between slices; 0: unknown

    def peak(self, precision: str) -> float:
        """FLOP/s; WeftError: it has no products of that precision."""
        found = float(getattr(self, choice(precision, PRECISIONS, "precision")))
        if not found:
            raise WeftError(f"{self.name} has no products in {precision}")
        return found

    def attention(self, generation: int) -> tuple[float, ...]:
        """Forward and backward rate of FlashAttention of a generation, or of the one that the device has."""
        return (self.flash3 if generation == 3 and self.flash3 else self.flash2) or self.flash3


def _rates(pair: Any) -> tuple[float, ...]:
    return tuple(parse_flops(one) for one in pair)


_READS: dict[str, tuple[str, Any]] = {
    "half": ("half", parse_flops), "fp8": ("fp8", parse_flops), "memory": ("memory_bytes", parse_size),
    "hbm": ("hbm", parse_bandwidth), "flash2": ("flash2", _rates), "flash3": ("flash3", _rates),
    "kernel": ("kernel_s", lambda text: parse_time(text) / 1e12), "spread": ("spread", float),
    "between": ("between", parse_bandwidth),
}


@cache
def _tables(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for key, table in parse_toml((FOLDER / name).read_text(encoding="utf-8"), name).items():
        found[key] = {**found.get(table.pop("like", ""), {}), **table}
    return found


def devices() -> tuple[str, ...]:
    """Names of the accelerators."""
    return tuple(_tables("devices.toml"))


@cache
def device(name: str) -> Device:
    """The accelerator of that name; WeftError: there is none."""
    table = _tables("devices.toml")[choice(name, devices(), "device")]
    return Device(name, **{own: read(table[key][0]) for key, (own, read) in _READS.items() if key in table})


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Stack:
    """Software that trains; see `stacks.toml`."""

    name: str
    selective: str = "core"
    context: str = "ring"
    update: float = 34.0
    fp8_gather: int = 2
    microbatches: str = ""
    context_share: float = 1.0
    attention_share: float = 1.0
    eager: float = 1.0
    head: float = 0.0
    waits: bool = False
    copies: float = 0.0
    network: float = 1.0
    flushes: bool = False
    scanned: bool = False
    late: bool = False
    dtensor: bool = False
    stops: bool = False
    behind: tuple[str, ...] = ()
    efficiency: Mapping[str, Any]

    def constant(self, where: str, precision: str) -> tuple[float, str]:
        """Share of the peak that products sustain on a device, and whose constant that is, where it is not its own.

        Where this stack has none, that of Megatron-LM, or of any other with the same device and precision.
        WeftError: nothing was fitted on that device.
        """
        for key in (f"{where} {precision}", *(f"{where} {other}" for other in PRECISIONS)):
            for one in (self, *(stack(name) for name in stacks())):
                if key in one.efficiency:
                    share, _, *whose = one.efficiency[key]
                    said = [] if one.name == self.name else [f"that of {one.name}"]
                    said += [] if key.endswith(precision) else [f"that of {key.rpartition(' ')[2]} precision"]
                    return float(share), ", ".join([*said, *whose])
        raise WeftError(f"no efficiency of {where} is known: give --efficiency, the share of its peak that products "
                        "reach in a long run")


def stacks() -> tuple[str, ...]:
    """Names of the software stacks."""
    return tuple(_tables("stacks.toml"))


@cache
def stack(name: str) -> Stack:
    """The software of that name; WeftError: there is none."""
    table = _tables("stacks.toml")[choice(name, stacks(), "stack")]
    return Stack(name=name, **{**table, "behind": tuple(table.get("behind", ()))})
