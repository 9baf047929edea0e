"""Circuits that change: one network with the circuits of every epoch, each a link of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError
from topologies.core.paths import Ints, Paths
from topologies.core.topology import Topology

Port = tuple[str, int]


@dataclass(frozen=True)
class NamedRouter:
    """Routes nothing: which circuits are up changes, so that each transfer names its own."""

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """No links for nodes that send to themselves.

        WeftError: any other pair.
        """
        if np.any(src != dst):
            pair = int(np.flatnonzero(src != dst)[0])
            ends = (topology.node_name(int(end[pair])) for end in (src, dst))
            raise WeftError(f"the circuits of {topology.name} change: name those from {' to '.join(ends)}")
        return Paths(np.zeros(src.size + 1, np.int64), np.zeros(0, np.int32), np.arange(src.size))


def packet_links(topology: Topology) -> npt.NDArray[np.bool_]:
    """Links of a switch, which stay up whatever happens to the circuits between NPUs, (n_links,)."""
    return (topology.src >= topology.n_npus) | (topology.dst >= topology.n_npus)


class Change(NamedTuple):
    """A change of circuits that waits for what crosses `down`, and for which what crosses `up` waits."""

    name: str
    down: tuple[int, ...]  # links
    up: tuple[int, ...]  # links
    controller: str
    after: tuple[int, ...]  # earlier changes, by their place


@dataclass(frozen=True, eq=False)
class Epochs:
    """Fabrics that follow each other, as one network."""

    fabrics: tuple[Topology, ...]  # what is up in each epoch
    topology: Topology  # all circuits that are ever up
    links: tuple[Ints, ...]  # link of `topology` for each link of each fabric

    def route(self, epoch: int, src: Sequence[int], dst: Sequence[int]) -> list[list[int]]:
        """Links of `topology` from each source to each destination while an epoch lasts.

        WeftError: the circuits of the epoch do not join a pair.
        """
        paths = self.fabrics[epoch].paths(np.array(src, np.int64), np.array(dst, np.int64))
        links = self.links[epoch][paths.links].tolist()
        return [links[low:high] for low, high in zip(paths.ptr[:-1].tolist(), paths.ptr[1:].tolist(), strict=True)]

    def turned(self, before: int | None, after: int, per_port: bool) -> tuple[set[int], set[int]]:
        """Links that go down from one epoch to another, and those that come up: all circuits, or those that differ."""
        stay = set(np.flatnonzero(packet_links(self.topology)).tolist())
        old, new = (set[int]() if at is None else set(self.links[at].tolist()) - stay for at in (before, after))
        return (old - new, new - old) if per_port else (old, new)

    def changes(self, *, per_port: bool = False, paid: bool = False) -> list[Change]:
        """The changes from each epoch to the next.

        `per_port`: of single circuits, each waiting for all that has left its two ports; needs epochs that keep
            circuits. Otherwise of the whole fabric.
        `paid`: whether the circuits of the first epoch have to come up as well.
        """
        found: list[Change] = []
        left: dict[Port, list[int]] = {}  # circuits that are gone, by port
        taken: dict[Port, list[int]] = {}  # changes that came to the port last
        for epoch in range(0 if paid else 1, len(self.fabrics)):
            old, new = self.turned(epoch - 1 if epoch else None, epoch, per_port)
            if not per_port:
                before = (len(found) - 1,) if found else ()
                name = f"switch to {self.fabrics[epoch].name}"
                found.append(Change(name, tuple(sorted(old)), tuple(sorted(new)), "optical controller", before))
                continue
            for link in old:
                for port in self._ends(link):
                    left.setdefault(port, []).append(link)
            came: dict[Port, list[int]] = {}
            for link in sorted(new):
                ports = self._ends(link)
                name = self.topology.link_name(link)
                down, after = (tuple(one for port in ports for one in of.get(port, ())) for of in (left, taken))
                found.append(Change(f"switch to {name}", down, (link,), f"{name} of epoch {epoch}", after))
                for port in ports:
                    came.setdefault(port, []).append(len(found) - 1)
            # Whoever comes to these ports later waits for these changes, and so for all that they waited for.
            taken |= came
            for port in came:
                left.pop(port, None)
        return found

    def _ends(self, link: int) -> tuple[Port, Port]:
        return ("out", int(self.topology.src[link])), ("in", int(self.topology.dst[link]))


def circuit_epochs(
    fabrics: Sequence[Topology], *, keep: bool = False, reuse: bool = False, name: str = ""
) -> Epochs:
    """One network of fabrics that follow each other on the same nodes.

    `keep`: whether a circuit of equal ends and rate that the next fabric has as well is the same link, which stays up.
    `reuse`: whether a circuit of equal ends and rate of any fabric before is the same link, which comes back.
    `name`: of the network.
    WeftError: no fabric, or fabrics of different nodes.

    Examples
    --------
    >>> from topologies import ring
    >>> circuit_epochs([ring(4), ring(4)]).topology.n_links
    16
    """
    if not fabrics:
        raise WeftError("circuits that change need at least one fabric")
    first = fabrics[0]
    for other in fabrics:
        if not (np.array_equal(other.kind, first.kind) and np.array_equal(other.hop_latency_ps, first.hop_latency_ps)):
            raise WeftError(f"circuits cannot change from {first.name} to {other.name}: they are not on the same nodes")
    rows: list[tuple[int, int]] = []  # fabric and link of each circuit
    numbers: list[Ints] = []
    before: dict[tuple[int, int, float], int] = {}
    for at, fabric in enumerate(fabrics):
        up: dict[tuple[int, int, float], int] = {}
        number = np.zeros(fabric.n_links, np.int64)
        stays = packet_links(fabric)
        for link, key in enumerate(zip(
            fabric.src.tolist(), fabric.dst.tolist(), fabric.bandwidth_Bps.tolist(), strict=True
        )):
            known = (keep or reuse or stays[link]) and key in before
            if not known:
                rows.append((at, link))
            number[link] = up[key] = before[key] if known else len(rows) - 1
        numbers.append(number)
        before = before | up if reuse else up
    src, dst, rate, latency = (
        np.array([getattr(fabrics[at], column)[link] for at, link in rows], getattr(first, column).dtype)
        for column in ("src", "dst", "bandwidth_Bps", "latency_ps")
    )
    order = np.lexsort((dst, src))  # as a topology sorts its links
    packets = (src >= first.n_npus) | (dst >= first.n_npus)
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    tiers = np.where(packets[order], 0, 1) if packets.any() else -1
    topology = Topology(
        name=name or f"{len(fabrics)} epochs from {first.name}",
        kind=first.kind.copy(), src=src, dst=dst, bandwidth_Bps=rate, latency_ps=latency,
        hop_latency_ps=first.hop_latency_ps.copy(), dimension=np.full(len(rows), tiers, np.int16), shape=first.shape,
        coords=first.coords.copy(), router=NamedRouter(), node_names=first.node_names, optics=first.optics,
    )
    return Epochs(tuple(fabrics), topology, tuple(place[number] for number in numbers))
