"""What may be wrong with a machine, and what its tables would then look like.

Every cause is a machine that differs from the one described, and says how well its rates are known: a missing NIC is a
sharp number, collisions of flows are not. The cause whose tables are most likely wins; one that is vague pays for what
else it could have explained. `likely` is what a cause costs beforehand, twice the negative logarithm of how common it
is: choices, in steps of `COMMON` and `RARE`.

Times are those that a library should take where links reach a share of their rate (`times_of`).
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sim.analytic.traffic import F64
from sim.library.expected import chosen, expected, parts_us, timed
from sim.library.tuner import SENDRECV, Setting, candidates
from sim.measured.fit import Prior
from topologies.machines.profile import Machine
from topologies.text.brief import one_line

LARGEST = 2**34

INSIDE, BETWEEN, LATENCY = range(3)
"""Parameters, as logarithms: the shares of the links inside a node and of the NICs, and the factor on latency."""


def times_of(setting: Setting, sizes: Sequence[int]) -> Callable[[F64], F64]:
    """Times in seconds over the parameters; the library's choice is that of healthy links."""
    places = {(one.algorithm, one.protocol): at for at, one in enumerate(candidates(setting))}
    picked = [places[one.algorithm, one.protocol] for one in (chosen(setting, size) for size in sizes)]
    launch_us = setting.launch_s * 1e6

    def times(x: F64) -> F64:
        slowed = replace(setting, machine=_slowed(setting.machine, *np.exp(x[[INSIDE, BETWEEN]]).tolist()))
        every = candidates(slowed)
        parts = np.array([parts_us(slowed, every[at], size) for at, size in zip(picked, sizes, strict=True)])
        found: F64 = np.maximum(launch_us, parts[:, 0] * np.exp(x[LATENCY]) + parts[:, 1]) / 1e6
        return found

    return times


def _slowed(machine: Machine, inside: float, between: float) -> Machine:
    gpu, nic = machine.gpu, machine.nic
    gpu = replace(gpu, ring=gpu.ring * inside, multicast=gpu.multicast * inside, channel=gpu.channel * inside)
    return replace(machine, gpu=gpu, nic=replace(nic, reached=nic.reached * between, messages=nic.messages * between))


def with_nics(setting: Setting, nics: int) -> Setting:
    """The setting with another number of ports in use of a node."""
    of_all = max(1, nics * setting.machine.gpus // setting.gpus)
    return replace(setting, machine=replace(setting.machine, nics=of_all))


def busbw(setting: Setting, size: int, time_s: float) -> float:
    """Bus bandwidth in GB/s."""
    return size / time_s / 1e9 * setting.bus_factor


def ceiling(setting: Setting) -> float:
    """Bus bandwidth of the largest messages in GB/s."""
    return busbw(setting, LARGEST, expected(setting, LARGEST).time_s)


def most(setting: Setting) -> float:
    """Bus bandwidth of the largest messages in GB/s by the best algorithm, at the raw rate of the NICs."""
    least = min(timed(setting, one, LARGEST).time_s for one in candidates(setting))
    return busbw(setting, LARGEST, least) / setting.machine.nic.reached


def without(setting: Setting, *names: str) -> Setting | None:
    """The setting without some algorithms; None if they change nothing or nothing is left."""
    kept = tuple(dict.fromkeys(one.algorithm for one in candidates(setting) if one.algorithm not in names))
    if not kept or kept == tuple(dict.fromkeys(one.algorithm for one in candidates(setting))):
        return None
    return replace(setting, algorithms=kept)


def by_protocols(setting: Setting, *protocols: str) -> Setting | None:
    """The setting with some protocols alone; None if they change nothing or nothing is left."""
    there = {one.protocol for one in candidates(setting)}
    if not there & set(protocols) or there <= set(protocols):
        return None
    return replace(setting, protocols=tuple(protocols))


SCATTER = Prior(0.0, 0.08)
"""Of rates of healthy machines around the profile: public tables scatter by that much."""

STEADY, MOST_STEADY = Prior(0.0, 0.04), 16
"""The same of NVLink behind switches, which nobody shares: from 256 MiB, 19 public tables of boxes of 4 or 8 GPUs are
within 6 %."""

DELAY = Prior(0.0, 0.3)
"""Of the latency of healthy machines."""

_LATE = Prior(math.log(3.0), 0.7)
"""Of steps that something slows down."""

COMMON, RARE, EITHER = 3.0, 6.0, 1.4
DIFFERS = 0.12
"""Least difference of two ceilings from which a table can tell them apart."""

THROUGH_CPU_GBPS = 16.0
"""Of a NIC whose data passes the CPU's root complex: nccl 412, a maintainer: 16 of 24 GB/s is normal there."""

SOCKET_GBPS = (1.0, 5.0)
"""Of one interface of a node, or of each port: Polaris 4.7 a port, nccl 489 1.5, dgx-spark 3."""

PCIE_GBPS = (6.0, 48.0)
"""Of a ring through PCIe: a shared slot of generation 3, and generation 5 of 16 lanes (NCCL topo.h: 12 a generation 3
slot)."""

SHARED, MOST_OF_SHARED = Prior(math.log(0.45), 0.2), 0.55
"""Share of a link on which two flows meet: half, or less where they disturb each other."""

HOST_COPIES = Prior(math.log(0.35), 0.35)
"""Share of the NICs that copies through host memory leave: a guess, wide enough for 10 to 20 GB/s of 400 Gb/s ports."""


@one_line
@dataclass(frozen=True)
class Cause:
    """A machine that differs."""

    name: str
    verdict: str  # class of it
    words: str  # what limits then, for people
    setting: Setting  # what ran, on the machine as it is then
    priors: tuple[Prior, Prior, Prior]  # of the shares inside and between, and of latency
    likely: float
    most_GBps: float = math.inf  # bus bandwidth that it cannot exceed

    @property
    def vague(self) -> bool:
        """Whether its rates could be many."""
        return max(self.priors[INSIDE].spread, self.priors[BETWEEN].spread) > SCATTER.spread

    @property
    def cost(self) -> float:
        """Beforehand: how rare it is, and how vague."""
        healthy = priors(self.setting)
        vague = sum(2 * math.log(own.spread / usual.spread) for own, usual in zip(self.priors, healthy, strict=True))
        return self.likely + vague


def priors(
    setting: Setting, inside: Prior | None = None, between: Prior = SCATTER, latency: Prior = DELAY
) -> tuple[Prior, Prior, Prior]:
    """Those of a healthy machine but for those given."""
    steady = setting.machine.inside == "switch" and setting.machine.gpus <= MOST_STEADY
    return inside or (STEADY if steady else SCATTER), between, latency


def healthy(setting: Setting) -> Cause:
    """Nothing is wrong."""
    return Cause("healthy", "good", "", setting, priors(setting), 0.0)


def causes(setting: Setting, nics_assumed: bool = False) -> list[Cause]:
    """Everything that may be wrong with a machine; `nics_assumed`: or with what was taken for it."""
    found = [healthy(setting), *_of_choice(setting)]
    found += _inside(setting) if limited_by(setting) == INSIDE else _between(setting)
    if not nics_assumed:
        return found
    return [one for one in found if one.name not in ("one-nic", "half-the-nics")] + list(_fewer_nics(setting))


def _fewer_nics(setting: Setting) -> Iterator[Cause]:
    """Other numbers of NICs than were assumed, of the same fabric or of one whose steps take longer."""
    left = setting.nics // 2
    while left and setting.nodes > 1:
        share = {2: "half", 4: "a quarter", 8: "an eighth"}.get(setting.nics // left, f"1/{setting.nics // left}")
        fewer = with_nics(setting, left)
        words = f"{share} of the {setting.nics} NICs that were assumed: {left} in use, or a node that has {left}"
        for latency in (DELAY, _LATE):
            yield Cause(f"{left}-nics", "slow-hw", words, fewer, priors(setting, latency=latency), COMMON, most(fewer))
        left //= 2


def limited_by(setting: Setting) -> int:
    """Which links hold the largest messages: those whose rate matters more."""
    return BETWEEN if setting.nodes > 1 and setting.between_GBps <= setting.inside_GBps * 2 else INSIDE


def _of_choice(setting: Setting) -> Iterator[Cause]:
    """What the library chooses or is told to choose."""
    top = ceiling(setting)
    named = (
        ("nvls-off", ("NVLS", "NVLSTree"), "reducing switches (NVLS) are not in use: the rate of a ring or tree"),
        ("sharp-off", ("CollNet",), "aggregation in the network (SHARP) is not in use: the rate of a ring"),
    )
    for name, algorithms, words in named:
        if name == "sharp-off" and "CollNet" in setting.algorithms:
            other: Setting | None = replace(setting, algorithms=())
        else:
            other = without(setting, *algorithms)
        if other is not None and ceiling(other) < (1 - DIFFERS) * top:
            alone = name == "nvls-off" and setting.nodes == 1
            passed = ceiling(other) * math.exp(STEADY.spread) if alone else math.inf
            yield Cause(name, "wrong-config", words, other, priors(setting), COMMON, passed)
    slow = by_protocols(setting, "LL")
    if slow is not None and ceiling(slow) < (1 - DIFFERS) * top:
        yield Cause("protocol", "wrong-config", "LL is forced or chosen for large messages (NCCL_PROTO), of whose rate "
                    "it leaves half at most", slow, priors(setting), RARE + COMMON * (setting.nodes > 1))
    if setting.nodes == 2 and setting.between_GBps < setting.inside_GBps:
        rings = without(setting, "Tree", "NVLSTree")
        if rings is not None and ceiling(rings) < (1 - DIFFERS) * top:
            words = "the NICs, as a ring uses them; or a tree at half of their rate: force Ring to tell"
            yield Cause("ring-of-two", "good", words, rings, priors(setting), 0.0)
    yield Cause("per-step", "wrong-config", "time lost per step, not per byte: algorithm, protocol, channels, or what "
                "drives the NICs", setting, priors(setting, latency=_LATE), RARE)


def _inside(setting: Setting) -> Iterator[Cause]:
    rate = setting.inside_GBps
    if rate > 2 * PCIE_GBPS[1]:
        low, high = (math.log(one / rate) for one in PCIE_GBPS)
        yield Cause("pcie", "wrong-config", "PCIe or host memory: the direct links between GPUs are not used (P2P off)",
                    setting, priors(setting, inside=Prior((low + high) / 2, (high - low) / 3)), COMMON)
    yield Cause("slow-inside", "slow-unknown", "the links inside a node, below what they reach elsewhere", setting,
                priors(setting, inside=_UNKNOWN), RARE)


_UNKNOWN = Prior(math.log(0.6), 0.5)


def _between(setting: Setting) -> Iterator[Cause]:
    nic, ports = setting.machine.nic, setting.nics
    one = nic.port * nic.reached / 1e9
    for left, name in ((1, "one-nic"), (ports - 1, "dead-rail"), (ports // 2, "half-the-nics")):
        if 0 < left < ports and (name == "one-nic" or left > 1):
            words = f"{'one NIC' if left == 1 else f'{left} NICs'} of {ports} in use: a dead rail, or NCCL_IB_HCA"
            fewer = with_nics(setting, left)
            likely = COMMON if name == "one-nic" else RARE  # NCCL_IB_HCA, or what a container sees
            yield Cause(name, "slow-hw", words, fewer, priors(setting), likely, most(fewer))
    if one > 1.2 * THROUGH_CPU_GBPS and setting.collective != SENDRECV:  # which one channel may limit
        slot = Prior(math.log(THROUGH_CPU_GBPS / one), 0.1)
        yield Cause("through-cpu", "slow-hw", f"each NIC at about {THROUGH_CPU_GBPS:g} GB/s: not near its GPU, data "
                    "passes the CPU", setting, priors(setting, between=slot), RARE + COMMON * (ports >= setting.gpus))
    for sockets in sorted({1, ports}) if "tcp" not in nic.name else ():
        low, high = (math.log(rate * sockets / (one * ports)) for rate in SOCKET_GBPS)
        yield Cause("sockets", "wrong-config", "the NICs are not used by RDMA: sockets (TCP), or copies through the "
                    "host (GPUDirect off, ACS)", setting,
                    priors(setting, between=Prior((low + high) / 2, (high - low) / 3),
                           latency=_LATE), COMMON + EITHER)
    yield Cause("host-copies", "wrong-config", "copies through host memory: GPUDirect RDMA is off, or ACS on", setting,
                priors(setting, between=HOST_COPIES), RARE)
    shared = MOST_OF_SHARED * most(setting)
    near = COMMON if setting.nodes == 2 else 0.0  # two nodes mostly meet at one switch
    if "ib" in nic.name:
        yield Cause("shared-link", "slow-hw", "two flows share a link between the switches (the spine)", setting,
                    priors(setting, between=SHARED), RARE + near, shared)
    elif "roce" in nic.name:  # other fabrics spread packets by themselves
        yield Cause("collisions", "wrong-config", "flows collide on links between the switches (the spine): adaptive "
                    "routing, or more queue pairs", setting, priors(setting, between=SHARED), COMMON + near, shared)
    yield Cause("slow-between", "slow-unknown", "the NICs, below what they reach elsewhere", setting,
                priors(setting, between=_UNKNOWN), RARE)


def ll128_off(setting: Setting) -> Cause | None:
    """LL128 is off, which shows at medium sizes only; None where it is anyway.

    LL and LL128 off at once look like any other delay of small messages, and are no cause of their own.
    """
    other = by_protocols(setting, "LL", "Simple")
    words = "LL128 is off: a hole at medium sizes"
    return None if other is None else Cause("ll128-off", "wrong-config", words, other, priors(setting), RARE)


TOUCHED, DEEP = 1.1, 1.35
"""Factors by which a size is slower without LL128: from which it is of the hole, and from which it names the hole."""

OF_MEDIUM, FREEDOM = 0.14, 3
"""Scale and degrees of freedom of Student's distribution of the logarithm of a time at medium sizes between nodes:
public tables are off by 10.7 % in the median and 15.5 % on average from 1 to 64 MiB; no normal distribution is."""

SAME = 4
"""Independent points that the sizes of a hole count for: what is off at one is off at its neighbors."""

LEAST = 3


@one_line
@dataclass(frozen=True, eq=False)
class Hole:
    """Sizes that LL128 off slows down: those between the sizes of LL and those of Simple.

    Other machines are slower there too: between nodes medium sizes scatter most. So the measured curve must follow what
    LL128 off predicts size by size, better than it follows a healthy machine and by more than such machines scatter.
    """

    sizes: tuple[int, ...]
    # (n_sizes,): logarithms of measured over expected times, beyond those of the nearest sizes on both sides of
    # the hole
    slower: F64
    # least, most: (n_sizes,): what LL128 off predicts of them: by the fastest choice that is left, and by the
    # library's
    least: F64
    most: F64

    @property
    def deep(self) -> tuple[int, int]:
        """The first and the last size that LL128 off slows down much; of all, if none is."""
        deep = [size for size, most in zip(self.sizes, self.most, strict=True) if most >= np.log(DEEP)] or self.sizes
        return deep[0], deep[-1]

    @property
    def usual(self) -> float:
        """Median of `slower`."""
        return float(np.median(self.slower))

    @property
    def likelier(self) -> tuple[float, float]:
        """Twice the logarithm of how much likelier the hole is with LL128 off than on a healthy machine; and the least
        of it without one of the sizes, which may be an outlier."""
        off = self.slower - np.clip(self.slower, self.least, self.most)
        each = (_unlikely(self.slower) - _unlikely(off)) * min(1.0, SAME / len(self.sizes))
        return float(each.sum()), float(each.sum() - each.max())


def _unlikely(off: F64) -> F64:
    """Twice the negative logarithm of how likely it is to be so far off."""
    found: F64 = (FREEDOM + 1) * np.log1p((off / OF_MEDIUM) ** 2 / FREEDOM)
    return found


def hole(setting: Setting, off: Setting, rows: Sequence[Mapping[str, Any]], odd: Collection[int]) -> Hole | None:
    """The hole of a table; None where too few sizes are of it, or it has no two ends.

    `off`: the setting without LL128; `rows`: with `size_bytes`, `measured_s` and `expected_s`, by size; `odd`: sizes
    that are no neighbors to go by.
    """
    without = {row["size_bytes"]: float(np.log(expected(off, row["size_bytes"]).time_s / row["expected_s"]))
               for row in rows}
    few = [row for row in rows if without[row["size_bytes"]] >= np.log(TOUCHED)]
    slower = {row["size_bytes"]: float(np.log(row["measured_s"] / row["expected_s"])) for row in rows}
    if len(few) < LEAST:
        return None
    sizes = tuple(row["size_bytes"] for row in few)
    beside = [size for size in without if size not in sizes and size not in odd]
    around = [*[size for size in beside if size < sizes[0]][-1:], *[size for size in beside if size > sizes[-1]][:1]]
    if len(around) < 2:
        return None
    usual = np.interp(np.log(sizes), np.log(around), [slower[size] for size in around])
    least = [min(timed(off, one, row["size_bytes"]).time_s for one in candidates(off)) / row["expected_s"]
             for row in few]
    most = np.array([without[size] for size in sizes])
    return Hole(sizes, np.array([slower[size] for size in sizes]) - usual, np.minimum(np.log(least), most), most)
