"""Simulated = estimate, or here is why: one row of times, and the account of the difference."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sim.analytic.closed_form import closed_form_ps
from sim.analytic.estimate import Estimate, estimate_parts
from sim.program.model import unknown_to
from sim.result import Result
from sim.simulation import simulate
from sim.why.path import QUEUEING, SERIALIZATION, Why, by_kind
from topologies.checks import WeftError, checked
from topologies.text.brief import Tabular, one_line
from topologies.units import PS_PER_S, format_time

MOST_FLOWS = 10_000
"""Limit on the flows that are simulated beside chunks: seconds, where all of them end apart."""

LATENCIES = ("propagation", "hop processing", "endpoint")


@checked
@one_line
@dataclass(frozen=True, eq=False)
class Validation(Tabular):
    """Prediction and simulation of one point, in ps."""

    result: Result
    # of steps in lockstep (`sim.analytic.closed_form`), or of arrays that stream along trees
    # (`sim.analytic.closed_form`); None if neither applies
    closed_form_ps: int | None
    estimate: Estimate  # alpha-beta, steps in lockstep, with the routes and loads of this schedule
    why: Why  # critical path of the simulated run
    fluid_ps: int | None  # of the same transfers as flows; None where the fluid engine cannot run them, or takes long
    # "spread_low_s" and "spread_high_s", the range over perturbed runs, where there were some
    spread: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def residual_ps(self) -> int:
        """Simulated minus estimated."""
        return self.result.time_ps - sum(self.estimate)

    @property
    def path_ps(self) -> dict[str, int]:
        """The critical path by what the time was spent on; sums to the simulated time."""
        return by_kind(self.why.parts)

    @property
    def residual_parts_ps(self) -> dict[str, int]:
        """Parts of the residual, if any: path minus estimate for latencies and for services, and the rest."""
        if not self.residual_ps:
            return {}
        path = self.path_ps
        latency = sum(path.get(name, 0) for name in LATENCIES)
        service = path.get(SERIALIZATION, 0) + path.get(QUEUEING, 0)
        parts = {
            "latency": latency - self.estimate.latency_ps,
            "service": service - self.estimate.load_ps,
            "other": sum(path.values()) - latency - service,
        }
        return {name: part for name, part in parts.items() if part}

    def verdict(self) -> str:
        """One line: that they agree, or the reasons for the difference."""
        if not self.residual_ps:
            return "simulated = estimate"
        return "; ".join(self._reason(name, part) for name, part in self.residual_parts_ps.items())

    def _reason(self, name: str, part: int) -> str:
        reason = _REASONS[name, part > 0]
        return f"{signed(part)} {reason if isinstance(reason, str) else reason(self)}"

    def rows(self) -> list[dict[str, Any]]:
        """The row of the point, as the list that tables take."""
        return [self.row()]

    def row(self) -> dict[str, Any]:
        """The row of a result, with the predictions and the account."""
        closed = None if self.closed_form_ps is None else self.closed_form_ps / PS_PER_S
        account = {"makespan_ps": self.why.makespan_ps, "parts_ps": self.why.parts}
        return self.result.row() | dict(self.spread) | {
            "closed_form_s": closed,
            "fluid_s": None if self.fluid_ps is None else self.fluid_ps / PS_PER_S,
            "estimate_latency_s": self.estimate.latency_ps / PS_PER_S,
            "estimate_load_s": self.estimate.load_ps / PS_PER_S,
            "residual_s": self.residual_ps / PS_PER_S,
            "residual_parts_ps": self.residual_parts_ps,
            "verdict": self.verdict(),
            "why": account,
            "notes": self.result.notes(),
        }


@checked
def validate(result: Result) -> Validation:
    """Compare a simulated result with its predictions; runs it once more, with a log."""
    form_ps = closed_form_ps(result.healthy, result.model)
    return Validation(result, form_ps, estimate_parts(result.healthy), result.why(), fluid_ps(result))


def fluid_ps(result: Result) -> int | None:
    """The time of the same transfers, whole, over fair links; None with what flows do not have, or beyond a limit."""
    if result.faults is not None or result.program.n_tasks > MOST_FLOWS:
        return None
    model = replace(result.model, chunks=1, chunk_bytes=None, discipline="fifo")
    try:
        return simulate(result.job, model=model, engine="fluid").time_ps
    except WeftError:
        return None


def signed(time_ps: int) -> str:
    """A difference in time: "+1.2 us"."""
    return ("+" if time_ps > 0 else "-") + format_time(abs(time_ps))


def _service_more(one: Validation) -> str:
    causes = []
    if queued := one.path_ps.get(QUEUEING, 0):
        causes.append(f"{format_time(queued)} of the path is queueing behind other transfers")
    if left_out := unknown_to("analytic", one.result.model):
        causes.append(f"the estimate leaves out {', '.join(left_out.values())}")
    if not one.result.schedule.size_bytes:
        causes.append("an empty chunk takes a picosecond")
    return "services beyond the fullest links'" + (f": {', and '.join(causes)}" if causes else "")


def _service_less(one: Validation) -> str:
    head = "heads count as delivery, and " if one.result.model.deliver == "head" else ""
    return f"services: {head}steps overlap, so that the fullest links of all steps do not add up"


_REASONS: dict[tuple[str, bool], str | Callable[[Validation], str]] = {
    ("service", True): _service_more,
    ("service", False): _service_less,
    ("latency", True): "latency: the path visits more steps than lockstep counts",
    ("latency", False): "latency: the path does not take the longest route of every step",
    ("other", True): "waiting",
    ("other", False): "waiting",
}
"""Why a part is more than its estimate (True), or less."""
