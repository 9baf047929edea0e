"""What goes with what: every pair of features, as a small run that has both, or the reason why it has no meaning.

From here come the table in docs/background/model.md and the tests that run all pairs in both engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any, NamedTuple

from collectives import Schedule, build
from sim import FaultPlan, Tenant
from sim.faults.plan import Fault, Jitter, LinkDown, Loss, Repair, SlowLink, Straggler
from topologies import Topology, from_spec
from workloads.job import Job


class Feature(NamedTuple):
    """One of them: what it adds to a run."""

    title: str
    options: Mapping[str, Any] = MappingProxyType({})  # of `simulate`
    faults: tuple[Fault, ...] = ()
    plan: Mapping[str, Any] = MappingProxyType({})  # further keys of the fault plan
    work: str = ""  # what it wants of the work


SCHEDULE, JOB, TENANTS, POOLS, SLOTS, CIRCUITS, ROTOR = (
    "schedule", "job", "tenants", "pools", "slots", "circuits", "rotor"
)
LINK = "npu0->npu1"
DOWN = LinkDown(link=LINK, at="1.123us")

FEATURES = {
    "schedule": Feature("schedule", work=SCHEDULE),
    "job": Feature("job of several operations", work=JOB),
    "tenants": Feature("tenants", work=TENANTS),
    "nic": Feature("NICs", {"nic": "shared", "injection_rate": "20.5GB/s", "ejection_rate": "31GB/s"}),
    "progress": Feature("ranks that wait", {"rank_progress": "all"}),
    "buffer": Feature("buffers and credits", {"buffer": "3001B"}),
    "vcs": Feature("virtual channels", {"vcs": 2}),
    "bubble": Feature("bubble", {"bubble": True, "buffer": "3001B"}),
    "turns": Feature("round robin", {"discipline": "round-robin-flow"}),
    "ports": Feature("round robin over ports", {"discipline": "round-robin-port"}),
    "priority": Feature("priorities", {"discipline": "priority"}),
    "split": Feature("split ties", {"tie": "split"}),
    "head": Feature("head delivery", {"deliver": "head"}),
    "pools": Feature("pools", work=POOLS),
    "slots": Feature("in-network slots", work=SLOTS),
    "circuits": Feature("circuits", work=CIRCUITS),
    "rotor": Feature("circuits that take turns", work=ROTOR),
    "slow": Feature("slow links", faults=(SlowLink(link=LINK, at="900ns", share=0.3, latency="77ns"),)),
    "down": Feature("links down", faults=(DOWN, Repair(link=LINK, at="9us")), plan={"timeout": "3us"}),
    "reroute": Feature("new routes", faults=(DOWN, Repair(link=LINK, at="99us")),
                       plan={"timeout": "3us", "reroute": "1us"}),
    "loss": Feature("loss", faults=(Loss(link="*", probability=0.03),), plan={"timeout": "3us"}),
    "jitter": Feature("jitter", faults=(Jitter(link="*", mean="77ns"),)),
    "resent": Feature("loss that NPUs retry", faults=(Loss(link="*", probability=0.2),), work=SLOTS,
                      plan={"timeout": "30us", "retry": "npu"}),
    "drawn": Feature("jitter of computations", faults=(Jitter(npu="npu1", mean="77ns"),), work=JOB),
    "late": Feature("stragglers", faults=(Straggler(npu="npu1", delay="777ns", speed=0.7),)),
    "whole": Feature("no symmetry", {"symmetry": "off"}),
    "log": Feature("log", {"log": True}),
    "check": Feature("certificates", {"check": True}),
    "fluid": Feature("fluid engine", {"engine": "fluid"}),
}
KINDS = SCHEDULE, JOB, TENANTS

ONE_OF = "a run is of one of these"
ONE_ORDER = "a link has one order of service"
OF_A_JOB = "a change of circuits is an operation of a job"
ONE_RULE = "what is lost is sent again by one rule"
OF_ONE_KIND = ONE_OF, ONE_ORDER, OF_A_JOB, ONE_RULE
"""Reasons of pairs that cannot even be asked for."""
NO_SWITCH = "a rotor has neither rings nor a switch that adds"
WAITS_THERE = "what waits for the turn of a circuit waits for its repair as well"
NO_QUEUES = "flows share links at every moment: they have no chunks, and wait in no queue"
NO_RINGS = "NPUs retry around one switch, channels are of rings of links without switches"
ALONE = "an NPU that retries has nothing but its packets: an aggregation through one switch, alone"
NONE_HERE: dict[frozenset[str], str] = {
    **{frozenset(pair): ONE_OF for pair in combinations(KINDS, 2)},
    **{frozenset(pair): ONE_ORDER for pair in combinations(("turns", "ports", "priority"), 2)},
    **{frozenset(("fluid", other)): NO_QUEUES for other in (
        "nic", "buffer", "vcs", "bubble", "turns", "ports", "priority", "head", "loss", "jitter",
    )},
    frozenset(("vcs", "bubble")): "bubbles are the channels of a link by another rule",
    frozenset(("progress", "pools")): "pools let chunks of later steps in: ports of a step wait for each other",
    frozenset(("schedule", "circuits")): OF_A_JOB,
    **{frozenset((one, "resent")): NO_RINGS for one in ("vcs", "bubble")},
    frozenset(("schedule", "drawn")): "a schedule alone computes nothing",
    **{frozenset(("resent", other)): ALONE for other in ("job", "tenants", "drawn", "pools", "circuits")},
    frozenset(("resent", "loss")): ONE_RULE,
    **{frozenset(("rotor", other)): NO_SWITCH for other in ("vcs", "bubble", "resent")},
    frozenset(("rotor", "reroute")): WAITS_THERE,
}
"""Pairs without a meaning, and why."""


def fabric(wanted: set[str], names: Sequence[str]) -> Topology:
    """An unequal torus, whose routers may have slots too; without channels slots are in a switch."""
    if ROTOR in wanted:
        return from_spec("rotor:6x2,dwell=900ns,delay=70ns", bandwidth="33.3GB/s", latency="17ns")
    if SLOTS in wanted and not {"vcs", "bubble"}.intersection(names):
        return from_spec("switch:5", bandwidth="33.3GB/s", latency="17ns")
    return from_spec("torus:3x2", bandwidth="33.3GB/s,17GB/s", latency="17ns")


def _schedules(topology: Topology, wanted: set[str]) -> tuple[Schedule, Schedule]:
    if SLOTS in wanted:
        one = build("in-network", "all-reduce", topology, "4099B", "push", slots=3)
    elif POOLS in wanted:
        one = build("hierarchical", "all-reduce", topology, "4099B", pipeline_chunks=5, active_chunks=1)
    else:
        one = build("bucket", "all-reduce", topology, "4099B")
    if {SLOTS, POOLS} <= wanted:
        return one, build("hierarchical", "all-reduce", topology, "4099B", pipeline_chunks=5, active_chunks=1)
    return one, build("direct", "all-to-all", topology, "1009B")


@dataclass(frozen=True)
class Both:
    """A run with several features."""

    names: Sequence[str]
    features: list[Feature] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", [FEATURES[name] for name in self.names])

    def work(self) -> Schedule | Job | list[Tenant]:
        """What is run; a schedule, unless that is not enough."""
        wanted = {one.work for one in self.features}
        topology = fabric(wanted, self.names)
        one, other = _schedules(topology, wanted)
        if SCHEDULE in wanted or (not wanted & {JOB, TENANTS, CIRCUITS} and not {SLOTS, POOLS} <= wanted):
            return one
        job = Job(topology)
        begun = job.compute("forward", "1.5us")
        first = job.collective("gradients", one, after=[begun])
        if CIRCUITS in wanted:
            job.reconfigure("circuits", "2.5us", down=(), up=(0,), after=[begun])
        job.collective("experts", other, after=[begun], priority=-1)
        job.compute("update", "700ns", after=[first])
        if TENANTS in wanted:
            second = job if wanted & {CIRCUITS, JOB} else other
            return [Tenant(name="a", work=one), Tenant(name="b", work=second, arrival="777ns")]
        return job

    def arguments(self) -> dict[str, Any]:
        """Arguments of `simulate`."""
        found: dict[str, Any] = {"chunks": 3}
        for one in self.features:
            found |= one.options
        if found.get("engine") == "fluid":
            del found["chunks"]
        link = "npu0->switch0" if any(one.work == SLOTS for one in self.features) else LINK
        faults = tuple(fault for one in self.features for fault in one.faults)
        if faults := tuple(replace(one, link=link) if getattr(one, "link", "") == LINK else one for one in faults):
            keys = {key: value for one in self.features for key, value in one.plan.items()}
            if found.get("engine") == "fluid" or ROTOR in {one.work for one in self.features}:
                keys["in_flight"] = "wait"  # what is lost in flight is a chunk
            found["faults"] = FaultPlan(faults=tuple(dict.fromkeys(faults)), seed=3, **keys)
        return found


PAIRS = list(combinations(FEATURES, 2))
BEGIN, END = "<!-- what goes with what, by `make docs` -->\n", "\n<!-- end -->"
"""Around the table in docs/background/model.md."""


def table() -> str:
    """The pairs in Markdown: a mark where both run together, else the number of a reason."""
    reasons = list(dict.fromkeys(NONE_HERE.values()))
    names = list(FEATURES)
    lines = ["| | " + " | ".join(f"{at}" for at in range(1, len(names))) + " |", "|---|" + ":-:|" * (len(names) - 1)]
    for row, name in enumerate(names[1:], 2):
        cells = []
        for other in names[: row - 1]:
            why = NONE_HERE.get(frozenset((name, other)))
            cells.append("+" if why is None else ascii_lowercase[reasons.index(why)])
        lines.append(f"| {row} {FEATURES[name].title} | " + " | ".join([*cells, *[""] * (len(names) - row)]) + " |")
    said = [f"- {ascii_lowercase[at]}: {why}" for at, why in enumerate(reasons)]
    return "\n".join([f"1 is {FEATURES[names[0]].title}; + runs.", "", *lines, "", *said])


def on_page(text: str) -> str:
    """A page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"
