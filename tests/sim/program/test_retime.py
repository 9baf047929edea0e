"""Other rates and latencies on the same structure: what changes, and that nothing else does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from collectives import build
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.model import Model
from sim.program.retime import KEEPS_ITS_RATE, retime
from topologies import from_links, from_spec

CHAIN = from_links([(0, 1, "10GB/s", "7ns"), (1, 2, "20GB/s", "5ns"), (2, 0, "10GB/s", "3ns")], 3, hop_latency="0s")


def test_more_latency_is_that_of_a_transfer_and_not_of_a_hop() -> None:
    """A route of two hops takes it once: a message from 0 to 2, and one from 0 to 1."""
    for dst in (1, 2):
        schedule = build("direct", "all-to-all", CHAIN, "3kB")
        program = lower(schedule, Model(chunks=1), "off").program
        only = np.flatnonzero(np.diff(program.route_ptr)[program.task_route] == dst)
        assert only.size
        rates = np.full(program.n_servers, KEEPS_ITS_RATE)
        later = retime(program, [], rates, more_latency_ps=1_000_000)
        last = program.hop_last > 0
        assert np.array_equal(later.hop_latency_ps - program.hop_latency_ps, 1_000_000 * last)
        assert run(later).makespan_ps == run(program).makespan_ps + 1_000_000


def test_servers_keep_their_rates_or_have_one_of_the_new_ones() -> None:
    program = lower(build("direct", "all-to-all", CHAIN, "3kB"), Model(chunks=1), "off").program
    which = np.full(program.n_servers, KEEPS_ITS_RATE)
    which[0] = 1
    changed = retime(program, [Fraction(10**9), Fraction(5 * 10**9)], which)
    assert np.array_equal(changed.server_rate[1:] >= 2, np.ones(program.n_servers - 1, bool))
    assert changed.server_rate[0] == 1
    assert run(changed).makespan_ps > run(program).makespan_ps


@pytest.mark.parametrize("rate_GBps", [3.0, 31 / 7])
def test_other_rates_are_those_of_a_program_made_anew(rate_GBps: float) -> None:
    fast, slow = (
        lower(build("ring", "all-gather", from_spec("ring:5", f"{one!r}B/s"), 1009), Model(chunks=3), "off").program
        for one in (1e9, rate_GBps * 1e9)
    )
    again = retime(fast, [Fraction(rate_GBps * 1e9)], np.zeros(fast.n_servers, int))
    assert run(again).makespan_ps == run(slow).makespan_ps != run(fast).makespan_ps
