"""A lower bound over all circuits that the ports of a fabric allow, all times of switching them, and all algorithms."""

from math import prod

import numpy as np

from collectives.core.collective import Collective
from sim.program.model import Model
from topologies import Topology
from topologies.core.epochs import packet_links
from topologies.units import PS_PER_S


def circuits_bound_ps(
    fabric: Topology, kind: Collective, size_bytes: int, model: Model = Model(), *, least_changes: int = 0
) -> int:
    """No algorithm on any circuits is faster; of those with at least some changes of circuits.

    With c changes of the whole fabric, whatever they are, c delays pass in the dark. What a server has can have reached
    1 + P + ... + P^h servers after h hops on the circuits of one epoch, and as many times more in the next; hops take
    their latency. Each server must send and receive what the collective asks of it, over P ports, of which one stays
    free where all ports of all servers are an odd number and circuits take one at both ends. Of an all-to-all, P
    destinations more are one hop away in each epoch, and the bytes for others cross two circuits or more: with enough
    changes, none does. On one set of circuits, what comes from beyond h hops arrives after the latency of h hops and
    takes its time.

    Where only ports that change are dark, others may carry everything meanwhile, and one delay is all that any change
    takes. Where NPUs have links to switches as well, they are one hop apart, and send over these too.
    """
    optics, n, size = fabric.optics, kind.group_size or fabric.n_npus, size_bytes
    assert optics is not None
    if n == 1:
        return 0
    beside = packet_links(fabric)
    packets_Bps = np.bincount(fabric.src[beside], fabric.bandwidth_Bps[beside], fabric.n_nodes)[: fabric.n_npus].max()
    rate_Bps = optics.ports * optics.rate_Bps + float(packets_Bps)
    ps_per_byte = 0.0 if model.deliver == "head" else PS_PER_S / rate_Bps
    link_ps = int(fabric.latency_ps.min()) if fabric.n_links else 0
    first_ps = link_ps + model.endpoint_latency_ps
    hop_ps = link_ps + min(int(fabric.hop_latency_ps.min()), model.endpoint_latency_ps)
    share = size * (n - 1) / n
    moved = {
        "all-reduce": 2 * share, "reduce-scatter": share, "all-gather": share, "broadcast": size, "reduce": size,
        "gather": share, "scatter": share,
    }.get(kind.name, 0.0)
    if beside.any():
        own = (share if kind.name == "all-to-all" else moved) * ps_per_byte
        if n == fabric.n_npus and optics.rails > 1:  # what leaves a box, by all its circuits
            part = (n - optics.rails) / (n - 1)
            each = share * part if kind.name == "all-to-all" else moved * part * (n / optics.rails) / n
            own = max(own, each * PS_PER_S / (optics.ports * optics.rate_Bps))
        return int(max(first_ps, own) * (1 - 1e-12))
    whole, ends = n == fabric.n_npus, n * optics.ports
    idle = whole and optics.duplex and ends % 2 and not kind.rooted  # one end, at every moment
    found = []
    most_changes = max(n.bit_length(), (n - 1) // optics.ports)  # beyond, bytes and hops are the fewest there can be
    for changes in range(least_changes, most_changes + 1):
        epochs = changes + 1
        reach_ps = first_ps + hop_ps * (_hops(n, optics.ports, epochs) - 1)
        bytes_ = _hop_bytes(n, optics.ports, epochs, size / n) if kind.name == "all-to-all" else moved
        time_ps = max(reach_ps, bytes_ * ps_per_byte * ends / (ends - bool(idle)) + first_ps)
        if changes == 0 and kind.name in ("all-gather", "reduce-scatter", "broadcast", "reduce"):
            each = size / n if kind.name in ("all-gather", "reduce-scatter") else 0.0
            for hops in range(1, n):
                left = n - _within(optics.ports, hops - 1)
                if left <= 0:
                    break
                time_ps = max(time_ps, first_ps + hop_ps * (hops - 1) + left * each * ps_per_byte)
        if changes == 0 and kind.name == "all-reduce" and optics.ports == 1 and whole:
            time_ps = max(time_ps, _around_ps(n, hop_ps, first_ps, size * ps_per_byte))
        dark = changes + optics.paid if changes else 0  # what never changes is up, and pays nothing
        if optics.per_port:
            time_ps = max(time_ps, first_ps + optics.delay_ps) if dark else time_ps
        else:
            time_ps += dark * optics.delay_ps
        found.append(time_ps)
    return int(min(found) * (1 - 1e-12))


def _within(ports: int, hops: int) -> int:
    """The most servers within some hops on one set of circuits, the first included."""
    return sum(ports**hop for hop in range(hops + 1))


def _hops(n: int, ports: int, epochs: int) -> int:
    """The fewest hops after which what one server has may be everywhere."""
    hops = 1
    while prod(_within(ports, hops // epochs + (epoch < hops % epochs)) for epoch in range(epochs)) < n:
        hops += 1
    return hops


def _hop_bytes(n: int, ports: int, epochs: int, each: float) -> float:
    """Bytes of an all-to-all times the circuits that they cross, for each server."""
    if epochs > 1:
        direct = min(n - 1, ports * epochs)
        return each * (direct + 2 * (n - 1 - direct))
    left, hops, total = n - 1, 1, 0
    while left > 0:
        near = min(left, ports**hops)
        total += near * hops
        left, hops = left - near, hops + 1
    return each * total


def _around_ps(n: int, hop_ps: int, first_ps: int, array_ps: float) -> float:
    """Least time of an all-reduce on n servers each of which has one circuit, to the next of a ring.

    What server i has reaches the one behind it after n - 1 hops. If all ends after s hops more, a message that has it
    in time leaves the server d hops on between hops d and d + s, so that one message has at most s + 1 servers' parts
    of an element in time: of each element at least (n - 1) / (s + 1) messages cross a circuit, whatever they add up.

    `array_ps`: what the whole array takes on a circuit.
    """
    return min(max((n - 1 + late) * hop_ps, first_ps + array_ps * -(-(n - 1) // (late + 1))) for late in range(n - 1))
