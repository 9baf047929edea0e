"""What a user gets: times, bandwidths, where the time went, and the provenance to run it again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from collectives.core.schedule import Schedule
from collectives.registry import REDUCES, REDUCING
from sim.analytic.bounds import flows_bound_ps, lower_bound_ps
from sim.analytic.estimate import estimate_ps
from sim.faults.apply import add_faults
from sim.faults.cost import FaultCost, without_effect
from sim.lower.credits import buffer_note
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.lower.progress import progress_told
from sim.lower.rotor import turns_of, with_turns
from sim.program import Program
from sim.program.columns import work_of_servers
from sim.program.model import MOST_SPREAD, Model, changed
from sim.program.outcome import Outcome
from topologies.checks import Integer, Natural, WeftError, checked
from topologies.text.brief import Tabular, cut, html_table
from topologies.units import PS_PER_S, counted, format_size, format_time
from workloads.job import Job

if TYPE_CHECKING:
    from sim.timeline.timeline import Timeline
    from sim.why.path import Why
    from sim.why.spans import Span, Spans
    from sim.why.spread import Spread

# The methods that look into a run import what they need themselves: it takes a moment, and `weft --help` and
# readers of stored results do without it.

GB = 10**9


@checked
@dataclass(frozen=True, eq=False, kw_only=True)
class Result(Tabular):
    """One simulated job: a collective, a training iteration, all tenants of a fabric.

    Bandwidths are of a schedule alone; `spans`, `compute_ps`, `communication_ps`, `busy_ps` and `exposed_ps` look at
    the operations of a job on each NPU.

    Attributes
    ----------
    job : Job
    model : Model
    engine : str
    time_ps : int
        From the beginning to the end of the last operation; of the analytic engine the closed form or the
        estimate, or the lower bound where that is more.
    events : int
        Chunks that crossed a server, or flows, of the representatives that were simulated.
    wall_s : float
        Seconds of this machine, lowering included.
    lowered : Lowered
        The program that was run, with its faults, and its legend.
    ran : Outcome or None
        Arrays of the run, without the times of each task where they are many; None for the analytic engine.
    faults : FaultCost or None
        What faults cost, where there were any.
    circuits : str
        Of a job that leaves its circuits to a policy: what was the quickest, and what others take.
    """

    job: Job
    model: Model
    engine: str
    time_ps: int
    events: int
    wall_s: float
    lowered: Lowered
    ran: Outcome | None = None
    faults: FaultCost | None = None
    circuits: str = ""

    @property
    def schedule(self) -> Schedule:
        """The schedule, of a job that is nothing else.

        Raises
        ------
        WeftError
            The job is of several operations, or of another kind.
        """
        return self.lowered.schedule

    @property
    def program(self) -> Program:
        """What was run, with its faults."""
        return self.lowered.program

    @cached_property
    def outcome(self) -> Outcome | None:
        """Arrays of the run with the times of each task, for which a run of many tasks is repeated."""
        if self.ran is None or self.ran.start_ps.size == self.program.n_tasks:
            return self.ran
        again: Outcome = _explain().run(self.program)
        return again

    @cached_property
    def healthy(self) -> Lowered:
        """The program without faults, and its legend: all NPUs, where there are faults."""
        return self.lowered if self.faults is None else lower(self.job, self.model, "off")

    @cached_property
    def lower_bound_ps(self) -> int:
        """No run is faster."""
        plan = None if self.faults is None else self.faults.plan
        return (flows_bound_ps if self.engine == "fluid" else lower_bound_ps)(self.lowered, plan)

    @cached_property
    def estimate_ps(self) -> int | None:
        """Alpha-beta steps in lockstep, of a schedule alone on a fabric without faults; None on a rotor."""
        if self.job.alone is None or turns_of(self.job.topology) is not None:
            return None
        return estimate_ps(self.lowered if self.faults is None else lower(self.job, self.model))

    @property
    def time_s(self) -> float:
        """`time_ps` in seconds."""
        return self.time_ps / PS_PER_S

    @property
    def algbw(self) -> float:
        """Size over time in GB/s, as nccl-tests counts it; 0 for an empty array."""
        return _algbw(self.schedule, self.time_ps)

    @property
    def busbw(self) -> float:
        """algbw times the collective's factor, in GB/s. May exceed a link's rate: it knows no topology."""
        return self.algbw * self.schedule.kind.bus_factor(self.schedule.pattern.p)

    def __repr__(self) -> str:
        return f"<Result {cut(self._headline, 100)}>"

    def _repr_html_(self) -> str:
        return html_table(self._headline, self.row())

    def rows(self) -> list[dict[str, Any]]:
        """`row()` alone; `to_frame` of many results takes the row of each."""
        return [self.row()]

    @property
    def _headline(self) -> str:
        return str(self).partition("\n")[0]

    @property
    def goodput_Gbps(self) -> float:
        """Size over time in Gb/s, the unit of the papers."""
        return 8 * self.algbw

    @property
    def symmetry(self) -> str:
        """Which ranks were simulated."""
        return self.lowered.symmetry

    @property
    def wire_bytes(self) -> int:
        """Bytes that left all ranks, padding to whole elements included."""
        return self.lowered.wire_bytes()

    @property
    def link_busy_ps(self) -> npt.NDArray[np.int64]:
        """Busy time of every link, (n_links,)."""
        busy = self.ran.busy_ps if self.ran is not None else np.zeros(self.lowered.program.n_servers, np.int64)
        return self.lowered.link_busy_ps(busy)

    @property
    def link_utilization(self) -> npt.NDArray[np.float64]:
        """Busy share of the time of every link, (n_links,)."""
        return self.link_busy_ps / max(self.time_ps, 1)

    @property
    def link_carried_Bps(self) -> npt.NDArray[np.float64]:
        """Bytes that every link carried, headers included, over the time, (n_links,).

        Of a link that is slow for a while, each chunk counts once, though it may be lost and sent again.
        """
        carried = self.link_utilization * self.job.topology.bandwidth_Bps
        slow = self.lowered.slow_links()
        if slow.size and self.time_ps:
            carried[slow] = self.lowered.link_busy_ps(work_of_servers(self.program))[slow] / self.time_s
        return carried

    @property
    def effbw(self) -> float:
        """What the link that carried the most carried over the time, in GB/s."""
        return float(self.link_carried_Bps.max(initial=0.0)) / GB

    @cached_property
    def logged(self) -> Outcome:
        """The run with its log (or, under faults, its journal); one that kept none is repeated."""
        self._check_services()
        if self.ran is None or (self.ran.log is None and self.ran.journal is None):
            logged: Outcome = _explain().run_with_log(self.lowered)
            return logged
        return self.ran

    def _check_services(self) -> None:
        """WeftError: a fluid run has none."""
        if self.engine == "fluid":
            raise WeftError("a fluid run has rates and no services: simulate with the chunk engine to look into it")

    @checked
    def why(self, by: str = "dimension") -> Why:
        """The critical path.

        Parameters
        ----------
        by : {"dimension", "operation", "kind", "tenant"}
            How its pieces are named: by what was done on which class of links, or by whose they are.
        """
        why: Why = _explain().explain_run(self.lowered, self.logged, by)
        return why

    @checked
    def spread(self, n: Annotated[int, Integer(1, MOST_SPREAD)] = 4, *, seed: Natural = 0) -> Spread:
        """The range of the time over n perturbations that no specification would tell apart; see `sim.why.spread`.

        The same as beside the times of `weft compare`, `validate` and `trace`.

        WeftError: a result with faults, or of the analytic engine.
        """
        from sim.why.spread import spread  # only where it is asked for

        self._check_services()
        if self.faults is not None or self.ran is None:
            raise WeftError("a spread is of simulated runs without faults")
        return spread(self.job, n, model=self.model, seed=seed, time_ps=self.time_ps)

    @checked
    def timeline(self) -> Timeline:
        """Every service with its name, for `sim.timeline.perfetto.write_perfetto` and other pictures."""
        from sim.timeline.timeline import timeline  # only where it is asked for

        return timeline(self.lowered, self.logged)

    @property
    def ranks(self) -> list[int]:
        """NPUs that were simulated, each for those like it."""
        return self._spans.ranks

    @checked
    def spans(self) -> list[Span]:
        """Every operation on every simulated NPU, by start."""
        return self._spans.all

    @checked
    def compute_ps(self, rank: int) -> int:
        """Time for which the compute stream of an NPU is busy, up to the delivery of each computation."""
        return self._spans.compute_ps(rank)

    @checked
    def communication_ps(self, rank: int) -> dict[str, int]:
        """Time for which an NPU has an operation of each kind of communication in progress."""
        return self._spans.communication_ps(rank)

    @checked
    def busy_ps(self) -> dict[tuple[str, str], int]:
        """Time that each kind of communication takes on the busiest link of each dimension."""
        self._check_services()
        return dict(self._spans.busy_ps)

    @checked
    def exposed_ps(self, rank: int) -> dict[tuple[str, str], int]:
        """Where the time goes in which an NPU does not compute, by kind of communication and dimension.

        Compute and exposed times sum to the makespan.
        """
        return self._logged_spans.exposed_ps(rank)

    @cached_property
    def _logged_spans(self) -> Spans:
        """The same with a log: one walk serves all NPUs."""
        spans, has_log = self._spans, self.ran is not None and self.ran is self.logged
        return spans if has_log or spans.lowered is not self.lowered else type(spans)(self.lowered, self.logged)

    @cached_property
    def _spans(self) -> Spans:
        """The operations; a schedule alone is run once more, with the joins that show when each NPU has finished."""
        from sim.why.spans import Spans, run_with_joins  # only where it is asked for

        if self.ran is not None and self.job.alone is None:
            return Spans(self.lowered, self.ran)
        self._check_services()
        cost = self.faults
        return Spans(*run_with_joins(
            self.lowered, with_turns if cost is None else lambda one, turns: add_faults(one, cost.plan, turns),
        ))

    @property
    def rank_progress(self) -> str:
        """What ranks waited for before their next step; by algorithm, where they differ."""
        return progress_told(self.job, self.model)

    @property
    def assumptions(self) -> str:
        """The model in one line for people, with what ranks waited for."""
        return self.model.describe(progress=self.rank_progress)

    def row(self) -> dict[str, Any]:
        """One tidy row of a table; keys may be added, never renamed.

        Of a job that is more than a schedule alone, what only a schedule has is left out.
        """
        topology = self.job.topology
        alone = self.job.of_schedule is not None
        what = self._row_of_schedule() if alone else {"operations": len(self.job.operations), "time_s": None}
        row = {
            "topology": topology.name, "npus": topology.n_npus, **what, "events": self.events, "engine": self.engine,
            "symmetry": self.symmetry,
        }
        if alone:
            row["proof"] = self.schedule.proof
        row |= {
            "forwarding": self.model.forwarding, "chunk_bytes": self.model.chunk_bytes, "chunks": self.model.chunks,
            "discipline": self.model.discipline,
            "lower_bound_s": None,
            "rank_progress": self.rank_progress,
        }
        if self.model.nic is not None:
            row |= self.model.nic.row()
        if self.model.buffer_bytes is not None:
            row |= {"buffer_bytes": self.model.buffer_bytes, "bubble": self.model.bubble}
        row |= {name: value for name, value in changed(self.model) if name not in row and name != "seed"}
        return row | self.rated() | {"wall_s": self.wall_s} | ({} if self.faults is None else self.faults.row())

    def _row_of_schedule(self) -> dict[str, Any]:
        schedule = self.schedule
        return {
            "collective": schedule.kind.name, "algorithm": schedule.pattern.algorithm, "form": schedule.pattern.form,
            "size_bytes": schedule.size_bytes, **dict.fromkeys(("time_s", "algbw_GBps", "busbw_GBps", "effbw_GBps")),
            "wire_bytes": self.wire_bytes,
        }

    def rated(self) -> dict[str, Any]:
        """The columns of `row` that the rates of links decide, of a fabric without faults: the form is as it is."""
        alone = self.job.of_schedule
        carried_Bps = np.zeros(0) if alone is None else self.link_carried_Bps
        return rated(alone, self.time_ps, self.lower_bound_ps, self.estimate_ps, carried_Bps)

    def notes(self) -> list[str]:
        """What a reader of the number should know: the cost of faults, which of them did nothing, and padding.

        Notes of the patterns, such as a loss of bandwidth, come first.
        """
        alone = self.job.of_schedule
        notes = [f"{alone.name}: {alone.pattern.note}"] if alone is not None and alone.pattern.note else []
        if alone is not None and (alone.pattern.algorithm in REDUCING or alone.pattern.in_switches):
            notes.append(REDUCES)
        notes += [self.circuits] * bool(self.circuits)
        notes += [] if self.faults is None else [str(self.faults)]
        if self.faults is not None and self.ran is not None:
            notes += without_effect(self.faults.plan, self.lowered, self.ran)
        notes += buffer_note(self.job.topology, self.model)
        return notes if alone is None else notes + _padding(alone)

    def _title(self) -> str:
        alone, topology = self.job.of_schedule, self.job.topology.name
        if alone is None:
            what = f"job of {counted(len(self.job.operations), 'operation')}"
        else:
            what = f"{alone.name} {alone.kind.name} of {format_size(alone.size_bytes)}"
        return f"{what} on {topology}: {format_time(self.time_ps)}"

    def __str__(self) -> str:
        bound = f"lower bound {format_time(self.lower_bound_ps)}"
        lines = [self._title(), f"  {bound}", f"  {self.engine} engine, {self.assumptions}", f"  {self.symmetry}"]
        if self.estimate_ps is not None:
            lines[1] = f"  algbw {self.algbw:.4g} GB/s, busbw {self.busbw:.4g} GB/s, {bound}, alpha-beta " + (
                format_time(self.estimate_ps)
            )
            lines[3] += f"; schedule {self.schedule.proof}"
        return "\n".join(lines + [f"  note: {note}" for note in self.notes()])


def _algbw(schedule: Schedule, time_ps: int) -> float:
    return schedule.size_bytes / (time_ps / PS_PER_S) / GB if time_ps else 0.0


def rated(
    alone: Schedule | None, time_ps: int, bound_ps: int, estimate_ps: int | None, carried_Bps: npt.NDArray[np.float64]
) -> dict[str, Any]:
    """The columns of `Result.rated`; bandwidths of a schedule alone."""
    found = {"time_s": time_ps / PS_PER_S, "lower_bound_s": bound_ps / PS_PER_S}
    if alone is not None:
        algbw = _algbw(alone, time_ps)
        found |= {"algbw_GBps": algbw, "busbw_GBps": algbw * alone.kind.bus_factor(alone.pattern.p),
                  "effbw_GBps": float(carried_Bps.max(initial=0.0)) / GB}
    return found if estimate_ps is None else found | {"estimate_s": estimate_ps / PS_PER_S}


def _padding(schedule: Schedule) -> list[str]:
    p = schedule.pattern.p
    blocks = schedule.pattern.n_blocks * schedule.block_bytes
    asked = schedule.size_bytes * (p if schedule.kind.name == "all-to-all" else 1) * (p // schedule.pattern.group_size)
    if not asked or blocks <= 2 * asked or schedule.kind.weights is not None:
        return []
    return [f"padding to whole elements makes the {format_size(asked)} array {format_size(blocks)} on the wire"]


def _explain() -> ModuleType:
    from sim.why import spans  # only where it is asked for

    return spans
