"""What was proved is what is simulated: no second emission, later write or link that leads nowhere gets past it."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import collectives
from collectives import build
from collectives.core.collective import collective
from collectives.core.pattern import OwnProof, Pattern, Smaller
from collectives.core.proof import ScheduleError
from collectives.core.schedule import Schedule, schedule
from collectives.core.sends import SendList
from collectives.core.transfers import Transfers, TransferTable, take
from collectives.formats.msccl_xml import to_msccl
from sim import simulate
from topologies import Topology, WeftError, fully_connected, ring, torus

FABRIC = ring(8)


def changed(t: Transfers, column: str, row: int, value: int) -> Transfers:
    values = getattr(t, column).copy()
    values[row] = value
    return t._replace(**{column: values})


def part_of(t: Transfers, ranks: np.ndarray) -> Transfers:
    return take(t, np.flatnonzero(np.isin(t.src, ranks)))


def half(pattern: Pattern) -> Transfers:
    """The first half of the steps."""
    t = pattern.transfers()
    return take(t, np.flatnonzero(t.step <= t.step.max() // 2))


def line(links: list[int] | None = None, emit=None) -> Pattern:
    """A broadcast from 0 along a ring of eight, whose first transfer names its links."""
    sends = SendList()
    for rank in range(7):
        sends.add(rank, rank + 1, [0], after=[rank - 1] if rank else (), links=(links or ()) if rank == 0 else ())
    t, blocks = sends.build()
    return Pattern(
        topology=FABRIC, kind=collective("broadcast"), algorithm="line", n_blocks=1,
        emit=emit(t) if emit else partial(part_of, t), blocks_of=lambda source, slot: blocks[source, slot],
    )


def link(a: int, b: int) -> int:
    return int(FABRIC.link_ids([a], [b])[0])


def other_each_time(full: Transfers, spoiled: Transfers, after: int):
    """Emits one table at first and another later."""
    calls = [0]

    def emit(ranks: np.ndarray) -> Transfers:
        calls[0] += 1
        return part_of(full if calls[0] <= after else spoiled, ranks)

    return emit


# --- one proof does not stand for another ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ring", "swing", "bucket", "direct"])
def test_a_half_schedule_is_refused_though_the_whole_one_was_proved(name):
    good = build(name, "all-reduce", ring(8), "1MiB").pattern
    with pytest.raises(ScheduleError, match=r"rank \d+ ends without the contribution of rank \d+ to block \d+"):
        replace(good, emit=partial(part_of, half(good)))


def test_a_pattern_has_no_key_that_its_author_could_choose():
    assert "key" not in {field.name for field in fields(Pattern)}


def test_the_same_transfers_with_other_blocks_are_proved_anew():
    good = build("ring", "all-gather", ring(8), "1MiB").pattern
    with pytest.raises(ScheduleError, match="block"):
        replace(good, blocks_of=lambda source, slot: [(x + 1) % 8 for x in good.blocks_of(source, slot)])


def test_the_same_transfers_for_another_collective_are_proved_anew():
    good = build("ring", "all-gather", ring(8), "1MiB").pattern
    wants_all = replace(good.kind, name="mine", sources=lambda block, p, root: range(p))
    with pytest.raises(ScheduleError, match="without the contribution"):
        replace(good, kind=wants_all)


def test_the_same_transfers_from_another_root_are_proved_anew():
    with pytest.raises(ScheduleError, match="of which rank 0 has nothing yet"):
        replace(line(), root=3)


@pytest.mark.parametrize("column", ["blocks", "reduces", "dep_src", "dep_slot"])
def test_any_column_makes_another_proof(column):
    good = build("ring", "all-reduce", ring(8), "1MiB").pattern
    t = good.transfers()
    values = {"blocks": 2, "reduces": not t.reduces[0], "dep_src": (t.dep_src[0] + 3) % 8, "dep_slot": 99}
    with pytest.raises(ScheduleError):
        replace(good, emit=partial(part_of, changed(t, column, 0, values[column])))


def test_equal_transfers_are_proved_once(monkeypatch):
    build("ring", "all-reduce", ring(8), "1MiB")
    monkeypatch.setattr("collectives.core.pattern.prove_carried", lambda *_: pytest.fail("proved again"))
    again = build("ring", "all-reduce", ring(8, bandwidth="7GB/s"), "1MiB").pattern
    assert again.proof == "proved"


# --- what is emitted after the proof -----------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_emitter_that_changes_its_mind_is_not_asked_again(after):
    good = build("ring", "all-reduce", ring(8), "1MiB").pattern
    true = simulate(Schedule(good, 2**20)).time_ps
    emit = other_each_time(good.transfers(), half(good), after)
    if after == 1:  # the first call is for the size, the second for the proof
        with pytest.raises(ScheduleError, match="not what it was when it was emitted before"):
            replace(good, emit=emit)
        return
    fickle = replace(good, emit=emit)
    assert simulate(Schedule(fickle, 2**20), check=True).time_ps == true
    assert simulate(Schedule(fickle, 2**20), symmetry="off").time_ps == true


def test_arrays_are_frozen_and_the_generators_own_are_not_shared():
    good = build("ring", "all-reduce", ring(8), "1MiB").pattern
    mine = Transfers(*(None if column is None else column.copy() for column in good.transfers()))
    views = {name: column[:] for name, column in mine._asdict().items() if column is not None}
    pattern = replace(good, emit=lambda ranks: mine if len(ranks) == 8 else part_of(mine, ranks))
    time = simulate(Schedule(pattern, 2**20)).time_ps
    for name in ("blocks", "dst", "dep_slot"):
        views[name][:] = 0
        for ranks in (np.arange(8), np.array([3])):
            with pytest.raises(ValueError, match="read-only"):
                getattr(pattern.emit(ranks), name)[0] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                getattr(pattern.emit(ranks), name).flags.writeable = True
    assert simulate(Schedule(replace(pattern), 2**20), symmetry="off").time_ps == time
    assert simulate(Schedule(pattern, 2**20), symmetry="off").time_ps == time


def test_a_pickle_is_frozen_too():
    pattern = pickle.loads(pickle.dumps(build("swing", "all-reduce", torus((4, 4)), "1MiB"))).pattern
    with pytest.raises(ValueError, match="read-only"):
        pattern.transfers().blocks[0] = 0


SMALLER = Smaller(lambda: build("ring", "all-reduce", ring(64), "1MiB").pattern)


def large(emit=None, **changes) -> Pattern:
    """A ring too large to be proved itself."""
    good = build("ring", "all-reduce", ring(512), "1MiB").pattern
    assert good.proof.startswith("proved on ")
    return replace(good, emit=emit or good.emit, smaller=SMALLER, **changes)


def test_a_large_pattern_that_emits_something_else_later_is_refused():
    good = large()
    emit = good.emit._emit  # what its generator wrote
    seen: list[int] = []

    def fickle(ranks: np.ndarray) -> Transfers:
        seen.append(len(ranks))
        t = emit(ranks)
        return t if len(seen) == 1 or ranks[0] > 0 else changed(t, "dst", int(np.flatnonzero(t.src == 0)[7]), 9)

    pattern = large(fickle)
    with pytest.raises(ScheduleError, match=r"ring.* on ring:512: slot \d+ of rank 0 is not what it was"):
        pattern.transfers()
    with pytest.raises(ScheduleError, match="not what it was"):
        simulate(Schedule(pattern, 2**20), symmetry="off")


@pytest.mark.parametrize("column", ["dep_lag", "dep_slot", "blocks", "tie_class"])
def test_every_column_of_a_large_pattern_is_compared(column):
    good = large()
    emit, seen = good.emit._emit, []

    def fickle(ranks: np.ndarray) -> Transfers:
        seen.append(1)
        t = emit(ranks)
        return t if len(seen) == 1 else changed(t, column, int(t.dep_ptr[1500]) if "dep" in column else 0, 5)

    with pytest.raises(ScheduleError, match="not what it was"):
        large(fickle).emit(np.arange(4))


def test_a_large_pattern_serves_its_representative_from_what_was_kept():
    pattern = large()
    assert pattern.emit(np.array([0])).dst is not None
    one, other = pattern.emit(np.array([0])), pattern.emit(np.array([0]))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True) if a is not None)
    assert not one.blocks.flags.writeable


def test_a_large_pattern_that_declares_too_few_blocks_is_refused():
    good = large()

    def fewer(ranks: np.ndarray) -> Transfers:
        t = good.emit(ranks)
        return t._replace(blocks=np.zeros_like(t.blocks))

    with pytest.raises(ScheduleError, match=r"slot \d+ of rank \d+ declares 0 blocks and has 1"):
        large(fewer)


# --- links -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("links", [[link(0, 1)], [link(0, 7), *[link(r, r - 1) for r in range(7, 1, -1)]]])
def test_links_that_lead_there_are_taken(links):
    assert line(links).proof == "proved"


@pytest.mark.parametrize("links", [[5], [0, 2], [-1], [99], [link(0, 1), link(1, 2)], [link(1, 0)], [link(1, 2)]])
def test_links_that_lead_elsewhere_are_refused(links):
    with pytest.raises(ScheduleError) as refusal:
        line(links)
    message = str(refusal.value)
    assert f"line on ring:8: slot 0 of rank 0 names the links [{', '.join(map(str, links))}]" in message
    assert "which are no path to rank 1" in message
    if links in ([-1], [99]):
        assert f"link {links[0]} is not one of 0 to 15" in message


def test_links_of_a_part_of_a_large_pattern_are_checked():
    """Of rank 200 alone, which is not among the first ranks that are looked at."""
    fabric = ring(512)
    good = build("ring", "all-reduce", fabric, "1MiB").pattern
    emit = good.emit._emit

    def named(ranks: np.ndarray) -> Transfers:
        t = emit(ranks)
        links = fabric.link_ids(t.src, t.dst)
        links[t.src == 200] = 3
        return t._replace(via_ptr=np.arange(t.src.size + 1), via_links=links.astype(np.int32))

    pattern = replace(good, emit=named, smaller=SMALLER)
    assert pattern.emit(np.array([7, 8])).via_links is not None
    for ranks in ([200], [7, 200], range(512)):
        with pytest.raises(ScheduleError, match=r"slot \d+ of rank 200 names the links \[3\], which are no path"):
            pattern.emit(np.array(ranks))


def test_links_of_an_imported_program_with_a_proof_of_its_own_are_checked():
    with pytest.raises(ScheduleError, match="no path"):
        replace(line(), emit=line_with_links([5]), own_proof=OwnProof(lambda: "proved elsewhere", unnamed=True))


@pytest.mark.parametrize("claim", [lambda: "trust me", "proved", True])
def test_the_word_of_a_caller_is_no_proof(claim: object):
    with pytest.raises(WeftError, match="own_proof"):
        replace(line(), emit=partial(part_of, line().transfers()), own_proof=claim)


def line_with_links(links: list[int]):
    t = line().transfers()
    ptr = np.concatenate(([0], np.full(t.src.size, len(links))))
    spoiled = t._replace(via_ptr=ptr, via_links=np.array(links, np.int32))
    return partial(part_of, spoiled)


# --- tables that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("dst", 8, "slot 0 of rank 2 has dst 8, which is not one of 0 to 7"),
        ("dst", -1, "slot 0 of rank 2 has dst -1, which is not one of 0 to 7"),
        ("blocks", -5, "slot 0 of rank 2 has blocks -5, which is negative"),
        ("src", 9, "emits a transfer of rank 9, which was not asked for"),
    ],
)
def test_values_out_of_range_are_refused(column, value, words):
    with pytest.raises(ScheduleError, match=words):
        line(emit=lambda t: lambda ranks: changed(part_of(t, ranks), column, 1, value))


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ScheduleError, match="columns of unequal length: blocks"):
        line(emit=lambda t: lambda ranks: t._replace(blocks=t.blocks[:-1]))


def test_a_transfer_of_a_rank_that_was_not_asked_for_is_refused():
    with pytest.raises(ScheduleError, match=r"emits a transfer of rank \d, which was not asked for"):
        line(emit=lambda t: lambda ranks: t)


def test_ranks_that_do_not_exist_are_refused():
    with pytest.raises(WeftError, match="rank 8 is not one of the 8 sources"):
        line().emit(np.array([8]))


def test_a_generator_from_outside_is_frozen():
    """The example of how to add an algorithm, with an array that it keeps."""
    kept: list[Transfers] = []

    def emit(ranks: np.ndarray) -> Transfers:
        table = TransferTable(ranks)
        table.add(0, np.where(ranks < 7, ranks + 1, -1), stream=[(ranks - 1, np.where(ranks > 0, 0, -1))])
        kept.append(table.build())
        return kept[-1]

    pattern = Pattern(
        topology=FABRIC, kind=collective("broadcast"), algorithm="line", n_blocks=1, emit=emit,
        blocks_of=lambda source, slot: [0],
    )
    before = simulate(schedule(pattern, "1MiB"), symmetry="off").time_ps
    for t in kept:
        if t.blocks.flags.writeable:
            t.blocks[:] = 0
    assert simulate(schedule(replace(pattern), "1MiB"), symmetry="off").time_ps == before


def test_the_smaller_member_of_a_caller_proves_nothing() -> None:
    """A ring of 4,096 that sends nothing is not "proved on" the ring of four that its caller points to."""
    small, fabric = build("ring", "all-reduce", ring(4), "1KiB").pattern, ring(4096)
    empty = take(small.transfers(), np.zeros(0, np.int64))
    with pytest.raises(WeftError, match="smaller") as refused:
        Pattern(
            topology=fabric, kind=collective("all-reduce"), algorithm="ring", n_blocks=2 * 4096,
            emit=lambda ranks: empty, blocks_of=lambda source, slot: (), smaller=lambda: small,  # type: ignore[arg-type]  # a caller's own
        )
    assert str(refused.value).count("\n") == 0
    assert not {"OwnProof", "Smaller"} & set(collectives.__all__)


@pytest.mark.parametrize(
    ("algorithm", "kind", "n", "proof"),
    [
        ("ring", "all-reduce", 8, "proved"), ("ring", "all-reduce", 288, "proved on torus:36"),
        ("totient-rings", "all-reduce", 288, "proved on torus:16"),
        ("pipelined", "all-gather", 256, "proved tree by tree"),
    ],
)
def test_no_proof_goes_over_to_other_transfers(algorithm: str, kind: str, n: int, proof: str) -> None:
    """Whatever proved a pattern, the same pattern with half of its steps is refused."""
    good = build(algorithm, kind, ring(n), "1MiB").pattern
    assert good.proof == proof
    with pytest.raises(WeftError, match=r"ends without the contribution|do not bring every contribution"):
        replace(good, emit=partial(part_of, half(good)))


def test_the_proof_of_a_program_does_not_go_over_to_other_transfers(tmp_path: Path) -> None:
    """Its blocks have no names, so that nothing is left that could prove them."""
    path = tmp_path / "a.xml"
    path.write_text(to_msccl(build("pipelined", "all-gather", ring(4), "64KiB")))
    good = build(str(path), "all-gather", ring(4), "64KiB").pattern
    assert good.is_unnamed and good.proof.startswith("proved")
    with pytest.raises(WeftError):
        replace(good, emit=partial(part_of, take(good.transfers(), np.arange(1))))


@pytest.mark.parametrize("other", [ring(4), ring(16), torus((2, 4)), fully_connected(8)])
def test_a_proof_does_not_go_over_to_another_wiring(other: Topology) -> None:
    pattern = build("ring", "all-reduce", ring(8), "1MiB").pattern
    with pytest.raises(WeftError, match=r"ring on ring:8 cannot be moved to .*: other NPUs or links"):
        pattern.on(other)
    assert pattern.on(ring(8, bandwidth="100Gb/s")).proof == "proved"
