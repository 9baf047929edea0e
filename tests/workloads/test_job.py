import pytest

from sim.faults.plan import FaultPlan, Straggler
from sim.lower.lowered import task_names
from sim.program.model import Model
from sim.simulation import simulate
from topologies import WeftError, ring
from topologies.checks import Integer
from workloads.job import Job

FABRIC = ring(4, bandwidth="1GB/s", latency="1us", hop_latency="0ns")


def times_us(job, **model):
    result = simulate(job, model=Model(chunks=1, forwarding="store-and-forward", **model), check=True)
    return {(span.operation, span.rank): span.end_ps / 1e6 for span in result.spans()}


def link(a, b):
    return int(FABRIC.link_ids([a], [b])[0])


def test_messages_of_several_sizes_keep_their_order_at_a_source():
    job = Job(FABRIC)
    job.send("both", [2_000, 1_000], [0, 0], [1, 1])
    assert times_us(job) == {(0, 0): 4.0, (0, 1): 4.0}  # 3 us of service on one link, and its latency


def test_a_detached_source_goes_on_at_once():
    job = Job(FABRIC)
    send = job.send("away", [1_000], [0], [1], detached=True)
    job.compute("next", 5_000_000, npus=[0, 1], after=[send])
    assert times_us(job) == {(0, 0): 0.0, (0, 1): 2.0, (1, 0): 5.0, (1, 1): 7.0}


def test_laps_count_the_latency_of_the_whole_route_and_named_links_are_taken():
    job = Job(FABRIC)
    long = job.send("long", [1_000], [0], [1], via=[[link(0, 3), link(3, 2), link(2, 1)]])
    job.send("acknowledged", [1_000], [0], [2], laps=2, after=[long])
    # Three hops of 2 us; then two hops, and the latency of both once more.
    assert times_us(job)[0, 1] == 6.0 and times_us(job)[1, 2] == 12.0


@pytest.mark.parametrize("delay", ["0s", "1ps", "10us"])
def test_a_change_waits_for_what_drains_and_what_crosses_the_new_links_waits_for_it(delay):
    job = Job(FABRIC)
    job.send("before", 1_000, [0], [1])
    change = job.reconfigure("change", delay, [link(0, 1)], [link(1, 2)])
    job.send("after", 1_000, [1], [2])
    job.send("elsewhere", 1_000, [3], [2])
    delay_us = {"0s": 0.0, "1ps": 2e-6, "10us": 10.0}[delay]  # on the controller, 1 ps of service and 1 ps of latency
    found = times_us(job)
    assert found[change, 0] == pytest.approx(2.0 + delay_us)
    assert found[2, 2] == pytest.approx(4.0 + delay_us) and found[3, 2] == 2.0


def test_changes_of_circuits_have_names_and_tracks_and_stand_beside_faults():
    job = Job(FABRIC)
    first = job.compute("forward", 3_000_000, npus=[2])
    job.reconfigure("change", "10us", [], [link(1, 2)], after=[first])
    job.send("after", 1_000, [1], [2])
    result = simulate(job, model=Model(chunks=1))
    name = task_names(result.lowered)
    assert [name(task) for task, _ in result.lowered.changes] == ["change"]
    assert ("reconfiguration", "") in result.exposed_ps(2)
    assert "optical controller" in [track.thread for track in result.timeline().tracks]
    late = simulate(job, model=Model(chunks=1), faults=FaultPlan(faults=(Straggler(npu="npu2", delay="5us"),)))
    assert late.time_ps == result.time_ps + 5_000_000


def test_what_crosses_a_link_before_it_goes_down_is_not_of_its_return():
    """Between two changes of a link, in the order of the job, is one era: the first one ends with what crosses it."""
    job = Job(FABRIC)
    down = job.reconfigure("lamps out", "1us", [link(0, 1)], [])
    across = job.send("across", 1_000, [0], [1])
    job.reconfigure("lamps on", "1us", [], [link(0, 1)], after=[down])
    spans = {(span.operation, span.rank): span for span in simulate(job).spans()}
    assert spans[across, 1].end_ps == spans[down, 1].start_ps == 2_000_000
    assert spans[2, 1].start_ps == spans[down, 1].end_ps == 3_000_000


def test_a_link_that_goes_and_comes_at_once_is_up_before_and_after():
    """Changes without a delay: the end of an era is the beginning of the next, and certificates tell them apart."""
    job = Job(FABRIC)
    first = job.send("first", 1_000, [0], [1])
    change = job.reconfigure("turn", "0s", [link(0, 1)], [link(0, 1)], after=[first])
    second = job.send("second", 1_000, [0], [1], after=[change])
    job.reconfigure("turn again", "0s", [link(0, 1)], [link(0, 1)], after=[second])
    job.send("third", 1_000, [0], [1])
    assert simulate(job, check=True).time_ps == 6_000_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda job: job.send("m", [1, -2], [0, 1], [1, 2]), "size_bytes, item 1, is -2: give an integer from 0"),
        (lambda job: job.send("m", [1], [0, 1], [1, 2]), "as many destinations and sizes as sources"),
        (lambda job: job.send("m", 1, [0, 0], [1, 2]), "each source once"),
        (lambda job: job.send("m", 1, [0], [1], via=[[0]]), "the links and the size of each message"),
        (lambda job: job.send("m", [1], [0], [1], laps=0), "laps is 0: give an integer from 1"),
        (lambda job: job.send("m", [1], [0], [2], via=[[link(0, 1)]]), "lead to npu1, not to 2"),
        (lambda job: job.send("m", [1], [0], [2], via=[[link(1, 2)]]), "does not begin at npu0"),
        (lambda job: job.reconfigure("c", "1us", [], [99]), "names link 99 of the 8"),
        (lambda job: job.reconfigure("c", "fast", [], [0]), "reconfiguration delay 'fast' is not a time"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(WeftError, match=message):
        call(Job(FABRIC))


def test_plain_arguments_of_a_message_are_looked_at_once(monkeypatch):
    """Plain integers pass by a comparison: nothing is read one by one, and nothing again as an operation."""
    job, read = Job(FABRIC), []
    job.send("a", 1024, (0,), (1,))
    real = Integer.read
    monkeypatch.setattr(Integer, "read", lambda self, value, what: read.append(what) or real(self, value, what))
    job.send("b", 1024, (0,), (1,), after=(0,), priority=3)
    job.send("c", 1024, (0, 2), (1, 3), after=(0, 1))
    assert not read and [one.after for one in job.operations] == [(), (0,), (0, 1)]
    with pytest.raises(WeftError, match="'d' waits for operation 9"):
        job.send("d", 1024, (0,), (1,), after=(0, 9))
    with pytest.raises(WeftError, match="priority"):
        job.send("e", 1024, (0,), (1,), priority=2**40)
