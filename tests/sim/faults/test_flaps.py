"""What a plan of many entries costs is the entries themselves: every path around a break is made once."""

import itertools
from collections import Counter

import numpy as np
import pytest

from collectives import direct
from sim import simulate
from sim.faults import apply
from sim.faults.plan import FaultPlan, LinkDown, Repair
from topologies import torus


@pytest.mark.parametrize("flaps", [1, 40])
def test_a_detour_is_made_once_however_often_it_is_taken(monkeypatch, flaps):
    """Paths, and the routes they become, are as many for forty breaks of a cable as for one."""
    fabric, made, path = torus((4, 4)), Counter(), apply._path

    def counted(lowered, server_of, known, links, *ends):
        made[links] += 1
        return path(lowered, server_of, known, links, *ends)

    monkeypatch.setattr(apply, "_path", counted)
    entries = [entry for i in range(flaps) for entry in (
        LinkDown(link="npu0--npu1", at=f"{8 * i + 1}ns"), Repair(link="npu0--npu1", at=f"{8 * i + 5}ns"))]
    plan = FaultPlan(faults=tuple(entries), reroute="1ns")
    result = simulate(direct.all_to_all(fabric, "64KiB"), faults=plan)
    program = result.lowered.program
    assert set(made.values()) == {1}
    assert 0 < program.detour_from_ps.size == 2 * flaps * np.count_nonzero(np.diff(program.detour_ptr))


def test_shares_of_packets_are_those_of_exact_division():
    """Also of sizes whose product with a count is beyond 64 bits, in any order of packets, beside what has no bytes."""
    sizes = [7, 2**62 - 1, 0, 10]
    source = np.array([1, 0, -1, 3, 1, 1, 0, 3, 1, 0, 3, -1], np.int64)
    first = np.array([1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 0], bool)
    shares = apply._shares(np.array(sizes), source, first).tolist()
    for task, size in enumerate(sizes):
        mine = np.flatnonzero(first & (source == task)).tolist()
        ends = [place * size // len(mine) for place in range(len(mine) + 1)] if mine else []
        assert [shares[row] for row in mine] == [end - begin for begin, end in itertools.pairwise(ends)]
    assert not any(share for share, row in zip(shares, first & (source >= 0), strict=True) if not row)
