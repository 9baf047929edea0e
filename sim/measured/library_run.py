"""The judge of a table of a library on a machine: is it what the machine can do, and if not, what limits it?

Machines that differ from the one described (`sim.measured.causes`) are held against the table; the likeliest is the
cause. What a table shows by its shape alone comes first: a collapse, a tree on two nodes, a protocol that is off.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sim.analytic.cut_bound import cut_bound, is_cheap
from sim.analytic.traffic import F64
from sim.library.expected import expected, timed
from sim.library.tuner import SENDRECV, Setting, candidates
from sim.measured.causes import Cause, causes, healthy, ll128_off
from sim.measured.diagnosis import GOOD, PLATEAU, Diagnosis, Rate
from sim.measured.evidence import Point, breaks, by_size, collapse, contradictions, outliers
from sim.measured.fit import Fitted, Prior, fit
from sim.measured.of_library import BETWEEN, INSIDE, LATENCY, busbw, ceiling, times_of
from topologies.checks import WeftError, checked
from topologies.text.brief import one_line
from topologies.units import counted, format_rate, format_size

NOISE = 0.1
"""Standard deviation of the logarithm of a time around the model, scatter of rates apart."""

SAME = 6
"""Independent points that the small, and the large, messages of a table count for."""

LARGE = 2**20
LEAST_FOR_RATES = 2**19
"""One slot of Simple: smaller messages are of latency alone, whatever they take."""

MOVES = 0.3
"""Share of the time from which bytes, and not latency, are seen."""

ABOVE_PORTS, ABOVE_MOST = 1.03, 1.06
"""Of the raw rate of the NICs, from which it was passed; of what a cause leaves, up to which noise may lift a point."""

SLOWER, SOMEWHAT, AS_PREDICTED, ELSEWHERE = 1.35, 1.2, 1.25, 1.25
"""Factors by which sizes without a protocol are slower, each at least, may be off its prediction, and other sizes off
the healthy."""

LEAST_OF_HOLE = 3
DELAYED = 2.0
WORTH_A_NOTE = 1.0
BEAT_GOOD = ("nvls-off", "sharp-off")
"""Causes that leave more than `GOOD` of some machines' rate, and are sharp enough to be believed there."""

_FREE = (Prior(0.0, 1.0), Prior(0.0, 1.0), Prior(0.0, 1.0))


class Finding(NamedTuple):
    """A verdict, its cause in a word, and in words."""

    verdict: str
    cause: str
    limit: str


@checked
@one_line
@dataclass(frozen=True)
class LibraryRun:
    """A table and what ran.

    Attributes
    ----------
    source : str
        The file, or another name.
    setting : Setting
    points : sequence of (int, float)
        Size in bytes and seconds; several of a size count by their median.

    Raises
    ------
    WeftError
        No point, or none above zero.

    Examples
    --------
    >>> from topologies.machines.profile import machine
    >>> one = Setting(machine=machine("dgx-h100"), nodes=4, gpus=8, collective="all-gather")
    >>> LibraryRun("table", one, [(2**30, 0.0214)]).diagnosis().limit
    'one NIC of 8 in use: a dead rail, or NCCL_IB_HCA'
    """

    source: str
    setting: Setting
    points: Sequence[Point]

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", by_size(self.points))
        if not self.points:
            raise WeftError(f"{self.source} has no measured time to judge")

    @cached_property
    def contradictions(self) -> tuple[int, ...]:
        """Sizes that took longer than larger ones."""
        return contradictions(self.points)

    @cached_property
    def steady(self) -> tuple[Point, ...]:
        """The points without those that contradict larger ones."""
        return tuple(point for point in self.points if point[0] not in self.contradictions) or tuple(self.points)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Every point beside what is expected there."""
        return [_row(self.setting, size, time) for size, time in self.points]

    @property
    def best(self) -> dict[str, Any]:
        """The row of the highest bandwidth that nothing contradicts."""
        steady = dict(self.steady)
        return max((row for row in self.rows if row["size_bytes"] in steady), key=lambda row: float(row["busbw_GBps"]))

    def fitted(self, cause: Cause) -> Fitted:
        """A cause at the rates that fit best."""
        sizes, times = zip(*self.steady, strict=True)
        return fit(times_of(cause.setting, sizes), np.array(times), cause.priors, NOISE, _weights(sizes))

    def diagnosis(self) -> Diagnosis:
        """Judge it."""
        setting, best = self.setting, self.best
        finding = next(found for rule in _RULES if (found := rule(self)) is not None)
        fastest = min(timed(free, one, best["size_bytes"]).time_s for free in [_free(setting)]
                      for one in candidates(free))
        sizes = [size for size, _ in self.points]
        choices = [(row["algorithm"], row["protocol"]) for row in self.rows]
        rates = rates_of([self])
        return Diagnosis(
            source=self.source, ran=ran(setting), collective=setting.collective, nodes=setting.nodes, n_ranks=setting.n,
            nics=setting.nics if setting.nodes > 1 else 0, points=tuple(self.points), verdict=finding.verdict,
            cause=finding.cause, limit=finding.limit,
            algorithm=f"{best['algorithm']} {best['protocol']}", share=best["ratio"],
            share_of_any=fastest / best["measured_s"], share_of_bound=self._share_of_bound(), rates=rates,
            switches=tuple(size for size, (one, other) in zip(sizes, pairwise(choices), strict=False) if one != other),
            breaks=breaks(self.steady), outliers=outliers(sizes, [row["ratio"] for row in self.rows]),
            contradictions=self.contradictions, notes=tuple(self._notes(rates, finding)), expected=tuple(self.rows),
        )

    def _share_of_bound(self) -> float | None:
        setting = self.setting
        if setting.collective == SENDRECV or setting.gpus != setting.machine.gpus:
            return None
        topology = setting.machine.topology(setting.nodes)
        if not is_cheap(topology):
            return None
        reduces = setting.machine.gpu.multicast > 0
        bound = cut_bound(topology, setting.collective, reducing_switches=reduces)
        return float(bound.s_per_byte) * float(self.best["size_bytes"]) / float(self.best["measured_s"])

    def _notes(self, rates: Sequence[Rate], finding: Finding) -> list[str]:
        found = []
        latency = next((rate for rate in rates if rate.name == "latency"), None)
        if latency is not None and latency.determined and latency.share.low > DELAYED and finding.cause != "per-step":
            found.append(f"latency is {latency.share.value:.1f} times the expected one: slow hosts, or LL is off")
        dead = next((one for one in causes(self.setting) if one.name == "dead-rail"), None)
        usual = healthy(self.setting)
        if (
            finding.verdict == "good" and dead is not None and not self.setting.algorithms and self._moves(usual)
            and self.fitted(dead).cost < self.fitted(usual).cost - WORTH_A_NOTE
        ):
            found.append(f"{dead.words}, would look the same: judge pairs of nodes, or against an earlier run")
        if self.best["ratio"] > 1 / GOOD:
            found.append("faster than this machine should be: is it this machine, are sizes those of whole arrays?")
        return found

    def _moves(self, cause: Cause) -> bool:
        """Whether moving bytes takes part of the time of some size, on a machine as the cause has it."""
        sizes = [size for size, _ in self.steady]
        x = self.fitted(cause).x
        still = x.copy()
        still[LATENCY] -= 20.0
        times = times_of(cause.setting, sizes)
        launch = cause.setting.launch_s
        moving, whole = times(still), times(x)
        return bool(np.any((moving > MOVES * whole) & (whole > 1.01 * launch)))


def _weights(sizes: Sequence[int]) -> F64:
    """Of points: errors of the model at neighboring sizes are alike, so small and large ones count for few each."""
    large = np.array(sizes) >= LARGE
    found: F64 = np.where(large, min(1.0, SAME / max(large.sum(), 1)), min(1.0, SAME / max((~large).sum(), 1)))
    return found


def _row(setting: Setting, size: int, time_s: float) -> dict[str, Any]:
    one = expected(setting, size)
    return {
        "size_bytes": size, "measured_s": time_s, "expected_s": one.time_s, "ratio": one.time_s / time_s,
        "busbw_GBps": busbw(setting, size, time_s), "algorithm": one.algorithm, "protocol": one.protocol,
        "limit": one.limit,
    }


def _free(setting: Setting) -> Setting:
    return replace(setting, algorithms=(), protocols=())


def ran(setting: Setting) -> str:
    """What ran on what, for people."""
    ports = f", {setting.nics} x {setting.machine.nic.name} a node" if setting.nodes > 1 else ""
    return (f"{setting.collective} on {setting.machine.name}, {counted(setting.nodes, 'node')} of "
            f"{counted(setting.gpus, 'GPU')} ({setting.machine.gpu.name}){ports}")


def rates_of(runs: Sequence[LibraryRun]) -> tuple[Rate, ...]:
    """One rate per class of links, and one factor on latency, from all tables of a machine together."""
    every = [[size for size, _ in run.steady] for run in runs]
    models = [times_of(run.setting, sizes) for run, sizes in zip(runs, every, strict=True)]

    def times(x: F64) -> F64:
        return np.concatenate([model(x) for model in models])

    measured = np.array([time for run in runs for _, time in run.steady])
    found = fit(times, measured, _FREE, NOISE, np.concatenate([_weights(sizes) for sizes in every]))
    gpu, nic = runs[0].setting.machine.gpu, runs[0].setting.machine.nic
    inside = "PCIe" if gpu.name == "rtx-pcie" else "Infinity Fabric" if gpu.name.startswith("mi") else "NVLink"
    rates = []
    if any(run.setting.gpus > 1 for run in runs):
        rates.append(Rate(inside, found.interval(INSIDE), found.determined(INSIDE), f"{format_rate(gpu.ring)} a GPU"))
    if any(run.setting.nodes > 1 for run in runs):
        port = f"{format_rate(nic.port * nic.reached)} a port"
        rates.append(Rate("NICs", found.interval(BETWEEN), found.determined(BETWEEN), port))
    return (*rates, Rate("latency", found.interval(LATENCY), found.determined(LATENCY), "expected"))


# --- the rules, in order ------------------------------------------------------------------------------------------


def _collapsed(run: LibraryRun) -> Finding | None:
    large = [point for point in run.steady if point[0] >= LARGE]
    at = collapse(large)
    if at and run.rows[-1]["ratio"] < GOOD:
        return Finding("slow-hw", "collapse", f"beyond {format_size(at)} larger messages are slower: packets are lost "
                       "under load (flow control, PFC)")
    return None


def _tree_of_two(run: LibraryRun) -> Finding | None:
    setting = run.setting
    passes = run.best["busbw_GBps"] > ABOVE_PORTS * setting.nics * setting.machine.nic.port / 1e9
    rings = setting.algorithms and not {"Tree", "NVLS", "NVLSTree"} & set(setting.algorithms)
    if setting.nodes == 2 and setting.collective == "all-reduce" and passes and not rings:
        return Finding("tree-2n", "tree-2n", "busbw passes the NICs: on two nodes a tree sends half as much as a ring; "
                       "force Ring to test the NICs")
    return None


def _forced_protocol(run: LibraryRun) -> Finding | None:
    """LL or LL128 forced at sizes where Simple is faster."""
    setting, best = run.setting, run.best
    if not setting.protocols or "Simple" in setting.protocols or best["size_bytes"] < LARGE:
        return None
    if expected(replace(setting, protocols=()), best["size_bytes"]).time_s < best["measured_s"] / SLOWER:
        named = "/".join(setting.protocols)
        return Finding("wrong-config", "protocol", f"{named} is forced or chosen where Simple is faster")
    return None


def _hole(run: LibraryRun) -> Finding | None:
    """Sizes that are as slow as without LL128, and the others as expected."""
    cause = ll128_off(run.setting)
    if cause is None or run.best["ratio"] < GOOD:  # a hole has an end
        return None
    ratio = {row["size_bytes"]: row["measured_s"] / row["expected_s"] for row in run.rows}
    other = {size: expected(cause.setting, size).time_s / expected(run.setting, size).time_s for size in ratio}
    hole = [size for size in ratio if other[size] >= SLOWER]
    rest = [ratio[size] for size in ratio if other[size] < 1.1]
    if len(hole) < LEAST_OF_HOLE or not rest or statistics.median(ratio[size] for size in hole) < SLOWER:
        return None
    if sum(ratio[size] >= SOMEWHAT for size in hole) < 0.8 * len(hole):
        return None
    off = statistics.median(ratio[size] / other[size] for size in hole)
    if not 1 / AS_PREDICTED <= off <= AS_PREDICTED or statistics.median(rest) > ELSEWHERE:
        return None
    sizes = f"{format_size(hole[0])} to {format_size(hole[-1])}"
    return Finding(cause.verdict, cause.name, f"{cause.words} ({sizes})")


def _likeliest(run: LibraryRun) -> Finding:
    """The machine whose tables are likeliest."""
    setting, best = run.setting, run.best
    top, share = float(best["busbw_GBps"]), float(best["ratio"])
    waits = all(row["limit"] in ("launch", "latency") for row in run.rows)  # then links show by sharp numbers only
    possible = [one for one in causes(setting) if top <= ABOVE_MOST * one.most_GBps and not (waits and one.vague)]
    won = min(possible, key=lambda one: run.fitted(one).cost + one.cost)
    if best["size_bytes"] < LEAST_FOR_RATES or not run._moves(won):
        return _of_small(run)
    if won.name == "ring-of-two":
        return Finding(won.verdict, won.name, won.words)
    if won.name == "healthy" or (share >= GOOD and won.name not in BEAT_GOOD):
        filled = busbw(setting, best["size_bytes"], best["expected_s"]) >= PLATEAU * ceiling(setting)
        if not filled and top < PLATEAU * ceiling(setting):
            size = format_size(best["size_bytes"])
            return Finding("too-small", "healthy", f"as expected; {size} is too small to fill the links")
        limit = {"inside": "the links inside a node", "between": "the NICs"}.get(best["limit"], best["limit"])
        return Finding("good", "healthy", limit)
    return Finding(won.verdict, won.name, won.words)


def _of_small(run: LibraryRun) -> Finding:
    """Messages that are too small for any rate."""
    late = 1 / statistics.median(row["ratio"] for row in run.rows)
    if late <= DELAYED:
        return Finding("too-small", "healthy", "latency, as expected: these messages say nothing of the links")
    return Finding("slow-unknown", "latency", f"latency, {late:.1f} times the expected one")


_RULES = (_collapsed, _tree_of_two, _forced_protocol, _hole, _likeliest)

