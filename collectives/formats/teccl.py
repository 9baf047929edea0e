"""Schedules of TE-CCL, in JSON: which chunk travels between which GPUs in which epoch; read and written.

A line of `7-Flows` is "Chunk 0 from 2 traveled over 2->3 in epoch 1 via switches 8", one of the keys of `8-Chunk paths`
"Demand at 3 for chunk 0 from 2 met by epoch 2" (microsoft/TE-CCL c128bf2). Read, chunks go by the routes of the fabric
as soon as they are there: epochs give the order, and no chunk waits for the end of one.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.routes import paths_of
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.custom import from_steps
from topologies import Topology, WeftError
from topologies.text.plain_data import parse_json
from topologies.units import Quantity

FLOWS, PATHS = "7-Flows", "8-Chunk paths"
KINDS = ("all-gather", "all-to-all")
MOST_FLOWS = 1_000_000

_FLOW = re.compile(r"Chunk (\d+) from (\d+) traveled over (\d+)->(\d+) in epoch (\d+)(?: via switches .*)?")
_DEMAND = re.compile(r"Demand at (\d+) for chunk (\d+) from (\d+) met by epoch \d+")

Flow = tuple[int, int, int, int, int]
"""Chunk, its source, from and to which GPU, epoch."""


def is_teccl(text: str) -> bool:
    """Whether a JSON text is such a schedule."""
    return f'"{FLOWS}"' in text


def read_teccl(text: str, name: str) -> tuple[str, list[Flow], dict[tuple[int, int], set[int]]]:
    """The collective, its flows by epochs, and who wants each chunk of each source.

    WeftError: a line that is no flow, fractions of chunks, or demands of neither an all-gather nor an all-to-all.
    """
    document = parse_json(text, name)
    lines, paths = document.get(FLOWS), document.get(PATHS)
    if not isinstance(lines, list) or not isinstance(paths, Mapping):
        raise WeftError(f"{name}: {FLOWS} is no list, or {PATHS} no table")
    flows, wanted = list[Flow](), defaultdict[tuple[int, int], set[int]](set)
    for line in lines:
        found = _FLOW.fullmatch(str(line))
        if found is None:
            more = ": fractions of chunks are not read" if "with volume" in str(line) else ""
            raise WeftError(f"{name}: {line!r} is no flow{more}: write 'Chunk 0 from 2 traveled over 2->3 in epoch 1'")
        chunk, source, at, to, epoch = map(int, found.groups())
        flows.append((chunk, source, at, to, epoch))
    for line in paths:
        found = _DEMAND.fullmatch(str(line))
        if found is None:
            raise WeftError(f"{name}: {line!r} is no demand: write 'Demand at 3 for chunk 0 from 2 met by epoch 2'")
        to, chunk, source = map(int, found.groups())
        wanted[chunk, source].add(to)
    ranks = {source for _, source in wanted} | {to for its in wanted.values() for to in its}
    several = sorted({len(its - {source}) for (_, source), its in wanted.items()})
    kind = KINDS[0] if several == [len(ranks) - 1] else KINDS[1]
    if several not in ([len(ranks) - 1], [1]):
        raise WeftError(f"{name}: chunks go to {several} GPUs: to all in an all-gather, to one in an all-to-all")
    return kind, sorted(flows, key=lambda flow: flow[-1]), wanted


def teccl_schedule(
    text: str, name: str, topology: Topology, size: Quantity, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """The schedule of a text, proved.

    WeftError: as for `read_teccl`; other GPUs than the fabric has.
    ScheduleError: flows that do not implement the collective.
    """
    kind, flows, wanted = read_teccl(text, name)
    p, sources = topology.n_npus, {source for _, source in wanted}
    most = max((*sources, *(max(at, to) for _, _, at, to, _ in flows)))
    if most >= p or len(sources) < p:
        raise WeftError(f"{name} is of {1 + most} GPUs; {topology.name} has {p}")
    number, parts = dict[tuple[int, int], int](), defaultdict[int, int](int)
    for chunk, source in sorted(wanted):
        first = source if kind == KINDS[0] else source * p + min(wanted[chunk, source])
        number[chunk, source] = parts[first] * p ** (1 + (kind == KINDS[1])) + first
        parts[first] += 1
    steps = defaultdict[int, list[tuple[int, int, list[int]]]](list)
    for chunk, source, at, to, epoch in flows:
        if (chunk, source) not in number:
            raise WeftError(f"{name}: nobody wants chunk {chunk} from {source}, which travels")
        steps[epoch].append((at, to, [number[chunk, source]]))
    return from_steps(topology, kind, steps.values(), size, name=name, element_bytes=element_bytes)


def to_teccl(schedule: Schedule) -> str:
    """A schedule as JSON of TE-CCL: an epoch is as long as the busiest link of any is busy.

    `6-Demand_Met` and `Solver_Time` are left out, which are of its solver.
    WeftError: another collective, unequal blocks, or too many flows.
    """
    pattern, topology, p = schedule.pattern, schedule.topology, schedule.pattern.p
    what = f"TE-CCL JSON of {pattern.name}"
    if pattern.kind.name not in KINDS or pattern.is_unnamed or not pattern.is_of_ranks or pattern.kind.weights:
        raise WeftError(f"{what} {pattern.kind.name}: it has {' and '.join(KINDS)}, equal chunks")

    def named(block: int) -> tuple[int, int]:
        """The chunk and its source: of an all-to-all, chunks of every part are numbered by their destinations."""
        return (block // p, block % p) if copies else (block % p + block // p**2 * p, block // p % p)

    t = pattern.transfers()
    if int(t.blocks.sum()) > MOST_FLOWS:
        raise WeftError(f"{what}: {int(t.blocks.sum()):,} flows: the limit is {MOST_FLOWS:,}")
    paths, copies = paths_of(t, topology), pattern.kind.name == KINDS[0]
    lines, met, epochs = list[tuple[int, str]](), dict[str, list[str]](), list[npt.NDArray[np.int64]]()
    came = dict[tuple[int, int], tuple[int, int, str]]()  # of a block at a rank: epoch, from where, and the flow
    for row in np.lexsort((t.slot, t.step)).tolist():
        at, to = int(t.src[row]), int(t.dst[row])
        links = paths.links[paths.ptr[row] : paths.ptr[row + 1]]
        between = topology.dst[links[:-1]].tolist()
        if between and min(between) < p:
            raise WeftError(f"{what}: from {at} to {to} it passes {min(between)}, which is no switch")
        via = f" via switches {', '.join(map(str, between))}" if between else ""
        for block in pattern.blocks_of(at, int(t.slot[row])):
            chunk, source = named(block)
            if at != source and (block, at) not in came:
                raise WeftError(f"{what}: its steps are no order: {at} sends block {block} too early")
            epoch = came[block, at][0] + 1 if at != source else 0
            line = f"Chunk {chunk} from {source} traveled over {at}->{to} in epoch {epoch}{via}"
            came.setdefault((block, to), (epoch, at, line))
            lines.append((epoch, line))
            epochs += [np.zeros(topology.n_links, np.int64) for _ in range(epoch + 1 - len(epochs))]
            epochs[epoch][links] += schedule.block_bytes
    for (block, to), (epoch, _, _) in came.items():
        if copies or to == block % p:
            chunk, source = named(block)
            met[f"Demand at {to} for chunk {chunk} from {source} met by epoch {epoch}"] = _way(came, block, to)
    longest = max((float((busy / topology.bandwidth_Bps).max()) for busy in epochs), default=0.0)
    finish = longest * len(epochs)
    document: dict[str, Any] = {
        "1-Epoch_Duration": longest, "2-Expected_Epoch_Duration": longest, "3-Epochs_Required": len(epochs),
        "4-Collective_Finish_Time": finish,
        "5-Algo_Bandwidth": schedule.size_bytes / finish / 1e9 if finish else 0.0,
        FLOWS: [line for _, line in sorted(lines)], PATHS: met,
    }
    return json.dumps(document, indent=1) + "\n"


def _way(came: Mapping[tuple[int, int], tuple[int, int, str]], block: int, to: int) -> list[str]:
    """The flows that brought a block to a rank, in order."""
    found = list[str]()
    while (block, to) in came:
        _, to, line = came[block, to]
        found.append(line)
    return found[::-1]
