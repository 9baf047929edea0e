"""Random programs with faults (on those of `tests.strategies`), and random fault plans on a topology."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from sim.faults.plan import (
    DISTRIBUTIONS,
    IN_FLIGHT,
    Fault,
    FaultPlan,
    Jitter,
    LinkDown,
    Loss,
    NodeDown,
    Repair,
    SlowLink,
    Straggler,
)
from sim.program import DISCIPLINES, ORDERS, Program
from sim.program.disrupt import Disruptions, Phase, disrupt
from sim.program.flows import Speeds
from tests.strategies import flow_programs, nic_programs, programs, with_some_buffers
from topologies import Topology

FACTORS = tuple(Fraction(*pair) for pair in ((0, 1), (0, 1), (1, 1), (1, 2), (1, 3), (2, 3)))


@st.composite
def faulty_programs(draw: st.DrawFn, *, base: st.SearchStrategy[Program] | None = None) -> Program:
    """A program, and on each of its servers and tasks some fault or none."""
    program = draw(base if base is not None else programs(disciplines=ORDERS))
    faults = Disruptions(seed=draw(st.integers(0, 2**63 - 1)))
    step = draw(st.sampled_from((1, 7, 100_000)))
    for server in range(program.n_servers):
        if draw(st.booleans()):
            faults.phases[server] = draw(_phases(step))
            faults.crossing[server] = draw(st.sampled_from((0, 1, 2, 4, 5, 6)))
        faults.resend_ps[server] = draw(st.integers(1, 5)) * step
        if draw(st.integers(1, 3)) == 1:
            faults.loss[server] = draw(st.sampled_from((0.0, 0.1, 0.5, 0.9)))
        if draw(st.integers(1, 3)) == 1:
            quantiles = draw(st.lists(st.integers(0, 6), min_size=4, max_size=4))
            faults.jitter[server] = np.array(quantiles, np.int64) * step, draw(st.booleans())
    hops = program.hops()
    for task in range(program.n_tasks):
        if hops[task] and draw(st.integers(1, 3)) == 1:
            times = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=2)))
            faults.detours[task] = [(time * step, draw(_path(program, task))) for time in times]
        if draw(st.integers(1, 5)) == 1:
            faults.deadline_ps[task] = draw(st.integers(0, 60)) * step
    return disrupt(program, faults)


@st.composite
def faulty_flows(draw: st.DrawFn) -> tuple[Program, Speeds]:
    """A program that the fluid engine takes: links that change and go down, detours, deadlines, computations, pools."""
    program, speeds = draw(flow_programs())
    faults, step = Disruptions(), draw(st.sampled_from((1, 7, 100_000)))
    links = [server for server in range(program.n_servers) if server not in speeds.alone]
    for server in range(program.n_servers):
        if draw(st.booleans()):
            faults.phases[server] = draw(_phases(step))
            faults.crossing[server] = draw(st.sampled_from((0, 2, 4, 6)) if server in links else st.just(0))
    for task in range(program.n_tasks):
        own = program.route_server[slice(*program.route_ptr[program.task_route[task] :][:2])]
        if own.size and own[0] in links and draw(st.integers(1, 3)) == 1:
            times = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=2)))
            way = st.lists(st.tuples(st.sampled_from(links), st.integers(0, 3)), min_size=1, max_size=3).map(tuple)
            faults.detours[task] = [(time * step, draw(way)) for time in times]
        if draw(st.integers(1, 5)) == 1:
            faults.deadline_ps[task] = draw(st.integers(0, 60)) * step
    shares = [phase.factor for server in range(program.n_servers) for phase in faults.phases.get(server, [])]
    return disrupt(program, faults), speeds._replace(shares=shares)


@st.composite
def composed_programs(draw: st.DrawFn) -> Program:
    """Any program with faults: NICs, channels, turns, ranks, pools, windows, and buffers that some detours need too."""
    buffers = draw(st.sampled_from(("none", "by channel", "by channel", "shared")))
    channels = 2 if buffers == "shared" else draw(st.integers(1, 3))
    of = {"disciplines": draw(st.sampled_from((ORDERS[:1], ORDERS, DISCIPLINES))), "channels": channels}
    program = draw(faulty_programs(base=st.one_of(programs(**of), nic_programs(**of, pools=True))))
    return program if buffers == "none" else with_some_buffers(draw, program, bubble=buffers == "shared")


@st.composite
def _phases(draw: st.DrawFn, step: int) -> list[Phase]:
    times = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=4)))
    phases = [Phase(time * step, draw(st.sampled_from(FACTORS)), draw(st.integers(0, 3)) * step) for time in times]
    if phases[-1].factor == 0 and draw(st.integers(1, 8)) > 1:  # most that fail are repaired
        phases.append(Phase((times[-1] + 1 + draw(st.integers(0, 20))) * step))
    return phases


@st.composite
def _path(draw: st.DrawFn, program: Program, task: int) -> tuple[tuple[int, ...], ...]:
    """A way for a task, from where its own begins or elsewhere; from its NIC, if it has one."""
    nic = program.server_nic if program.has_nics else np.full(program.n_servers, -1)
    source = int(program.route_server[program.route_ptr[program.task_route[task]]])
    others = st.sampled_from(np.flatnonzero(nic < 0).tolist())
    servers = draw(st.lists(others, min_size=1, max_size=3))
    if nic[source] >= 0 or draw(st.booleans()):
        servers[:0] = [source]
    latency, channel = st.integers(0, 3), st.integers(0, program.channels - 1)
    return tuple((one, draw(latency), draw(channel)) for one in servers)


@st.composite
def fault_plans(draw: st.DrawFn, topology: Topology) -> FaultPlan:
    """A plan of up to four entries on a topology; most of what goes down is repaired."""
    faults: list[Fault] = []
    micros = st.integers(0, 30).map("{}us".format)
    links = st.sampled_from(sorted({topology.link_name(link) for link in range(topology.n_links)}))
    nodes = st.integers(0, topology.n_nodes - 1).map(topology.node_name)
    npus = st.integers(0, topology.n_npus - 1).map(topology.node_name)
    for what in draw(st.sets(st.integers(0, 7), max_size=4)) if topology.n_links else ():
        at, link, node = draw(micros), draw(links), draw(nodes)
        if what < 2:
            faults.append(LinkDown(link=link, at=at))
            faults += [Repair(link=link, at="40us")] * draw(st.integers(0, 1))
        elif what == 2:
            faults += [NodeDown(node=node, at=at), Repair(node=node, at="50us")]
        elif what == 3:
            faults.append(SlowLink(link=link, at=at, share=draw(st.sampled_from((0.1, 0.5, 1))), latency=draw(micros)))
        elif what == 4:
            faults.append(Straggler(npu=draw(npus), delay=draw(micros), speed=draw(st.sampled_from((0.5, 1)))))
        elif what == 5:
            faults.append(Loss(link=draw(st.sampled_from(("*", link))), probability=draw(st.sampled_from((0.01, 0.3)))))
        elif what == 6:
            faults.append(Jitter(link="*", mean=draw(micros), distribution=draw(st.sampled_from(DISTRIBUTIONS))))
    return FaultPlan(
        faults=tuple(faults), in_flight=draw(st.sampled_from(IN_FLIGHT)), timeout=f"{draw(st.integers(1, 20))}us",
        reroute=draw(st.sampled_from((None, "0s", "1us", "7us"))), seed=draw(st.integers(0, 9)),
    )
