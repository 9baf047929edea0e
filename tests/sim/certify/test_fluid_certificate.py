"""The certificate of a fluid run rejects what is not one."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from sim.certify.fluid import certify_flows
from sim.engine.fluid.run import run_flows
from sim.program import ProgramBuilder
from sim.program.flows import Flows, Speeds, flows_of
from sim.program.outcome import CertificateError, Outcome, Rates

RATES = [Fraction(3 * 10**12), Fraction(10**12)]
"""3 and 1 bytes per ps."""
SPEEDS = Speeds(RATES)


def run() -> tuple[Flows, Outcome]:
    """Flow 0 on link 0 of 2 bytes per ps beside flow 1, which link 1 holds to 1; then flow 2 alone on link 1."""
    builder = ProgramBuilder()
    wide, narrow = map(builder.server, RATES)
    first = builder.task(200, [(wide, 5)])
    builder.task(150, [(wide, 5), (narrow, 5)])
    builder.task(40, [(narrow, 5)], after=[first])
    builder.task(0, after=[first])
    program = builder.build()
    return flows_of(program, SPEEDS), run_flows(program, SPEEDS, log=True)


def changed(outcome: Outcome, of: Callable[[Rates], np.ndarray]) -> Outcome:
    assert outcome.rates is not None
    return outcome._replace(rates=outcome.rates._replace(rate=of(outcome.rates)))


def moved(outcome: Outcome, task: int, ps: int, start: bool = False) -> Outcome:
    column = "start_ps" if start else "finish_ps"
    times = getattr(outcome, column).copy()
    times[task] += ps
    return outcome._replace(**{column: times})


def test_a_run_as_it_is_passes() -> None:
    flows, outcome = run()
    certify_flows(flows, outcome, outcome.makespan_ps)
    assert outcome.rates is not None
    assert outcome.rates.time_ps.tolist() == [0, 0, 105, 105, 185]
    # From 105 ps on flows 1 and 2 have half of link 1, until flow 2 has carried its 40 bytes.
    assert (outcome.rates.rate / flows.link_rate[1]).tolist() == pytest.approx([2, 1, 0.5, 0.5, 1])


def test_a_run_below_its_bound_is_rejected() -> None:
    flows, outcome = run()
    with pytest.raises(CertificateError, match="bounds: the run took"):
        certify_flows(flows, outcome, outcome.makespan_ps + 1)


@pytest.mark.parametrize(("task", "ps", "start", "rule"), [
    (2, 1, True, "causality: task 2 does not start when it may"),
    (3, 1, False, "causality: task 3 has no links and takes"),
    (1, 1, False, "conservation: task 1 ends at 191 ps"), (1, -1, False, "conservation: task 1 ends at 189 ps"),
])
def test_times_that_are_off_by_a_picosecond_are_rejected(task: int, ps: int, start: bool, rule: str) -> None:
    flows, outcome = run()
    with pytest.raises(CertificateError, match=rule):
        certify_flows(flows, moved(outcome, task, ps, start))


def test_a_link_that_is_exceeded_is_rejected() -> None:
    """All flows twice as fast as they may be, over half of the time."""
    flows, outcome = run()
    narrower = flows._replace(link_rate=flows.link_rate // 2)
    with pytest.raises(CertificateError, match="capacity: link 0 carries more than its rate at 0 ps"):
        certify_flows(narrower, outcome)


def test_a_flow_that_could_be_faster_is_rejected() -> None:
    flows, outcome = run()
    wider = flows._replace(link_rate=flows.link_rate + np.array([10**6, 0]))
    with pytest.raises(CertificateError, match="fairness: task 0 has no bottleneck at 0 ps"):
        certify_flows(wider, outcome)


def test_a_share_that_is_not_even_is_rejected() -> None:
    """Two equal flows on one link, one of them faster: the link is full, and the slow one is not at its bottleneck."""
    builder = ProgramBuilder()
    link = builder.server(RATES[0])
    for _ in range(2):
        builder.task(300, [(link, 5)])
    program = builder.build()
    speeds = Speeds(RATES[:1])
    flows, outcome = flows_of(program, speeds), run_flows(program, speeds, log=True)
    work = flows.work.copy()
    unit = int(flows.link_rate[0]) // 4
    uneven = changed(outcome, lambda rates: rates.rate + np.array([unit, -unit]))
    total = [(int(high) << 62) + int(low) for high, low in work]
    for task, more in enumerate((unit, -unit)):  # each carries its bytes in the same time
        work[task] = divmod(total[task] + more * 200, 1 << 62)
    with pytest.raises(CertificateError, match="fairness: task 1 has no bottleneck at 0 ps"):
        certify_flows(flows._replace(work=work), uneven)


def test_a_flow_without_a_rate_is_rejected() -> None:
    flows, outcome = run()
    assert outcome.rates is not None
    kept = outcome.rates.task != 2
    with pytest.raises(CertificateError, match="conservation: task 2 has never had a rate"):
        certify_flows(flows, outcome._replace(rates=Rates(*(column[kept] for column in outcome.rates))))


def test_a_rate_before_the_start_is_rejected() -> None:
    """What a flow carries is right, and when is not."""
    flows, outcome = run()
    assert outcome.rates is not None
    early = outcome.rates._replace(
        time_ps=np.append(0, outcome.rates.time_ps), task=np.append(2, outcome.rates.task),
        rate=np.append(0, outcome.rates.rate), way=np.append(2, outcome.rates.way),
    )
    certify_flows(flows, outcome._replace(rates=early))  # no rate is none
    wrong = early._replace(rate=np.append(1, outcome.rates.rate))
    with pytest.raises(CertificateError, match="capacity: task 2 at 0 ps has a rate, or none"):
        certify_flows(flows, outcome._replace(rates=wrong))
