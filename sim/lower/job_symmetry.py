"""Which NPUs of a job behave alike, so that one of each kind represents the others."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.symmetry import Action, Group, translations
from sim.lower.marks import Marks, keeping
from sim.lower.messages import Messages
from sim.lower.quotient import LINKS_ONLY, Emitter, Orbits, Ranks, divide, orbits_of, turns_differ, turns_of, verdict
from sim.program import I32
from topologies.stages import staged
from workloads.job import Communicate, Job, Operation, Reconfigure, Send


def emitter_of(job: Job, operation: Operation) -> Pattern | Messages | None:
    """What sends the transfers of an operation; None for a computation or a change of circuits."""
    if isinstance(operation.work, Communicate):
        return operation.work.schedule.pattern
    if isinstance(operation.work, Send):
        return Messages(job.topology, (operation.work.routed,))
    return None


@staged("quotient")
def job_orbits(
    job: Job, tie: str, seed: int, symmetry: str = "auto", marks: Marks | None = None, ranks: Ranks = LINKS_ONLY
) -> tuple[Orbits, str]:
    """Representatives of NPUs and links, and how they were found.

    The symmetries that the collectives declare are tried one after the other; a generator, or its power, stays if it
    keeps the NPUs and messages of every operation, and if every collective, by itself, passes the check of
    `sim.lower.quotient`. Transfers of different operations never tie, so that what holds for each holds for all
    together, but for what takes turns at a link: that is looked at of all at once.

    `tie`: rule for equally short routes.
    `symmetry`: {"auto", "off"}.
    `ranks`: what else a group has to keep.
    """
    emitters = _emitters(job)
    sources = max([job.topology.n_npus, *(one.n_sources or 0 for one in emitters)])
    everyone = orbits_of(Group("", ()), sources, job.topology.n_links)
    if any(isinstance(operation.work, Reconfigure) for operation in job.operations):
        return everyone, "all ranks simulated (circuits change)"
    if sources > job.topology.n_npus:
        return everyone, "all ranks simulated (switches send as well)"
    best: Group | None = None
    few = job.topology.n_npus
    power = _powers(job)
    for declared in _candidates(job, emitters) if symmetry == "auto" else ():
        group = declared if marks is None else keeping(declared, marks)
        kept = tuple(found for action in group.generators if (found := power(action)) is not None)
        held = _holding(emitters, Group(group.name, kept), tie, seed, ranks)
        count = orbits_of(held, sources, job.topology.n_links).sources.size
        if count < few:
            best, few = held, count
        if len(held.generators) == len(group.generators):
            break
    if best is None:
        return everyone, "all ranks simulated" + (" (off)" if symmetry == "off" else "")
    words = f"{few} of {job.topology.n_npus} ranks simulated by {best.name}, each collective checked"
    return orbits_of(best, sources, job.topology.n_links), words


def _emitters(job: Job) -> list[Emitter]:
    found: dict[object, Emitter] = {}
    for operation in job.operations:
        emitter = emitter_of(job, operation)
        if isinstance(emitter, Messages):
            found.setdefault(emitter.sends, emitter)
        elif emitter is not None:
            found.setdefault(id(emitter), emitter)
    return list(found.values())


def _candidates(job: Job, emitters: Sequence[Emitter]) -> Iterator[Group]:
    """Groups that move all ports of a rank alike, each once: most collectives of a job declare the same."""
    declared = [emitter.groups for emitter in emitters if isinstance(emitter, Pattern)]
    seen = set[tuple[tuple[bytes, bytes], ...]]()
    for group in chain.from_iterable(declared if any(map(len, declared)) else [translations(job.topology)]):
        moves = tuple((one.ranks[0].tobytes(), one.links.tobytes()) for one in group.generators)
        if all(len(action.ranks) == 1 for action in group.generators) and moves not in seen:
            seen.add(moves)
            yield group


def _powers(job: Job) -> Callable[[Action], Action | None]:
    """What gives a move, doubled until it maps the NPUs, speeds and messages of a job onto themselves, as where
    operations are on every other NPU; None if it moves nothing then."""
    covered = {operation.npus for operation in job.operations if operation.npus is not None}
    sends = [operation.work for operation in job.operations if isinstance(operation.work, Send)]
    ordered = any(send.ordered for send in sends)
    pairs = set() if ordered else {frozenset(zip(send.src, send.dst, strict=True)) for send in sends}

    def keeps(to: I32) -> bool:
        if job.speed is not None and np.any(job.speed != job.speed[to]):
            return False
        if any(set(to[list(npus)].tolist()) != set(npus) for npus in covered):
            return False
        image = to.tolist()
        return all({(image[a], image[b]) for a, b in one} == one for one in pairs)

    def power(action: Action) -> Action | None:
        for _ in range(0 if ordered else action.ranks.size.bit_length()):  # beyond, doubled ones come again
            if np.array_equal(action.ranks[0], np.arange(action.ranks.size)):
                break
            if keeps(action.ranks[0]):
                return action
            action = Action(action.ranks[:, action.ranks[0]], action.links[action.links])
        return None

    return power


def _holding(emitters: Sequence[Emitter], group: Group, tie: str, seed: int, ranks: Ranks) -> Group:
    """The generators of a group that hold for all emitters together."""
    kept = group.generators
    tests = [partial(_holds, emitter, 1 / len(emitters)) for emitter in emitters]
    if ranks.turns and len(emitters) > 1:
        tests.append(partial(_take_turns_alike, emitters))
    while kept:
        for holds in tests:
            if not holds(Group(group.name, kept), tie, seed, ranks):
                alone = tuple(one for one in kept if holds(Group(group.name, (one,)), tie, seed, ranks))
                kept = alone if len(alone) < len(kept) else kept[:-1]
                break
        else:
            break
    return Group(group.name, kept)


def _holds(emitter: Emitter, share: float, group: Group, tie: str, seed: int, ranks: Ranks) -> bool:
    """`share`: of the sample that a job is checked by, where all its transfers are too many."""
    return verdict(emitter, group, tie, seed, ranks, share=share)[0] is None


def _take_turns_alike(emitters: Sequence[Emitter], group: Group, tie: str, seed: int, ranks: Ranks) -> bool:
    """Whether what takes turns at a link is told apart, over all operations; each by itself holds."""
    divided = ((one, divide(one, group, tie, seed, ranks)) for one in emitters)
    return not turns_differ([turns_of(one, q, tie, seed) for one, q in divided])
