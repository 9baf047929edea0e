"""What computations of a trace wait for: their stream keeps them in order, and nothing begins before what it needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import simulate
from sim.program.model import Model
from tests.astra_inputs import compute_node, message_node
from topologies import ring, switch
from workloads.formats.chakra import Trace
from workloads.formats.chakra_job import chakra_job
from workloads.formats.chakra_schema import Node
from workloads.formats.waits import waits_outside
from workloads.job import Compute


def test_what_is_implied_is_left_out() -> None:
    """0 and 3 are outside: 2 waits for what 1 waits for, and 5 only for 3, which waits for 0 by way of 2."""
    after = {0: [], 1: [0], 2: [1], 3: [2], 4: [1], 5: [2, 3, 4]}
    found = waits_outside([0, 1, 2, 3, 4, 5], after, {1: "gpu", 2: "gpu", 4: "gpu", 5: "gpu"})
    assert found == {0: [], 1: [0], 2: [0], 3: [2], 4: [0], 5: [3]}


@st.composite
def ranks_of_two(draw: st.DrawFn) -> list[Trace]:
    """Computations of both streams with random waits, and messages from rank 0 to rank 1 among them."""
    n = draw(st.integers(3, 9))
    kinds = draw(st.lists(st.sampled_from(["gpu", "gpu", "cpu", "message"]), min_size=n, max_size=n))
    traces = []
    for rank in range(2):
        nodes: list[Node] = []
        ids = draw(st.permutations(range(n)))
        for at, kind in enumerate(kinds):
            after = draw(st.lists(st.sampled_from(ids[:at]), max_size=2)) if at else []
            if kind == "message":
                nodes.append(message_node(("send", "receive")[rank], 1 - rank, 1000, ids[at], after=after, tag=at))
            else:
                nodes.append(compute_node(draw(st.integers(0, 5)), ids[at], after=after, cpu=kind == "cpu"))
        traces.append(Trace("", (), tuple(nodes)))
    return traces


@settings(max_examples=40, deadline=None)
@given(ranks_of_two(), st.sampled_from(["cut-through", "store-and-forward"]))
def test_nothing_begins_before_what_it_waits_for(traces: list[Trace], forwarding: str) -> None:
    """By the spans of a run, the same in both engines; computations of a stream do not overlap."""
    job, _ = chakra_job(traces, ring(2))
    model = Model(chunks=1, forwarding=forwarding)
    result = simulate(job, model=model, symmetry="off", log=True)
    assert simulate(job, model=model, symmetry="off", engine="reference").time_ps == result.time_ps
    ends = {(span.rank, job.operations[span.operation].name): span.end_ps for span in result.spans()}
    sends = [node.name for node in traces[0].nodes if node.kind == "send"]
    for rank, trace in enumerate(traces):
        names = iter(sends)  # a receive that waits for nothing else is the message itself
        name_of = {node.id: next(names) if node.kind == "receive" and not node.after else
                   node.name if node.kind != "receive" or next(names) else "" for node in trace.nodes}
        for node in trace.nodes:
            if node.kind == "compute":
                begin = ends[rank, node.name] - node.duration_us * 10**6
                assert all(ends[rank, name_of[other]] <= begin + 1 for other in node.after)


@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_a_pipeline_runs_each_microbatch_to_its_end(microbatches: int) -> None:
    """Two stages, passes of four kernels of 10 us each: 3 passes for the first microbatch and 2 for each more of them.

    A stage that took turns between microbatches, kernel by kernel, would take longer.
    """
    first, second = list[Node](), list[Node]()
    for batch in range(microbatches):
        base = batch * 100
        for stage, nodes in enumerate((first, second)):
            def kernels(start: int, after: list[int], into: list[Node] = nodes) -> None:
                for at in range(4):
                    into.append(compute_node(10, start + at, after=after if not at else [start + at - 1]))
            if stage == 0:
                kernels(base, [])
                nodes += [message_node("send", 1, 8, base + 50, after=[base + 3], tag=base),
                          message_node("receive", 1, 8, base + 60, tag=base)]
                kernels(base + 10, [base + 60])
            else:
                nodes.append(message_node("receive", 0, 8, base + 50, tag=base))
                kernels(base, [base + 50])
                kernels(base + 10, [base + 3])
                nodes.append(message_node("send", 0, 8, base + 60, after=[base + 13], tag=base))
    fabric = switch(2, bandwidth="1GB/s", latency=0, hop_latency=0)
    job, _ = chakra_job([Trace("", (), tuple(nodes)) for nodes in (first, second)], fabric)
    assert all(one.priority >= 0 for one in job.operations if isinstance(one.work, Compute))
    found = simulate(job, model=Model(chunks=1, forwarding="store-and-forward"), symmetry="off").time_ps
    assert np.isclose(found, (1 + 2 * microbatches + 1) * 40_000_000, atol=100_000)
