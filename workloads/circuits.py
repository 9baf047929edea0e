"""Circuits that the operations of a job ask for: what is up during each, and the changes in between.

An operation asks for a circuit between every two NPUs that it joins. Where the ports do not suffice, it runs on the
circuits of the fabric over several hops. Operations that ask for the same circuits one after the other share them;
circuits that come back are the same links.
"""

from collections.abc import Sequence
from dataclasses import replace

from collectives.core.schedule import Schedule
from collectives.reconfigured import on_epoch, step_pairs
from topologies import Topology
from topologies.core.epochs import circuit_epochs
from topologies.optics import joining
from workloads.job import Communicate, Job, Operation, Reconfigure, Send

DEMAND, PROVISIONED = "demand", "provisioned"
"""Circuits are switched when an operation is ready for them, or as soon as those before are idle."""

Pairs = frozenset[tuple[int, int]]


def with_circuits(job: Job) -> Job:
    """The job on a fabric whose operations ask for circuits; any other, and a collective alone, as it is."""
    fabric = job.topology
    optics = fabric.optics
    if optics is None or not optics.policy or job.of_schedule or any(_decided(one) for one in job.operations):
        return job
    fabrics, epoch_of = _states(job, fabric)
    epochs = circuit_epochs(fabrics, reuse=True, name=fabric.name)
    found = Job(epochs.topology, speed=job.speed)
    number: list[int] = []  # of each operation in the new job
    moved: dict[tuple[int, int], Schedule] = {}
    last: list[int] = []
    now = epoch_of[0] if epoch_of else 0
    for one, epoch in zip(job.operations, epoch_of, strict=True):
        after = [number[other] for other in one.after]
        work = one.work
        if epoch != now:
            old, new = (set(epochs.links[at].tolist()) for at in (now, epoch))
            down, up = (old - new, new - old) if optics.per_port else (old, new)
            asked = after if optics.policy == DEMAND else ()
            last = [found.reconfigure(f"circuits for {one.name}", f"{optics.delay_ps}ps", sorted(down), sorted(up),
                                      after=list(dict.fromkeys([*last, *asked])))]
            now = epoch
        if isinstance(work, Communicate):
            key = id(work.schedule), epoch
            if key not in moved:
                moved[key] = on_epoch(work.schedule, epochs, epoch)
            work = Communicate(moved[key])
        elif isinstance(work, Send):
            sizes = work.size_bytes if isinstance(work.size_bytes, tuple) else (work.size_bytes,) * len(work.src)
            work = work._replace(size_bytes=sizes, via=tuple(map(tuple, epochs.route(epoch, work.src, work.dst))))
        found.operations.append(replace(one, work=work, after=tuple(after)))
        number.append(len(found.operations) - 1)
    return found


def _decided(one: Operation) -> bool:
    """Whether an operation has its circuits already."""
    work = one.work
    return isinstance(work, Reconfigure) or (isinstance(work, Send) and bool(work.via)) or (
        isinstance(work, Communicate) and work.schedule.pattern.circuits is not None)


def _states(job: Job, fabric: Topology) -> tuple[list[Topology], list[int]]:
    """The distinct circuits that are asked for, those of the fabric first, and which are up in each operation."""
    states: dict[Pairs, int] = {}
    fabrics, epoch_of, now = [fabric], list[int](), 0
    asked = [_pairs(one) for one in job.operations]
    assert fabric.optics is not None
    if not (fabric.optics.circuits or fabric.optics.paid):  # the first that are asked for are up in the beginning
        asked[:1] = [next((pairs for pairs in asked if pairs), frozenset())] if asked else []
    for pairs in asked:
        if pairs and pairs not in states:
            own = joining(fabric, pairs)
            states[pairs] = 0 if own is None else len(fabrics)
            fabrics += [] if own is None else [own]
        now = states[pairs] if pairs else now
        epoch_of.append(now)
    return fabrics, epoch_of


def _pairs(one: Operation) -> Pairs:
    work = one.work
    if isinstance(work, Send):
        return frozenset((src, dst) for src, dst in zip(work.src, work.dst, strict=True) if src != dst)
    if not isinstance(work, Communicate):
        return frozenset()
    covered = None if one.npus is None else set(one.npus)
    every: Sequence[Pairs] = step_pairs(work.schedule)
    return frozenset(pair for pairs in every for pair in pairs if covered is None or pair[0] in covered)
