"""The judge of a table of a library on a machine: is it what the machine can do, and if not, what limits it?

Machines that differ from the one described (`sim.measured.causes`) are held against the table; the likeliest is the
cause. What a table shows by its shape alone comes first: a collapse, a tree on two nodes, a protocol that is off.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sim.analytic.cut_bound import cut_bound, is_cheap
from sim.analytic.traffic import F64
from sim.library.expected import chosen, expected, parts_us, timed
from sim.library.tuner import SENDRECV, Setting, candidates
from sim.measured import diagnosis
from sim.measured.causes import (
    BETWEEN,
    INSIDE,
    LATENCY,
    PCIE_GBPS,
    SCATTER,
    Cause,
    Hole,
    busbw,
    causes,
    ceiling,
    healthy,
    hole,
    limited_by,
    ll128_off,
    times_of,
)
from sim.measured.diagnosis import DELAYED, LARGE, Rate, best, repeats
from sim.measured.fit import Fitted, Prior, fit
from topologies.checks import WeftError, checked
from topologies.text.brief import one_line
from topologies.units import counted, format_rate, format_size

NOISE = 0.1
"""Standard deviation of the logarithm of a time around the model, scatter of rates apart."""

SAME = 6
"""Independent points that the small, and the large, messages of a table count for."""

LARGEST_OF_TABLES = 2**30
"""A size from which nobody measures much larger ones: if latency is nothing there, links are full."""

FULL, ENOUGH_FOR_NOISE, NOISY = 2**24, 6, 0.1
"""Bytes from which, sizes of which, and noise from which single sizes of a table are luck."""

LEAST_FOR_RATES = 2**19
"""One slot of Simple: smaller messages are of latency alone, whatever they take."""

MOVES = 0.3
"""Share of the time from which bytes, and not latency, are seen."""

ABOVE_PORTS, ABOVE_MOST = 1.03, 1.06
"""Of the raw rate of the NICs, from which it was passed; of what a cause leaves, up to which noise may lift a point."""

SLOWER, SOMEWHAT, ELSEWHERE = 1.35, 1.15, 1.25
"""Factors: by which a protocol is slower where it is forced; of medium sizes, from which a note says so; and by which
sizes beside the hole of LL128 may be slower than expected."""

FASTER_THAN_BOUND = 0.05
"""Noise up to which a time below the bound of the raw links is not called impossible."""

SLIGHTLY, FAR_ABOVE = 1.1, 2.0
"""Of what is expected, and of what the fastest algorithm should reach: aggregation that nobody mentioned gives 1.6."""

SPINE = 3
"""Parameter after those of one table."""

UNITS = 100.0
"""Factor by which every size is off, from which the times are in another unit."""

FOLLOWS, TELLS = 0.08, 0.03
"""Of logarithms: how far times may be off those of a cause, and how much its own must vary to show by their shape."""

FLAT = 1.05
"""Factor of bandwidth by a doubling of the size, below which the curve has leveled out."""

LEAST_OF_HOLE = 3
WORTH_A_NOTE = 1.0
BEAT_GOOD = ("nvls-off", "sharp-off")
"""Causes that leave more than `GOOD` of some machines' rate, and are sharp enough to be believed there."""

AGGREGATED = "more than the links carry without switches that reduce: is aggregation (SHARP) on?"

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
    wrong : int
        Results that the program found wrong.
    assumed : str
        What nobody said of the machine and the verdict rests on, for people.
    nics_assumed : bool
        Whether the NICs are of it; a node may have fewer, then.

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
    points: Sequence[diagnosis.Point]
    wrong: int = 0
    assumed: str = ""
    nics_assumed: bool = False
    repeats: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "repeats", repeats(self.points))
        object.__setattr__(self, "points", diagnosis.by_size(self.points))
        if not self.points:
            raise WeftError(f"{self.source} has no measured time to judge")
        if len(self.points) > diagnosis.MOST_SIZES:
            most = diagnosis.MOST_SIZES
            raise WeftError(f"{self.source} has {len(self.points):,} sizes; at most {most:,} are judged")

    @cached_property
    def contradictions(self) -> tuple[int, ...]:
        """Sizes without which no time falls much with size."""
        return diagnosis.contradictions(self.points)

    @cached_property
    def steady(self) -> tuple[diagnosis.Point, ...]:
        """The points without those that contradict larger ones."""
        return tuple(point for point in self.points if point[0] not in self.contradictions) or tuple(self.points)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Every point beside what is expected there."""
        return [_row(self.setting, size, time) for size, time in self.points]

    @property
    def best(self) -> dict[str, Any]:
        """The row of the largest size near the highest bandwidth, but for those that contradict others; of a noisy
        table, that of its middle curve."""
        rows = {row["size_bytes"]: row for row in self.rows}
        ratios = [float(rows[size]["ratio"]) for size, _ in self.steady]
        return rows[diagnosis.steadiest(self.steady, ratios) if self.noise > NOISY else best(self.steady)]

    @property
    def growth(self) -> float:
        """Factor of bandwidth by the last doubling of the size up to the best; infinite where nothing is smaller."""
        size, top = self.best["size_bytes"], float(self.best["busbw_GBps"])
        half = next((row for row in reversed(self.rows) if 2 * row["size_bytes"] <= size
                     and row["size_bytes"] not in self.contradictions), None)
        if half is None:
            return math.inf
        return float((top / half["busbw_GBps"]) ** (1 / math.log2(size / half["size_bytes"])))

    @cached_property
    def noise(self) -> float:
        """Standard deviation of the logarithm of a time of large messages around its neighbors; 0 of few."""
        large = [float(np.log(row["ratio"])) for row in self.rows if row["size_bytes"] >= FULL]
        return diagnosis.spread(diagnosis.curved(large)) if len(large) >= ENOUGH_FOR_NOISE else 0.0

    def fitted(self, cause: Cause) -> Fitted:
        """A cause at the rates that fit best."""
        sizes, times = zip(*self.steady, strict=True)
        return fit(times_of(cause.setting, sizes), np.array(times), cause.priors, NOISE, _weights(sizes))

    def diagnosis(self) -> diagnosis.Diagnosis:
        """Judge it."""
        setting, top, finding = self.setting, self.best, self.finding
        sizes = [size for size, _ in self.points]
        choices = [(row["algorithm"], row["protocol"]) for row in self.rows]
        rates = rates_of([self])
        return diagnosis.Diagnosis(
            source=self.source, ran=ran(setting), collective=setting.collective, nodes=setting.nodes, n_ranks=setting.n,
            nics=setting.nics if setting.nodes > 1 else 0, points=tuple(self.points), verdict=finding.verdict,
            cause=finding.cause, limit=finding.limit,
            algorithm=f"{top['algorithm']} {top['protocol']}", share=top["ratio"], best_bytes=top["size_bytes"],
            share_of_any=self.share_of_any, share_of_bound=None if self.bound is None else
            self.bound * float(top["size_bytes"]) / float(top["measured_s"]), bound_reduces=self.reduces, rates=rates,
            switches=tuple(size for size, (one, other) in zip(sizes, pairwise(choices), strict=False) if one != other),
            breaks=diagnosis.breaks(self.steady), outliers=self.outliers, contradictions=self.contradictions,
            repeats=self.repeats, condition="" if finding.verdict == "corrupt" else self.assumed,
            but=diagnosis.slow_at_first(self.rows) if finding.verdict in diagnosis.FINE else "",
            notes=tuple(self._notes(rates, finding)), expected=tuple(self.rows),
        )

    @cached_property
    def outliers(self) -> tuple[int, ...]:
        """Sizes that no smooth curve explains."""
        return diagnosis.outliers([size for size, _ in self.points], [row["ratio"] for row in self.rows])

    @cached_property
    def finding(self) -> Finding:
        """The first rule that holds, unless the points contradict each other."""
        found = next(found for rule in _RULES if (found := rule(self)) is not None)
        if found.verdict == "too-small" and (size := self.best["size_bytes"]) in self.repeats:
            return Finding("slow-unknown", "unsteady", f"nothing that can be told: repeats of {format_size(size)} "
                           "differ by half and more: measure again, with more iterations")
        unsure = found.verdict in diagnosis.FINE or self.noise > NOISY
        why = diagnosis.unsteady(self.points, unsure, self.contradictions, self.outliers, self.repeats)
        unsteady = why and found.verdict not in diagnosis.SAYS_NOTHING
        return Finding("slow-unknown", "unsteady", why) if unsteady else found

    @cached_property
    def as_found(self) -> Setting:
        """What ran, on the machine as the cause has it."""
        every = [*self.causes, *([one] if (one := ll128_off(self.setting)) else [])]
        return next((one.setting for one in every if one.name == self.finding.cause), self.setting)

    @cached_property
    def causes(self) -> list[Cause]:
        """Everything that may be wrong."""
        return causes(self.setting, self.nics_assumed)

    @cached_property
    def share_of_any(self) -> float:
        """Best bandwidth over what the fastest algorithm should reach there."""
        free, best = replace(self.setting, algorithms=(), protocols=()), self.best
        fastest = min(timed(free, one, best["size_bytes"]).time_s for one in candidates(free))
        return fastest / float(best["measured_s"])

    @cached_property
    def bound(self) -> float | None:
        """Least seconds of a byte on the raw links, whatever the algorithm; None where it is expensive."""
        return self._bound(self.reduces)

    @property
    def reduces(self) -> bool:
        """Whether switches reduce in that bound."""
        named = "CollNet" in self.setting.algorithms
        return self.setting.collective == "all-reduce" and (self._multicasts or named or self.aggregated)

    @property
    def _multicasts(self) -> bool:
        return self.setting.machine.gpu.multicast > 0

    @cached_property
    def aggregated(self) -> bool:
        """Whether only a network that reduces explains the best size, and nobody said that it does."""
        setting, top = self.setting, self.best
        if self._multicasts or setting.nodes == 1 or "CollNet" in setting.algorithms or top["ratio"] <= SLIGHTLY:
            return False
        bound = self._bound(False) or 0.0
        return bool(bound * top["size_bytes"] > (1 + FASTER_THAN_BOUND) * top["measured_s"])

    @cached_property
    def hole(self) -> Hole | None:
        """The sizes that LL128 off would slow down."""
        off = ll128_off(self.setting)
        odd = {*self.outliers, *self.contradictions}
        return hole(self.setting, off.setting, self.rows, odd) if off else None

    @property
    def too_fast(self) -> list[int]:
        """Sizes faster than the raw links allow; a network between nodes may add, whoever said so."""
        bound = self._bound(self.setting.nodes > 1 or self._multicasts)
        slot = self.setting.machine.gpu.name == "rtx-pcie"  # which may be a generation newer than described
        return [
            row["size_bytes"] for row in self.rows  # what is as expected is not: ports of a description are rounded
            if (bound or 0.0) * row["size_bytes"] > (1 + FASTER_THAN_BOUND) * row["measured_s"]
            and row["size_bytes"] not in self.contradictions and row["ratio"] > (FAR_ABOVE if slot else SLIGHTLY)
        ]

    def _bound(self, reduces: bool) -> float | None:
        setting = self.setting
        if setting.collective == SENDRECV or setting.gpus != setting.machine.gpus:
            return None
        topology = setting.machine.topology(setting.nodes)
        if not is_cheap(topology):
            return None
        return float(cut_bound(topology, setting.collective, reducing_switches=reduces).s_per_byte)

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
        if finding.verdict in diagnosis.FINE and self.hole is not None and self.hole.usual > math.log(SOMEWHAT):
            sizes = " to ".join(map(format_size, (self.hole.sizes[0], self.hole.sizes[-1])))
            found.append(f"{sizes} take {math.exp(self.hole.usual):.2f} times as long as the sizes beside them: so do "
                         "some healthy machines, and LL128 off has another shape")
        if self.noise > NOISY:
            found.append(f"noisy: neighboring sizes scatter by {self.noise:.0%}; the verdict rests on their middle: "
                         "measure again, with more iterations")
        if finding.verdict in diagnosis.FINE and self.best["size_bytes"] in self.repeats:
            found.append(f"repeats of {format_size(self.best['size_bytes'])}, on which the verdict rests, differ")
        if self.best["ratio"] > 1 / diagnosis.GOOD:
            found.append("faster than this machine should be: is it this machine, are sizes those of whole arrays?")
        if self.aggregated and finding.verdict in diagnosis.FINE and finding.limit != AGGREGATED:
            found.append(AGGREGATED)
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
    found: F64 = np.where(large, SAME / max(int(large.sum()), SAME), SAME / max(int((~large).sum()), SAME))
    return found


def _row(setting: Setting, size: int, time_s: float) -> dict[str, Any]:
    one = expected(setting, size)
    return {
        "size_bytes": size, "measured_s": time_s, "expected_s": one.time_s, "ratio": one.time_s / time_s,
        "busbw_GBps": busbw(setting, size, time_s), "algorithm": one.algorithm, "protocol": one.protocol,
        "limit": one.limit,
    }


def ran(setting: Setting) -> str:
    """What ran on what, for people."""
    ports = f", {setting.nics} x {setting.machine.nic.name} a node" if setting.nodes > 1 else ""
    return (f"{setting.collective} on {setting.machine.name}, {counted(setting.nodes, 'node')} of "
            f"{counted(setting.gpus, 'GPU')} ({setting.machine.gpu.name}){ports}")


def rates_of(runs: Sequence[LibraryRun], spine: bool = False) -> tuple[Rate, ...]:
    """One rate per class of links, and one factor on latency, from all tables of a machine together; none if their
    machines differ. Where tables have different numbers of nodes, the spine is what more nodes keep between them.

    What each table was found to lack, such as a NIC, is no matter of rates; of a `spine` that was found, all is.
    """
    if len({(run.setting.machine.gpu, run.setting.machine.nic) for run in runs}) > 1:
        return ()
    every = [[size for size, _ in run.steady] for run in runs]
    models = [times_of(run.setting if spine else run.as_found, sizes) for run, sizes in zip(runs, every, strict=True)]
    fewest = min((run.setting.nodes for run in runs if run.setting.nodes > 1), default=1)
    beyond = [run.setting.nodes > fewest > 1 for run in runs]

    def times(x: F64) -> F64:
        crossing = x[:3].copy()
        crossing[BETWEEN] += x[-1]
        return np.concatenate([model(crossing if more else x[:3]) for model, more in zip(models, beyond, strict=True)])

    measured = np.array([time for run in runs for _, time in run.steady])
    inside_alone = any(limited_by(run.setting) == INSIDE for run in runs)
    priors = _FREE if inside_alone else (SCATTER, *_FREE[1:])  # else either link explains what a table loses
    weights = np.concatenate([_weights(sizes) for sizes in every])
    found = fit(times, measured, (*priors, *[_FREE[BETWEEN]] * any(beyond)), NOISE, weights)
    gpu, nic = runs[0].setting.machine.gpu, runs[0].setting.machine.nic
    inside = "PCIe" if gpu.name == "rtx-pcie" else "Infinity Fabric" if gpu.name.startswith("mi") else "NVLink"
    rates = []
    if any(run.setting.gpus > 1 for run in runs):
        of_gpu = f"{format_rate(gpu.ring)} a GPU"
        rates.append(Rate(inside, found.interval(INSIDE), found.determined(INSIDE), of_gpu))
    if any(run.setting.nodes > 1 for run in runs):
        port = f"{format_rate(nic.port * nic.reached)} a port"
        rates.append(Rate("NICs", found.interval(BETWEEN), found.determined(BETWEEN), port))
    if any(beyond):
        rates.append(Rate("spine", found.interval(SPINE), found.determined(SPINE),
                          f"the NICs' rate, by more than {fewest} nodes"))
    return (*rates, Rate("latency", found.interval(LATENCY), found.determined(LATENCY), "expected"))


# --- the rules, in order ------------------------------------------------------------------------------------------


def _corrupt(run: LibraryRun) -> Finding | None:
    return Finding(*diagnosis.corrupted(run.wrong)) if run.wrong else None


def _impossible(run: LibraryRun) -> Finding | None:
    """Times in another unit, or faster than any machine like this."""
    ratios = [float(row["ratio"]) for row in run.rows]
    small = any(size < LARGE for size, _ in run.points)  # large ones alone may be as slow as that
    if min(ratios) > UNITS or (small and max(ratios) < 1 / UNITS):
        usual = statistics.median(ratios)
        words = f"{usual:,.0f} times as fast" if usual > 1 else f"{1 / usual:,.0f} times as slow"
        return Finding("impossible", "units", f"nothing: every size is about {words} as this machine: are the times in "
                       "the unit of the format (us)?")
    more = f", does a node have more than {run.setting.nics} NICs" if run.nics_assumed else ""
    asks = f"is it {run.setting.machine.name}{more}, are sizes those of whole arrays?"
    if few := run.too_fast:
        sizes = ", ".join(map(format_size, few[:3])) + (f" and {len(few) - 3} more" if len(few) > 3 else "")
        return Finding("impossible", "too-fast",
                       f"nothing: {sizes} measured faster than any algorithm on the raw links; {asks}")
    if run.share_of_any > FAR_ABOVE:
        return Finding("impossible", "too-fast", f"nothing: {run.share_of_any:.1f} times what the fastest algorithm "
                       f"should reach; {asks}")
    return None


def _collapsed(run: LibraryRun) -> Finding | None:
    large = [point for point in run.steady if point[0] >= LARGE]
    at = diagnosis.collapse(large)
    if at and run.rows[-1]["ratio"] < diagnosis.GOOD:
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
    """Sizes that are as slow as without LL128, by more than healthy machines scatter there; the others as expected."""
    cause, found = ll128_off(run.setting), run.hole
    if cause is None or found is None or run.best["ratio"] < diagnosis.GOOD:
        return None
    likelier, without_one = found.likelier
    rest = [row["measured_s"] / row["expected_s"] for row in run.rows if row["size_bytes"] not in found.sizes]
    if likelier < cause.likely or without_one < 0 or statistics.median(rest) > ELSEWHERE:
        return None
    sizes = " to ".join(map(format_size, found.deep))
    return Finding(cause.verdict, cause.name, f"{cause.words} ({sizes})")


def _shape(run: LibraryRun, cause: Cause) -> tuple[float, float, float]:
    """Of large sizes: how far times are off those of a cause, how they scatter around it, and around a machine that is
    slower at every size by one factor; zeros where the cause has no shape of its own."""
    rows = [row for row in run.rows if row["size_bytes"] in dict(run.steady) and row["size_bytes"] >= LARGE]
    if len(rows) < LEAST_OF_HOLE + 1:
        return 0.0, 0.0, 0.0
    slower = np.log([row["measured_s"] / row["expected_s"] for row in rows])
    shape = np.log([expected(cause.setting, row["size_bytes"]).time_s / row["expected_s"] for row in rows])
    if float(np.std(shape)) < TELLS:
        return 0.0, 0.0, 0.0
    return float(np.median(slower - shape)), _scatter(slower - shape), _scatter(slower)


def _scatter(off: F64) -> float:
    """Median distance to the median: single sizes decide nothing."""
    return float(np.median(np.abs(off - np.median(off))))


def _no_switches(run: LibraryRun) -> Finding | None:
    """Inside a node without NVLS, whatever small messages take: large ones follow the ring size by size."""
    cause = next((one for one in causes(run.setting) if one.name == "nvls-off"), None)
    if cause is None or run.setting.nodes > 1:
        return None
    off, around, uniform = _shape(run, cause)
    follows = abs(off) <= FOLLOWS and around < uniform
    return Finding(cause.verdict, cause.name, cause.words) if follows else None


def _uniform(run: LibraryRun, cause: Cause) -> bool:
    """Whether large sizes are slower by one factor, which is not the shape of an algorithm that is missing."""
    _, around, uniform = _shape(run, cause)
    return cause.name in BEAT_GOOD and around > 2 * uniform


def _likeliest(run: LibraryRun) -> Finding:
    """The machine whose tables are likeliest."""
    setting, best = run.setting, run.best
    top, share = float(best["busbw_GBps"]), float(best["ratio"])
    waits = all(row["limit"] in ("launch", "latency") for row in run.rows)  # then links show by sharp numbers only
    possible = [one for one in run.causes if top <= ABOVE_MOST * one.most_GBps and not (waits and one.vague)]
    possible = [one for one in possible if not _uniform(run, one)]
    won = min(possible, key=lambda one: run.fitted(one).cost + one.cost)
    if best["size_bytes"] < LEAST_FOR_RATES or not run._moves(won):
        return _of_small(run)
    if won.name == "ring-of-two":
        return Finding(won.verdict, won.name, won.words)
    if won.name == "healthy" or (share >= diagnosis.GOOD and won.name not in BEAT_GOOD):
        filled = busbw(setting, best["size_bytes"], best["expected_s"]) >= diagnosis.PLATEAU * ceiling(setting)
        waiting = parts_us(setting, chosen(setting, best["size_bytes"]), best["size_bytes"])[0] / 1e6
        still = waiting <= (1 - diagnosis.PLATEAU) * float(best["expected_s"])
        filled = filled or (best["size_bytes"] >= LARGEST_OF_TABLES and still)
        levels = run.growth < FLAT and top >= diagnosis.GOOD * ceiling(setting)
        if not filled and not levels and top < diagnosis.PLATEAU * ceiling(setting):
            size, most = format_size(best["size_bytes"]), top / ceiling(setting)
            return Finding("too-small", "healthy", f"as expected; {size} is too small to fill the links: {most:.0%} of "
                           "what the largest messages should reach")
        limit = {"inside": "the links inside a node", "between": "the NICs"}.get(best["limit"], best["limit"])
        if share < diagnosis.GOOD:
            name = "slow-between" if best["limit"] == "between" else "slow-inside"
            return Finding("slow-unknown", name, f"{limit}, below what they reach elsewhere")
        return Finding("good", "healthy", AGGREGATED if run.aggregated else limit)
    return Finding(won.verdict, won.name, won.words)


def _of_small(run: LibraryRun) -> Finding:
    """Messages that are too small for any rate."""
    late = 1 / statistics.median(row["ratio"] for row in run.rows)
    if late <= DELAYED:
        return Finding("too-small", "healthy", "latency, as expected: these messages say nothing of the links")
    return Finding("slow-unknown", "latency", f"latency, {late:.1f} times the expected one")


def _slots(run: LibraryRun) -> Finding | None:
    """Cards of which only their names are known: generation, lanes and sockets of their slots decide."""
    cards = run.assumed and run.setting.machine.gpu.name == "rtx-pcie" and limited_by(run.setting) == INSIDE
    best, (low, high) = run.best, PCIE_GBPS
    if not cards or best["size_bytes"] < LEAST_FOR_RATES or not low <= best["busbw_GBps"] <= high:
        return None
    if best["ratio"] >= diagnosis.GOOD or not run._moves(healthy(run.setting)):
        return None
    return Finding("good", "slots", f"PCIe: {low:g} to {high:g} GB/s by generation, lanes and sockets of the slots; "
                   "--machine FILE.toml with the rate of their links tells more")


_RULES = (_corrupt, _impossible, _collapsed, _slots, _tree_of_two, _forced_protocol, _hole, _no_switches, _likeliest)

