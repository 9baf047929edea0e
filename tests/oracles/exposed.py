"""What one NPU waits for, gap by gap and piece by piece, with the paths of a walk in Python."""

from itertools import pairwise

from sim.why.path import Piece, Wait
from sim.why.spans import NO_DIMENSION, WAIT_ELSEWHERE, Spans
from tests.oracles.logged_walk import LoggedSteps
from workloads.job import COMPUTE_STREAM, Compute, Reconfigure


def exposed_ps(spans: Spans, rank: int) -> dict[tuple[str, str], int]:
    """As `Spans.exposed_ps`, in no order."""
    walk, found = LoggedSteps(spans.lowered.program, spans.outcome, spans.names.labels), dict[tuple[str, str], int]()
    for wait in gaps(spans, rank):
        for piece in walk.trail([wait]).listed(walk.names):
            for key, time in fillings(spans, rank, piece):
                found[key] = found.get(key, 0) + time
    return {key: time for key, time in found.items() if time}


def gaps(spans: Spans, rank: int) -> list[Wait]:
    """Gaps of the compute stream, each with the task that ends it."""
    free, found = 0, list[Wait]()
    for span in spans.of_rank(rank):
        work = spans.operations[span.operation].work
        if isinstance(work, Compute) and work.stream == COMPUTE_STREAM:
            if span.start_ps > free:
                found.append(Wait(spans.lowered.end_task[span.operation, rank], free))
            free = max(free, span.end_ps)
    makespan_ps = spans.outcome.makespan_ps
    last = max(task for task, end in enumerate(spans.outcome.finish_ps.tolist()) if end == makespan_ps)
    return [*found, Wait(last, free, delivered=True)] if makespan_ps > free else found


def fillings(spans: Spans, rank: int, piece: Piece) -> list[tuple[tuple[str, str], int]]:
    """What a piece of a path is to an NPU; of communication what is its own, and the rest."""
    operation, length = spans.names.operation(piece), piece.end_ps - piece.start_ps
    key = spans.names.exposed(piece)
    if operation is None or isinstance(operation.work, Compute | Reconfigure):
        return [(key, length)]
    times, own = under_way(spans, rank, key[0]), 0
    ends = sorted({piece.start_ps, piece.end_ps, *(end for one in times for end in one
                                                   if piece.start_ps < end < piece.end_ps)})
    for begin, end in pairwise(ends):
        own += end - begin if any(first <= begin and end <= last for first, last in times) else 0
    return [(key, own), ((WAIT_ELSEWHERE, NO_DIMENSION), length - own)]


def under_way(spans: Spans, rank: int, kind: str) -> list[tuple[int, int]]:
    """When an NPU has operations of a kind of communication in progress; what it only receives, since it was sent."""
    found = []
    for span in spans.of_rank(rank):
        operation = spans.operations[span.operation]
        if operation.kind == kind and not isinstance(operation.work, Compute):
            begun = span.start_ps
            if (sources := getattr(operation.work, "src", None)) is not None and rank not in sources:
                starts = [other.start_ps for source, to in zip(sources, operation.work.dst, strict=True) if to == rank
                          for other in spans.of_rank(source) if other.operation == span.operation]
                begun = min(starts, default=begun)
            found.append((begun, span.end_ps))
    return found
