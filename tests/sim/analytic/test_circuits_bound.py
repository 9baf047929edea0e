"""The bound over all circuits, beside what exhaustive searches find on few servers."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from collectives import build
from collectives.core.collective import collective
from sim import simulate
from sim.analytic.circuits_bound import circuits_bound_ps
from topologies import from_spec
from topologies.optics import all_states


@pytest.mark.parametrize(("n", "ports"), [(3, 3), (4, 3), (5, 2), (5, 3), (6, 2)])
def test_an_all_to_all_on_duplex_ports_that_change_at_once_reaches_the_bound(n, ports):
    """The least time over all mixtures of all circuits is a linear program: each pair has one for its bytes."""
    fabric = from_spec(f"ocs:{n}x{ports},duplex,delay=0s", "50GB/s", "0s", "0s")
    states = all_states(fabric)
    assert states is not None
    pairs = np.triu_indices(n, 1)
    up = states.circuits[:, *pairs].T
    best = linprog(np.ones(up.shape[1]), A_ub=-up, b_ub=-np.ones(len(up)))
    each_ps = 1_000_000 * 20  # 20 ps for each byte
    bound_ps = circuits_bound_ps(fabric, collective("all-to-all"), n * 1_000_000)
    assert bound_ps == pytest.approx(best.fun * each_ps, abs=1)
    assert best.fun == pytest.approx(len(pairs[0]) / (n * ports // 2))


@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter", "all-gather", "broadcast"])
def test_one_port_of_an_odd_number_stays_free_unless_a_root_has_all_of_its_own(kind):
    odd, even = (from_spec(f"ocs:5x3{duplex},delay=0s", "50GB/s", "0s", "0s") for duplex in (",duplex", ""))
    bounds = [circuits_bound_ps(fabric, collective(kind), 64_000_000) for fabric in (odd, even)]
    assert bounds[0] / bounds[1] == pytest.approx(1 if kind == "broadcast" else 15 / 14, rel=1e-6)


def _sums(known: set[int]) -> set[int]:
    """All sums of parts that no server is in twice."""
    while more := {a | b for a in known for b in known if not a & b} - known:
        known = known | more
    return known


def _ends(n: int, hops: int, sent: tuple[tuple[int, int], ...]) -> bool:
    """Whether all know the whole sum after some hops round a ring, when server 0 sends only some sums at some hops."""
    known = [{1 << server} for server in range(n)]
    for hop in range(hops):
        gone = [{part for at, part in sent if at == hop} & known[0], *known[1:]]
        known = [_sums(known[server] | gone[server - 1]) for server in range(n)]
    return all((1 << n) - 1 in one for one in known)


@pytest.mark.parametrize(("n", "late"), [(2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2), (5, 1), (5, 2), (5, 3)])
def test_an_all_reduce_round_a_ring_sends_as_many_messages_as_its_lateness_allows(n, late):
    """Others send all that they know; server 0 sends too little with one message fewer than the bound counts."""
    least, hops = -(-(n - 1) // (late + 1)), n - 1 + late
    parts = [(hop, part) for hop in range(hops)
             for part in sorted(_sums({1 << -back % n for back in range(min(hop + 1, n))}))]
    assert not any(_ends(n, hops, sent) for sent in combinations(parts, least - 1))
    assert any(_ends(n, hops, sent) for sent in combinations(parts, least))


@pytest.mark.table
@pytest.mark.parametrize("size", ["1KiB", "16KiB", "64KiB", "256KiB"])
@pytest.mark.parametrize("n", [2, 3, 7, 16])
def test_no_all_reduce_round_a_ring_is_below_the_bound(n, size):
    fabric = from_spec(f"ocs:{n}x1,delay=1s", "50GB/s", "100ns", "0s")
    for name, form in (("ring", None), ("recursive-doubling", "latency"), ("bruck", None), ("pipelined", "two-phase")):
        try:
            schedule = build(name, "all-reduce", fabric, size, form)
        except ValueError:  # not of this number of servers, or no all-reduce
            continue
        for chunks in (1, 8):
            time_ps = simulate(schedule, chunks=chunks, forwarding="cut-through").time_ps
            assert circuits_bound_ps(fabric, schedule.kind, schedule.size_bytes) <= time_ps


def test_the_bound_of_a_ring_counts_the_messages_of_a_small_array():
    """Of 64 KiB on 64 servers: 12 hops more than the fewest let five arrays cross a circuit; 6.3 us by hops alone."""
    fabric = from_spec("ocs:64x1,delay=25ms", "50GB/s", "100ns", "0s")
    assert circuits_bound_ps(fabric, collective("all-reduce"), 65536) == 7_499_999
