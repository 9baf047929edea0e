"""The judge of a table on a fabric of one's own: latency, rate of the links, the likely algorithm, and how good it is.

Every candidate is simulated at the measured sizes and fitted: a latency of every transfer (what the network's latencies
do not include: launch, software, protocol), and a share of the bandwidth of the links, by class. Most curves are nearly
straight lines, which two parameters fit for any algorithm. So a candidate whose links would have to be faster than in
the topology is ranked last, and the others by their score: n ln(residual^2), twice the log-likelihood of n points, plus
the squares of ln(share) over `SHARE_SPREAD`, for real links run close to their nominal rate.

A simulated time is nearly latency + steps x delay + bytes / rate, so the fit works on that line through a few runs and
simulates again where it ended. A candidate is lowered once and run repeatedly: another bandwidth of all links scales
the service times of its program, another latency of all transfers adds to the latencies, and nothing else changes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from collectives.core.collective import collective
from collectives.reconfigured import Unswitchable
from sim.analytic.bounds import busy_and_path_ps
from sim.analytic.circuits_bound import circuits_bound_ps
from sim.analytic.cut_bound import cut_bound, is_cheap
from sim.analytic.traffic import F64
from sim.how import AS_USUAL, How
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.lower.rotor import in_turns
from sim.measured import diagnosis
from sim.measured.diagnosis import Rate, repeats
from sim.measured.fit import Fitted, Interval, Prior, fit
from sim.optimizer.circuits import planned, policy_below
from sim.program.model import Model
from sim.program.outcome import Outcome
from sim.program.retime import KEEPS_ITS_RATE, retime
from sim.study.choice import ready_forms
from sim.study.points import forms_of, schedule_of
from sim.study.spec import Spec
from topologies import Topology
from topologies.checks import WeftError, checked, choice
from topologies.core.epochs import packet_links
from topologies.text.brief import one_line
from topologies.units import PS_PER_S, counted, format_rate, format_size


@dataclass(frozen=True, eq=False)
class Curve:
    """Programs of one algorithm at some sizes, form by form."""

    name: str
    sizes_bytes: tuple[int, ...]
    programs: tuple[tuple[Lowered, ...], ...]  # one for every form that can run, at each size
    how: How = AS_USUAL
    _known: dict[tuple[int, tuple[float, ...]], F64] = field(default_factory=dict)

    def times_s(self, latency_s: float, *shares: float) -> F64:
        """Time at each size, of the fastest form.

        `latency_s`: added to every transfer.
        `shares`: bandwidth of every link relative to the topology, or of each class of `link_classes`.
        """
        key = round(latency_s * PS_PER_S), shares
        if key not in self._known:
            times = [min(_time_ps(_at(one, *key), self.how) for one in forms) for forms in self.programs]
            self._known[key] = np.array(times, np.float64) / PS_PER_S
        return self._known[key]

    def first_s(self, latency_s: float) -> float:
        """Time at the smallest size, with more latency of every transfer."""
        extra = round(latency_s * PS_PER_S)
        return min(_time_ps(_at(one, extra, (1.0,)), self.how) for one in self.programs[0]) / PS_PER_S


def _time_ps(lowered: Lowered, how: How) -> int:
    def run(one: Lowered) -> Outcome:
        return how.run(one.program, lower_bound_ps=lambda program: max(busy_and_path_ps(program)))
    return in_turns(lowered, run)[1].makespan_ps


def link_classes(topology: Topology) -> tuple[float, ...]:
    """Distinct bandwidths of links in bytes/s, ascending: links of one rate are one class, and all circuits are."""
    return tuple(np.unique(_class_rates(topology)).tolist())


def _class_rates(topology: Topology) -> F64:
    """Bandwidth of each link; of a circuit, where a link may be several, that of one port."""
    optics = topology.optics
    return topology.bandwidth_Bps if optics is None else np.where(
        packet_links(topology), topology.bandwidth_Bps, optics.rate_Bps)


def _at(lowered: Lowered, latency_ps: int, shares: tuple[float, ...]) -> Lowered:
    """The program with more latency of each transfer and other bandwidths of links."""
    own, rates_Bps = _class_rates(lowered.topology), lowered.topology.bandwidth_Bps
    number = np.searchsorted(np.unique(own), own) if len(shares) > 1 else np.zeros(own.size, np.int64)
    (bandwidth, number), link_rate = np.unique(np.stack([rates_Bps, number]), axis=1, return_inverse=True)
    rates = [Fraction(rate) * Fraction(shares[int(at)]) for rate, at in zip(bandwidth.tolist(), number, strict=True)]
    link = lowered.server_link
    server_rate = np.where(link >= 0, link_rate[link], KEEPS_ITS_RATE)
    return lowered._replace(program=retime(lowered.program, rates, server_rate, latency_ps))


def curve(spec: Spec, topology: Topology, name: str, sizes_bytes: Sequence[int], how: How = AS_USUAL) -> Curve:
    """The curve of an algorithm.

    `spec`: collective, form and model.
    `how`: its runs.
    WeftError: no form can run at some size.
    """
    model = spec.build_model()
    programs = tuple(_programs(spec, topology, name, size, model, how) for size in sizes_bytes)
    return Curve(name, tuple(sizes_bytes), programs, how)


def _programs(spec: Spec, topology: Topology, name: str, size: int, model: Model, how: How) -> tuple[Lowered, ...]:
    """On an optical fabric, on all circuits that stay, and with the best that change."""
    forms, more = forms_of(spec, topology, name)
    ready, _ = ready_forms((*forms, *more), lambda label: schedule_of(spec, topology, name, size, label), model,
                           spec.symmetry)
    static = [lower(one, model, spec.symmetry) for one in ready.values()]
    if topology.optics is None or topology.optics.dwell_ps:
        return tuple(static)
    least_ps = min(_time_ps(one, how) for one in static)
    plans = []
    for label, one in ready.items():
        if "circuits=" not in label and (policy := policy_below(least_ps, one, model)) is not None:
            with suppress(Unswitchable):
                plans.append(lower(planned(one, model, how, policy), model, spec.symmetry))
    return (*static, *plans)


def curves(
    spec: Spec, topology: Topology, names: Sequence[str], sizes_bytes: Sequence[int], how: How = AS_USUAL
) -> tuple[list[Curve], Mapping[str, str]]:
    """The curves of those algorithms that can run, and why the others cannot."""
    found, refused = [], {}
    for name in names:
        try:
            found.append(curve(spec, topology, name, sizes_bytes, how))
        except WeftError as wrong:
            refused[name] = str(wrong)
    return found, refused


LEAST_POINTS = 4
SHARE_SPREAD = 0.25
"""Standard deviation that the score gives to ln(share): a choice, not a measurement."""

TELLS_APART = 6.0
"""Difference of two scores from which one candidate is 20 times as likely as the other: 2 ln 20."""

LEAST_RESIDUAL = 1e-4
"""Residuals below this are rounding, and count as this."""

FASTER_THAN_BOUND = 0.02
"""Noise up to which a time below the bound is not called impossible."""

INCOMPLETE = 1.1
"""Share of what the fastest candidate reaches from which another one must have run."""

MOST_CLASSES = 3
"""Of links with a share of their own; with more, all have one."""

MOVES = 0.3
KNOWN = ("latency", "bandwidth")
_WIDE = Prior(0.0, 2.0)
_TURNS = 2
_LEAST_NOISE = 1e-3


@one_line
@dataclass(frozen=True, eq=False)
class Fit:
    """A candidate at its best-fit latency and bandwidth."""

    algorithm: str
    latency_s: Interval  # per transfer, on top of the network's latencies
    shares: tuple[Interval, ...]  # of the links' bandwidth, by class
    determined: tuple[bool, ...]  # whether the points determine the latency, and each share
    residual: float  # root mean square of the relative errors but for outliers
    # times_s, nominal_s: (n_sizes,): Simulated: as fitted, and at the latency that was fitted on nominal links
    times_s: F64
    nominal_s: F64

    @property
    def possible(self) -> bool:
        """Whether no link would have to be faster than in the topology, by more than rounding."""
        return all(share.low <= 1.0 + LEAST_RESIDUAL for share in self.shares)

    def score(self, n_points: int) -> float:
        """How unlikely the candidate is; see the module."""
        off = sum((math.log(share.value) / SHARE_SPREAD) ** 2 for share in self.shares)
        return n_points * math.log(max(self.residual, LEAST_RESIDUAL) ** 2) + off


@checked
@one_line
@dataclass(frozen=True)
class FabricRun:
    """A table, a fabric, and what may have run.

    Attributes
    ----------
    source : str
        The file, or another name.
    topology : Topology
    kind : str
        The collective.
    curves : sequence of Curve
        Candidates, at the sizes of the points.
    points : sequence of (int, float)
        Size in bytes and seconds.
    known : sequence of {"latency", "bandwidth"}
        Taken from the topology, not fitted.
    reducing_switches : bool
        Whether the bound of an all-reduce may count on switches that add.
    wrong : int
        Results that the program found wrong.
    guessed : bool
        Whether nobody said what ran: the fastest candidate should have, then.

    Raises
    ------
    WeftError
        Too few sizes, no candidate, or an unknown word in `known`.
    """

    source: str
    topology: Topology
    kind: str
    curves: Sequence[Curve]
    points: Sequence[diagnosis.Point]
    known: Sequence[str] = ()
    reducing_switches: bool = False
    wrong: int = 0
    guessed: bool = False
    repeats: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        for word in self.known:
            choice(word, KNOWN, "--known")
        object.__setattr__(self, "repeats", repeats(self.points))
        object.__setattr__(self, "points", diagnosis.by_size(self.points))
        if len(self.points) < LEAST_POINTS:
            raise WeftError(f"{self.source} has {counted(len(self.points), 'size')}; at least {LEAST_POINTS} needed")
        if not self.curves:
            raise WeftError(f"no algorithm can run {self.kind} on {self.topology.name}")

    @property
    def classes(self) -> tuple[float, ...]:
        """Rates in bytes/s of the links that have a share of their own; of the slowest if all have one."""
        found = link_classes(self.topology)
        return found if len(found) <= MOST_CLASSES else found[:1]

    @cached_property
    def fits(self) -> list[Fit]:
        """The candidates, most likely first."""
        found = [_fitted(one, self) for one in self.curves]
        return sorted(found, key=lambda one: (not one.possible, one.score(len(self.points))))

    @property
    def _ran(self) -> Curve:
        """The candidate that is the most likely."""
        return next(one for one in self.curves if one.name == self.fits[0].algorithm)

    @cached_property
    def moves(self) -> F64:
        """Share of the time that bytes take, at each size: what is left out on links a thousand times as fast."""
        first = self.fits[0]
        still = self._ran.times_s(first.latency_s.value, *(1000.0,) * len(self.classes))
        found: F64 = 1 - still / first.times_s
        return found

    @property
    def alike(self) -> list[str]:
        """Candidates that these points cannot distinguish from the first."""
        first, n = self.fits[0], len(self.points)
        return [
            one.algorithm for one in self.fits[1:]
            if one.possible == first.possible and one.score(n) < first.score(n) + TELLS_APART
        ]

    def diagnosis(self) -> diagnosis.Diagnosis:
        """Judge it."""
        first = self.fits[0]
        measured = np.array([time for _, time in self.points])
        bound = self._bound_s()
        top = [size for size, _ in self.points].index(diagnosis.best(self.points))
        fastest = min(float(one.nominal_s[top]) for one in self.fits)
        rates = self._rates(first)
        verdict, cause, limit = self._verdict(first, top, rates, bound)
        off = diagnosis.outliers([size for size, _ in self.points], (first.times_s / measured).tolist())
        against = diagnosis.contradictions(self.points)
        why = diagnosis.unsteady(self.points, verdict in diagnosis.FINE, against, off, self.repeats)
        if why and verdict not in diagnosis.SAYS_NOTHING:
            verdict, cause, limit = "slow-unknown", "unsteady", why
        notes = [f"{', '.join(self.alike)} would look the same"] if self.alike else []
        if not first.possible:
            notes.append("no candidate fits links as slow as in the topology: it, or the sizes, may be wrong")
        return diagnosis.Diagnosis(
            source=self.source, ran=f"{self.kind} on {self.topology.name}, {counted(self.topology.n_npus, 'NPU')}",
            collective=self.kind, nodes=1, n_ranks=self.topology.n_npus, nics=0,
            points=tuple(self.points), verdict=verdict, cause=cause, limit=limit, algorithm=first.algorithm,
            best_bytes=self.points[top][0], share=float(first.nominal_s[top] / measured[top]),
            share_of_any=fastest / float(measured[top]),
            share_of_bound=None if bound is None else float(bound[top] / measured[top]),
            bound_reduces=self.reducing_switches, rates=rates, switches=(),
            breaks=diagnosis.breaks(self.points), outliers=off, contradictions=against, repeats=self.repeats,
            condition="", but=self._slow_at_first() if verdict == "too-small" else "", notes=tuple(notes),
            expected=tuple(self._rows(first, bound)),
        )

    def _slow_at_first(self) -> str:
        """The small sizes that are slow beside the network alone: what hosts should add is not known."""
        alone = self._ran.times_s(0.0, *(1.0,) * len(self.classes))
        rows = [{"size_bytes": size, "ratio": float(alone_s / time)}
                for (size, time), alone_s in zip(self.points, alone, strict=True)]
        return diagnosis.slow_at_first(rows, "the time of the network alone")

    def _rows(self, first: Fit, bound: F64 | None) -> list[dict[str, object]]:
        factor = collective(self.kind).bus_factor(self.topology.n_npus)
        rows: list[dict[str, object]] = []
        for at, (size, time) in enumerate(self.points):
            nominal = float(first.nominal_s[at])
            rows.append({
                "size_bytes": size, "measured_s": time, "expected_s": nominal, "ratio": nominal / time,
                "busbw_GBps": size / time * factor / 1e9, "algorithm": first.algorithm, "protocol": "",
                "limit": "links" if self.moves[at] > 0.5 else "latency", "simulated_s": float(first.times_s[at]),
                "bound_s": None if bound is None else float(bound[at]),
            })
        return rows

    def _bound_s(self) -> F64 | None:
        """Least time of every size on this fabric, whatever the algorithm; None where it is expensive."""
        if (optics := self.topology.optics) is not None:
            bare = replace(self.topology, latency_ps=0 * self.topology.latency_ps, optics=optics._replace(delay_ps=0),
                           hop_latency_ps=0 * self.topology.hop_latency_ps)
            kind = collective(self.kind)
            return np.array([circuits_bound_ps(bare, kind, size) / PS_PER_S for size, _ in self.points])
        if not is_cheap(self.topology):
            return None
        found = cut_bound(self.topology, self.kind, reducing_switches=self.reducing_switches)
        return float(found.s_per_byte) * np.array([size for size, _ in self.points], np.float64)

    def _rates(self, first: Fit) -> tuple[Rate, ...]:
        names = [format_rate(rate) for rate in self.classes]
        if len(self.classes) == 1 and len(link_classes(self.topology)) > 1:
            names = [f"{names[0]} to {format_rate(link_classes(self.topology)[-1])}"]
        found = [
            Rate("links", share, sure, name)
            for name, share, sure in zip(names, first.shares, first.determined[1:], strict=True)
        ]
        what = "per transfer, on top of the network's"
        return (*found, Rate("latency", first.latency_s, first.determined[0], what))

    def _verdict(
        self, first: Fit, top: int, rates: Sequence[Rate], bound: F64 | None
    ) -> tuple[str, str, str]:
        if self.wrong:
            return diagnosis.corrupted(self.wrong)
        measured = np.array([time for _, time in self.points])
        against = diagnosis.contradictions(self.points)
        least = np.zeros(measured.size) if bound is None else bound
        few = [format_size(size) for (size, time), bound_s in zip(self.points, least, strict=True)
               if bound_s > (1 + FASTER_THAN_BOUND) * time and size not in against]
        if few:
            more = f" and {len(few) - 3} more, up to {few[-1]}," if len(few) > 4 else ""
            shown = ", ".join(few[:3] if more else few) + more
            return "impossible", "too-fast", (f"nothing: {shown} measured faster than any algorithm on "
                                              "these links without switches that reduce")
        share = float(first.nominal_s[top] / measured[top])
        at = diagnosis.collapse(self.points)
        if at and float(first.nominal_s[-1] / measured[-1]) < diagnosis.GOOD:
            return "slow-hw", "collapse", f"beyond {format_size(at)} larger messages are slower: packets are lost"
        if self.moves[top] < MOVES:
            return "too-small", "healthy", "latency: these messages say nothing of the links"
        sure = [rate for rate in rates[:-1] if rate.determined]
        slow = min(sure, key=lambda rate: rate.share.value, default=rates[0])
        fastest = min(self.fits, key=lambda one: float(one.nominal_s[top]))
        of_any = float(fastest.nominal_s[top] / measured[top])
        if of_any > INCOMPLETE:
            return "cannot-say", "candidates", (f"nothing that can be told: {of_any:.0%} of {fastest.algorithm}, the "
                                                "fastest candidate: another ran, name it with --algorithms")
        if share >= diagnosis.GOOD and self.guessed and of_any < diagnosis.GOOD:
            return "slow-unknown", "slow-algorithm", (f"{first.algorithm}, if that ran; {fastest.algorithm} would be "
                                                      f"{1 / of_any:.1f} times as fast on these links")
        if share >= diagnosis.GOOD:
            return "good", "healthy", f"the links of {slow.nominal}, as {first.algorithm} uses them"
        return "slow-unknown", "slow-links", f"the links of {slow.nominal}, at {slow.share.value:.0%} of their rate"


def _fitted(one: Curve, run: FabricRun) -> Fit:
    """A candidate, fitted on the line through simulations near the last fit."""
    measured = np.array([time for _, time in run.points])
    n_classes = len(run.classes)
    unit = _delay_s(one, float(measured[0]))
    free_latency, free_shares = "latency" not in run.known, "bandwidth" not in run.known
    priors = (_WIDE,) * free_latency + (_WIDE,) * (n_classes * free_shares)
    nominal = (1.0,) * n_classes

    def meaning(x: F64) -> tuple[float, ...]:  # the latency of a transfer, and the share of each class
        delay = float(np.exp(x[0])) * unit if free_latency else 0.0
        return delay, *(np.exp(x[len(x) - n_classes:]).tolist() if free_shares else nominal)

    x = np.array([prior.center for prior in priors], np.float64)
    found = Fitted(x, x, priors, np.log(one.times_s(*meaning(x)) / measured), 0.0)
    for turn in range(_TURNS if priors else 0):
        line = _Line(one, meaning, found.x, wide=turn == 0)
        noise = 0.1
        for _ in range(3):  # the noise is that of the errors themselves
            found = fit(line, measured, priors, noise)
            usual = _usual(found.residuals)
            noise = max(math.sqrt(float(usual @ usual) / max(usual.size - len(priors), 1)), _LEAST_NOISE)
    delay, *shares = meaning(found.x)
    delay = round(delay * 1e12) / 1e12
    times = one.times_s(delay, *shares)
    usual = _usual(np.log(times / measured))
    at, spare = int(free_latency), len(usual) - len(priors)
    each = [found.interval(at + place, spare) if free_shares else Interval(1.0, 1.0, 1.0) for place in range(n_classes)]
    return Fit(
        one.name,
        Interval(*(end * unit for end in found.interval(0, spare))) if free_latency else Interval(0.0, 0.0, 0.0),
        tuple(each),
        (not free_latency or found.determined(0),
         *(not free_shares or found.determined(at + place) for place in range(n_classes))),
        float(np.sqrt(np.mean(usual**2))), times, one.times_s(delay, *nominal),
    )


def _usual(error: F64) -> F64:
    """Errors without outliers."""
    spread = max(diagnosis.CONSISTENT * float(np.median(np.abs(error))), _LEAST_NOISE)
    found: F64 = error[np.abs(error) <= 4 * spread]
    return found


def _delay_s(one: Curve, first_s: float) -> float:
    """A latency per transfer that explains the smallest size; the fit starts there."""
    unit = 1e-6
    bare, slowed = one.first_s(0.0), one.first_s(unit)
    transfers = max((slowed - bare) / unit, 1.0)
    return float(max((first_s - bare) / transfers, 1e-8))


class _Line:
    """Times that are linear in the delay and in the time per byte of each class, through simulations at one place."""

    def __init__(self, one: Curve, meaning: Callable[[F64], tuple[float, ...]], x: F64, wide: bool) -> None:
        self.meaning = meaning
        delay_s, *shares = meaning(x)
        width = 0.5 if wide else 0.1
        self.delay, self.slowness = delay_s, 1 / np.array(shares)
        self.middle = one.times_s(delay_s, *shares)
        step = max(width * delay_s, 1e-9)
        self.by_delay = (one.times_s(delay_s + step, *shares) - self.middle) / step
        slopes = []
        for at, share in enumerate(shares):
            slower = tuple(one_share / (1 + width * (each == at)) for each, one_share in enumerate(shares))
            slopes.append((one.times_s(delay_s, *slower) - self.middle) / (width / share))
        self.by_slowness = np.stack(slopes, axis=1)

    def __call__(self, x: F64) -> F64:
        delay_s, *shares = self.meaning(x)
        moved = self.by_delay * (delay_s - self.delay) + self.by_slowness @ (1 / np.array(shares) - self.slowness)
        found: F64 = np.maximum(self.middle + moved, 0.01 * self.middle)
        return found
