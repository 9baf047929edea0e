"""The same collective by the engine: chunks on the machine's links, with latency, rate and chunks of the protocol.

A hop takes the latency that the library counts for one; links have the rate that machines reach, times what the
protocol leaves of it; chunks are those of the library's buffers. What the engine finds by itself, and the formulas only
state or leave out: pipelines that fill and drain, links that rings or trees share, two nodes that send each other half.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from collectives import Schedule, build
from sim.how import AS_USUAL, How
from sim.library.expected import REPEATS, Expected, handshake_us, passed_on_bytes
from sim.library.tuner import PAT_SHARE, PROTOCOLS, ROOTED, SENDRECV, Setting, candidates, ll_GBps, messages, tables
from sim.program.model import Model
from sim.simulation import simulate
from topologies import Topology, WeftError
from topologies.units import bytes_per_s, seconds

KIB, ELEMENT = 1024, 4
MOST_CHUNKS = 64
"""Of a transfer: finer ones change a pipeline's time by less than its depth over this."""

MOST_MOVES = 2_000_000
"""Limit on transfers times chunks of a simulation: a second or two."""


class Simulated(NamedTuple):
    """Time in seconds and the schedule that took it; or None, and why there is none."""

    time_s: float | None
    schedule: str
    reason: str = ""


class _Protocol(NamedTuple):
    """What an algorithm by a protocol asks of the fabric: us, and GB/s of a GPU inside a node and of a port."""

    base_us: float
    inside_us: float
    between_us: float
    inside_GBps: float
    between_GBps: float
    chunk_KiB: float


_SCHEDULES: Mapping[str, tuple[str, str | None]] = {
    "Ring": ("nccl-rings", None), "Tree": ("nccl-trees", None), "NVLS": ("in-network", "pull"),
    "NVLSTree": ("nvls-trees", None), "CollNet": ("in-network", "rail-wise"), "PAT": ("pat", None),
    SENDRECV: ("direct", None),
}
"""Algorithms of the library by names and forms of ours."""


def simulated(setting: Setting, row: Expected, how: How = AS_USUAL) -> Simulated:
    """The algorithm and protocol of a row, by the engine."""
    name, form = _SCHEDULES[row.algorithm]
    machine, n = setting.machine, setting.n
    if setting.gpus != machine.gpus:
        return Simulated(None, name, f"{setting.gpus} of {machine.gpus} GPUs of a node")
    if setting.collective == SENDRECV:
        return Simulated(None, name, "single messages are no collective")
    rooted = setting.collective in ROOTED
    options: dict[str, Any] = {}
    if row.algorithm == "Ring":
        options = {"share_links": machine.inside == "mesh" and setting.gpus > 2} | ({} if rooted else {"posted": True})
    if moves := _too_many(setting, row):
        return Simulated(None, name, f"about {moves:,} transfers, more than {MOST_MOVES:,}")
    protocol = _protocol(setting, row)
    fabric = _fabric(setting, protocol)
    try:
        schedule = build(name, setting.collective, fabric, row.size_bytes, form, **options)
    except WeftError as wrong:
        return Simulated(None, name, str(wrong))
    piece = row.size_bytes / max(schedule.pattern.n_blocks, 1) * (n if setting.collective == "all-to-all" else 1)
    chunks = 1  # the steps of a ring wait for whole slices, of which it has as many as ranks
    if rooted and row.protocol == "Simple":
        chunks = min(MOST_CHUNKS, math.ceil(row.size_bytes / passed_on_bytes(setting)))
    elif row.algorithm != "Ring" or rooted:
        chunks = min(MOST_CHUNKS, max(1, round(piece / (protocol.chunk_KiB * KIB))))

    # channels of a NIC progress in turn; first come, first served lets one chain of a reduce run ahead of another
    discipline = "lowest-chunk-first" if rooted else "fifo"

    def time_s(one: Schedule, count: int) -> float:
        return simulate(one, model=Model(chunks=count, discipline=discipline), **how.arguments()).time_s

    time = time_s(schedule, chunks)
    if rooted:
        still, twice = (
            time_s(build(name, setting.collective, fabric, size, form, **options), count)
            for size, count in ((ELEMENT, 1), (2 * row.size_bytes, 2 * chunks))
        )
        time = _repeated(still, time, twice)
    return Simulated(max(setting.launch_s, protocol.base_us / 1e6 + time), name)


class Found(NamedTuple):
    """A machine as an algorithm by a protocol finds it, what a run takes before, and bytes of a chunk."""

    fabric: Topology
    base_s: float
    chunk_bytes: float


def as_found(setting: Setting, row: Expected) -> Found:
    """The rates that machines reach, and the latencies that the library counts, for any schedule."""
    protocol = _protocol(setting, row)
    return Found(_fabric(setting, protocol), protocol.base_us / 1e6, protocol.chunk_KiB * KIB)


APART = 0.2
"""Simulated and expected times that differ by more than this share are explained."""


def why_apart(setting: Setting, row: Expected, simulated_s: float) -> str:
    """Why a simulation takes another time than is expected; nothing where they are within `APART` of each other."""
    n, nodes = setting.gpus, setting.nodes
    if abs(simulated_s / row.time_s - 1) <= APART:
        return ""
    if row.algorithm == "Ring" and nodes > 1 and row.limit == "latency" and simulated_s > row.time_s:
        return (f"the library counts {nodes - 1} of a ring's crossings between {nodes} nodes; what begins in the "
                f"middle of a node crosses {nodes} times")
    if row.algorithm == "Ring" and nodes > 1 and row.limit == "inside" and simulated_s < row.time_s:
        return (f"a ring leaves each of {nodes} nodes once, so that its links inside carry {n - 1} of {n} hops of the "
                "simulation; the library has them carry all")
    chosen = next(one for one in candidates(setting) if (one.algorithm, one.protocol) == (row.algorithm, row.protocol))
    smooth_s = (chosen.latency_us + row.size_bytes / chosen.algbw_GBps / 1e3) / 1e6
    if abs(simulated_s / smooth_s - 1) <= APART or row.limit in ("latency", "launch"):
        return "latency, dips and ramps that were measured at these sizes are only partly those of any schedule"
    if row.algorithm in ("Tree", "NVLSTree") and nodes < 4 and simulated_s < row.time_s:
        across = f"{nodes} nodes" if nodes > 1 else f"{n} GPUs"
        return ("the library counts the whole array up and down on every link of a tree; of trees on "
                f"{across} that take turns as roots, leaves and inner ones less crosses it")
    if row.algorithm in ("NVLS", "NVLSTree") and n < 4:
        return f"the library's rate of NVLS is that of a full box; each of {n} GPUs sends {1 + 1 / n:.3g} arrays"
    if row.algorithm == "Ring" and setting.machine.inside == "mesh" and max(n, setting.nics) % min(n, setting.nics):
        return f"rings enter a mesh of {n} GPUs by each of them, and these share {setting.nics} NICs unevenly"
    return "not explained"


def _repeated(still_s: float, once_s: float, twice_s: float) -> float:
    """Time of each of the repeats that nccl-tests starts back to back: a chain of ranks fills once in all of them.

    `still_s`, `once_s`, `twice_s`: of an array of one element, of the array, and of one twice as large in twice as many
    chunks.
    """
    moving = twice_s - once_s
    return still_s + moving + max(0.0, once_s - still_s - moving) / REPEATS


def _too_many(setting: Setting, row: Expected) -> int:
    """Transfers of a schedule, if they are too many; estimated before it is built."""
    n, both = setting.n, 2 if setting.collective == "all-reduce" else 1
    each = {
        "Ring": both * n * n * (1 if setting.nodes == 1 and setting.machine.inside == "switch" else setting.gpus),
        "Tree": 4 * setting.gpus * n * 16, "NVLSTree": 8 * setting.gpus * n * 16, "NVLS": 4 * n * n * 16,
        "CollNet": 4 * setting.gpus * n * 16, "PAT": 8 * n, SENDRECV: 4 * n * n,
    }[row.algorithm]
    return each if each > MOST_MOVES else 0


def _protocol(setting: Setting, row: Expected) -> _Protocol:
    known, at, nic = tables(), PROTOCOLS.index(row.protocol), setting.machine.nic
    chosen = next(one for one in candidates(setting) if (one.algorithm, one.protocol) == (row.algorithm, row.protocol))
    extra = nic.latency * 1e6 + handshake_us(setting, chosen, row.size_bytes)
    ring, port = setting.machine.gpu.ring / 1e9, nic.port * nic.reached / 1e9
    chunk = known["chunk"].get(row.algorithm, 0)
    if row.algorithm in ("Ring", "Tree"):
        kind = row.algorithm.lower()
        share = {"LL": known["ll_share"][0], "LL128": known["ll128_share"][0], "Simple": 1.0}[row.protocol]
        inside = known[f"nvlink_{kind}"][at]
        if kind == "ring" and setting.nodes > 1 and setting.collective not in ROOTED:
            inside = max(inside, known["network_post"][setting.machine.cpu] * (3 if at == 2 else 1))
        most = ll_GBps(setting) if row.protocol == "LL" else float("inf")  # copied by the GPU's threads
        return _Protocol(
            known[f"base_{kind}"][at], inside, known[f"network_{kind}"][at] + extra, min(share * ring, most),
            min(share * port, most / setting.nics), chunk[at],
        )
    wire = setting.machine.gpu.multicast / 1e9 or ring
    if row.algorithm == "NVLSTree":  # a GPU's own part goes through the switch too, which our schedule does not do
        wire *= setting.gpus / (setting.gpus + 1)
    if row.algorithm == "PAT":
        hop = (known["network_ring"][2] + extra) / 3.5
        return _Protocol(8.0 + 2.8 * setting.n, 0.0, hop, ring, PAT_SHARE * port, chunk)
    if row.algorithm == SENDRECV:
        latency, _ = messages(setting)
        return _Protocol(
            latency, 0.0, 0.0, ring, nic.port * nic.messages / 1e9, known["chunk"]["sendrecv"][int(setting.nodes > 1)]
        )
    between = {"NVLS": 0.0, "NVLSTree": known["network_nvlstree"][0] + extra, "CollNet": 0.0}[row.algorithm]
    return _Protocol(31.0 if row.algorithm == "CollNet" else known["nvls"], 0.0, between, wire, port, chunk)


def _fabric(setting: Setting, protocol: _Protocol) -> Topology:
    """The machine as the protocol finds it: the latency of a hop over the links of its path."""
    machine = setting.machine
    inside = protocol.inside_us / (1 if machine.inside == "mesh" else 2)
    rates = protocol.inside_GBps, protocol.between_GBps or protocol.inside_GBps  # without NICs the second is not used
    return machine.topology(
        setting.nodes, bandwidth=tuple(bytes_per_s(rate * 1e9) for rate in rates),
        hop_latency=0, latency=(seconds(inside / 1e6), seconds(protocol.between_us / 4e6)),
    )
