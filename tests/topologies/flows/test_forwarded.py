"""The optimum past switches that receive less than they send, against the plain linear program."""

import random
from dataclasses import replace

import pytest

from tests import fabrics
from tests.oracles import forwarding
from topologies import from_links, from_spec
from topologies.flows.programs import balanced, best_roots, forwarded, sends_more
from topologies.flows.tightest_cut import broadcast_cut, gather_cut

SPECS = ("switch:2", "switch:3", "switch:4", "leaf-spine:2x2x1", "leaf-spine:3x1x2", "fat-tree:2")


def derated(t, seed):
    """Some links at a decimal part of their rate."""
    rng, rates = random.Random(seed), t.bandwidth_Bps.copy()
    for link in rng.sample(range(t.n_links), rng.randint(1, t.n_links)):
        rates[link] *= rng.choice((0.999, 0.5, round(rng.uniform(0.05, 1), 4)))
    return replace(t, name=f"derated{seed}", bandwidth_Bps=rates)


def cases(seeds):
    for seed in seeds:
        yield derated(from_spec(SPECS[seed % len(SPECS)]) if seed % 2 else fabrics.random_fabric(seed, 6), seed)


@pytest.mark.parametrize("root", [None, 0])
def test_the_bound_is_the_optimum_of_the_plain_program(root):
    below = 0
    for t in cases(range(120)):
        cut = gather_cut(t) if root is None else broadcast_cut(t, root)
        found, plain = forwarded(t, root), forwarding.gather_Bps(t, root)
        bound = cut.s_per_byte if found is None else found.s_per_byte
        assert bound >= cut.s_per_byte, t.name
        assert float(1 / bound) == pytest.approx(plain, rel=1e-7), t.name
        assert found is None or found.reached
        below += bound > cut.s_per_byte
    assert below > 5 or root is not None


def test_chosen_roots_are_the_optimum_of_the_plain_program():
    uneven = 0
    for t in cases(range(40)):
        assert best_roots(t).rate_Bps == pytest.approx(forwarding.all_reduce_Bps(t), rel=1e-6), t.name
        uneven += sends_more(t)
    assert uneven > 5


def test_what_each_switch_receives_of_whole_trees_it_can_send():
    for seed, t in enumerate(cases(range(40))):
        rng = random.Random(seed)
        most = [rng.randint(0, 9) for _ in range(t.n_links)]
        taken = balanced(t, most)
        assert all(0 <= one <= high for one, high in zip(taken, most, strict=True))
        for switch in range(t.n_npus, t.n_nodes):
            into, out = (sum(many for many, end in zip(taken, ends, strict=True) if end == switch)
                         for ends in (t.dst.tolist(), t.src.tolist()))
            assert into >= out, (t.name, switch)


def star(*up):
    """NPUs whose uplinks have these rates in GB/s, and downlinks 50."""
    n = len(up)
    ends = [end for npu, rate in enumerate(up) for end in ((npu, n, f"{rate}GB/s", 0), (n, npu, "50GB/s", 0))]
    return from_links(ends, n, name="star")


def test_one_slow_uplink_slows_all_by_its_part():
    t = star(49.95, 50, 50, 50)
    assert gather_cut(t).s_per_byte * 50 * 10**9 == 3
    assert forwarded(t).s_per_byte * 199_950_000_000 == 12  # 3 to each of 4, of what comes in


def test_a_broadcast_needs_what_all_uplinks_bring_together():
    assert forwarded(star(50, 10, 10, 10), 0).s_per_byte * 80 * 10**9 == 3
