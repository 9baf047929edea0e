"""Numbers at the edges: what does not fit is rejected in one line that names it; nothing wraps around."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectives import Schedule, build
from sim import Result, simulate
from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.faults.plan import FaultPlan, Jitter, Loss
from sim.lower.job import lower
from sim.program import Cutting, ProgramBuilder, service_time_ps
from sim.program.checks import _exact_bound, _loose_bound
from sim.program.contract import CLOCK_END_PS
from sim.program.cutting import MOST_WORK, Rates
from sim.program.model import Model, make_model
from sim.study.spec import Spec
from topologies import WeftError, bytes_per_s, from_spec
from topologies.units import MOST_PS, format_time, parse_time
from workloads.job import Job

EIB = 2**60
SLOW, FAST = 2.0**30, 2.0**50

RATES = st.one_of(
    st.integers(1, 2**62).map(Fraction), st.floats(1e-3, 1e18).map(Fraction),
    st.decimals(1, 10**6, places=6).map(lambda gbps: Fraction(gbps) * 10**9),
    st.fractions(min_value=Fraction(1, 10**9), max_value=10**15, max_denominator=10**9),
)


@pytest.fixture
def _all_in_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.program.cutting.FEW_TIMES", 0)


@pytest.mark.usefixtures("_all_in_arrays")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.integers(0, MOST_WORK - 1), st.integers(0, 2**40)), max_size=6), st.lists(RATES, max_size=6),
)
def test_a_table_of_service_times_is_every_one_of_them(work: list[int], rates: list[Fraction]) -> None:
    """In words of a machine where they fit, else not: to the picosecond."""
    table = Rates(rates).times_ps(np.array(work, np.int64)[:, None], np.arange(len(rates)))
    assert table.shape == (len(work), len(rates))
    assert table.tolist() == [[min(service_time_ps(one, rate), CLOCK_END_PS) for rate in rates] for one in work]


@pytest.mark.usefixtures("_all_in_arrays")
@pytest.mark.parametrize("rate", [Fraction(10**12, 3), Fraction(10**12 - 1), Fraction(7, 3), Fraction(2**61 - 1)])
def test_whole_picoseconds_and_one_more(rate: Fraction) -> None:
    """Where the quotient of floats rounds up or down: chunks that take a whole time, and a unit less or more."""
    work = [int(rate * ps / 10**12) + more for ps in (1, 3, 10**6, 2**49 - 1, 2**49) for more in (-1, 0, 1)]
    kept = [one for one in work if 0 <= one < MOST_WORK]
    table = Rates([rate]).times_ps(np.array(kept, np.int64), np.zeros(len(kept), np.int64))
    assert table.tolist() == [service_time_ps(one, rate) for one in kept]


def all_reduce(size: int | str, **how: object) -> Schedule:
    return build("ring", "all-reduce", from_spec("ring:4", **how), size)  # type: ignore[arg-type]  # its parameters


@pytest.mark.table
@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize(("spec", "algorithm", "kind"), [
    ("ring:4", "ring", "all-reduce"), ("torus:4x4", "swing", "all-reduce"), ("torus:4x4", "bucket", "all-gather"),
    ("switch:8", "pairwise", "all-to-all"), ("torus:4x4", "hierarchical", "all-reduce"),
    ("ring:8", "bfb", "all-gather"),
])
def test_an_exbibyte_is_a_tebibyte_on_links_a_million_times_as_fast(
    spec: str, algorithm: str, kind: str, symmetry: str
) -> None:
    """Time, bound, estimate and bytes on the wire, to the last picosecond and byte."""

    def at(rate: float, size: int) -> Result:
        schedule = build(algorithm, kind, from_spec(spec, bandwidth=bytes_per_s(rate)), size)
        return simulate(schedule, chunks=4, check=True, symmetry=symmetry)

    small, large = at(SLOW, 2**40), at(FAST, EIB)
    assert (large.time_ps, large.lower_bound_ps, large.estimate_ps) == (
        small.time_ps, small.lower_bound_ps, small.estimate_ps
    )
    assert large.lowered.wire_bytes() == small.lowered.wire_bytes() * 2**20


def test_bytes_on_the_wire_may_be_more_than_a_machine_word_holds() -> None:
    schedule = build("pairwise", "all-to-all", from_spec("switch:64", bandwidth=bytes_per_s(FAST)), EIB)
    assert simulate(schedule).lowered.wire_bytes() == 63 * EIB


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "size": (lambda: simulate(all_reduce(EIB + 1)), r"size 1152921504606846977 B is out of range: at most 1 EiB"),
    "size of 2^200": (lambda: simulate(all_reduce(2**200)), "size is 16069.*: give an integer from 0, below 2.63"),
    "elements": (
        lambda: build("ring", "all-reduce", from_spec("ring:4"), 8, element_bytes=2**70),
        r"element_bytes is 1180591620717411303424: give an integer",
    ),
    "makespan": (lambda: simulate(all_reduce(EIB)), r"the run could last 3.459e\+07 s; the clock ends at 4.612e\+06 s"),
    "makespan, reference": (lambda: simulate(all_reduce(EIB), engine="reference"), "the clock ends at"),
    "makespan, estimate": (lambda: simulate(all_reduce(EIB), engine="analytic"), "the clock ends at"),
    "slow link": (lambda: simulate(all_reduce("1MiB", bandwidth="1e-3B/s")),
                  r"a chunk of 8192 B at 0\.001 B/s takes .*: give it more than 0\.00178 B/s"),
    "slowest link": (lambda: simulate(all_reduce(EIB, bandwidth="1e-320B/s")), r"takes more than 1e\+288 s"),
    "fastest link": (lambda: all_reduce(8, bandwidth="1e400B/s"), "must be above zero and finite"),
    "slower than any": (lambda: all_reduce(8, bandwidth="1e-400B/s"), "must be above zero and finite"),
    "latency": (lambda: all_reduce(8, latency="4611687s"), "latency '4611687s' exceeds the range of the clock"),
    "latency of 1e300 s": (lambda: all_reduce(8, latency="1e300s"), "exceeds the range of the clock"),
    "latencies of a hop": (
        lambda: simulate(all_reduce(8, latency="4611686s", hop_latency="4611686s")),
        r"the latency of a link, 9.223e\+06 s with the node behind it, is beyond the clock",
    ),
    "with endpoints": (
        lambda: simulate(all_reduce(8, latency="4611686s", hop_latency="4611686s"), endpoint_latency="4611686s"),
        r"the latency of a link, 1.384e\+07 s",
    ),
    "endpoint latency": (lambda: simulate(all_reduce(8), endpoint_latency="1e18s"), "exceeds the range of the clock"),
    "push time": (
        lambda: lower(
            build("swing", "all-reduce", from_spec("ring:2", bandwidth=bytes_per_s(FAST)), EIB),
            make_model(nic="shared", push_time="1us", chunks=1),
        ),
        r"a chunk of \d+ B would be pushed for .*; the clock ends at",
    ),
    "chunks": (lambda: simulate(all_reduce(8), chunks=2**31), "chunks is 2147483648: give an integer from 1 to 21474"),
    "chunk size": (lambda: simulate(all_reduce(2**50), chunk=1), "would be cut into 140737488355328 chunks; at most"),
    "headers": (lambda: simulate(all_reduce(8), header=2**62 - 1), "are more than 2.62 bytes"),
    "packet headers": (lambda: simulate(all_reduce(8), packet_header=2**63), "packet.header is 922337.*: give"),
    "spec": (
        lambda: Spec.from_dict({"topology": {"spec": "ring:4", "link_latency": "1e30s"}}).build_topology(),
        "exceeds the range of the clock",
    ),
    "jitter": (
        lambda: simulate(all_reduce(8), faults=FaultPlan(faults=(Jitter(link="*", mean="4611686s"),))),
        "jitter of mean '4611686s' would draw .* the clock ends at",
    ),
    "resends": (
        lambda: simulate(
            all_reduce(8), faults=FaultPlan(timeout="4000000s", faults=(Loss(link="*", probability=0.9),))
        ),
        "the run goes on beyond the end of the clock",
    ),
    "nodes": (lambda: from_spec("ring:99999999999999"), "the limit is 4,194,304 links"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused(what: str) -> None:
    do, message = REFUSED[what]
    with np.errstate(all="raise"), pytest.raises(WeftError, match=message):
        do()


@pytest.mark.parametrize(("size", "chunk"), [(8, None), (2**40, 2**62)])
def test_chunks_that_are_larger_or_more_than_the_transfer(size: int, chunk: int | None) -> None:
    """A transfer has one chunk a byte, and at least one."""
    if chunk is None:
        assert simulate(all_reduce(size), chunks=2**31 - 1).events == simulate(all_reduce(size), chunks=4).events
    else:
        assert simulate(all_reduce(size), chunk=chunk).time_ps == simulate(all_reduce(size), chunks=1).time_ps


def last_tick(ps: int) -> ProgramBuilder:
    builder = ProgramBuilder("store-and-forward")
    wire = builder.server(Fraction(10**12))
    builder.task(ps - 5, [(wire, 5)])
    return builder


def test_a_run_may_end_at_the_end_of_the_clock_and_not_after() -> None:
    program = last_tick(CLOCK_END_PS - 1).build()
    assert run(program).makespan_ps == run_reference(program).makespan_ps == CLOCK_END_PS - 1 == MOST_PS
    with pytest.raises(WeftError, match="the clock ends at"):
        last_tick(CLOCK_END_PS).build()


@pytest.mark.parametrize(("work", "latency", "message"), [
    (2**62, 0, r"task 0 has work of 4611686018427387904; it must be below 2.62"),
    (2**70, 0, "task 0 has work of"),
    (8, 2**62, r"task 0 has a latency of 4.612e\+06 s after server 0; the clock ends"),
    (8, 2**80, "task 0 has a latency of"),
])
def test_tasks_that_do_not_fit_are_named(work: int, latency: int, message: str) -> None:
    builder = ProgramBuilder()
    wire = builder.server(Fraction(10**15))
    with pytest.raises(WeftError, match=message):
        (builder.task(work, [(wire, latency)]), builder.build())


def test_latencies_of_a_job_do_not_wrap_around() -> None:
    job = Job(from_spec("ring:4", latency="4611686s", hop_latency="4611686s"))
    job.send("far", 8, [0], [1])
    with pytest.raises(WeftError, match=r"the clock(, which)? ends at"):
        lower(job, make_model(endpoint_latency="4611686s"))


@pytest.mark.parametrize("seconds", [10**300, 10**400])
def test_times_that_no_float_holds_are_printed(seconds: int) -> None:
    assert format_time(seconds) == ("more than 1e+288 s" if seconds > 10**300 else "1e+288 s")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64), st.sampled_from(("s", "ms", "us", "ns", "ps")))
def test_times_are_exact_or_refused(number: int, unit: str) -> None:
    per_unit = {"s": 10**12, "ms": 10**9, "us": 10**6, "ns": 1000, "ps": 1}[unit]
    if number * per_unit > MOST_PS:
        with pytest.raises(WeftError, match="exceeds the range of the clock"):
            parse_time(f"{number}{unit}")
    else:
        assert parse_time(f"{number}{unit}") == number * per_unit


@settings(max_examples=60, deadline=None)
@given(st.integers(0, EIB), st.integers(1, 2**31 - 1), st.integers(0, 2**30))
def test_cuts_add_up_at_any_size(work: int, chunks: int, header: int) -> None:
    count, leading, first, rest = Cutting(chunks, None, header).cut(work)
    assert leading * first + (count - leading) * rest == work + header


@pytest.mark.parametrize(
    "changes",
    [{"chunks": 1.5}, {"chunks": 2.0}, {"chunks": "4"}, {"chunks": True}, {"chunks": None, "chunk_bytes": 4096.5},
     {"header_bytes": 1.5}, {"header_bytes": float("nan")}, {"packet_header_bytes": None}, {"endpoint_latency_ps": 0.5},
     {"seed": "a"}, {"seed": 1.5}],
    ids=str,
)  # fmt: skip
def test_what_is_counted_is_an_integer(changes: dict[str, object]) -> None:
    """A count of 1.5 chunks would lose bytes, and the run would pass every check."""
    with pytest.raises(WeftError, match="give an integer"):
        Model(**changes)  # type: ignore[arg-type]  # what is rejected
    chunks: Any = changes.get("chunks")
    if chunks is not None:
        with pytest.raises(WeftError, match="give an integer"):
            simulate(build("ring", "all-reduce", from_spec("ring:4"), "64KiB"), chunks=chunks)


@given(st.integers(1, 2**20), st.integers(1, 40), st.integers(1, 9), st.sampled_from([10**6, 12.5e9, 1e12]))
@settings(max_examples=60, deadline=None)
def test_the_bound_that_is_not_rounded_is_not_below_the_exact_one(work, tasks, hops, rate):
    builder = ProgramBuilder()
    links = [builder.server(Fraction(rate) / (1 + at)) for at in range(hops)]
    for task in range(tasks):
        builder.task(work + task, [(link, 3 * task) for link in links[task % hops :]], Cutting(1 + task % 4))
    program, rates = builder.build(), [Fraction(rate) / (1 + at) for at in range(hops)]
    exact, loose = _exact_bound(program), _loose_bound(program, sorted(rates))
    assert exact <= loose <= (1 + 2e-9) * exact + 8 * tasks * hops + 2
