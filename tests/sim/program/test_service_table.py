"""Service times of sizes and rates: packed or dense, pairs that meet have their own, and all engines run as before."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim import Result, simulate
from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.faults.plan import FaultPlan, LinkDown, SlowLink, Straggler
from sim.program import I64, WHOLE, Columns, Cutting, Program, ProgramBuilder, service_time_ps
from sim.program.assemble import assemble, with_rates
from sim.program.disrupt import Disruptions, Phase, disrupt
from sim.program.extend import Late, late_tasks, with_servers
from sim.program.outcome import Deadlock, Outcome
from sim.program.retime import KEEPS_ITS_RATE, perturb, retime
from sim.program.service_table import SPARSE, first_fit, pairs_that_meet, rows_of, slowest_ps, times_of, with_services
from tests.fault_strategies import faulty_programs
from tests.strategies import fifo_programs, programs
from topologies import Topology, WeftError, torus
from topologies.units import PS_PER_S
from workloads.job import Job, Operation, Send


@pytest.fixture
def _packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are packed wherever that takes less."""
    monkeypatch.setattr("sim.program.service_table.MOST_DENSE", 0)
    monkeypatch.setattr("sim.program.service_table.SPARSE", 0)


often = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def packed(program: Program) -> Program:
    """The program with a packed table, if that takes less."""
    with patch.multiple("sim.program.service_table", MOST_DENSE=0, SPARSE=0):
        return with_services(program, program.n_rates, program.service)


def of_pairs(program: Program) -> dict[tuple[int, int], int]:
    """Service of every pair that meets."""
    size, rate = pairs_that_meet(program)
    return dict(zip(zip(size.tolist(), rate.tolist(), strict=True), program.service(size, rate).tolist(), strict=True))


def places(program: Program) -> I64:
    size, rate = pairs_that_meet(program)
    return program.service_row[size] + rate


def outcome_of(program: Program) -> Outcome | None:
    try:
        return run(program, log=program.is_healthy)
    except Deadlock:
        return None


def sends(fabric: Topology, rates: list[Fraction], n: int, chunks: int) -> Program:
    """Messages of random sizes between random NPUs, over links of which each has a rate of its own."""
    rng = np.random.default_rng(3)
    src = rng.integers(fabric.n_npus, size=n)
    paths = fabric.paths(src, (src + rng.integers(1, fabric.n_npus, size=n)) % fabric.n_npus)
    none, same = np.zeros(0, np.int32), np.zeros(n, np.int32)
    return assemble(Columns(
        rates=rates, server_rate=rng.permutation(fabric.n_links).astype(np.int32),
        server_discipline=np.zeros(fabric.n_links, np.int8),
        route_ptr=paths.ptr.astype(np.int32), route_server=paths.links,
        route_latency_ps=np.full(paths.links.size, 500_000, np.int64),
        task_work=rng.integers(2**16, 2**26, size=n), task_cutting=None,
        task_route=np.arange(n, dtype=np.int32), task_class=same, task_priority=same,
        edge_parent=none, edge_child=none, edge_lag=np.full(0, WHOLE, np.int32),
    ), [Cutting(chunks=chunks)])


def own_rates(n: int) -> list[Fraction]:
    return [Fraction(50 * 10**9 + 1_000_003 * i, 7) for i in range(n)]


@pytest.mark.full
@pytest.mark.compiled
def test_sizes_and_rates_by_the_thousand() -> None:
    """A dense table of 65 thousand sizes and 4 thousand rates would take 2 GiB."""
    fabric = torus((32, 32))
    rates = own_rates(fabric.n_links)
    program = sends(fabric, rates, 45_000, 2)
    assert 8 * program.chunk_work.size * program.n_rates > 2**31
    assert program.is_packed and program.nbytes() < 2**25
    taken = places(program)
    assert np.unique(taken).size == taken.size > 10**6
    rng = np.random.default_rng(0)
    for task in rng.integers(program.n_tasks, size=2000).tolist():
        route, cut = program.task_route[task], program.task_cut[task]
        for server in program.route_server[program.route_ptr[route] : program.route_ptr[route + 1]]:
            for size in program.cut_size[cut]:
                work, rate = int(program.chunk_work[size]), int(program.server_rate[server])
                assert program.service(size, rate) == service_time_ps(work, rates[rate])
    other = with_rates(program, [rate / 2 for rate in rates], same_pairs=True)
    assert run(program).makespan_ps < run(other).makespan_ps


def test_a_small_table_has_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to MOST_DENSE places; and more of them where most pairs meet."""
    fabric = torus((4, 4))
    program = sends(fabric, own_rates(fabric.n_links), 200, 1)
    assert not program.is_packed and program.service_ps.size == program.chunk_work.size * program.n_rates
    monkeypatch.setattr("sim.program.service_table.MOST_DENSE", program.service_ps.size)
    assert not with_services(program, program.n_rates, program.service).is_packed
    monkeypatch.setattr("sim.program.service_table.MOST_DENSE", program.service_ps.size - 1)
    assert with_services(program, program.n_rates, program.service).is_packed
    monkeypatch.setattr("sim.program.service_table.SPARSE", program.service_ps.size // places(program).size + 1)
    assert not with_services(program, program.n_rates, program.service).is_packed


@often
@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=60))
def test_rows_are_laid_over_each_other(pairs: set[tuple[int, int]]) -> None:
    """No two pairs in one place, and never more places than in a dense table."""
    size, rate = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
    row = first_fit(size, rate, 13)
    assert np.unique(row[size] + rate).size == size.size
    assert row.min() >= 0 and row.max() + 10 <= 13 * 10


@pytest.mark.parametrize("window", [1, 3, 1024])
def test_each_row_takes_the_first_places_that_are_free(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rows first, counted out place by place; none looks further back than a window before the last."""
    monkeypatch.setattr("sim.program.service_table.WINDOW", window)
    rng = Random(window)
    for _ in range(60):
        met = [sorted(rng.sample(range(8), rng.choice((0, 1, 2, 3, 6)))) for _ in range(rng.randint(1, 12))]
        expected, taken, base = [0] * len(met), set[int](), 0
        for one in sorted(range(len(met)), key=lambda one: -len(met[one])):
            expected[one] = next(at for at in count(base) if taken.isdisjoint(at + rate for rate in met[one]))
            taken |= {expected[one] + rate for rate in met[one]}
            base = max(base, expected[one] - window)
        pairs = np.array([(size, rate) for size, rates in enumerate(met) for rate in rates], np.int64).reshape(-1, 2)
        assert first_fit(*pairs.T, len(met)).tolist() == expected


def test_a_table_is_packed_from_a_share_on() -> None:
    """Where no more than one place in SPARSE is of a pair that meets."""
    pairs = np.array([0, 1]), np.array([0, 1])
    packed_from = -(-SPARSE * pairs[0].size // 2)
    assert rows_of(*pairs, packed_from, 2) is not None
    assert rows_of(*pairs, packed_from - 1, 2) is None


def three_servers() -> Program:
    """Chunks of 5 over the second server, of 7 over the first and the third."""
    builder = ProgramBuilder()
    first, second, third = (builder.server(Fraction(PS_PER_S) / ps) for ps in (2, 3, 4))
    builder.task(5, [(second, 0)])
    builder.task(7, [(first, 0), (third, 0)])
    return builder.build()


def test_pairs_that_meet_are_those_of_the_routes() -> None:
    program = three_servers()
    size, rate = pairs_that_meet(program)
    works, servers = program.chunk_work[size].tolist(), [program.server_rate.tolist().index(one) for one in rate]
    assert sorted(zip(works, servers, strict=True)) == [(5, 1), (7, 0), (7, 2)]
    assert sorted(program.service(size, rate).tolist()) == [14, 15, 28]
    assert slowest_ps(program) == 28
    assert slowest_ps(packed(program)) == slowest_ps(program)
    builder = ProgramBuilder()
    builder.task(1, [(builder.server(PS_PER_S), 0)])
    assert slowest_ps(builder.build()) == slowest_ps(ProgramBuilder().build()) == 1


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_table_of_the_same_pairs_has_the_same_rows(is_packed: bool) -> None:
    """A packed one stays packed though it is small, with its rows; of a dense one every place is filled."""
    program = packed(three_servers()) if is_packed else three_servers()
    assert program.is_packed == is_packed
    moved = program
    if is_packed:
        moved = program._replace(service_row=program.service_row + 1, service_ps=np.append(1, program.service_ps))
    found = with_services(moved, program.n_rates, lambda size, rate: 10 * size + rate + 100, same_pairs=True)
    assert found.service_row.tolist() == moved.service_row.tolist()
    sizes, rates = pairs_that_meet(program) if is_packed else np.ogrid[:2, :3]
    assert found.service(sizes, rates).tolist() == (10 * sizes + rates + 100).tolist()
    again = with_services(program, program.n_rates, lambda size, rate: 10 * size + rate + 100)
    assert not again.is_packed  # of other pairs it would be chosen anew


def test_times_at_rates_and_at_shares_of_rates() -> None:
    """A share of a rate takes the service of that rate for its work; another rate the work of the chunk."""
    program = three_servers()
    rate = int(program.server_rate[1])
    times = times_of(program, [Fraction(PS_PER_S, 2), Fraction(PS_PER_S, 7)], np.array([rate, -1]))
    size = np.array([program.chunk_work.tolist().index(5)])
    assert times(size, np.array([0])).tolist() == [2 * 15]
    assert times(size, np.array([1])).tolist() == [7 * 5]
    first = times_of(program, [Fraction(PS_PER_S, 2)], np.array([0]))
    assert first(size, np.array([0])).tolist() == [2 * int(program.service(size, 0)[0])]
    other = times_of(program, [Fraction(PS_PER_S, 7)], np.array([-1]))
    assert other(size, np.array([0])).tolist() == [7 * 5]


@pytest.mark.usefixtures("_packed")
@pytest.mark.parametrize("rates", [(0, 1, 3), (0, 1, 2, 3)])
def test_rows_of_which_none_fits_into_another(rates: tuple[int, ...]) -> None:
    """A packed table would be as large as a dense one, and is one."""
    size, rate = (of.ravel() for of in np.meshgrid(np.arange(40), np.array(rates), indexing="ij"))
    assert first_fit(size, rate, 40).tolist() == [4 * one for one in range(40)]
    assert rows_of(size, rate, 40, 4) is None


@often
@given(st.one_of(programs(), faulty_programs()))
def test_a_packed_program_runs_as_a_dense_one(dense: Program) -> None:
    """Also in the oracle, and with what changes in time."""
    program = packed(dense)
    taken = places(program)
    assert np.unique(taken).size == taken.size
    assert of_pairs(program) == of_pairs(dense) and slowest_ps(program) == slowest_ps(dense)
    wanted = outcome_of(dense)
    found = outcome_of(program)
    assert (wanted is None) == (found is None)
    if wanted is not None and found is not None:
        assert np.array_equal(found.finish_ps, wanted.finish_ps) and np.array_equal(found.busy_ps, wanted.busy_ps)
        assert run_reference(program).makespan_ps == wanted.makespan_ps


@pytest.mark.usefixtures("_packed")
@often
@given(fifo_programs(), st.integers(0, 2**32))
def test_what_is_made_of_a_packed_program(built: Program, seed: int) -> None:
    """Other rates, other starts, more servers: the same as of a dense one, pair by pair."""
    rng = np.random.default_rng(seed)
    dense = _dense(built)
    keeps = np.where(rng.random(built.n_servers) < 0.5, KEEPS_ITS_RATE, rng.integers(2, size=built.n_servers))
    rates = [Fraction(7 * 10**11), Fraction(10**12, 3)]
    late = rng.integers(built.n_tasks, size=2)
    for change in (
        lambda program: retime(program, rates, keeps),
        lambda program: perturb(program, np.random.default_rng(seed), 10**6),
        lambda program: late_tasks(program, [Late(late, 40), Late(late[:1], 7)]),
        lambda program: with_servers(program, rates),
        lambda program: disrupt(program, Disruptions(phases={0: [Phase(0, Fraction(1, 3))]})),
    ):
        found, wanted = change(packed(dense)), change(dense)
        assert of_pairs(found) == of_pairs(wanted)
        one, other = outcome_of(found), outcome_of(wanted)
        assert (one is None) == (other is None)
        assert one is None or other is None or np.array_equal(one.finish_ps, other.finish_ps)


def _dense(program: Program) -> Program:
    """The same program with a dense table, which is made by hand."""
    service = np.ones((program.chunk_work.size, program.n_rates), np.int64)
    size, rate = pairs_that_meet(program)
    service[size, rate] = program.service(size, rate)
    row = np.arange(program.chunk_work.size) * program.n_rates
    return program._replace(service_ps=service.reshape(-1), service_row=row)


@pytest.mark.usefixtures("_packed")
def test_a_detour_of_a_packed_program_needs_rates() -> None:
    builder = ProgramBuilder()
    one, other = builder.server(Fraction(10**12)), builder.server(Fraction(10**12, 3))
    for work, server in ((5, one), (6, other), (7, other)):
        builder.task(work, [(server, 0)])
    program = builder.build()
    assert program.is_packed
    around = {0: [(0, ((other, 0),))]}
    with pytest.raises(WeftError, match="a detour crosses server 1, whose rate is needed"):
        disrupt(program, Disruptions(detours=around))
    found = disrupt(program, Disruptions(detours=around, rates={other: Fraction(10**12, 3)}))
    assert run(found).busy_ps.tolist() == [0, 15 + 18 + 21]


PLANS = {
    "slow": (SlowLink(link="*", share=0.3, at="3us"), SlowLink(link="npu1->npu2", share=0.7)),
    "late": (Straggler(npu="npu3", delay="5us"),),
    "down": (LinkDown(link="npu0->npu1", at="2us"), LinkDown(link="npu4->npu0", at="9us")),
}


@pytest.mark.table
@pytest.mark.compiled
@pytest.mark.parametrize("engine", ["chunk", "reference"])
@pytest.mark.parametrize("name", PLANS)
def test_faults_of_a_fabric(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that detours bring to other links, and shares of bandwidths, are in the packed table."""
    def found() -> Result:
        fabric = torus((4, 4))
        own = fabric.with_links(bandwidth_Bps=5e10 + 1e7 * np.arange(fabric.n_links))
        rng = np.random.default_rng(5)
        src = rng.integers(16, size=100)
        dst = (src + rng.integers(1, 16, size=100)) % 16
        sizes = rng.integers(10**5, 10**6, size=100)
        messages = Send(*(tuple(of.tolist()) for of in (sizes, src, dst)))
        job = Job(own, [Operation("all", "send", messages, None, (), 0)])
        plan = FaultPlan(faults=PLANS[name], reroute="1us")
        return simulate(job, chunk="70KiB", faults=plan, engine=engine, check=True)

    wanted = found()
    monkeypatch.setattr("sim.program.service_table.MOST_DENSE", 0)
    result = found()
    assert result.lowered.program.is_packed and not wanted.lowered.program.is_packed
    assert result.time_ps == wanted.time_ps
