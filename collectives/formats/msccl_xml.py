"""MSCCL XML writer: any schedule among ranks as a program that its runtimes execute.

The thread blocks are those of `collectives.formats.played`. A step waits for one other; where it has to wait for more,
`nop` steps before it wait for the rest.
"""

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from collectives.core.pattern import Pattern
from collectives.core.proof import ScheduleError
from collectives.core.schedule import Schedule
from collectives.formats.msccl import prove_msccl
from collectives.formats.msccl_program import MOST_COUNT, RUNTIMES, parse_msccl
from collectives.formats.played import COLL, Place, Played, Threads, play, threads_of
from topologies import WeftError

_BYTES = 2**48
"""Above any array: 0 stands for no limit in some runtimes, and for no array at all in microsoft/msccl."""

FITS = (RUNTIMES["rccl"], RUNTIMES["msccl-executor-nccl"], RUNTIMES["msccl"])
"""Limits that are tried, narrowest first."""

FREE = 32
"""Thread blocks of a rank that are taken freely; a GPU has some hundred processors for them."""


class _Step(NamedTuple):
    kind: str
    place: Place
    chunks: int
    waits: tuple[int, int]  # thread block and step; -1: none


class _Block(NamedTuple):
    send: int
    receive: int
    channel: int
    steps: list[_Step]


def to_msccl(schedule: Schedule) -> str:
    """A schedule as MSCCL XML, in place but for an all-to-all, within the narrowest limits that hold it; proved.

    WeftError: as for `collectives.formats.played.play`, or more channels, thread blocks or steps than any runtime has.
    """
    pattern = schedule.pattern
    what = f"MSCCL XML of {pattern.name} on {pattern.topology.name}"
    played = play(schedule, what, max(one.blocks for one in FITS))
    why, found, copies = "", None, pattern.kind.name == "all-to-all"
    few = min(one.elements for one in FITS if one.elements)
    for steps, blocks, cut in _tries():
        try:
            ranks = _blocks(played, threads_of(played, blocks - copies, cut), steps)
        except WeftError as wrong:
            why = str(wrong)
            continue
        found = found or ranks
        elements = 1 + sum(1 + sum(1 + len(one.steps) for one in its) for its in ranks)
        if elements <= few or 2 * len(played.pieces) > few:
            found = ranks
            break
    if found is None:
        raise WeftError(f"{what}: {why}, the most of any runtime; use fewer trees, blocks or ranks")
    for rank, blocks_of in enumerate(found if copies else ()):
        blocks_of.append(_own_parts(rank, pattern))
    text = _xml(found, pattern)
    try:
        prove_msccl(parse_msccl(text, what))
    except ScheduleError as wrong:
        raise WeftError(f"{what}: ranks add in place, and here that is not the same: {wrong}") from None
    return text


def _tries() -> Iterator[tuple[int, int, int]]:
    """Most steps of a thread block, thread blocks of a rank, and sends of a connection.

    Sends of connections of their own do not wait for each other, as far as `FREE` thread blocks go.
    """
    narrow = min(one.steps for one in FITS)
    yield from ((narrow, FREE, 2**power) for power in range(narrow.bit_length() - 1))
    for limits in FITS:
        yield from ((limits.steps, limits.blocks, limits.steps * part // 4) for part in (4, 3, 2))


def _blocks(played: Played, threads: Threads, most_steps: int) -> list[list[_Block]]:
    """The thread blocks of every rank with their steps; WeftError where they are too long."""
    step_of: dict[int, tuple[int, int]] = {}
    ranks = [[_Block(one.sends.dst if one.sends else -1, one.receives.src if one.receives else -1, one.channel, [])
              for one in its] for its in threads.ranks]
    for op in played.order:
        rank, number = threads.at[op]
        piece, steps = played.pieces[op // 2], ranks[rank][number].steps
        waits = [step_of[other] for other in threads.waits[op]] or [(-1, -1)]
        steps += [_Step("nop", piece.read, 0, one) for one in waits[:-1]]
        kind, where = ("s", piece.read) if op % 2 == 0 else ("rrc" if piece.reduces else "r", piece.write)
        steps.append(_Step(kind, where, len(piece.blocks), waits[-1]))
        step_of[op] = number, len(steps) - 1
    longest, rank = max((len(one.steps), -rank) for rank, its in enumerate(ranks) for one in its)
    if longest > most_steps:
        raise WeftError(f"{longest} steps in a thread block of GPU {-rank}, more than {most_steps}")
    return ranks


def _own_parts(rank: int, pattern: Pattern) -> _Block:
    """Copies what a rank sends to itself in an all-to-all."""
    parts = pattern.n_blocks // pattern.p**2
    firsts = range(rank * parts, (rank + 1) * parts, MOST_COUNT)
    return _Block(-1, -1, -1, [
        _Step("cpy", ("i", first), min(MOST_COUNT, (rank + 1) * parts - first), (-1, -1)) for first in firsts
    ])


def _xml(ranks: list[list[_Block]], pattern: Pattern) -> str:
    kind, chunks = pattern.kind.name, pattern.n_blocks
    in_place, channels = kind != "all-to-all", 1 + max((one.channel for its in ranks for one in its), default=0)
    if not in_place:
        chunks //= pattern.p
    name = f"weft {pattern.name} {pattern.topology.name}"[:254]
    lines = [
        f'<algo name={quoteattr(name)} proto="Simple" nchannels="{channels}" nchunksperloop="{chunks}" '
        f'ngpus="{pattern.p}" coll="{COLL[kind]}" inplace="{int(in_place)}" outofplace="{1 - in_place}" minBytes="0" '
        f'maxBytes="{_BYTES}">'
    ]
    i_chunks, o_chunks = {"all-gather": (0, chunks), "all-to-all": (chunks, chunks)}.get(kind, (chunks, 0))
    for rank, blocks in enumerate(ranks):
        scratch = [step.place[1] + step.chunks for one in blocks for step in one.steps if step.place[0] == "s"]
        told = {step.waits for one in blocks for step in one.steps}
        lines.append(
            f'  <gpu id="{rank}" i_chunks="{i_chunks}" o_chunks="{o_chunks}" s_chunks="{max(scratch, default=0)}">'
        )
        for number, block in enumerate(blocks):
            lines.append(f'    <tb id="{number}" send="{block.send}" recv="{block.receive}" chan="{block.channel}">')
            for at, step in enumerate(block.steps):
                buffer, chunk = step.place
                lines.append(
                    f'      <step s="{at}" type="{step.kind}" srcbuf="{buffer}" srcoff="{chunk}" '
                    f'dstbuf="{"o" if step.kind == "cpy" else buffer}" dstoff="{chunk}" cnt="{step.chunks}" '
                    f'depid="{step.waits[0]}" deps="{step.waits[1]}" hasdep="{int((number, at) in told)}"/>'
                )
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>"]) + "\n"
