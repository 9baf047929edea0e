"""What NPUs wait for, compiled: the gaps between computations, and whose the paths through them are, for all at once.

When an NPU has a kind of communication in progress is a union of intervals. Each union is a chain from its last
interval to its first, in which paths, which are followed from late to early, find their place without a search.
"""

from typing import NamedTuple

from sim.engine.compile.door import by_pointer, entry, helper
from sim.engine.compile.rows import Row, Rows, Word
from sim.program.contract import I64, NEVER_PS
from sim.why.backward import MEETS, NONE, PAUSED, PieceRow


class Interval(Row):
    """A part of a union; `before`: the one before it, NONE for the first."""

    start_ps: Word
    end_ps: Word
    before: Word


@entry
def find_gaps(npu, start_ps, end_ps, free_ps, busy_ps, since_ps):
    """Since when an NPU has been idle as each of its computations begins, `since_ps`; NONE where it has not.

    `npu`, `start_ps`, `end_ps`: computations by NPU and start; `busy_ps`: filled, zeros, how long NPUs compute, and
    `free_ps` until when.
    """
    for row in range(npu.size):
        one = npu[row]
        since_ps[row] = free_ps[one] if start_ps[row] > free_ps[one] else NONE
        busy_ps[one] += max(end_ps[row] - max(start_ps[row], free_ps[one]), 0)
        free_ps[one] = max(end_ps[row], free_ps[one])


@entry
def unite(union, start_ps, end_ps, intervals, last, length_ps):
    """Chain the intervals of each union, whose rows come by start; rows of NONE are of none.

    `intervals`: room for one a row. `last` (unions,): NONE; filled, the last interval of each. `length_ps`: filled;
    zeros on entry.
    """
    count = 0
    for row in range(union.size):
        of = union[row]
        if of == NONE:
            continue
        begin_ps, before = start_ps[row], last[of]
        if before != NONE and intervals[before].end_ps >= begin_ps:
            begin_ps = intervals[before].end_ps
            intervals[before].end_ps = max(begin_ps, end_ps[row])
        else:
            one = intervals[count]
            one.start_ps, one.end_ps, one.before = begin_ps, end_ps[row], before
            last[of] = count
            count += 1
        length_ps[of] += max(end_ps[row] - begin_ps, 0)


@by_pointer
class Gaps(NamedTuple):
    """What gaps of NPUs are filled with; N NPUs, K keys, U kinds of communication, P gaps.

    Keys are what time is called; the last one is communication of others.
    """

    pieces: Rows[PieceRow]
    key: I64  # of each piece
    kind: I64  # (K,): kind of communication in which NPUs take part, U one that none has, NONE for no communication
    # npu, first, since_ps: (P,): of each gap, from late to early for each NPU, the first piece of its path
    npu: I64
    first: I64
    since_ps: I64
    intervals: Rows[Interval]
    place: I64  # (N, U): the last interval that may reach into what is looked at
    spent_ps: I64  # (N, K): filled; zeros on entry
    earliest_ps: I64  # (N, K): filled: when that was first


@entry
def fill_gaps(gaps):
    """Follow the path of each."""
    for gap in range(gaps.npu.size):
        at, until_ps, since_ps = gaps.first[gap], NEVER_PS, gaps.since_ps[gap]
        while at != NONE:
            piece = gaps.pieces[at]
            if piece.what == MEETS:
                at, until_ps = piece.at, min(until_ps, piece.end_ps)
                continue
            end_ps = min(piece.end_ps, until_ps)
            if piece.what == PAUSED or end_ps <= since_ps:
                break
            start_ps = max(piece.start_ps, since_ps)
            if start_ps < end_ps:
                spend(gaps, gaps.npu[gap], gaps.key[at], start_ps, end_ps)
            at += 1


@helper
def spend(gaps, npu, key, start_ps, end_ps):
    """Put a stretch of a path under its key, and what is communication of others under theirs."""
    kind, own_ps, length_ps = gaps.kind[key], 0, end_ps - start_ps
    if kind == NONE:
        own_ps = length_ps
    elif kind < gaps.place.shape[1]:
        at = gaps.place[npu, kind]
        while at != NONE and gaps.intervals[at].start_ps >= end_ps:
            at = gaps.intervals[at].before
        gaps.place[npu, kind] = at
        while at != NONE and gaps.intervals[at].end_ps > start_ps:
            one = gaps.intervals[at]
            own_ps += min(one.end_ps, end_ps) - max(one.start_ps, start_ps)
            at = one.before
    others = gaps.spent_ps.shape[1] - 1
    if own_ps > 0:
        gaps.spent_ps[npu, key] += own_ps
        gaps.earliest_ps[npu, key] = start_ps
    if own_ps < length_ps:
        gaps.spent_ps[npu, others] += length_ps - own_ps
        gaps.earliest_ps[npu, others] = start_ps
