"""Which entries of a fault plan did nothing to a run."""

import numpy as np

from sim.faults.names import links_named
from sim.faults.plan import Fault, FaultPlan, Jitter, LinkDown, Loss, SlowLink, Straggler
from sim.lower.lowered import Lowered
from sim.program.contract import I64, Program
from sim.program.outcome import Outcome
from topologies import Topology
from topologies.core.paths import ranges
from topologies.units import format_time, parse_time

TOLD = 5


def without_effect(plan: FaultPlan, lowered: Lowered, outcome: Outcome) -> list[str]:
    """A line for each of the first entries that cannot have changed anything, and how many more there are.

    That is an entry from a time on at which the run was over, one with nothing in it, and one of links that no chunk
    came to, unless new routes led around them.
    """
    used = None
    if not lowered.program.is_healthy:
        server = lowered.program.route_server[_crossed(lowered.program, outcome)]
        used = set(np.flatnonzero(np.isin(lowered.orbits.link, lowered.server_link[server])).tolist())
    resent = [fault for fault in plan.faults if isinstance(fault, Loss) and lowered.resent]
    reasons = (
        (fault, _why_not(fault, plan, used, lowered.topology, outcome)) for fault in plan.faults if fault not in resent
    )
    said = [f"no effect: {fault_name(fault)}: {why}" for fault, why in reasons if why is not None]
    return said[:TOLD] + [f"no effect: {len(said) - TOLD} more entries of the plan"] * (len(said) > TOLD)


def fault_name(fault: Fault) -> str:
    """Kind, place and time of an entry: "LinkDown of npu0->npu1 at 5us"."""
    place = next(value for name in ("link", "node", "npu") if (value := getattr(fault, name, None)) is not None)
    at = getattr(fault, "at", None)
    return f"{type(fault).__name__} of {place}" + (f" at {at}" if at is not None else "")


def _crossed(program: Program, outcome: Outcome) -> I64:
    """Places in `route_hop` of what was served, or taken by flows: without a journal, and detours, all of them."""
    if outcome.journal is not None:
        return outcome.journal.at
    of_tasks = program.task_route.astype(np.int64)
    route = of_tasks if outcome.rates is None else program.every_route()[1][np.unique(outcome.rates.way)]
    return ranges(program.route_ptr[route].astype(np.int64), np.diff(program.route_ptr)[route])


def _why_not(fault: Fault, plan: FaultPlan, used: set[int] | None, topology: Topology, outcome: Outcome) -> str | None:
    if isinstance(fault, Straggler):
        return "it changes nothing" if fault.speed == 1 and fault.delay == "0s" else None
    if used is None:
        return "it changes nothing"
    if parse_time(getattr(fault, "at", "0s")) >= outcome.makespan_ps:
        return f"the run was over at {format_time(outcome.makespan_ps)}"
    kept_off = isinstance(fault, LinkDown) and plan.reroute is not None  # no chunk came, because it was down
    link = fault.link if isinstance(fault, (SlowLink, Loss, Jitter, LinkDown)) and not kept_off else None
    if link is not None and not used.intersection(links_named(topology, link)):
        return "no chunk came to it"
    return None
