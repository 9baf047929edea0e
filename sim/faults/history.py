"""Every link and node over time, from the entries of a fault plan, and which of them it treats alike."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from sim.faults.names import breadth, links_named, node_named
from sim.faults.plan import FaultPlan, Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler, quantiles_ps
from sim.lower.marks import Marks
from sim.lower.rotor import turns_of
from sim.program.contract import I64
from sim.program.disrupt import Phase
from topologies import Topology, WeftError
from topologies.checks import told
from topologies.units import parse_time

AT_ONE_TIME = (Repair, SlowLink, LinkDown, NodeDown)
"""The order of what happens at one time: what is repaired and goes down then is down."""

Change = Repair | SlowLink | LinkDown | NodeDown
ONE = Fraction(1)


class _State(NamedTuple):
    share: Fraction = ONE
    latency_ps: int = 0
    down: bool = False


@dataclass
class History:
    """Links and nodes over time, and what holds for all of it, by number of the link or NPU."""

    topology: Topology
    plan: FaultPlan
    phases: dict[int, list[Phase]] = field(default_factory=dict)
    npu_phases: dict[int, list[Phase]] = field(default_factory=dict)
    # times at which routes may change, and the links that are down from then on
    breaks: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    speed: dict[int, Fraction] = field(default_factory=dict)
    delay_ps: dict[int, int] = field(default_factory=dict)
    loss: dict[int, float] = field(default_factory=dict)
    link_jitter: dict[int, I64] = field(default_factory=dict)
    npu_jitter: dict[int, I64] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._links: dict[int, _State] = {}
        self._dead_nodes: set[int] = set()
        self._down: set[int] = set()
        self._stragglers(fault for fault in self.plan.faults if isinstance(fault, Straggler))
        self._losses(fault for fault in self.plan.faults if isinstance(fault, Loss))
        self._jitters(fault for fault in self.plan.faults if isinstance(fault, Jitter))
        late = np.flatnonzero(np.isin(self.topology.src, list(self.speed)))
        self._note(0, late.tolist(), self.speed)
        timed = [(parse_time(fault.at, "at"), fault) for fault in self.plan.faults if isinstance(fault, Change)]
        for time, group in groupby(sorted(timed, key=_moment), key=lambda one: one[0]):
            self._at(time, [fault for _, fault in group])

    def _stragglers(self, faults: Iterable[Straggler]) -> None:
        given = _Given("straggler")
        for fault in faults:
            npu = node_named(self.topology, fault.npu, npu=True)
            given.note(fault.npu, [npu])
            self.delay_ps[npu] = parse_time(fault.delay, "delay")
            if fault.speed != 1:
                self.speed[npu] = Fraction(str(fault.speed))

    def _losses(self, faults: Iterable[Loss]) -> None:
        given = _Given("loss")
        for fault in faults:
            links = links_named(self.topology, fault.link)
            given.note(fault.link, links)
            self.loss.update(dict.fromkeys(links, fault.probability))

    def _jitters(self, faults: Iterable[Jitter]) -> None:
        of_links, of_npus = _Given("jitter"), _Given("jitter")
        for fault in faults:
            values = quantiles_ps(fault)
            if fault.link is not None:
                links = links_named(self.topology, fault.link)
                of_links.note(fault.link, links)
                self.link_jitter.update(dict.fromkeys(links, values))
            else:
                npu = node_named(self.topology, str(fault.npu), npu=True)
                of_npus.note(str(fault.npu), [npu])
                self.npu_jitter[npu] = values

    def _at(self, time: int, changes: list[Change]) -> None:
        """Everything that happens at one time."""
        slowed = _Given("slow-link")
        links: dict[int, None] = {}
        nodes: dict[int, None] = {}
        for fault in changes:
            if isinstance(fault, NodeDown) or (isinstance(fault, Repair) and fault.node is not None):
                node = node_named(self.topology, str(fault.node))
                (self._dead_nodes.discard if isinstance(fault, Repair) else self._dead_nodes.add)(node)
                touches = (self.topology.src == node) | (self.topology.dst == node)
                named = np.flatnonzero(touches).tolist()
                nodes[node] = None
            else:
                named = links_named(self.topology, str(fault.link))
                if isinstance(fault, SlowLink):
                    slowed.note(fault.link, named)
                self._change(fault, named)
            links |= dict.fromkeys(named)
        self._note(time, links, nodes)

    def _change(self, fault: Repair | SlowLink | LinkDown, links: list[int]) -> None:
        if isinstance(fault, Repair):
            self._links.update(dict.fromkeys(links, _State()))
        elif isinstance(fault, SlowLink):
            share, latency_ps = Fraction(str(fault.share)), parse_time(fault.latency, "latency")
            for link in links:
                self._links[link] = _State(share, latency_ps, self._links.get(link, _State()).down)
        else:
            for link in links:
                self._links[link] = self._links.get(link, _State())._replace(down=True)

    def _note(self, time: int, links: Iterable[int], npus: Iterable[int]) -> None:
        """Write down what is otherwise than before."""
        before = len(self._down), {link for link in links if link in self._down}
        for link in links:
            state, source = self._links.get(link, _State()), int(self.topology.src[link])
            dead = state.down or source in self._dead_nodes or int(self.topology.dst[link]) in self._dead_nodes
            (self._down.add if dead else self._down.discard)(link)
            share = state.share * self.speed[source] if source in self.speed else state.share
            _add(self.phases, link, Phase(time, Fraction(0) if dead else share, state.latency_ps))
        for npu in npus:
            share = Fraction(0) if npu in self._dead_nodes else self.speed.get(npu, ONE)
            _add(self.npu_phases, npu, Phase(time, share))
        if before != (len(self._down), {link for link in links if link in self._down}):
            self.breaks.append((time, frozenset(self._down)))


@lru_cache(maxsize=2)
def history_of(topology: Topology, plan: FaultPlan) -> History:
    """The history of a plan on a fabric, which is asked for before, while and after a run is prepared; read only.

    WeftError: a name that the topology does not have.
    """
    return History(topology, plan)


class _Given:
    """Which entry of one kind was the last to name a link or an NPU; entries come with the broad ones first."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.by: dict[int, str] = {}

    def note(self, name: str, named: list[int]) -> None:
        """Record an entry; reject one that is no more specific than the one before it."""
        for one in named:
            if one in self.by and breadth(self.by[one]) == breadth(name):
                raise WeftError(
                    f"fault plan: the {self.what} of {told(name)} is given twice at one time, by {told(self.by[one])} "
                    f"and {told(name)}: give one entry, or one of them for less of the fabric"
                )
        self.by.update(dict.fromkeys(named, name))


def _moment(timed: tuple[int, Change]) -> tuple[int, int, int]:
    time, fault = timed
    return time, AT_ONE_TIME.index(type(fault)), breadth(getattr(fault, "link", None) or "")


def _add(phases: dict[int, list[Phase]], key: int, phase: Phase) -> None:
    """Add a phase where it changes something; the last one of a time counts."""
    known = phases.setdefault(key, [])
    if known and known[-1].from_ps == phase.from_ps:
        known.pop()
    if (known[-1] if known else Phase(0))[1:] != phase[1:]:
        known.append(phase)
    if not known:
        del phases[key]


def marks_of(topology: Topology, plan: FaultPlan) -> Marks | None:
    """Marks of a plan; None of one that no symmetry survives.

    Random losses and delays are drawn for each transfer by its number, and detours are found around each failure: both
    differ between NPUs that are otherwise alike.
    """
    history = history_of(topology, plan)
    drawn = any(history.loss.values()) or any(
        np.any(values) for values in (*history.link_jitter.values(), *history.npu_jitter.values())
    )
    if drawn or (plan.reroute is not None and history.breaks):
        return None
    late, nodes, links, turns = history.delay_ps, history.npu_phases, history.phases, turns_of(topology)
    return Marks(
        _numbers((late.get(node, 0), tuple(nodes.get(node, ()))) for node in range(topology.n_nodes)),
        _numbers((turns and int(turns.link[link]), *links.get(link, ())) for link in range(topology.n_links)),
    )


def _numbers(values: Iterable[object]) -> I64:
    """Equal numbers for equal values."""
    known: dict[object, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)
