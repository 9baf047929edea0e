"""What a user gets: time, bandwidths, where the time went, and the provenance to run it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collectives.core.schedule import Schedule
from sim.faults.cost import FAULTS_BREAK, FaultCost
from sim.lower.schedule import Lowered
from sim.program.model import Model
from sim.program.outcome import Outcome
from sim.why.path import Why
from topologies.text.brief import cut
from topologies.text.notebook import html_table, to_frame
from topologies.units import PS_PER_S, format_size, format_time

if TYPE_CHECKING:
    import pandas

GB = 10**9


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """One simulated collective.

    Attributes
    ----------
    schedule : Schedule
    model : Model
    engine : str
    time_ps : int
    events : int
        Chunks that crossed a link, of the representatives that were simulated.
    lower_bound_ps, estimate_ps : int
        No run is faster; alpha-beta steps in lockstep.
    wall_s : float
        Seconds of this machine, lowering included.
    lowered : Lowered
    outcome : Outcome or None
        Arrays of the run; None for the analytic engine.
    faults : FaultCost or None
        What faults cost, where there were any.
    """

    schedule: Schedule
    model: Model
    engine: str
    time_ps: int
    events: int
    lower_bound_ps: int
    estimate_ps: int
    wall_s: float
    lowered: Lowered = field(repr=False)
    outcome: Outcome | None = field(default=None, repr=False)
    faults: FaultCost | None = field(default=None, repr=False)

    @property
    def time_s(self) -> float:
        """Time of the collective in seconds."""
        return self.time_ps / PS_PER_S

    @property
    def algbw(self) -> float:
        """Size over time in GB/s, as nccl-tests counts it; 0 for an empty array."""
        return self.schedule.size_bytes / self.time_s / GB if self.time_ps else 0.0

    @property
    def busbw(self) -> float:
        """algbw times the collective's factor, in GB/s. May exceed a link's rate: it knows no topology."""
        return self.algbw * self.schedule.kind.bus_factor(self.schedule.pattern.p)

    def __repr__(self) -> str:
        return f"<Result {cut(self._headline, 100)}>"

    def _repr_html_(self) -> str:
        return html_table(self._headline, self.row())

    def to_frame(self) -> pandas.DataFrame:
        """`row()` as a data frame of one row; see `to_frame` for many.

        Raises
        ------
        WeftError
            pandas is not installed.
        """
        return to_frame([self.row()])

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
        return self.lowered.symmetry if self.faults is None else FAULTS_BREAK

    @property
    def wire_bytes(self) -> int:
        """Bytes that left all ranks, padding to whole elements included."""
        return self.lowered.wire_bytes()

    @property
    def link_busy_ps(self) -> npt.NDArray[np.int64]:
        """Busy time of every link, (n_links,)."""
        if self.faults is not None and self.outcome is not None:
            return self.faults.faulty.link_busy_ps(self.schedule.topology.n_links, self.outcome.busy_ps)
        busy = self.outcome.busy_ps if self.outcome is not None else np.zeros(self.lowered.program.n_servers, np.int64)
        return self.lowered.link_busy_ps(busy)

    @property
    def link_utilisation(self) -> npt.NDArray[np.float64]:
        """Busy share of the time of every link, (n_links,)."""
        return self.link_busy_ps / max(self.time_ps, 1)

    @property
    def effbw(self) -> float:
        """What the busiest link carried over the time, in GB/s."""
        if self.outcome is None or not self.time_ps or not self.outcome.busy_ps.size:
            return 0.0
        rate = self.schedule.topology.bandwidth_Bps
        return float((self.link_utilisation * rate).max()) / GB

    def why(self) -> Why:
        """The critical path; runs the schedule once more with a log."""
        from sim.why.explain import explain_lowered

        if self.faults is not None and self.outcome is not None:
            from sim.run.faulty_run import explain_schedule

            return explain_schedule(self.lowered, self.faults.faulty, self.outcome)
        return explain_lowered(self.lowered)

    def row(self) -> dict[str, Any]:
        """One tidy row of a table; keys may be added, never renamed."""
        return {
            "topology": self.schedule.topology.name,
            "npus": self.schedule.topology.n_npus,
            "collective": self.schedule.kind.name,
            "algorithm": self.schedule.pattern.algorithm,
            "form": self.schedule.pattern.form,
            "size_bytes": self.schedule.size_bytes,
            "time_s": self.time_s,
            "algbw_GBps": self.algbw,
            "busbw_GBps": self.busbw,
            "effbw_GBps": self.effbw,
            "wire_bytes": self.wire_bytes,
            "events": self.events,
            "engine": self.engine,
            "symmetry": self.symmetry,
            "proof": self.schedule.proof,
            "forwarding": self.model.forwarding,
            "chunk_bytes": self.model.chunk_bytes,
            "chunks": self.model.chunks,
            "lower_bound_s": self.lower_bound_ps / PS_PER_S,
            "estimate_s": self.estimate_ps / PS_PER_S,
            "wall_s": self.wall_s,
        } | ({} if self.faults is None else self.faults.row())

    def notes(self) -> list[str]:
        """What a reader of the number should know."""
        said = [] if self.faults is None else [str(self.faults)]
        if self.faults is not None and self.outcome is not None:
            from sim.faults.effects import without_effect

            said += without_effect(self.faults.plan, self.faults.faulty, self.schedule.topology, self.outcome)
        p = self.schedule.pattern.p
        blocks = self.schedule.pattern.n_blocks * self.schedule.block_bytes
        asked = self.schedule.size_bytes * (p if self.schedule.kind.name == "all-to-all" else 1)
        asked *= p // self.schedule.pattern.group_size
        if asked and blocks > 2 * asked:
            said.append(
                f"padding to whole elements makes the {format_size(asked)} array {format_size(blocks)} on the wire"
            )
        return said

    def __str__(self) -> str:
        head = f"{self.schedule.name} {self.schedule.kind.name} of {format_size(self.schedule.size_bytes)}"
        lines = [
            f"{head} on {self.schedule.topology.name}: {format_time(self.time_ps)}",
            f"  algbw {self.algbw:.4g} GB/s, busbw {self.busbw:.4g} GB/s, lower bound "
            f"{format_time(self.lower_bound_ps)}, alpha-beta {format_time(self.estimate_ps)}",
            f"  {self.engine} engine, {self.model.describe()}",
            f"  {self.symmetry}; schedule {self.schedule.proof}",
        ]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes()])

