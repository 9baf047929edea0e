"""`weft bound`: the least time of a collective on a fabric as an exact fraction, and the bottleneck that proves it."""

import argparse
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.collective import COLLECTIVES
from collectives.core.pairs import elements
from collectives.trees.pack import program_variables, two_phase_rate_Bps
from collectives.trees.shares import Sides
from sim.analytic.cut_bound import cut_bound, pairs_bound
from sim.cli.asked import spec_of
from sim.cli.output import say, write_csv, write_json
from sim.cli.progress import progress
from topologies import SWITCH, Topology
from topologies.flows.partitions import reducing_nodes
from topologies.flows.programs import (
    MOST_VARIABLES,
    SMALL,
    all_to_all_rate_Bps,
    best_roots,
    concurrent_flow,
    flow_variables,
    forwarded,
)
from topologies.stages import staged
from topologies.units import counted

UNEVEN_BYTES = 2**32
"""Size in whose bytes the proportions of sizes per pair are counted."""

LONGEST_FRACTION = 40
"""Characters of an exact fraction that are printed; the JSON and CSV have it whole."""


def run(arguments: argparse.Namespace) -> None:
    """Compute, print and write."""
    spec = spec_of(arguments)
    topology, kind = spec.build_topology(), spec.kind.name
    root, switches = spec.collective.root or 0, spec.bound.reducing_switches
    with progress("bound", 1, arguments.quiet):
        rows = bound_rows(topology, kind, root, programs=spec.bound.program, reducing_switches=switches,
                          pairs=spec.collective.pairs)
    lines = [_line(topology, row) for row in rows]
    head = f"# weft bound: {kind} on {topology.name}, {counted(topology.n_npus, 'NPU')}"
    say(arguments, head, *lines, *_notes(topology, kind, switches, spec.bound.program))
    if arguments.json or arguments.csv:
        rows = [row | {"bottleneck": list(map(topology.node_name, row["bottleneck"]))} for row in rows]
    write_json(arguments, spec, rows, model=spec.build_model())
    write_csv(arguments, [row | {"bottleneck": " ".join(map(str, row["bottleneck"]))} for row in rows])


def _notes(topology: Topology, kind: str, switches: bool | None, programs: bool) -> list[str]:
    """What the fabric could do beyond the bound, or whether it reaches it."""
    notes = []
    if topology.optics is not None:
        notes = ["# as if all circuits that take turns were up at once" if topology.optics.dwell_ps else
                 "# on the circuits that are up first: others may take less (weft reconfigure has the bound on all)"]
    if kind == "all-to-all" and not programs and SMALL < flow_variables(topology) < MOST_VARIABLES:
        return [*notes, "# whether routes reach this bound is a linear program of some minutes here (--program)"]
    if kind != "all-reduce" or SWITCH not in topology.kind or switches:
        return notes
    if switches is None and topology.boxes_reduce:
        which = "switches" if topology.says_it_reduces else "switches inside boxes"
        return [*notes, f"# {which} multicast and reduce, at the rate that the fabric says (--no-reducing-switches: "
                "they only forward)"]
    return [*notes, "# switches only forward here: adding up or multicast in the network may be faster "
            "(--reducing-switches)"]


@staged("bounds")
def bound_rows(
    topology: Topology, kind: str, root: int = 0, *, programs: bool = False,
    reducing_switches: bool | None = False, pairs: str | None = None,
) -> list[dict[str, Any]]:
    """Rows of the bound: the cut first, then rates known to be achievable.

    `inverse_x` is the time in seconds, as a fraction, at shards of 1 GB, 1/N of the size: 1/x* of arXiv 2305.18461
    with bandwidths in GB/s. A broadcast or reduce has no shards, and 1/x is the time of 1 GB. The size of an
    all-to-all is that of one rank, as nccl-tests counts it. `bottleneck`: nodes.
    """
    if pairs is not None:
        count = elements(pairs, topology.n_npus, UNEVEN_BYTES, 1)
        np.fill_diagonal(count, 0)
        bound = pairs_bound(topology, count, 1, UNEVEN_BYTES)
        rows = [_row(topology, kind, "cut", bound.s_per_byte, bound.nodes, bound.reason)]
        return rows + (_programs(topology, kind, None, count) if programs and count.any() else [])
    bound = cut_bound(topology, kind, root, reducing_switches=reducing_switches)
    rows = [_row(topology, kind, "cut", bound.s_per_byte, bound.nodes, bound.reason)]
    rows += _forwarding(topology, kind, root, bound.s_per_byte)
    reduces = bool(reducing_switches) or (reducing_switches is None and topology.boxes_reduce)
    if kind == "all-reduce" and not reduces:
        rate = two_phase_rate_Bps(topology)
        phases = Fraction(0) if rate is None else 1 / rate
        slower = bound.s_per_byte < phases
        more = "; both at once, on links of either direction, may take less" if slower else ""
        more += " (--program)" if slower and not programs else ""
        reason = f"reduce-scatter, and once it has ended all-gather, each optimal{more}"
        rows.append(_row(topology, kind, "two-phase", phases, (), reason))
    small = kind == "all-reduce" and reduces and program_variables(topology) <= SMALL
    if (programs or small) and topology.n_npus > 1:
        rows += _programs(topology, kind, reducing_switches)
    return rows


def _forwarding(topology: Topology, kind: str, root: int, cut: Fraction) -> list[dict[str, Any]]:
    """The bound where switches copy nothing, if it is above that of the cut."""
    if kind not in ("all-gather", "reduce-scatter", "broadcast", "reduce"):
        return []
    sides = Sides.of(topology, kind, root)
    s_per_byte = sides.least_s_per_byte() / (topology.n_npus if sides.root is None else 1)
    if s_per_byte <= cut:
        return []
    found = forwarded(sides.networks[0], sides.root)
    reason = ("switches that receive less than they send copy nothing" if sides.networks[0] is topology
              else "switches that send less than they receive add up nothing")
    reason += "" if found is None or found.reached else "; perhaps less"
    return [_row(topology, kind, "forwarding", s_per_byte, (), reason)]


def _programs(
    topology: Topology, kind: str, reducing_switches: bool | None, count: npt.NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """Rates of linear programs, to nine digits. `count`: bytes of each pair at the size `UNEVEN_BYTES`."""
    if count is not None:
        rate = concurrent_flow(topology, tuple(map(tuple, count.tolist()))).rate_Bps * UNEVEN_BYTES
        reason = "maximum concurrent flow, one flow for each source"
    elif kind == "all-to-all":
        rate = all_to_all_rate_Bps(topology) * topology.n_npus
        reason = "maximum concurrent flow, one flow for each source"
    elif kind == "all-reduce":
        rate, reason = best_roots(topology).rate_Bps, "chosen roots, either direction its bandwidth"
        if (capable := reducing_nodes(topology, reducing_switches)).any():
            reached = best_roots(topology.as_it_reduces(), tuple(np.flatnonzero(capable).tolist())).rate_Bps
            rate = max(rate, reached)
            reason += f", {'trees through switches that reduce' if reached == rate else 'faster without reduction'}"
    else:
        return []
    s_per_byte = 1 / Fraction(rate / 1e9).limit_denominator(10**6) / 10**9
    return [_row(topology, kind, "linear program", s_per_byte, (), reason)]


def _row(
    topology: Topology, kind: str, by: str, s_per_byte: Fraction, nodes: tuple[int, ...], reason: str
) -> dict[str, Any]:
    parts = 1 if COLLECTIVES[kind].rooted else topology.n_npus
    return {
        "topology": topology.name, "collective": kind, "by": by,
        "inverse_x": str(s_per_byte * parts * 10**9),
        "algbw_GBps": float(1 / s_per_byte / 10**9) if s_per_byte else None,
        "s_per_GB": float(s_per_byte * 10**9), "bottleneck": nodes, "reason": reason,
    }


def _line(topology: Topology, row: dict[str, Any]) -> str:
    rate = "no limit" if row["algbw_GBps"] is None else f"algbw {row['algbw_GBps']:.6g} GB/s"
    cut = _set(topology, row["bottleneck"])
    exact = row["inverse_x"]
    shown = exact if len(exact) <= LONGEST_FRACTION else f"{float(Fraction(exact)):.12g}"
    return f"{row['by']:>14}: 1/x = {shown} s/GB, {rate} ({row['reason']}{cut})"


def _set(topology: Topology, nodes: tuple[int, ...]) -> str:
    """The bottleneck in a few words: its nodes, or those outside it."""
    if not nodes:
        return ""
    lacks = np.flatnonzero(np.bincount(nodes, minlength=topology.n_nodes) == 0).tolist()
    if not lacks:
        return "; bottleneck the whole fabric"
    few, prefix = (lacks, "all but ") if len(lacks) < len(nodes) else (nodes, "")
    more = f" and {len(few) - 8} more" if len(few) > 8 else ""
    return f"; bottleneck {prefix}{', '.join(map(topology.node_name, few[:8]))}{more}"
