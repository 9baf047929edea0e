"""`python -m benchmarks.optical_gates`: what plans of circuits have to reach, over many fabrics: docs/reference/
optical_gates.md. With `--quick`, 8 servers, two sizes and two delays.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

from collectives import algorithms_for, build
from collectives.core.schedule import Schedule
from collectives.reconfigured import in_matchings, step_pairs
from sim import simulate
from sim.optimizer.circuits import PLANNED, POLICIES, Planner
from sim.papers.optics import published, values
from sim.program.model import make_model
from sim.study.points import Task, ready_point
from sim.study.policies import STATIC, policies, row_of, switched_rows
from sim.study.spec import Spec
from sim.whole_file import write_text_whole
from tests.oracles.circuit_states import least_ps
from topologies import WeftError, from_spec
from topologies.units import parse_time

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "optical_gates.md"

SERVERS, PORTS = (8, 16, 64), (1, 2, 4)
SIZES, DELAYS = ("64KiB", "1MiB", "16MiB", "256MiB"), ("0s", "10us", "1ms", "25ms")

SMALL = ((4, 1), (4, 2), (6, 1), (6, 2))
"""Servers and ports whose circuits are all tried; of the last in seven minutes."""

Fabric = tuple[int, int, str, str]
"""Servers, ports, size, delay."""
NAMES = ("swing", "mirrored-recursive-doubling", "bucket", "totient-rings", "pipelined", "bfb", "recursive-doubling",
         "recursive-multiplying", "direct", "themis")


class Gate(NamedTuple):
    """What has to hold, in how many cases it does, and what is known of the others."""

    what: str
    holds: int
    of: int
    note: str = ""


def cells(fabrics: Sequence[Fabric]) -> Iterator[Gate]:
    """The table of `weft reconfigure` on every fabric."""
    above_static, above_rows, above_union, gaps = list[float](), list[float](), list[float](), list[float]()
    for n, ports, size, delay in fabrics:
        spec = Spec.from_dict({
            "topology": {"spec": f"ocs:{n}x{ports},delay={delay}"}, "sweep": {"begin": size, "end": size},
        }).choosing()
        names = [name for name in NAMES if _runs(spec, name)]
        found, bound_ps = policies(spec, names)
        best, times = found[-1].result.time_ps, {one.policy: one.result.time_ps for one in found}
        halving = build("recursive-doubling", "all-reduce", spec.build_topology(), size, "bandwidth")
        ((_, union),) = switched_rows(halving, found[0].result.model, [PLANNED])
        above_static.append(best / times[STATIC])
        above_rows.append(best / min(times.values()))
        above_union.append(best / union.time_ps)
        gaps.append(float(row_of(found[-1], bound_ps)["over_bound"]))
    for what, ratios in (("the best static algorithm", above_static), ("another row of its table", above_rows),
                         ("recursive doubling over unions of matchings", above_union)):
        yield Gate(f"best is not above {what}", sum(one <= 1 for one in ratios), len(ratios),
                   f"at most {max(ratios):.3g} times")
    far = sum(one > 0.1 for one in gaps)
    yield Gate("best is at most 10 % above the bound, median", int(median(gaps) <= 0.1), 1,
               f"median {median(gaps):.2%}, most {max(gaps):.1%}; {far} of {len(gaps)} above")


def _runs(spec: Spec, name: str) -> bool:
    try:
        ready_point(Task(spec, name, spec.sizes_bytes[0]))
    except WeftError:
        return False
    return True


def plans(fabrics: Sequence[Fabric]) -> Iterator[Gate]:
    """Plans beside their simulation, where the whole fabric is dark in a change and where its ports are."""
    model = make_model(chunks=1)
    for options in ("", ",per-port"):
        off = list[float]()
        for n, ports, size, delay in fabrics:
            for name, form in (("recursive-doubling", "bandwidth"), ("swing", "bandwidth"), ("totient-rings", None)):
                fabric = from_spec(f"ocs:{n}x{ports},delay={delay}{options}")
                for plan, result in switched_rows(build(name, "all-reduce", fabric, size, form), model, POLICIES):
                    off.append(plan.time_ps / result.time_ps - 1)
        what = f"plan is the simulated time to 1e-4{options.replace(',', ', ')}"
        yield Gate(what, sum(abs(one) <= 1e-4 for one in off), len(off), f"from {min(off):+.2%} to {max(off):+.2%}")


def targets() -> Iterator[Gate]:
    """Single values."""
    for ports, most_us in ((2, 316.4), (4, 157.9)):
        fabric = from_spec(f"ocs:16x{ports},delay=10us,circuits=16")
        time_us = simulate(build("pipelined", "all-reduce", fabric, "16MiB", "two-phase"), chunks=4).time_ps / 1e6
        what = f"all-reduce of 16 MiB, 16 servers of {ports} ports: at most {most_us} us"
        yield Gate(what, int(time_us <= most_us), 1, f"{time_us:.4g} us")
    schedule = build("direct", "all-to-all", from_spec("ocs:16x4,delay=10us"), "64MiB")
    ((_, result),) = switched_rows(schedule, policies=[PLANNED])
    yield Gate("all-to-all of 64 MiB, 16 servers of 4 ports: at most 378 us", int(result.time_ps <= 378e6), 1,
               f"{result.time_ps / 1e6:.4g} us")


def exhaustive(cases: tuple[tuple[int, int], ...]) -> Iterator[Gate]:
    """Plans beside all sequences of all circuits of few servers."""
    model, delays_ps = make_model(chunks=1), [parse_time(delay) for delay in ("0s", "1us", "1ms")]
    for n, ports in cases:
        over = list[float]()
        for schedule in _small(n, ports):
            planner = Planner(schedule, model)
            for delay_ps, least in zip(delays_ps, least_ps(schedule, model, delays_ps), strict=True):
                planner.optics = planner.optics._replace(delay_ps=delay_ps)
                plan = planner.plan(PLANNED)
                assert plan is not None
                over.append(plan.time_ps / least - 1)
        yield Gate(f"plan is the least over all circuits, {n} servers of {ports} ports", sum(one <= 0 for one in over),
                   len(over), f"at most {max(over):.1%} above")


def _small(n: int, ports: int) -> Iterator[Schedule]:
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce"):
        for name in ("recursive-doubling", "ring", "direct", "pairwise", "tree"):
            if name in algorithms_for(kind):
                with suppress(WeftError):  # of powers of two
                    schedule = build(name, kind, from_spec(f"ocs:{n}x{ports}"), "64KiB")
                    if len(step_pairs(in_matchings(schedule))) <= 8:
                        yield schedule


def planes(quick: bool) -> Iterator[Gate]:
    """SWOT's values to their last digit."""
    some = [row for row in published() if row[0] == "planes"][: 5 if quick else None]
    rows = list(values(False, some))
    wrong = [f"{row['case']}: {row['ours']} for {row['value']}" for row in rows if not row["to_the_digit"]]
    yield Gate("SWOT, to the last digit", len(rows) - len(wrong), len(rows), "; ".join(wrong))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--servers", type=int, nargs="+", default=SERVERS, metavar="N")
    quick, servers = vars(parser.parse_args()).values()
    some = product(servers[:1], PORTS, SIZES[::3], DELAYS[1:3]) if quick else product(servers, PORTS, SIZES, DELAYS)
    fabrics: list[Fabric] = [*some]
    lines = ["# Gates of plans of circuits", "", "Made by `python -m benchmarks.optical_gates`: "
             f"{', '.join(map(str, servers))} servers of {', '.join(map(str, PORTS))} simplex ports; "
             f"{', '.join(SIZES)}; delays of {', '.join(DELAYS)}.", "", "| gate | holds | |", "|---|---|---|"]
    for gates in (targets(), planes(quick), exhaustive(SMALL[: 2 if quick else None]), cells(fabrics),
                  plans([one for one in fabrics if one[0] < 64])):
        for gate in gates:
            lines.append(f"| {gate.what} | {gate.holds} of {gate.of} | {gate.note} |")
            print(lines[-1], flush=True)
    if not quick:
        write_text_whole(PAGE, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
