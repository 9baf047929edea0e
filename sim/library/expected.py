"""The table that nccl-tests would print on a machine: algorithm, protocol and time at each size.

The library takes the candidate that it believes to be the fastest (`sim.library.tuner`). The time of a collective is
that of its latency, its bytes, and in Simple a ramp; and not less than what starting one after the other takes.
Broadcast and reduce have no ramp, but a pipeline that fills: once in the repeats that nccl-tests starts back to back.
"""

import math
from dataclasses import dataclass
from typing import Any

from sim.library.tuner import ROOTED, SENDRECV, Candidate, Setting, candidates, channel_GBps, tables
from topologies.text.brief import one_line

MIB = 2**20
REPEATS = 20
"""Of a collective, by nccl-tests (`-n 20`), one started after the other."""

AT_ONCE = 2048
"""Bytes of a message from which a network may ask the receiver first."""


@one_line
@dataclass(frozen=True)
class Expected:
    """One row of the table."""

    size_bytes: int
    time_s: float
    # algorithm, protocol: "launch" is no algorithm: the name is that of the candidate all the same
    algorithm: str
    protocol: str
    # what most of the time goes to: starting collectives, latency, the links inside a node or the NICs between
    # nodes, or what the protocol leaves of them
    limit: str


def expected(setting: Setting, size_bytes: int) -> Expected:
    """What the library chooses for a size, and the time of it."""
    return timed(setting, chosen(setting, size_bytes), size_bytes)


def chosen(setting: Setting, size_bytes: int) -> Candidate:
    """The candidate that the library believes to be the fastest."""
    return min(candidates(setting), key=lambda one:
               one.believed_us + size_bytes / (one.believed_GBps * _dip(one, size_bytes)) / 1e3)


def timed(setting: Setting, one: Candidate, size_bytes: int) -> Expected:
    """The time of a candidate."""
    launch = setting.launch_s * 1e6
    latency, moving = parts_us(setting, one, size_bytes)
    time = max(launch, latency + moving)
    limit = "latency" if latency > moving else _links(setting, one)
    if time == launch:
        limit = "launch"
    return Expected(size_bytes, time / 1e6, one.algorithm, one.protocol, limit)


def parts_us(setting: Setting, one: Candidate, size_bytes: int) -> tuple[float, float]:
    """The time of a candidate that grows with its steps, and that which grows with its bytes."""
    algbw = one.algbw_GBps * _dip(one, size_bytes)
    if one.algorithm == SENDRECV and setting.collective == SENDRECV and setting.nodes == 1:
        algbw = min(algbw, channel_GBps(setting, size_bytes))
    moving = size_bytes / algbw / 1e3 + _ramp_us(setting, one, size_bytes) + fill_us(setting, one, size_bytes) / REPEATS
    return one.latency_us + one.hops * handshake_us(setting, one, size_bytes), moving


def _links(setting: Setting, one: Candidate) -> str:
    if one.protocol == "LL":
        return "protocol"
    if setting.collective == "all-to-all" and setting.nodes > 1 and setting.gpus > 1:
        inside = setting.machine.gpu.ring / 1e9 * setting.n / (setting.gpus - 1)
        return "inside" if one.algbw_GBps >= inside else "between"
    by_nics = one.algorithm in ("NVLSTree", "CollNet", SENDRECV) or setting.between_GBps < setting.inside_GBps
    return "between" if setting.nodes > 1 and by_nics else "inside"


def handshake_us(setting: Setting, one: Candidate, size_bytes: int) -> float:
    """What a network hop of a message that is not sent at once takes longer."""
    if size_bytes * one.message < AT_ONCE:
        return 0.0
    nic = setting.machine.nic
    return (nic.handshake_simple if one.protocol == "Simple" else nic.handshake) * 1e6


def fill_us(setting: Setting, one: Candidate, size_bytes: int) -> float:
    """What the last rank of a broadcast's chain waits for the first chunk, or the root of a reduce for the farthest's.

    In Simple; a rank passes the lines of LL and LL128 on as they come.
    """
    if setting.collective not in ROOTED or one.protocol != "Simple":
        return 0.0
    return (setting.n - 2) * min(size_bytes, passed_on_bytes(setting)) / one.algbw_GBps / 1e3


def passed_on_bytes(setting: Setting) -> int:
    """Bytes that a rank of a chain in Simple receives before it passes them on: a slot of every channel."""
    return int(tables()["chunk"]["Ring"][2] * 1024) * setting.channels


def _ramp_us(setting: Setting, one: Candidate, size_bytes: int) -> float:
    """What a collective loses to channels that wait for the slowest, inside a node."""
    if one.protocol == "LL" or setting.between_GBps < setting.inside_GBps or setting.collective in (SENDRECV, *ROOTED):
        return 0.0
    gpu = setting.machine.gpu
    factor = setting.reached.multicast_ramp if one.algorithm == "NVLS" else 1.0
    return factor * (gpu.ramp if one.protocol == "Simple" else gpu.ramp_ll128) * 1e6 * math.sqrt(size_bytes / MIB)


def _dip(one: Candidate, size_bytes: int) -> float:
    """What a Tree keeps of its bandwidth at a size."""
    dip = tables()["dip"][one.protocol] if one.algorithm == "Tree" else ()
    at = max(0, int(math.log2(max(size_bytes, 64) / 64)))
    return float(dip[at]) if at < len(dip) else 1.0


def expected_row(setting: Setting, one: Expected, topology: str) -> dict[str, Any]:
    """A row as of a comparison, in SI units, with `protocol` and `limit`."""
    algbw = one.size_bytes / one.time_s / 1e9
    return {
        "topology": topology, "collective": setting.collective, "algorithm": one.algorithm, "protocol": one.protocol,
        "limit": one.limit, "size_bytes": one.size_bytes, "time_s": one.time_s, "algbw_GBps": algbw,
        "busbw_GBps": algbw * setting.bus_factor,
    }
