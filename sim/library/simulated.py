"""The same collective by the engine: chunks on the machine's links, with the latency and rate of the protocol.

A step of a ring takes the latency that the library counts for a hop; links have the rate that machines reach, times
what the protocol leaves. Where no schedule of ours is what the library runs (Tree by nodes, NVLS, CollNet, PAT), there
is no time, nor for GPUs that are linked directly: our rings do not divide the links of a pair among several.
Between nodes our ring is slower at small sizes: a rank waits for its own send before the next step, NCCL does not.
"""

from __future__ import annotations

from collectives import build
from sim.library.expected import Expected
from sim.library.tuner import PROTOCOLS, Setting, tables
from sim.program.model import Model
from sim.simulation import simulate
from topologies import WeftError
from topologies.core.topology import Topology
from topologies.units import bytes_per_s, seconds

SCHEDULES = {"Ring": "nccl-rings"}
"""Algorithms of the library by the names of ours."""


def simulated_s(setting: Setting, row: Expected) -> float | None:
    """Time of the algorithm and protocol of a row; None where no schedule of ours is that."""
    name = SCHEDULES.get(row.algorithm)
    if name is None or setting.gpus != setting.machine.gpus or setting.machine.inside == "mesh":
        return None
    try:
        schedule = build(name, setting.collective, _fabric(setting, row.protocol), row.size_bytes)
    except WeftError:  # a collective that rings of ours do not do
        return None
    base = float(tables()["base_ring"][PROTOCOLS.index(row.protocol)]) / 1e6
    chunks = Model(chunks=1)  # steps wait for whole slices, of which a ring has as many as ranks
    return max(setting.launch_s, base + simulate(schedule, model=chunks).time_s)


def _fabric(setting: Setting, protocol: str) -> Topology:
    """The machine as the protocol finds it: latency of a hop over the links of its path."""
    known, at = tables(), PROTOCOLS.index(protocol)
    machine = setting.machine
    inside = known["nvlink_ring"][at] / 2
    between = (known["network_ring"][at] + machine.nic.latency * 1e6) / 4
    share = {"LL": known["ll_share"], "LL128": known["ll128_share"], "Simple": 1.0}[protocol]
    rates = (machine.gpu.ring * share, machine.nic.port * machine.nic.reached * share)
    return machine.topology(
        setting.nodes, bandwidth=tuple(map(bytes_per_s, rates)), hop_latency=0,
        latency=(seconds(inside / 1e6), seconds(between / 1e6)),
    )
