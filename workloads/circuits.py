"""Circuits that the operations of a job ask for: what is up during each, and the changes in between.

An operation asks for a circuit between every two NPUs that it joins. Where the ports do not suffice, it runs on the
circuits of the fabric over several hops. Operations that ask for the same circuits one after the other share them, or
all that the ports join together do; circuits that come back are the same links. Or circuits stay as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from collectives.core.schedule import Schedule
from collectives.reconfigured import on_epoch, step_pairs
from topologies import Topology
from topologies.core.epochs import circuit_epochs
from topologies.optics import joining
from workloads.job import Communicate, Job, Operation, Reconfigure, Send

DEMAND, PROVISIONED = "demand", "provisioned"
"""Circuits are switched when an operation is ready for them, or as soon as those before are idle."""

STATIC, SHARED, OWN = "circuits stay", "for several operations together", "for each operation"
"""Which circuits are up: those of the fabric, those of operations that the ports join together, or those of each."""

Pairs = frozenset[tuple[int, int]]


def with_circuits(job: Job) -> dict[str, Job]:
    """The job in each way to give its operations circuits; one on other fabrics, and for a collective alone."""
    optics = job.topology.optics
    if optics is None or not optics.policy or job.of_schedule or any(_decided(one) for one in job.operations):
        return {STATIC: job}
    own = [_pairs(one) for one in job.operations]
    shared = list(_together(own, job.topology))
    plans = {STATIC: job, SHARED: _switched(job, shared)}
    return plans | ({OWN: _switched(job, own)} if any(a != b for a, b in zip(own, shared, strict=True) if a) else {})


def least_ps(job: Job) -> int:
    """What the changes of circuits of a plan take, one after the other."""
    return sum(one.work.delay_ps for one in job.operations if isinstance(one.work, Reconfigure))


def _switched(job: Job, asked: list[Pairs]) -> Job:
    """The job with the circuits that each operation asks for."""
    fabric, optics = job.topology, job.topology.optics
    assert optics is not None
    fabrics, epoch_of, now = _states(asked, fabric)
    epochs = circuit_epochs(fabrics, reuse=True, name=fabric.name)
    found = Job(epochs.topology, speed=job.speed)
    number: list[int] = []  # of each operation in the new job
    moved: dict[tuple[object, ...], Schedule] = {}
    last: list[int] = []
    for one, epoch in zip(job.operations, epoch_of, strict=True):
        after = [number[other] for other in one.after]
        work = one.work
        if epoch != now:
            down, up = epochs.turned(now, epoch, optics.per_port)
            waits = after if optics.policy == DEMAND else ()
            last = [found.reconfigure(f"circuits for {one.name}", f"{optics.delay_ps}ps", sorted(down), sorted(up),
                                      after=list(dict.fromkeys([*last, *waits])))]
            now = epoch
        if isinstance(work, Communicate):
            key = id(work.schedule), epoch, one.npus
            if key not in moved:
                moved[key] = on_epoch(work.schedule, epochs, epoch, one.npus)
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


def _together(asked: Sequence[Pairs], fabric: Topology) -> Iterator[Pairs]:
    """All that operations in a row ask for, as many as the ports join; of those that ask for nothing, nothing."""
    row: list[Pairs] = []
    every: Pairs = frozenset()
    for pairs in asked:
        if not pairs <= every:
            if joining(fabric, every | pairs) is None:
                yield from (every if one else one for one in row)
                row, every = [], frozenset()
            every |= pairs
        row.append(pairs)
    yield from (every if one else one for one in row)


def _states(asked: Sequence[Pairs], fabric: Topology) -> tuple[list[Topology], list[int], int]:
    """The distinct circuits that are asked for, after those of the fabric; which each operation has, and the first."""
    states: dict[Pairs, int] = {}
    fabrics, epoch_of, now = [fabric], list[int](), 0
    assert fabric.optics is not None
    for pairs in asked:
        if pairs and pairs not in states:
            found = joining(fabric, pairs)
            states[pairs] = 0 if found is None else len(fabrics)
            fabrics += [] if found is None else [found]
        now = states[pairs] if pairs else now
        epoch_of.append(now)
    if fabric.optics.circuits or fabric.optics.paid:
        return fabrics, epoch_of, 0
    first = next((states[pairs] for pairs in asked if pairs), 0)  # is up in the beginning
    asking = next((at for at, pairs in enumerate(asked) if pairs), len(asked))
    return fabrics, [first] * asking + epoch_of[asking:], first


def _pairs(one: Operation) -> Pairs:
    work = one.work
    if isinstance(work, Send):
        return frozenset((src, dst) for src, dst in zip(work.src, work.dst, strict=True) if src != dst)
    if not isinstance(work, Communicate):
        return frozenset()
    covered = None if one.npus is None else set(one.npus)
    every: Sequence[Pairs] = step_pairs(work.schedule)
    return frozenset(pair for pairs in every for pair in pairs if covered is None or pair[0] in covered)
