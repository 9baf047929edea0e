"""Broken schedules are rejected, and the message names the rank, the block and the step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pickle import dumps
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collectives import build
from collectives.core.carried import OfMany
from collectives.core.pattern import Pattern, proofs_later
from collectives.core.proof import ScheduleError, prove
from collectives.core.schedule import schedule
from collectives.core.transfers import Transfers, take
from collectives.custom import from_steps
from sim import simulate
from tests.collectives.cases import CASES, Case, supported
from topologies import WeftError, from_spec, ring, torus

LEAN = {
    "swing", "recursive-doubling", "mirrored-recursive-doubling", "ring", "bucket", "direct", "dimension-wise", "tree",
    "hierarchical", "themis",
}  # fmt: skip
"""Algorithms in which ranks send to ranks, and nothing without need: any change spoils them."""

ALL_REDUCES = [case for case in CASES if case.algorithm in LEAN and case.collective == "all-reduce"]
WITH_DEPENDENCIES = [case for case in ALL_REDUCES if case.algorithm != "tree"]


def pattern_of(case: Case, n: int = 8) -> Pattern:
    return case.build(ring(n)).pattern


def refused(pattern: Pattern, transfers: Transfers, blocks_of=None) -> str:
    with pytest.raises(ScheduleError) as refusal:
        prove(pattern.kind, pattern.p, pattern.n_blocks, pattern.root, transfers, blocks_of or pattern.blocks_of)
    message = str(refusal.value)
    for word in (r"rank \d+", r"block \d+|no block", r"step \d+"):
        assert re.search(word, message), message
    return message


def without_waits_for(t: Transfers, src: int, slot: int) -> Transfers:
    """The table in which nobody waits for one transfer."""
    keep = (t.dep_src != src) | (t.dep_slot != slot)
    ptr = np.concatenate(([0], np.cumsum(keep)))[t.dep_ptr]
    return t._replace(dep_ptr=ptr, dep_src=t.dep_src[keep], dep_slot=t.dep_slot[keep], dep_lag=t.dep_lag[keep])


def dropped(t: Transfers, row: int) -> Transfers:
    return without_waits_for(take(t, np.delete(np.arange(t.src.size), row)), int(t.src[row]), int(t.slot[row]))


def changed(t: Transfers, column: str, row: int, value: int | bool) -> Transfers:
    values = getattr(t, column).copy()
    values[row] = value
    return t._replace(**{column: values})


rows = st.integers(0, 10**6)
lean = [case for case in CASES if case.algorithm in LEAN]
some_case = st.sampled_from(lean)
copying_case = st.sampled_from([case for case in lean if case.collective in ("all-gather", "all-to-all", "broadcast")])
some_shape = st.sampled_from([(2,), (5,), (8,), (3, 2), (3, 3), (2, 2, 2), (4, 2)])


@settings(max_examples=150, deadline=None)
@given(case=some_case, shape=some_shape, pick=rows)
def test_dropping_any_transfer_is_refused(case, shape, pick):
    assume(supported(case, shape))
    pattern = case.build(torus(shape)).pattern
    t = pattern.transfers()
    loaded = np.flatnonzero(t.blocks)
    refused(pattern, dropped(t, loaded[pick % loaded.size]))


@settings(max_examples=100, deadline=None)
@given(case=copying_case, shape=some_shape, pick=rows, by=st.integers(1, 10))
def test_misdirecting_any_transfer_is_refused(case, shape, pick, by):
    """Nobody may wait for it any more: what a rank waits for indirectly it does have. Sums have many trees."""
    assume(supported(case, shape))
    pattern = case.build(torus(shape)).pattern
    t = pattern.transfers()
    row = pick % t.src.size
    other = (int(t.dst[row]) + by) % pattern.p
    assume(other != t.dst[row] and t.blocks[row])
    refused(pattern, without_waits_for(changed(t, "dst", row, other), int(t.src[row]), int(t.slot[row])))


@settings(max_examples=100, deadline=None)
@given(case=some_case, shape=some_shape, pick=rows)
def test_copying_where_a_sum_is_due_is_refused(case, shape, pick):
    assume(supported(case, shape))
    pattern = case.build(torus(shape)).pattern
    t = pattern.transfers()
    sums = np.flatnonzero(t.reduces)
    assume(sums.size)
    refused(pattern, changed(t, "reduces", sums[pick % sums.size], False))


@settings(max_examples=100, deadline=None)
@given(case=some_case, shape=some_shape, pick=rows, by=st.integers(1, 100))
def test_carrying_another_block_is_refused(case, shape, pick, by):
    assume(supported(case, shape))
    pattern = case.build(torus(shape)).pattern
    t = pattern.transfers()
    row = pick % t.src.size
    key = (int(t.src[row]), int(t.slot[row]))
    right = list(pattern.blocks_of(*key))
    assume(right)
    wrong = (right[0] + by) % pattern.n_blocks
    assume(wrong not in right)
    refused(pattern, t, lambda src, slot: [wrong, *right[1:]] if (src, slot) == key else pattern.blocks_of(src, slot))


@pytest.mark.parametrize("case", ALL_REDUCES, ids=str)
def test_a_transfer_that_is_there_twice_is_refused(case):
    pattern = pattern_of(case)
    t = pattern.transfers()
    message = refused(pattern, take(t, np.sort(np.append(np.arange(t.src.size), 3))))
    assert "appears twice" in message


@pytest.mark.parametrize("case", ALL_REDUCES, ids=str)
def test_a_sum_that_is_sent_twice_is_refused(case):
    pattern = pattern_of(case)
    t = pattern.transfers()
    row = int(np.flatnonzero(t.reduces & (t.blocks > 0))[0])
    again = take(t, np.append(np.arange(t.src.size), row))
    spare = int(t.slot.max()) + 1
    again = changed(again, "slot", t.src.size, spare)
    first = int(t.slot[row])
    message = refused(pattern, again, lambda src, slot: pattern.blocks_of(src, first if slot == spare else slot))
    assert "is already counted" in message or "is not guaranteed to finish before" in message


@pytest.mark.parametrize("case", WITH_DEPENDENCIES, ids=str)
def test_sending_too_early_is_refused(case):
    pattern = pattern_of(case)
    t = pattern.transfers()
    none = np.zeros(0, np.int32)
    refused(pattern, t._replace(dep_ptr=t.dep_ptr * 0, dep_src=none, dep_slot=none, dep_lag=none))


@pytest.mark.parametrize("case", WITH_DEPENDENCIES, ids=str)
def test_waiting_in_a_circle_is_refused(case):
    pattern = pattern_of(case)
    t = pattern.transfers()
    child = int(np.flatnonzero(np.diff(t.dep_ptr))[-1])
    at = int(t.dep_ptr[child])
    parent = int(np.flatnonzero((t.src == t.dep_src[at]) & (t.slot == t.dep_slot[at]))[0])
    ptr = t.dep_ptr + (np.arange(t.dep_ptr.size) > parent)
    place = int(t.dep_ptr[parent])
    circle = t._replace(
        dep_ptr=ptr,
        dep_src=np.insert(t.dep_src, place, t.src[child]),
        dep_slot=np.insert(t.dep_slot, place, t.slot[child]),
        dep_lag=np.insert(t.dep_lag, place, -1),
    )
    assert "waits for itself in a cycle" in refused(pattern, circle)


def test_waiting_for_what_is_not_there_is_refused():
    pattern = pattern_of(ALL_REDUCES[0])
    t = pattern.transfers()
    assert "waits for slot 999 of rank" in refused(pattern, t._replace(dep_slot=np.full_like(t.dep_slot, 999)))


def test_saying_another_number_of_blocks_is_refused():
    pattern = pattern_of(ALL_REDUCES[0])
    t = pattern.transfers()
    assert "declares 7 blocks and has block" in refused(pattern, changed(t, "blocks", 2, 7))


def test_following_chunk_by_chunk_with_other_blocks_is_refused():
    pattern = pattern_of(next(case for case in ALL_REDUCES if case.form == "bandwidth"))
    t = pattern.transfers()
    assert "chunk by chunk" in refused(pattern, t._replace(dep_lag=np.zeros_like(t.dep_lag)))


def test_a_pattern_that_is_too_large_needs_a_smaller_one():
    pattern = pattern_of(next(case for case in CASES if case.algorithm == "direct"), 1200)
    with pytest.raises(WeftError, match=r"direct on ring:1200 is too large to prove .* provides no smaller topology"):
        Pattern(
            topology=pattern.topology, kind=pattern.kind, algorithm="direct", n_blocks=1200, emit=pattern.emit,
            blocks_of=pattern.blocks_of,
        )  # fmt: skip


@pytest.mark.compiled
@pytest.mark.verify
def test_a_ring_of_a_thousand_that_somebody_wrote_is_proved():
    """Each block has a part of the dependencies of its own; what is wrong is not named among so many."""
    def turns(missing: int) -> Iterator[list[tuple[int, int, list[int]]]]:
        for turn in range(1023 - missing):
            yield [(rank, (rank + 1) % 1024, [(rank - turn) % 1024]) for rank in range(1024)]

    assert from_steps(ring(1024), "all-gather", turns(0), "1GiB").proof == "proved"
    with pytest.raises(ScheduleError, match="on fewer ranks the proof says what is wrong"):
        from_steps(ring(1024), "all-gather", turns(1), "1GiB")


@pytest.mark.compiled
def test_a_ring_beyond_the_limit_of_members_of_a_family_is_proved():
    turns = ([(rank, (rank + 1) % 400, [(rank - turn) % 400]) for rank in range(400)] for turn in range(399))
    assert from_steps(ring(400), "all-gather", turns, "1GiB").proof == "proved"


def test_blocks_must_suit_the_collective():
    pattern = pattern_of(next(case for case in CASES if case.collective == "all-to-all"), 4)
    with pytest.raises(WeftError, match="9 blocks do not fit all-to-all over 4 ranks"):
        Pattern(
            topology=pattern.topology, kind=pattern.kind, algorithm="direct", n_blocks=9, emit=pattern.emit,
            blocks_of=pattern.blocks_of,
        )  # fmt: skip


@pytest.mark.parametrize("spec", ["torus:6x6x6", "SW(6)_SW(6)_SW(6)"])
def test_a_member_of_which_there_is_no_smaller_one_is_proved_itself(spec):
    """Its smaller member was itself, again and again."""
    assert build("direct", "all-to-all", from_spec(spec), "1MiB").proof == "proved"


def test_a_proof_may_wait_until_it_is_asked_for_and_no_longer():
    """What is built to be compared by bounds owes its proof; a schedule of it that is built otherwise pays."""
    sound = pattern_of(ALL_REDUCES[0])
    short = dropped(sound.transfers(), 5)
    with proofs_later():
        owing = Pattern(
            topology=sound.topology, kind=sound.kind, algorithm="lame", n_blocks=sound.n_blocks,
            emit=lambda ranks: take(short, np.flatnonzero(np.isin(short.src, ranks))), blocks_of=sound.blocks_of,
        )
        due = schedule(owing, "1KiB")
    for ask in (lambda: owing.proof, lambda: schedule(owing, "1KiB"), lambda: simulate(due), lambda: dumps(owing)):
        with pytest.raises(ScheduleError):
            ask()
    with proofs_later():
        again = pattern_of(ALL_REDUCES[0], 7)
        other = again.named("other")
    assert again.proof == other.proof == "proved"


@pytest.mark.parametrize(("algorithm", "kind", "spec", "options"), [
    ("hierarchical", "all-reduce", "RI(5)_FC(3)_SW(4)", {"pipeline_chunks": 3}),
    ("hierarchical", "all-to-all", "RI(4)_SW(3)", {"pipeline_chunks": 1}),
    ("hierarchical", "all-gather", "torus:6x4", {"group": "3@2,1", "pipeline_chunks": 2}),
    ("hierarchical", "reduce-scatter", "torus:1", {"pipeline_chunks": 1}),
    ("themis", "all-reduce", "RI(3)_SW(2)_FC(4)", {"pipeline_chunks": 5}),
    ("bucket", "all-reduce", "torus:5x3", {}), ("bucket", "reduce-scatter", "torus:2x1x4", {}),
    ("bucket", "all-gather", "torus:1", {}), ("ring", "all-reduce", "torus:3x3", {}),
    ("nccl-rings", "all-gather", "dgx-h100:1", {}), ("pipelined", "all-reduce", "torus:5x3", {}),
    ("bfb", "all-gather", "torus:4x3", {}),
])
def test_blocks_of_all_sources_of_a_slot_at_once_are_those_of_each(
    algorithm: str, kind: str, spec: str, options: dict[str, Any]
) -> None:
    pattern = build(algorithm, kind, from_spec(spec), "1MiB", **options).pattern
    t, found = pattern.transfers(), pattern.blocks_of
    assert isinstance(found, OfMany)
    assert found.of_rows(t.src, t.slot).rows == [
        tuple(found(source, slot)) for source, slot in zip(t.src.tolist(), t.slot.tolist(), strict=True)]
    some = np.flatnonzero(t.src % 3 == 1)  # as unequal parts of slots
    assert found.of_rows(t.src[some], t.slot[some]).rows == [
        tuple(found(source, slot)) for source, slot in zip(t.src[some].tolist(), t.slot[some].tolist(), strict=True)]
