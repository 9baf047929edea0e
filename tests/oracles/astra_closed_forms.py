"""Cycles of ASTRA-sim's collectives where nothing waits for a link, one stream after the other: plain sums.

c is the time of a message, e the endpoint delay, r that of a reduction. The forms are those that agree with ASTRA-sim
itself (`docs/guides/astra-sim.md`).
"""

from __future__ import annotations

GIB_PER_NS = 2**30 / 1e9


def message_ns(size: int, bandwidth: float, latency: float, hops: int = 1) -> int:
    """One message over hops that are free."""
    return hops * int(latency + size / (bandwidth * GIB_PER_NS))


def reduction_ns(size: int, memory: float) -> int:
    """Two reads and a write of a message, at a memory bandwidth in 10^9 B/s."""
    return 3 * int(size / (memory * 1e9) * 1e9)


def ring(kind: str, n: int, d: int, e: int, bandwidth: float, latency: float, memory: float, hops: int = 1) -> int:
    """One stream of d bytes on n NPUs."""
    m = d if kind == "all-gather" else d // n
    c, r = message_ns(m, bandwidth, latency, hops), reduction_ns(m, memory)
    return {
        "all-reduce": e + 2 * (n - 1) * (c + e) + (n - 1) * r,
        "reduce-scatter": e + (n - 1) * (c + e + r),
        "all-gather": e + (n - 1) * (c + e),
        "all-to-all": e + n * (n - 1) // 2 * (c + e),
    }[kind]


def direct_fully_connected(kind: str, n: int, d: int, e: int, bandwidth: float, latency: float, memory: float) -> int:
    """One stream of d bytes, every pair with a link of its own."""
    m = d if kind == "all-gather" else d // n
    c, r = message_ns(m, bandwidth, latency), reduction_ns(m, memory)
    return {
        "all-reduce": 2 * c + 3 * e + r, "reduce-scatter": c + 2 * e + r, "all-gather": c + 2 * e,
        "all-to-all": c + 2 * e,
    }[kind]


def halving_doubling(n: int, d: int, e: int, bandwidth: float, latency: float, memory: float, hops: int = 1) -> int:
    """An all-reduce of d bytes, d and n powers of two, without contention."""
    rounds = n.bit_length() - 1
    sizes = [d >> k for k in range(1, rounds + 1)]
    exchanged = sum(2 * (message_ns(m, bandwidth, latency, hops) + e) for m in sizes)
    # a reduction is charged before the next message, for the size of that one; the last is not
    return e + exchanged + sum(reduction_ns(m, memory) for m in sizes[1:])
