import random
from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import simulate
from sim.lower.job import lower
from sim.scenarios import follow_demand as module
from sim.scenarios.follow_demand import WHOLE_CHUNKS, _Follower, follow_demand, greedy_circuits
from topologies import WeftError, from_spec, optical, torus
from workloads.job import Job, Reconfigure, Send
from workloads.topoopt import ROUNDS, Carriage, Iteration, Rings, Transport, vgg16


@given(st.integers(2, 9), st.integers(2, 5), st.data())
@settings(max_examples=80, deadline=None)
def test_greedy_circuits_fit_the_interfaces_and_join_all(n, degree, data):
    wishes = data.draw(st.lists(st.integers(0, 5), min_size=n * n, max_size=n * n))
    demand = np.array(wishes, float).reshape(n, n)
    np.fill_diagonal(demand, 0)
    pairs = greedy_circuits(demand, degree, random.Random(1))
    optical(n, degree, pairs)
    assert nx.is_connected(nx.Graph(pairs)) and len(nx.Graph(pairs)) == n


def test_greedy_gives_the_most_to_the_most_wanted():
    demand = np.zeros((4, 4))
    demand[0, 1], demand[2, 3], demand[0, 2] = 8, 1, 3
    pairs = Counter(greedy_circuits(demand, 3, random.Random(1)))
    assert pairs[0, 1] == pairs[2, 3] == 2 and pairs[0, 2] == 1


def iteration(size=4_000_000):
    def add(to: Carriage) -> None:
        first = to.compute("a", 1_000_000_000)
        to.gradients("a", size, first)
        to.compute("b", 10**9, after=[first])

    return Iteration("job", 8, add)


def job(one, delay, rings, *, ports=4, n=8):
    fabric = from_spec(f"ocs:{n}x{ports},duplex,delay={delay},circuits={n}", "100Gb/s", "1us", 0)
    return one.job(fabric, Rings(rings, {}), Transport(all_reduce=ROUNDS))


@pytest.mark.parametrize("rings", [(1,), (1, 7)])
def test_everything_is_delivered_and_certified(rings):
    whole = follow_demand(job(iteration(), "100us", rings))
    sends = [one.work for one in whole.operations if isinstance(one.work, Send)]
    assert sum(sum(send.size_bytes) for send in sends) == 8 * len(rings) * 14 * (500_000 // len(rings))
    assert any(isinstance(one.work, Reconfigure) for one in whole.operations)
    found = simulate(whole, model=WHOLE_CHUNKS, check=True)
    assert found.time_ps >= 2 * 10**9
    assert found.time_ps == simulate(whole, model=WHOLE_CHUNKS, engine="reference").time_ps


@pytest.mark.parametrize(("rings", "n", "ports", "size"), [((1,), 8, 4, 2_000_000), ((1, 6), 7, 5, 2_777_777)])
def test_what_was_simulated_before_is_as_if_simulated_again(
    rings: tuple[int, ...], n: int, ports: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def followed(forgets: bool) -> tuple[Job, int]:
        lowered = []
        follower = _Follower(job(replace(iteration(size), n=n), "2us", rings, ports=ports, n=n), WHOLE_CHUNKS, 1)
        if forgets:
            follower.moved = Forgetful()
        monkeypatch.setattr(module, "lower", lambda *all: lowered.append(all) or lower(*all))
        return follower.run(), len(lowered)

    (whole, times), (again, more) = followed(False), followed(True)
    assert whole.operations == again.operations and times < more, (times, more)


class Forgetful(dict):
    """Returns what was put in once."""

    def __getitem__(self, key):
        return self.pop(key)


def test_it_never_beats_the_bytes_over_all_interfaces():
    found = simulate(follow_demand(job(iteration(40_000_000), "1ms", (1, 7, 3, 5))), model=WHOLE_CHUNKS)
    assert found.time_ps >= 10**9 + 2 * 7 / 8 * 40_000_000 / (4 * 12.5e9) * 1e12


@pytest.mark.full
def test_one_ring_loses_to_static_rings_on_vgg():
    """163.35 ms at packet level."""
    whole = follow_demand(job(vgg16(), "10ms", (1,), n=16))
    assert sum(isinstance(one.work, Reconfigure) for one in whole.operations) == 3
    time_ps = simulate(whole, model=WHOLE_CHUNKS).time_ps
    assert 1.2 * 100_480_326_542 < time_ps == 149_479_196_800


def test_bad_input_is_named():
    with pytest.raises(WeftError, match="need a reconfiguration delay above zero"):
        follow_demand(job(iteration(), "0s", (1,)))
    with pytest.raises(WeftError, match="duplex, such as ocs:16x4,duplex; not torus:4"):
        follow_demand(Job(torus((4,))))
    waits = job(iteration(), "1ms", (1,))
    waits.compute("c", 1, after=[len(waits.operations) - 1])
    with pytest.raises(WeftError, match="operation 'c': circuits follow the demand of messages"):
        follow_demand(waits)
