from fractions import Fraction

import numpy as np
import pytest

from collectives.totient_rings import ring_jumps
from sim.engine.reference.engine import run_reference
from sim.scenarios.optical import bandwidth_tax, compute_ps, lower_bound_ps, simulate_iteration
from topologies import WeftError, circulant, fat_tree, from_links, switch
from workloads.topoopt import ONE_RING, Demand, Iteration, Rings, Transport, bert16, vgg16
from workloads.topoopt.measured import SUM_PS_PER_BYTE

MS = 10**9
LINKS = {"latency": "1us", "hop_latency": 0}


def on_rings(job, jumps, **transport):
    fabric = circulant(16, jumps, bandwidth="100Gb/s", **LINKS)
    return simulate_iteration(job, fabric, Rings(ring_jumps(fabric), {}), Transport(**transport)).time_ps


def on_tree(job, rate):
    fabric = fat_tree(4, bandwidth=f"{rate}Gb/s", **LINKS)
    return simulate_iteration(job, fabric, ONE_RING, Transport(tie="ecmp")).time_ps


def test_the_measured_workloads_add_up():
    vgg, bert = vgg16(), bert16()
    assert compute_ps(vgg.job()) == pytest.approx(100.4769 * MS, rel=1e-6)
    assert compute_ps(bert.job()) == pytest.approx(62.2018 * MS, rel=1e-6)
    assert Demand.of(vgg.job()).all_reduce == {16: 30 * 1_157_409_952}
    assert Demand.of(bert.job()).all_reduce == {16: 30 * 226_569_220}
    assert len(bert.job().operations) == 62 + 2 * 68  # each all-reduce behind the sum in its servers


@pytest.mark.parametrize(
    ("build", "jumps", "packets_ms"),
    [(bert16, (1,), 63.179720175), (bert16, (1, 3), 62.815131375), (bert16, (1, 5), 62.815131375),
     (bert16, (1, 3, 5, 9), 62.643560175), (vgg16, (1, 3), 100.480326542), (vgg16, (1, 3, 5, 9), 100.480326542)],
)
def test_between_the_bound_and_the_packet_level_value_on_rings(build, jumps, packets_ms):
    job = build()
    time_ps = on_rings(job, jumps)
    assert lower_bound_ps(job.job(), 2 * len(jumps) * 12.5e9) <= time_ps <= packets_ms * MS
    assert time_ps >= 0.999 * packets_ms * MS


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_the_tail_of_bert_lies_between_its_bound_and_the_packet_level_tail(degree):
    tail_ps = on_rings(bert16(), {2: (1,), 4: (1, 3), 8: (1, 3, 5, 9)}[degree]) - compute_ps(bert16().job())
    packets_ps = {2: 977.9, 4: 613.3, 8: 441.8}[degree] * 10**6
    block = Fraction(9437184, 16 * degree)
    bound = 9437184 * SUM_PS_PER_BYTE + 30 * (block / Fraction(12.5e9) * 10**12 + 2_000_000)
    assert bound <= tail_ps <= packets_ps
    # What is left is that blocks are sent in whole packets.
    packets = -(-block // 8936) * 8936
    assert bound + 30 * (packets - block) / Fraction(12.5e9) * 10**12 == pytest.approx(packets_ps, rel=2e-3)


@pytest.mark.parametrize(
    ("build", "rate", "packets_ms"),
    [(vgg16, 100, 210.773), (vgg16, 200, 132.352), (vgg16, 400, 100.490), (bert16, 100, 64.740),
     (bert16, 200, 63.523)],
)
def test_fat_tree_points(build, rate, packets_ms):
    job = build()
    time_ps = on_tree(job, rate)
    assert time_ps == pytest.approx(packets_ms * MS, rel=0.01)
    assert time_ps >= lower_bound_ps(job.job(), rate / 8 * 1e9)


def test_one_representative_is_exact():
    """A link that nobody uses takes the router of the circulant away, and with it the representative."""
    job = bert16()
    fabric = circulant(16, (1, 3), bandwidth="100Gb/s", **LINKS)
    quick = simulate_iteration(job, fabric, Rings(ring_jumps(fabric), {}))
    links = [(int(a), int(b), "12.5GB/s", "1us") for a, b in zip(fabric.src, fabric.dst, strict=True)]
    plain = from_links([*links, (0, 7, "12.5GB/s", "1us")], 16, hop_latency=0)
    full = simulate_iteration(job, plain, Rings(ring_jumps(fabric), {}))
    assert quick.ranks == [0] and full.ranks == list(range(16))
    assert quick.time_ps == full.time_ps
    assert bandwidth_tax(quick.lowered) == bandwidth_tax(full.lowered) == 1.0


def test_engines_agree():
    def add(to):
        last = to.compute("backward", 5_000_000, after=[to.compute("forward", 10_000_000)])
        to.gradients("backward", 4_000_000, last)
        to.gradients("backward", 100, last)

    job = Iteration("small", 4, add)
    fabric = switch(4, bandwidth="10GB/s", **LINKS)
    result = simulate_iteration(job, fabric, Rings((1, 3), {}))
    assert run_reference(result.lowered.program).finish_ps.tolist() == result.outcome.finish_ps.tolist()
    # The small one is a single round.
    rounds = [one.work.schedule.pattern.transfers().rounds[0].tolist() for one in result.job.operations[2:]]
    assert rounds == [[6, 2], [1, 2]]


def test_joined_rounds_keep_bytes_and_latencies():
    job = Iteration("one", 16, lambda to: to.gradients("step", 16 * 4 * 1000 * 30, to.compute("step", 0)))
    exact, joined = on_rings(job, (1, 3)), on_rings(job, (1, 3), most_rounds=10)
    assert joined == exact
    assert on_rings(job, (1, 3), acknowledged=False) == exact - 30 * 1_000_000


def test_bad_input_is_named():
    with pytest.raises(WeftError, match=r"VGG16-16 has 16 servers; switch:4 has 4 NPUs"):
        vgg16().job(switch(4))


def messages(*ends_and_bytes):
    """Two operations of 1 ms, the first of which sends to the second."""
    def add(to):
        to.compute("receive", MS, after=to.messages("receive", *map(np.array, ends_and_bytes), to.compute("send", MS)))

    return Iteration("messages", 8, add)


@pytest.mark.parametrize("routes", [1, 2, 3, 5])
def test_spread_messages_carry_the_same_bytes(routes):
    """Messages over several routes: as many bytes leave, and more links carry them."""
    fabric = circulant(8, (1, 3), bandwidth="100Gb/s", **LINKS)
    job = messages([0, 1, 5], [4, 2, 5], [1_000_003, 7, 11])
    one = simulate_iteration(job, fabric, ONE_RING)
    spread = simulate_iteration(job, fabric, ONE_RING, Transport(routes=routes))
    sends = [result.job.operations[1].work for result in (one, spread)]
    assert [sum(send.size_bytes) for send in sends] == [1_000_010, 1_000_010]
    assert bandwidth_tax(spread.lowered) >= bandwidth_tax(one.lowered)
    assert spread.time_ps == run_reference(spread.lowered.program).makespan_ps


def test_a_long_message_is_faster_over_two_routes():
    fabric = circulant(8, (1, 3), bandwidth="100Gb/s", **LINKS)
    job = messages([0], [4], [100_000_000])
    one, two = (simulate_iteration(job, fabric, ONE_RING, Transport(routes=k)).time_ps - 2 * MS for k in (1, 2))
    assert two == pytest.approx(one / 2, rel=0.01)


@pytest.mark.parametrize(("how", "said"), [({"routes": 0}, "0 routes per message"), ({"tie": "split"}, "'split'")])
def test_transports_that_mean_nothing_are_refused(how, said):
    with pytest.raises(WeftError, match=said):
        Transport(**how)
