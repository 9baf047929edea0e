"""Which chunk sizes meet which rates, and services beyond the clock that nobody ever asks for."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import ring as rings
from sim import simulate
from sim.faults.plan import FaultPlan, SlowLink, Straggler
from sim.lower.tenants import Tenant
from sim.program import Program, ProgramBuilder
from sim.program.contract import CLOCK_END_PS, DOWN
from sim.program.cutting import Cutting
from sim.program.disrupt import Disruptions, Phase, disrupt
from sim.program.service_table import pairs_that_meet, slowest_ps
from sim.scenarios.tenants import share_fabric
from tests.fault_strategies import faulty_programs
from tests.strategies import programs
from topologies import WeftError, ring
from topologies.units import PS_PER_S

SLOW = Fraction(1, 10**9)


def found_one_by_one(program: Program) -> set[tuple[int, int]]:
    """The obvious way: each task, each of its routes, each hop, each rate that its server ever has."""
    found = set()
    for task in range(program.n_tasks):
        routes = [int(program.task_route[task])]
        if program.detour_ptr.size:
            routes += program.detour_route[program.detour_ptr[task] : program.detour_ptr[task + 1]].tolist()
        for route in routes:
            for at in range(program.route_ptr[route], program.route_ptr[route + 1]):
                server = program.route_server[at]
                rates = [int(program.server_rate[server])]
                if program.timetable_ptr.size:
                    mine = slice(program.timetable_ptr[server], program.timetable_ptr[server + 1])
                    rates += program.timetable_rate[mine].tolist()
                sizes = program.cut_size[program.task_cut[task]].tolist()
                found |= {(size, rate) for size in sizes for rate in rates if rate != DOWN}
    return found


@settings(max_examples=60)
@given(st.one_of(programs(), faulty_programs()))
def test_sizes_and_rates_that_meet(program: Program) -> None:
    assert set(zip(*(of.tolist() for of in pairs_that_meet(program)), strict=True)) == found_one_by_one(program)


def two_servers(work: int, slow_work: int) -> ProgramBuilder:
    """A task on a server that does a unit a ps, and one on a server that does a unit in 1000 s."""
    builder = ProgramBuilder("store-and-forward")
    builder.task(work, [(builder.server(Fraction(PS_PER_S)), 0)], Cutting())
    builder.task(slow_work, [(builder.server(Fraction(1, 1000)), 0)], Cutting())
    return builder


def test_a_service_beyond_the_clock_that_nobody_asks_for() -> None:
    program = two_servers(10**6, 2).build()
    assert program.service_ps.max() == CLOCK_END_PS and slowest_ps(program) == 2000 * PS_PER_S
    with pytest.raises(WeftError, match=r"a chunk of 1000000 B at 0.001 B/s takes 1e\+09 s; the clock ends at"):
        two_servers(1, 10**6).build()


def test_a_slowed_service_counts_where_it_occurs() -> None:
    program = two_servers(10**6, 2).build()
    slowed = disrupt(program, Disruptions(phases={0: [Phase(0, SLOW)]}))
    assert slowest_ps(slowed) == 2000 * PS_PER_S and slowed.service_ps.max() == CLOCK_END_PS
    with pytest.raises(WeftError, match=r"with its faults a server could take .* for a chunk of 2 B"):
        disrupt(program, Disruptions(phases={1: [Phase(0, SLOW)]}))
    with pytest.raises(WeftError, match=r"with its faults a server could take .* for a chunk of 1000000 B"):
        disrupt(program, Disruptions(detours={0: [(5, ((1, 0),))]}))


@pytest.mark.parametrize("arrival", ["1s", "1000s"])
def test_an_arrival_is_no_chunk_of_a_slow_link(arrival: str) -> None:
    """Its clock is served by nothing but the clock, whatever the links of the fabric do."""
    work = rings.all_reduce(ring(2, bandwidth="1Mb/s"), "2KiB")
    tenants = [Tenant(name="a", work=work, arrival=arrival)]
    for engine in ("chunk", "reference"):
        (share,) = share_fabric(tenants, engine=engine, check=True).shares
        assert share.time_ps == share.alone_ps == simulate(work).time_ps
    late = FaultPlan(faults=(SlowLink(link="*", share=0.001), Straggler(npu="npu0", speed=0.001)))
    both = [
        share_fabric(tenants, engine=engine, check=True, faults=late).shares for engine in ("chunk", "reference")
    ]
    assert both[0] == both[1] and both[0][0].slowdown > 500
