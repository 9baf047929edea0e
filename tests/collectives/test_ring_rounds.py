import pytest

from collectives import ring_rounds, totient_rings
from collectives.totient_rings import ring_jumps
from sim.engine.reference.engine import run_reference
from sim.program.model import Model
from sim.simulation import simulate
from topologies import WeftError, circulant, ring, switch
from workloads.job import Job

LINKS = {"bandwidth": "100Gb/s", "latency": "1us", "hop_latency": 0}


def time_ps(schedule, symmetry="auto", npus=None):
    job = Job(schedule.topology)
    job.collective("gradients", schedule, npus=npus)
    return simulate(job, model=Model(chunks=1), symmetry=symmetry, check=True).time_ps


@pytest.mark.parametrize("jumps", [(1,), (1, 15), (1, 3, 13, 15)])
@pytest.mark.parametrize("size", [16 * 4 * 1000, 10_000_123])
def test_one_transfer_per_rank_takes_as_long_as_one_per_round(jumps, size):
    fabric = circulant(16, (1, 3), **LINKS)
    every = totient_rings.all_reduce(fabric, size, jumps=jumps, element_bytes=1)
    few = ring_rounds.all_reduce(fabric, size, jumps=jumps)
    assert time_ps(few) == time_ps(few, "off") == time_ps(every)
    assert few.pattern.transfers().src.size * 30 == every.pattern.transfers().src.size


def test_joined_rounds_keep_bytes_and_latencies():
    fabric = circulant(16, (1, 3), **LINKS)
    size, jumps = 16 * 4 * 1000 * 30, ring_jumps(fabric)
    exact = time_ps(ring_rounds.all_reduce(fabric, size, jumps=jumps, acknowledged=True))
    joined = ring_rounds.all_reduce(fabric, size, jumps=jumps, acknowledged=True, most_rounds=10)
    assert time_ps(joined) == exact
    assert time_ps(ring_rounds.all_reduce(fabric, size, jumps=jumps)) == exact - 30 * 1_000_000
    once = time_ps(ring_rounds.all_reduce(fabric, size, jumps=jumps, one_round=True, acknowledged=True))
    assert once == exact - 29 * 2_000_000


def test_a_group_in_any_order():
    fabric = switch(8, **LINKS)
    alone = time_ps(ring_rounds.all_reduce(switch(3, **LINKS), 300_000, jumps=(1, 2)))
    members = ring_rounds.all_reduce(fabric, 300_000, jumps=(1, 2), group=(6, 0, 3))
    assert time_ps(members, npus=(0, 3, 6)) == alone
    with pytest.raises(WeftError, match="covers a part of a process group"):
        time_ps(members, npus=(0, 3))


def test_engines_agree_and_what_follows_waits_for_every_round():
    job = Job(switch(4, **LINKS))
    backward = job.compute("backward", 5_000_000)
    reduce = job.collective(
        "gradients", ring_rounds.all_reduce(job.topology, 4_000_000, jumps=(1, 3), acknowledged=True), after=[backward]
    )
    job.compute("next", 1_000_000, after=[reduce])
    result = simulate(job, model=Model(chunks=1))
    assert run_reference(result.lowered.program).finish_ps.tolist() == result.outcome.finish_ps.tolist()
    spans = {span.operation: span for span in result.spans()}
    assert spans[0].end_ps == spans[1].start_ps < spans[1].end_ps == spans[2].start_ps


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ring_rounds.all_reduce(ring(4), 100, jumps=(2,)), "the jump 2 does not visit all 4 ranks"),
        (lambda: ring_rounds.all_reduce(ring(4), 100, jumps=(1,), most_rounds=0), "at most 0 rounds: at least 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(WeftError, match=message):
        call()
