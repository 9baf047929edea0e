"""Small runs, by part: together they call every kernel that is compiled."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from collectives import build, ring_rounds
from collectives.core.carried import Carried
from collectives.core.collective import Ends, collective
from collectives.core.follow import holds
from collectives.core.sends import SendList
from collectives.synthesis import lanes_of
from sim.analytic.bounds import load_ps
from sim.analytic.unlowered import whole_of
from sim.cli.topology import diameter_hops
from sim.faults.plan import FaultPlan, Loss, SlowLink
from sim.program.columns import BLOCK, i32, numbered
from sim.program.model import Model
from sim.program.passes import rows_of
from sim.program.waits import whole_waits
from sim.simulation import simulate, time_ps
from topologies import from_spec
from topologies.core._walk import leads
from topologies.core.dealt import FEW, STREAM, dealt
from topologies.core.routing import ShortestPathRouter
from workloads.compression import FORMS, Bitmap, Codec, NibbleSum, bloom_for, layout_for
from workloads.job import Job


def _all_reduce(**how: Any) -> None:
    simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), **how)


def _fifo() -> None:
    """A small run, one whose log is long enough for compiled certificates, and bounds that are known before."""
    whole_of(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), Model())
    _all_reduce(check=True)
    ring = build("ring", "all-reduce", from_spec("ring:64"), "1MiB")
    load_ps(simulate(ring, symmetry="off", chunks=16, check=True).program)


def _rounds() -> None:
    """An all-reduce in rounds, of a job of which only the time is asked."""
    job = Job(from_spec("ring:3"))
    first = job.compute("first", 10**6, npus=[0])  # without symmetry
    job.collective("rounds", ring_rounds.all_reduce(job.topology, 1024, jumps=(1,)), after=[first])
    time_ps(job)


def _turns() -> None:
    """A link that a single flow crosses takes none."""
    simulate(build("direct", "all-reduce", from_spec("ring:5"), "1KiB"), discipline="round-robin-flow")


def _fabrics() -> None:
    """The longest of all routes of a fabric, and one through a fabric of no regular shape, and over tiers."""
    diameter_hops(ring := from_spec("ring:4"))
    ShortestPathRouter().paths(ring, here := np.array([0]), there := np.array([1]), "first", 0)
    from_spec("leaf-spine:1x2x1").paths(here, there)


def _trees() -> None:
    """Trees are packed by maximum flows, or grown past switches, which flows split off."""
    for spec in ("mesh:2x3", switched := "leaf-spine:2x2x2"):
        build("pipelined", "all-gather", from_spec(spec), "1KiB")
    lanes_of(from_spec(switched))


def _proofs() -> None:
    """A transfer from rank 0 to rank 1 is a broadcast of two."""
    sends = SendList()
    sends.add(0, 1, [0])
    none = np.zeros(0, np.int64)
    ends = Ends.of(collective("broadcast"), 2, 1, 0)
    holds(ends, 2, sends.build()[0], Carried([[0]]), (none, none, none.astype(np.bool_)))


def _matches() -> None:
    build("tacos", "all-gather", from_spec("ring:3"), "1KiB")


def _compression(*dtypes: str) -> None:
    """A sum of two workers in each layout, with each index of the positions."""
    for dtype in dtypes:
        x = np.zeros(64, dtype)
        x[::8] = 1
        for form in FORMS:
            for index in (Bitmap(64), NibbleSum(64), bloom_for(64, 8, 0.02)):
                codec = Codec(layout_for(64, 8, 2.0, form), index, dtype)
                codec.decode(codec.sum([x, np.ones_like(x)]), median=True)  # too many items, which are then guessed


SLOW = FaultPlan(faults=(SlowLink(link="*", at="1us", share=0.5),))
LOSSY = FaultPlan(faults=(Loss(link="*", probability=0.5),), timeout="1us")


def _why() -> None:
    result = simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), log=True)
    result.why()
    result.exposed_ps(0)


def _ordered() -> None:
    """Links that serve by priority, and more dependencies than are sorted, as jobs have them."""
    _all_reduce(discipline="lowest-chunk-first")
    falling = i32(np.arange(FEW, -1, -1))
    dealt(falling, falling, falling, STREAM, FEW + 1)


def _large() -> None:
    """Two million transfers, of which there have to be one for the passes over large programs; waits that are mixed.

    And a million services on two links, which an all-to-all on a ring has by its symmetry.
    """
    simulate(build("direct", "all-to-all", from_spec("ring:64"), "4MiB"), chunks=1024)
    simulate(build("ring", "all-gather", from_spec("ring:1024"), "1MiB"), symmetry="off", chunks=1).rated()
    one = i32([0])
    rows_of(np.array([0, 1]), one, one, one, np.empty(1, np.int32))
    whole_waits(i32([0, 0, 1]), np.array([0, 2]), i32([0, 1]), one, one)
    ends, fabric = np.zeros(1, np.int64), from_spec("ring:3")
    leads(fabric.src, fabric.dst, np.zeros(2, np.int64), np.zeros(0, np.int32), ends, ends)
    numbered(BLOCK + 1, lambda some: np.zeros(some.stop - some.start, np.int64))


WORK: dict[str, Callable[[], None]] = {
    "fifo": _fifo, "rounds": _rounds, "fabrics": _fabrics, "flows": partial(_all_reduce, engine="fluid"),
    "proofs": _proofs, "trees": _trees, "search": _matches,
    "ordered": _ordered, "nics": partial(_all_reduce, nic="shared"), "turns": _turns,
    "faults": partial(_all_reduce, faults=SLOW), "late-nics": partial(_all_reduce, faults=SLOW, nic="shared"),
    "losses": partial(_all_reduce, faults=LOSSY),
    "why": _why, "large": _large,
    "integers": partial(_compression, "int32", "int64"), "floats": partial(_compression, "float32", "float64"),
}
"""What `weft warm` runs, by the names of its parts."""
