"""What an algorithm of NCCL takes, written out one case after another from the library's own constants.

The slow, obvious oracle of `sim.library.tuner`: constants and machines are shared, no formula is. Times in us, rates in
GB/s of the array.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from sim.library.tuner import Setting, of_version, tables


class Row(NamedTuple):
    """Latency and rate of an algorithm, on the machine (`chooses` false) or as the library believes."""

    us: float
    GBps: float


def links(s: Setting, chooses: bool) -> tuple[float, float]:
    """Rates of a ring inside a node and between nodes."""
    inside = math.inf
    if s.gpus > 1:
        inside = s.machine.gpu.ring / 1e9
        if s.nodes > 1 and s.machine.inside == "mesh":  # its hop that leaves the node frees a link
            inside = inside * s.gpus / (s.gpus - 1)
    if s.nodes == 1:
        return inside, math.inf
    nics = s.machine.nics * s.gpus // s.machine.gpus
    nics = 1 if nics == 0 else nics
    share = tables()["assumed_of_port"] if chooses else s.machine.nic.reached
    return inside, nics * s.machine.nic.port * share / 1e9


def wire_share(s: Setting) -> float:
    """Bytes through the fullest link of a ring for each byte of the array."""
    n = s.nodes * s.gpus
    return {"all-reduce": 2 * (n - 1) / n, "all-gather": (n - 1) / n, "reduce-scatter": (n - 1) / n}.get(
        s.collective, 1.0
    )


def channels(s: Setting) -> int:
    architecture = s.machine.gpu.architecture
    if s.nodes == 1:
        return int(tables()["architecture"][architecture]["channels"])
    nics = max(1, s.machine.nics * s.gpus // s.machine.gpus)
    if architecture == "blackwell":
        return nics
    return max(2, 2 * nics)


def by_nodes(row: list[float], s: Setting) -> float:
    """Of a table for one node, two, more."""
    return row[0] if s.nodes == 1 else row[1] if s.nodes == 2 else row[2]


def ll_total(s: Setting, known: dict) -> float:
    if s.nodes == 1:
        return float(known["architecture"][s.machine.gpu.architecture]["ll"])
    two, more = known["post_ll"][s.machine.cpu]
    return float(two if s.nodes == 2 else more)


def ring(s: Setting, protocol: str, chooses: bool) -> Row:
    known = of_version(s.version) if chooses else tables()
    p = {"LL": 0, "LL128": 1, "Simple": 2}[protocol]
    n, rooted, reduces_all = s.nodes * s.gpus, s.collective in ("broadcast", "reduce"), s.collective == "all-reduce"
    slow_box = s.machine.gpu.name == "rtx-pcie"
    step = known["pcie_ring" if slow_box else "nvlink_ring"][p]
    nic_us = s.machine.nic.latency * 1e6

    crossings = s.nodes - 1
    if reduces_all:
        crossings = 2 * (s.nodes - 1)
    if rooted and s.nodes > 1 and s.gpus > 1:
        crossings = s.nodes
    steps = 2 * (n - 1) if reduces_all else n - 1

    hop = known["network_ring"][p] + nic_us
    if chooses and known["one_gpu_as_tree"] and s.gpus == 1:
        hop = known["network_tree"][p] + nic_us
    if s.nodes > 1:
        if protocol == "LL":
            step = step * known["ll_inside_between_nodes"]
        if not rooted:
            post = known["network_post"][s.machine.cpu]
            step = max(step, 3 * post if protocol == "Simple" else post)
    if chooses and reduces_all and s.nodes > 1:
        crossings = crossings + known["ring_hops_more"]

    if chooses and rooted:
        us = known["base_ring"][p] + (known["network_ring"][p] if s.nodes > 1 else step)
    else:
        us = known["base_ring"][p] + crossings * hop + (steps - crossings) * step
    if chooses and reduces_all and s.nodes > 1 and protocol == "Simple":
        us = us * known["plateau"][s.machine.gpu.architecture]

    slowest = min(links(s, chooses))
    if protocol == "LL":
        at_several, at_one = known["ll_share"]
        share = at_several if s.nodes > 1 or s.collective in ("all-reduce", "reduce") else at_one
        slowest = min(share * slowest, ll_total(s, known))
    if protocol == "LL128":
        alone, several = known["ll128_share"]
        cap = by_nodes(known["architecture"][s.machine.gpu.architecture]["ring_ll128"], s) * channels(s)
        slowest = min((alone if s.gpus == 1 else several) * slowest, cap)
    return Row(us, slowest / wire_share(s))


def depth(s: Setting, chooses: bool) -> int:
    """Levels of a binary tree over nodes; the library counts the logarithm, rounded down."""
    return math.floor(math.log2(s.nodes)) if chooses else math.ceil(math.log2(s.nodes))


def tree(s: Setting, protocol: str, chooses: bool) -> Row:
    known = of_version(s.version) if chooses else tables()
    p = {"LL": 0, "LL128": 1, "Simple": 2}[protocol]
    step = known["pcie_tree" if s.machine.gpu.name == "rtx-pcie" else "nvlink_tree"][p]
    if s.nodes > 1 and protocol == "LL":
        step = step * known["ll_inside_between_nodes"]
    us = known["base_tree"][p]
    us += 2 * (s.gpus - 1) * step  # up and down the chain of a node
    us += 2 * depth(s, chooses) * (known["network_tree"][p] + s.machine.nic.latency * 1e6)

    inside, between = links(s, chooses)
    if s.nodes == 2 and s.machine.inside != "mesh":
        between = 2 * between
    own = known["architecture"][s.machine.gpu.architecture]
    rate = min(known["tree_share"] * inside, known["tree_share"] * between, by_nodes(own["tree"], s) * channels(s))
    if protocol == "LL":
        rate = min(rate * known["tree_ll_share"], ll_total(s, known))
    if protocol == "LL128":
        rate = min(rate * by_nodes(known["tree_ll128_share"], s), by_nodes(own["tree_ll128"], s) * channels(s))
    return Row(us, rate / 2)


def nvls(s: Setting, chooses: bool) -> Row:
    known = of_version(s.version) if chooses else tables()
    n, (ring_inside, ring_between) = s.nodes * s.gpus, links(s, chooses)
    architecture, nics = s.machine.gpu.architecture, max(1, s.machine.nics * s.gpus // s.machine.gpus)
    if not chooses:
        inside = max(s.machine.gpu.multicast / 1e9 * s.gpus / (s.gpus + 1), ring_inside * s.gpus / (2 * s.gpus - 2))
        between = ring_between if s.nodes == 2 else ring_between / 2
    elif known["nvls_share"] > 0:
        inside = known["nvls_share"] * ring_inside
        between = known["nvls_share"] * (ring_between if s.nodes == 2 else ring_between / 2)
    else:
        to_algbw = n / (2 * n - 2)
        inside = known["nvls_efficiency"][architecture] * ring_inside * 2 * 15 / 16 * to_algbw
        two, more = known["nvlstree_channel"][architecture]
        if s.nodes == 2:
            between = min(2 * ring_between, two * nics) * to_algbw
        else:
            between = min(ring_between, more * nics) * to_algbw
    if s.nodes == 1:
        return Row(known["nvls"], inside)
    hop = known["network_nvlstree"][0] + s.machine.nic.latency * 1e6
    return Row(known["nvls"] + 2 * depth(s, chooses) * hop, min(inside, between))


def pat(s: Setting, chooses: bool) -> Row:
    known = of_version(s.version) if chooses else tables()
    hop = known["network_ring"][2] + s.machine.nic.latency * 1e6
    return Row(8 + depth(s, chooses) * hop / 3.5 + 2.8 * s.nodes * s.gpus, 0.75 * links(s, chooses)[1] / wire_share(s))


def sharp(s: Setting) -> Row:
    nics = max(1, s.machine.nics * s.gpus // s.machine.gpus)
    return Row(31, min(0.8 * nics * s.machine.nic.port / 1e9, 0.46 * links(s, False)[0]))


def messages(s: Setting) -> Row:
    n, reached, nic = s.nodes * s.gpus, s.reached, s.machine.nic
    nics = max(1, s.machine.nics * s.gpus // s.machine.gpus)
    inside = links(s, False)[0]
    if s.collective == "send/recv" and s.nodes == 1:
        return Row(reached.send, inside)
    if s.collective == "send/recv":
        ports = nics // s.gpus if nics > s.gpus else 1
        return Row(reached.send + nic.latency * 1e6, min(reached.network_channel, ports * nic.port * nic.reached / 1e9))
    if s.nodes == 1:
        return Row(reached.scatter, inside / ((n - 1) / n))
    to_others, to_own = (n - s.gpus) / n, (s.gpus - 1) / n
    ports = nics / s.gpus if nics >= s.gpus else 1 / -(-s.gpus // nics)
    rate = ports * nic.port * nic.messages / 1e9 / to_others
    if to_own:
        rate = min(rate, s.machine.gpu.ring / 1e9 / to_own)
    return Row(reached.send + reached.peer * n + nic.latency * 1e6, rate)


def menu(s: Setting) -> dict[tuple[str, str], tuple[Row, Row]]:
    """All that the library chooses among: on the machine, and as it believes; messages are not chosen."""
    found: dict[tuple[str, str], tuple[Row, Row]] = {}
    gpu = s.machine.gpu
    if s.collective in ("all-to-all", "send/recv"):
        return {("send/recv", "Simple"): (messages(s), Row(0.0, 1.0))}
    fast = s.nodes == 1 or s.machine.nic.ll128
    if gpu.architecture == "blackwell" and s.version < (2, 25):
        fast = False
    for protocol in ("LL", "LL128", "Simple"):
        if protocol == "LL128" and not fast:
            continue
        found["Ring", protocol] = ring(s, protocol, False), ring(s, protocol, True)
        if s.collective == "all-reduce":
            found["Tree", protocol] = tree(s, protocol, False), tree(s, protocol, True)
    if s.collective == "all-reduce":
        switched = gpu.multicast and s.machine.inside == "switch" and s.gpus > 1
        if switched and s.nodes == 1 and s.version >= (2, 17):
            found["NVLS", "Simple"] = nvls(s, False), nvls(s, True)
        if switched and s.nodes > 1 and s.version >= (2, 18):
            found["NVLSTree", "Simple"] = nvls(s, False), nvls(s, True)
        if s.nodes > 1 and "CollNet" in s.algorithms:
            found["CollNet", "Simple"] = sharp(s), sharp(s)
    if s.collective in ("all-gather", "reduce-scatter") and s.gpus == 1 and s.version >= (2, 23):
        found["PAT", "Simple"] = pat(s, False), pat(s, True)
    return found
