"""Random networks: with and without switches, of one or two directions, equal or unequal links."""

from __future__ import annotations

import random
from fractions import Fraction

from topologies import Topology, from_links


def random_fabric(seed: int, most: int = 10) -> Topology:
    """A network in which every NPU reaches every other, and every switch sends what it receives."""
    rng = random.Random(seed)
    n = rng.randint(2, most - 2)
    switches = rng.choice((0, 0, 1, 2))
    capacity: dict[tuple[int, int], int] = {}

    def add(cycle: list[int], rate: int) -> None:
        for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            if a != b:
                capacity[a, b] = capacity.get((a, b), 0) + rate

    nodes = list(range(n + switches))
    order = list(range(n))
    rng.shuffle(order)
    add(order, rng.randint(1, 4))
    for _ in range(rng.randint(1, 3 * n)):
        cycle = rng.sample(nodes, rng.randint(2, min(4, len(nodes))))
        add(cycle, rng.randint(1, 5))  # cycles keep every node balanced
    for switch in range(n, n + switches):
        add([rng.randrange(n), switch], rng.randint(1, 5))
    if rng.random() < 0.4:  # NPUs need not be balanced
        a, b = rng.sample(range(n), 2)
        capacity[a, b] = capacity.get((a, b), 0) + rng.randint(1, 3)
    links = [(a, b, f"{rate}GB/s", "100ns") for (a, b), rate in sorted(capacity.items())]
    return from_links(links, n, hop_latency="0s", name=f"random{seed}")


def boxes_of(count: int, size: int, fast: int, slow: int) -> Topology:
    """Boxes around a switch each, and a global switch: rates in GB/s."""
    n = count * size
    links = []
    for npu in range(n):
        for switch, rate in ((n + npu // size, fast), (n + count, slow)):
            links += [(npu, switch, f"{rate}GB/s", "100ns"), (switch, npu, f"{rate}GB/s", "100ns")]
    return from_links(links, n, hop_latency="0s", name=f"boxes{count}x{size}")


def hub(n: int) -> Topology:
    """NPU 0 joined to all others."""
    links = [(a, b, "1GB/s", "100ns") for leaf in range(1, n) for a, b in ((0, leaf), (leaf, 0))]
    return from_links(links, n, name="hub")


def leaf_spine(spines: int) -> Topology:
    """Four leaf switches of four NPUs, each leaf joined to every spine; all links 1 GB/s."""
    pairs = [(npu, 16 + npu // 4) for npu in range(16)]
    pairs += [(16 + leaf, 20 + spine) for leaf in range(4) for spine in range(spines)]
    return from_links([(x, y, "1GB/s", "100ns") for a, b in pairs for x, y in ((a, b), (b, a))], 16, name="leaf-spine")


EULERIAN = (
    "0>2:3 0>5:4 0>8:3 1>0:4 1>2:3 1>4:3 2>1:7 2>7:3 3>5:3 3>8:3 3>9:4 4>3:7 4>7:3 5>0:3 5>3:3 5>7:4 6>0:3 6>1:3 6>2:4 "
    "7>4:7 7>5:3 8>6:4 8>9:6 9>6:6 9>8:4"
)
SWITCHED = (
    "0-13:2 0-14:2 1-13:2 1-14:3 2-14:1 2-15:4 3-12:3 3-14:1 4-12:3 4-14:1 5-13:4 5-14:2 6-12:4 6-14:4 7-13:1 7-14:1 "
    "8-12:3 8-13:3 9-14:4 9-15:2 10-14:3 10-15:2 11-14:1 11-15:2 12-13:7 12-15:7 13-14:2 14-15:4"
)


def written(text: str, n_npus: int) -> Topology:
    """A network from words such as 0>2:3 (one way) or 0-2:3 (both ways), in GB/s."""
    links = []
    for word in text.split():
        ends, rate = word.split(":")
        both = "-" in ends
        a, b = map(int, ends.split("-" if both else ">"))
        links += [(x, y, f"{rate}GB/s", "100ns") for x, y in (((a, b), (b, a)) if both else ((a, b),))]
    return from_links(links, n_npus, name=f"written{n_npus}")


def one_way_ring(n: int) -> Topology:
    """A ring of one direction."""
    return from_links([(a, (a + 1) % n, "1GB/s", "100ns") for a in range(n)], n, name="one-way")


def balanced(topology: Topology) -> bool:
    """Whether every switch sends as much as it receives."""
    rates = [Fraction(rate) for rate in topology.bandwidth_Bps.tolist()]
    surplus = dict.fromkeys(range(topology.n_nodes), Fraction(0))
    for tail, head, rate in zip(topology.src.tolist(), topology.dst.tolist(), rates, strict=True):
        surplus[head] += rate
        surplus[tail] -= rate
    return all(surplus[node] == 0 for node in range(topology.n_npus, topology.n_nodes))
