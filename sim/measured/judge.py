"""The judge: what limits measured times, and one rate per class of links from all tables of a machine together.

Every table is judged by itself (`sim.measured.library_run`, `sim.measured.fabric_run`). Several tell more: the same run
on other nodes, more nodes, other collectives. Links slow all of them alike; a spine only those that cross it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sim.measured.diagnosis import CLASSES, FINE, SAYS_NOTHING, Diagnosis, Rate
from sim.measured.fabric_run import FabricRun
from sim.measured.library_run import Finding, LibraryRun, rates_of
from topologies.checks import WeftError, checked
from topologies.stages import staged
from topologies.text.brief import Tabular, one_line
from topologies.units import counted

APART = 1.1
"""Factor by which the same run differs on other nodes, beyond noise."""

LIKE_A_RAIL = 0.03
OF_LIBRARY = ("nvls-off", "sharp-off", "ll128-off", "protocol")
NOT_OF_LINKS = ("per-step", "latency", *OF_LIBRARY)

UNEQUAL = 1.5
"""Factor between the shares of two collectives beyond which no rate of links explains both."""

_SEVERE = (
    "corrupt", "impossible", "slow-hw", "wrong-config", "slow-unknown", "cannot-say", "tree-2n", "good", "too-small",
)


@checked
@one_line
@dataclass(frozen=True)
class Judgment(Tabular):
    """Verdict on some tables of one machine or fabric.

    Attributes
    ----------
    tables : tuple of Diagnosis
    verdict : str
        Of `sim.measured.diagnosis.CLASSES`.
    cause, limit : str
        In a word, and for people.
    rates : tuple of Rate
        From all tables together; `apart` where they disagree.
    condition : str
        What was assumed and the verdict rests on; "" if nothing.
    but : str
        What of a table is slow though the verdict is fine; "" if nothing.
    """

    tables: tuple[Diagnosis, ...]
    verdict: str
    cause: str
    limit: str
    rates: tuple[Rate, ...]
    condition: str = ""
    but: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """One row per point of every table; `table` is its place."""
        return [
            {"table": at, "collective": one.collective, **row}
            for at, one in enumerate(self.tables) for row in one.rows()
        ]


@staged("fit")
@checked
def judge(runs: Sequence[LibraryRun | FabricRun]) -> Judgment:
    """Judge the tables of one machine, or of one fabric.

    Raises
    ------
    WeftError
        No table, or too few points for a fabric.

    Examples
    --------
    >>> from sim.library.tuner import Setting
    >>> from topologies.machines.profile import machine
    >>> one = Setting(machine=machine("dgx-h100"), nodes=4, gpus=8, collective="all-gather")
    >>> judge([LibraryRun("a", one, [(2**30, 0.00275)])]).verdict
    'good'
    """
    if not runs:
        raise WeftError("no table to judge")
    tables = tuple(run.diagnosis() for run in runs)
    libraries = [run for run in runs if isinstance(run, LibraryRun)]
    worst = min(tables, key=lambda one: (_SEVERE.index(one.verdict), one.share))
    found, differ = Finding(worst.verdict, worst.cause, worst.limit), False
    for rule in (_other_nodes, _more_nodes, _other_collectives) if worst.verdict not in SAYS_NOTHING else ():
        if more := rule(tables):
            found, differ = more, rule is _other_nodes  # a sick and a healthy machine have no mean
    spine = found.cause == "spine"
    rates = rates_of(libraries, spine) if libraries else tables[0].rates
    if not spine:
        rates = tuple(rate._replace(apart=rate.determined and (differ or _disagree(rate, tables))) for rate in rates)
    conditions = [one.condition for one in tables if one.condition and found.verdict != "corrupt"]
    but = next((one.but for one in tables if one.but), "") if found.verdict in FINE else ""
    return Judgment(tables, *found, rates, next(iter(conditions), ""), but)


def _disagree(rate: Rate, tables: Sequence[Diagnosis]) -> bool:
    """Whether the intervals of a rate by two tables have nothing in common."""
    own = [one.share for table in tables for one in table.rates if one.name == rate.name and one.determined]
    return bool(own) and max(share.low for share in own) > min(share.high for share in own)


def _name(one: Diagnosis) -> str:
    return f"{one.source} ({one.collective}, {counted(one.nodes, 'node')})"


def _other_nodes(tables: Sequence[Diagnosis]) -> Finding | None:
    """The same run twice, and one slower."""
    for one, other in combinations(tables, 2):
        alike = one.ran == other.ran
        slow, fast = sorted((one, other), key=lambda table: table.share)
        if alike and fast.share > APART * slow.share and slow.cause not in OF_LIBRARY:
            reached, nics = slow.share / fast.share, slow.nics
            rail = nics > 1 and abs(reached * nics / (nics - 1) - 1) < LIKE_A_RAIL
            why = f"one NIC of {nics} is dead" if rail else "its nodes, links or sockets"
            return Finding("slow-hw", "dead-rail" if rail else "other-nodes", f"{slow.source} reaches {reached:.0%} of "
                           f"what {fast.source} does with as many ranks: {why}")
    return None


def _more_nodes(tables: Sequence[Diagnosis]) -> Finding | None:
    """Some nodes reach the rate of their NICs and more nodes do not."""
    fine = [one for one in tables if one.nodes > 1 and one.verdict in ("good", "tree-2n")]
    slow = [one for one in tables if not one.fine and one.cause not in NOT_OF_LINKS]
    for one in slow:
        fewer = [other for other in fine if other.nodes < one.nodes]
        if fewer:
            verdict = "wrong-config" if one.cause == "collisions" else "slow-hw"
            return Finding(verdict, "spine", f"links between the switches (the spine): {_name(fewer[0])} is as it "
                           f"should be, {_name(one)} reaches {one.share:.0%}")
    return None


def _other_collectives(tables: Sequence[Diagnosis]) -> Finding | None:
    """Collectives on the same nodes that lose differently, which no rate of their links explains."""
    for one, other in combinations(tables, 2):
        if (one.nodes, one.n_ranks) != (other.nodes, other.n_ranks) or one.collective == other.collective:
            continue
        slow, fast = sorted((one, other), key=lambda table: table.share)
        unlike = fast.share > UNEQUAL * slow.share and fast.verdict != "too-small"
        if unlike and not slow.fine and slow.rates[-1].name == "latency":
            return Finding("wrong-config", "per-step", f"{slow.collective} reaches {slow.share:.0%} and "
                           f"{fast.collective} {fast.share:.0%} on the same nodes: not the links, but time per step")
    return None


assert set(_SEVERE) == set(CLASSES)
