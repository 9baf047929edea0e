"""The symmetric quotient: one representative per orbit of transfers and links.

A declared group is believed only after a check. Let every transfer of the full program stand over its
representative, and every link over its own. If each transfer has the work, the tie and, link by link, the route of
its representative and waits for the images of the same transfers, and if the transfers that cross a link stand
over those that cross its representative one to one, then the run of the small program, copied to all that stand
over it, obeys every rule of the full one: it is the full run. Nothing is approximated, and a group that fixes a
link fails the last condition.

Eight ranks in a ring under rotation by two, with representatives 0 and 1:

    rank     0  1  2  3  4  5  6  7          link    0>1  1>2  2>3  3>4 ...
    stands   .  .  0  1  0  1  0  1          stands   .    .   0>1  1>2 ...

    transfers of 0 and 1, their links replaced by representatives, are an ordinary program: the engine does not know.
    A transfer that waits for one of rank 7 waits, in the quotient, for the same slot of rank 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary, ref

import numpy as np
import numpy.typing as npt

from collectives.core.emission import Emission, Emit
from collectives.core.laid import Laid
from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.symmetry import Action, Group
from collectives.core.transfers import Again, Transfers, take, without_waits
from sim.lower.capacity import check_capacity
from sim.lower.credits import route_channels
from sim.lower.marks import Marks, keeping
from sim.program import I8
from sim.program.columns import blocks, joined, numbered
from topologies import Topology
from topologies.core.joined import join
from topologies.core.paths import Paths, ranges
from topologies.core.rateless import alike, digest, wiring_of
from topologies.stages import staged
from topologies.text.brief import one_line

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.integer]

FULL_CHECK_TRANSFERS = 1_500_000
FULL_CHECK_CROSSINGS = 2_000_000
AT_HAND_TRANSFERS = 500_000
"""Limit on transfers that are emitted once for all checks of a pattern: 50 MiB."""

AT_ONCE = 200_000
"""Transfers that are compared at once: their columns stay in a cache."""

SAMPLE_TRANSFERS = 200_000
SAMPLE_CROSSINGS = 1_000_000
CANDIDATE_SHARE = 0.1
"""Of a sample, what is looked at to choose among generators: the group of those chosen is checked with all of it."""


class Emitter(Protocol):
    """What a quotient needs to know of a pattern, or of the messages of a job."""

    @property
    def topology(self) -> Topology:
        """The fabric whose routes are taken."""

    @property
    def p(self) -> int:
        """Number of ranks."""

    @property
    def n_sources(self) -> int | None:
        """Sources of transfers, where they are not the ranks."""

    @property
    def emit(self) -> Callable[[npt.NDArray[np.integer]], Transfers]:
        """The transfers of some sources."""


@one_line
class Orbits(NamedTuple):
    """Representatives under a group."""

    rank: I32  # (1, sources) or (ports, sources): representative of each source, for all ports alike or port by port
    link: I32  # (n_links,): representative of each link

    @property
    def is_whole(self) -> bool:
        """Whether every source represents itself only."""
        return bool(np.all(self.rank == np.arange(self.rank.shape[1])))

    @property
    def sources(self) -> I64:
        """Sources that represent themselves or others, ascending."""
        there = np.zeros(self.rank.shape[1], np.bool_)
        there[self.rank.ravel()] = True
        return np.flatnonzero(there)

    def rank_of(self, port: npt.NDArray[np.integer], src: npt.NDArray[np.integer]) -> I32:
        """Representative of each source, given the port of its transfer."""
        found: I32 = self.rank[0][src] if self.is_alike else self.rank[np.minimum(port, len(self.rank) - 1), src]
        return found

    @property
    def is_alike(self) -> bool:
        """Whether all ports of a source have one representative."""
        return len(self.rank) == 1


class Ranks(NamedTuple):
    """What of a model a group has to keep besides links and transfers: ranks as a whole, and who takes turns.

    `ends`: what routes have besides links: 0, NICs where they begin (1), or also where they end (2). An end is a link
    that no other rank has: number n_links + rank where routes begin, n_links + p + rank where they end.
    `together`: whether ports wait for each other.
    `turns`: the discipline of links that serve in turn, or "".
    `channels`: what gives routes their virtual channels (sim/lower/credits.py), or "".
    """

    ends: int = 0
    together: bool = False
    turns: str = ""
    channels: str = ""

    def keep(self, group: Group) -> bool:
        """Whether a group moves all ports of a rank alike, if that matters."""
        return not (self.ends or self.together) or all(len(action.ranks) == 1 for action in group.generators)


LINKS_ONLY = Ranks()


class Routes(NamedTuple):
    """The routes of transfers, those of one pair of nodes once: a ring's million steps share a few."""

    paths: Paths  # of each pair of nodes; links are representatives
    row: I32  # (n,): pair of each transfer
    channel: I8 = np.zeros(0, np.int8)  # of each hop; empty where links have one

    def of_transfers(self) -> tuple[Paths, I8]:
        """The route, or two, of each transfer, and the channel of each hop."""
        if np.array_equal(self.row, np.arange(self.row.size)):
            return self.paths, self.channel
        count = np.bincount(self.paths.pair, minlength=int(self.row.max(initial=-1)) + 1)
        route = ranges((np.cumsum(count) - count)[self.row], count[self.row])
        hops = np.diff(self.paths.ptr)[route]
        ptr = np.concatenate(([0], np.cumsum(hops)))
        at = ranges(self.paths.ptr[route], hops)
        paths = Paths(ptr, self.paths.links[at], np.repeat(np.arange(self.row.size), count[self.row]))
        return paths, self.channel[at] if self.channel.size else self.channel


@one_line
class Quotient(NamedTuple):
    """Representative transfers with their routes."""

    orbits: Orbits
    transfers: Transfers  # of the representatives
    routes: Routes  # of each of them one, or two under `split`; ends of routes are among the links
    symmetry: str  # for people: which group, how many ranks represent how many, how it was checked
    ranks: Ranks = LINKS_ONLY
    laid: Laid | None = None  # all transfers, where slots tell what the others have to be emitted for


@staged("quotient")
def quotient(
    pattern: Pattern, tie: str, seed: int, symmetry: str = "auto", marks: Marks | None = None,
    ranks: Ranks = LINKS_ONLY, chunks: int = 1, laid: Callable[[], Laid | None] = lambda: None,
) -> Quotient:
    """The smallest program that represents the whole pattern.

    `tie`: rule for equally short routes; one that breaks a symmetry shrinks the group.
    `seed`: for `ecmp`.
    `symmetry`: {"auto", "off"}.
    `marks`: what else has to be alike.
    `ranks`: whether ranks have NICs, and ports wait for each other.
    `chunks`: of a transfer, in what is to be run; without symmetry it has to fit in memory.
    `laid`: all transfers without rows, if they may be.
    """
    notes: list[str] = []
    for group in pattern.groups if symmetry == "auto" else ():
        notes += [f"{group.name}: {what} is no symmetry of its links" for what in group.dropped]
        if not ranks.keep(group):
            notes.append(f"{group.name}: the ports of a rank move apart")
            continue
        kept = group if marks is None else keeping(group, marks)
        with pattern.at_hand(AT_HAND_TRANSFERS):
            found = _largest(pattern, kept, tie, seed, notes, marks, ranks)
        if found is not None:
            return found
    if not pattern.is_part:  # whose whole is in memory
        check_capacity(pattern, pattern.p, chunks)
    reason = "off" if symmetry == "off" else "; ".join(notes) or "none declared"
    every, alone = laid(), (tie, seed, ranks)
    whole = divide(pattern, Group("", ()), *alone) if every is None else _of_laid(pattern, every, *alone)
    return whole._replace(symmetry=f"all ranks simulated ({reason})")


def _largest(
    pattern: Pattern, group: Group, tie: str, seed: int, notes: list[str], marks: Marks | None, ranks: Ranks
) -> Quotient | None:
    """The quotient by the group, or by as many of its generators as hold."""
    kept = group.generators
    while kept:
        tried = Group(group.name, kept)
        candidate = divide(pattern, tried, tie, seed, ranks)
        fault, how = verdict(pattern, tried, tie, seed, ranks, marks, candidate=candidate)
        if fault is None:
            shrunk = f", shrunk: {'; '.join(notes)}" if notes else ""
            p, few = pattern.p, candidate.orbits.sources.size
            words = f"{few} of {p} ranks simulated by {group.name}, {how}{shrunk}"
            return candidate._replace(symmetry=words)
        notes.append(f"{group.name}: {fault}")
        kept = _shrink(pattern, group.name, kept, tie, seed, ranks)
    return None


def _shrink(
    pattern: Pattern, name: str, kept: tuple[Action, ...], tie: str, seed: int, ranks: Ranks
) -> tuple[Action, ...]:
    """The generators that hold one by one; if all of them do, all but the last."""
    alone = tuple(action for action in kept if verdict(
        pattern, Group(name, (action,)), tie, seed, ranks, share=CANDIDATE_SHARE
    )[0] is None)
    return alone if len(alone) < len(kept) else kept[:-1]


def divide(pattern: Emitter, group: Group, tie: str, seed: int, ranks: Ranks = LINKS_ONLY) -> Quotient:
    """The transfers of the representatives under an assumed group; `check` verifies the assumption."""
    orbits = orbits_of(group, pattern.n_sources or pattern.p, pattern.topology.n_links)
    transfers = _of_representatives(pattern.emit(orbits.sources), orbits)
    return made_of(pattern, orbits, transfers, tie, seed, ranks)


def made_of(
    pattern: Emitter, orbits: Orbits, transfers: Transfers, tie: str, seed: int, ranks: Ranks = LINKS_ONLY
) -> Quotient:
    """The transfers of representatives, with their routes over the links that represent others."""
    routes, link_of = routes_of(transfers, pattern.topology, tie, seed, ranks), _with_ends(orbits, pattern, ranks.ends)
    if orbits.is_whole and np.array_equal(link_of, np.arange(link_of.size)):
        return Quotient(orbits, transfers, routes, "", ranks)
    over = routes._replace(paths=routes.paths._replace(links=link_of[routes.paths.links]))
    return Quotient(orbits, transfers, over, "", ranks)


def _of_laid(pattern: Pattern, laid: Laid, tie: str, seed: int, ranks: Ranks) -> Quotient:
    """All transfers with their routes; the columns that slots do not tell are emitted if asked."""
    topology, (n_slots, p) = pattern.topology, laid.shape
    every, emission = np.arange(p, dtype=np.int32), ref(pattern.emission)
    dst = np.concatenate([one.reshape(-1) for one in laid.dst])
    if in_full := dst.size == n_slots * p:
        dst = laid.spread(dst)
    src = np.tile(every, dst.size // p)
    routes = _routes_of(src, dst, topology, tie, seed, ranks, n_slots * p)
    routes = routes if in_full else routes._replace(row=laid.spread(routes.row))
    runs = {name: (of, p) for name, of in laid.of_slot.items()}
    t = Again(lambda: _all_again(cast(Emission, emission()), every), runs)
    return Quotient(orbits_of(Group("", ()), p, topology.n_links), cast(Transfers, t), routes, "", ranks, laid)


def _all_again(emission: Emission, every: I32) -> Transfers:
    """All transfers but what they wait for, of slots once more where nothing else was emitted since."""
    if (laid := emission.laid(0)) is None:
        return without_waits(emission(every))
    (n_slots, p), none = laid.shape, np.zeros(0, np.int32)
    dst = laid.spread(np.concatenate([one.reshape(-1) for one in laid.dst]))
    columns = {name: np.repeat(of, p) for name, of in laid.of_slot.items()}
    src, ptr = np.tile(every, n_slots), np.zeros(dst.size + 1, np.int64)
    return without_waits(Transfers(src, dst, **columns, dep_ptr=ptr, dep_src=none, dep_slot=none, dep_lag=none))


def _with_ends(orbits: Orbits, pattern: Emitter, ends: int) -> I32:
    """Representative of each link, and of each end of routes."""
    if not ends:
        return orbits.link
    rank, n_links, p = orbits.rank[0][: pattern.p], pattern.topology.n_links, pattern.p
    found: I32 = np.concatenate([orbits.link, *(n_links + end * p + rank for end in range(ends))])
    return found


def orbits_of(group: Group, n_sources: int, n_links: int) -> Orbits:
    """Representatives of sources and links under a group."""
    parts = max([1, *(len(action.ranks) for action in group.generators)])
    rank = np.stack([_orbits([_part(action, part) for action in group.generators], n_sources) for part in range(parts)])
    return Orbits(rank, _orbits([action.links for action in group.generators], n_links))


def routes_of(t: Transfers, topology: Topology, tie: str, seed: int, ranks: Ranks = LINKS_ONLY) -> Routes:
    """Routes of transfers, with what they begin and end at.

    Each pair of ends is asked for once, unless transfers name links themselves.
    """
    if t.via_ptr is not None:
        paths = _ended(paths_of(t, topology, tie, seed), t.src, t.dst, topology, ranks.ends)
        return _in_channels(Routes(paths, np.arange(t.src.size, dtype=np.int32)), topology, ranks)
    return _routes_of(t.src, t.dst, topology, tie, seed, ranks, t.src.size)


def _routes_of(begin: I32, to: I32, topology: Topology, tie: str, seed: int, ranks: Ranks, n: int) -> Routes:
    """The routes between some ends, which are those of `n` transfers."""
    sources, source = np.arange(int(begin.max(initial=-1)) + 1), begin
    if sources.size * topology.n_nodes > 4 * begin.size:  # few sources make a short range
        sources, source = numbered(begin.size, lambda some: begin[some])
    pairs, row = numbered(begin.size, lambda some: source[some].astype(np.int64) * topology.n_nodes + to[some])
    src, dst = sources[pairs // topology.n_nodes], pairs % topology.n_nodes
    if pairs.size == n:  # routes in the order of the transfers need not be copied to be theirs
        src, dst, row = begin.astype(np.int64), to.astype(np.int64), np.arange(n, dtype=np.int32)
    paths = _ended(topology.paths(src, dst, tie, seed), src, dst, topology, ranks.ends)
    return _in_channels(Routes(paths, row), topology, ranks)


def _in_channels(routes: Routes, topology: Topology, ranks: Ranks) -> Routes:
    if not ranks.channels:
        return routes
    return routes._replace(channel=route_channels(topology, routes.paths, ranks.channels))


def _ended(paths: Paths, src: Rows, dst: Rows, topology: Topology, ends: int) -> Paths:
    """The routes, with what they begin and end at in NPUs."""
    if not ends:
        return paths
    hops = np.diff(paths.ptr)
    begin = (hops > 0) & (src[paths.pair] < topology.n_npus)
    end = (hops > 0) & (dst[paths.pair] < topology.n_npus) & (ends > 1)
    ptr = np.concatenate(([0], np.cumsum(hops + begin + end)))
    links = np.empty(ptr[-1], np.int64)
    links[ranges(ptr[:-1] + begin, hops)] = paths.links
    links[ptr[:-1][begin]] = topology.n_links + src[paths.pair[begin]]
    links[ptr[1:][end] - 1] = topology.n_links + topology.n_npus + dst[paths.pair[end]]
    return Paths(ptr, links.astype(paths.links.dtype), paths.pair)


def _part(action: Action, part: int) -> I32:
    ranks: I32 = action.ranks[min(part, len(action.ranks) - 1)]
    return ranks


def _orbits(permutations: list[I32], n: int) -> I32:
    """Least member of the orbit of each of n items."""
    least = np.arange(n, dtype=np.int32)
    for images in permutations:
        join(least, np.arange(n, dtype=np.int32), images.astype(np.int32, copy=False))
    return least


def _of_representatives(transfers: Transfers, orbits: Orbits) -> Transfers:
    """Only the transfers whose source represents its orbit in their port."""
    if len(orbits.rank) == 1:
        return transfers
    keep = np.flatnonzero(orbits.rank_of(transfers.port, transfers.src) == transfers.src)
    return take(transfers, keep)


# --- the check ----------------------------------------------------------------------------------------------------

_VERDICTS: "WeakKeyDictionary[Emit, dict[tuple[object, ...], tuple[str | None, str]]]" = WeakKeyDictionary()
"""By what emits transfers: what is wrong with groups that were looked at. Shared by the shapes of a pattern, which
differ in what ranks wait for as well, and by the jobs of a search or a table."""

MOST_VERDICTS = 256
"""Limit on those of one emitter: a sweep over faults looks at groups anew for each of its plans."""


def verdict(
    pattern: Emitter, group: Group, tie: str, seed: int, ranks: Ranks = LINKS_ONLY, marks: Marks | None = None,
    *, share: float = 1, candidate: Quotient | None = None,
) -> tuple[str | None, str]:
    """What is wrong with the quotient by a group, as `check` has it; of a pattern, looked at once.

    `candidate`: the quotient, where there is one.
    """
    known = _VERDICTS.setdefault(pattern.emit, {}) if isinstance(pattern, Pattern) else {}
    topology, moves = pattern.topology, (column for one in group.generators for column in (one.ranks, one.links))
    looked_at = ranks._replace(together=False)  # which `keep` alone asks for
    routed = wiring_of(topology), alike(topology), tie, seed
    key = *routed, digest("", *moves), looked_at, marks and marks.digest, share
    if key not in known:
        q = divide(pattern, group, tie, seed, ranks) if candidate is None else candidate
        known.pop(next(iter(known)) if len(known) >= MOST_VERDICTS else key, None)
        known[key] = check(pattern, q, tie, seed, marks, share=share)
    return known[key]


def check(
    pattern: Emitter, q: Quotient, tie: str, seed: int, marks: Marks | None = None, *, share: float = 1
) -> tuple[str | None, str]:
    """What is wrong with a quotient (None if nothing), and how it was looked at.

    `share`: of the sample, where a check in full would take long.
    """
    if marks is not None and not _same_marks(q, marks):
        return "faults of one orbit differ", ""
    sources, full = _looked_at(pattern, q, share)
    return _fault(pattern, q, sources, full, tie, seed), "checked in full" if full else "checked by sampling"


def _looked_at(pattern: Emitter, q: Quotient, share: float = 1) -> tuple[Rows, bool]:
    """Sources whose transfers are compared with those of their representatives, and whether they are all."""
    sources = np.arange(pattern.n_sources or pattern.p)
    per_source = q.transfers.src.size / q.orbits.sources.size
    paths, pair, _ = q.routes
    hops = float(np.bincount(paths.pair, np.diff(paths.ptr), int(pair.max(initial=-1)) + 1)[pair].sum())
    crossings = hops / max(pair.size, 1) * per_source
    full = per_source * sources.size <= FULL_CHECK_TRANSFERS and crossings * sources.size <= FULL_CHECK_CROSSINGS
    if not full:
        most = share * min(SAMPLE_TRANSFERS / max(per_source, 1), SAMPLE_CROSSINGS / max(crossings, 1))
        others = sources[q.orbits.rank.min(axis=0)[sources] != sources]  # representatives represent themselves
        count = int(np.clip(most, 1, others.size))
        sources = np.sort(np.random.default_rng(0).choice(others, count, replace=False))
    return sources, full


def _same_marks(q: Quotient, marks: Marks) -> bool:
    rank = marks.rank[: q.orbits.rank.shape[1]]
    return np.array_equal(marks.link[q.orbits.link], marks.link) and all(
        np.array_equal(rank[part], rank) for part in q.orbits.rank
    )


def _fault(
    pattern: Emitter, q: Quotient, sources: npt.NDArray[np.integer], full: bool, tie: str, seed: int
) -> str | None:
    topology, link_of = pattern.topology, q.orbits.link
    for values in (topology.bandwidth_Bps, topology.latency_ps, topology.hop_latency_ps[topology.dst]):
        if np.any(values != values[link_of]):
            return "links of one orbit differ"
    if q.ranks.ends and _nics_differ(pattern, q):
        return "NICs of one orbit differ"
    theirs, their_channel = q.routes.of_transfers()
    link_of, count = _with_ends(q.orbits, pattern, q.ranks.ends), q.transfers.src.size / q.orbits.sources.size
    seen: list[tuple[I32, I64]] = []
    turns: list[I64] = []
    for some in np.array_split(sources, max(1, round(count * sources.size / AT_ONCE))):
        t = pattern.emit(some)
        row = _representative_rows(t, q)
        if row is None:
            return "transfers have no representative"
        if fault := _columns_fault(t, q, row):
            return fault
        paths, channel = routes_of(t, topology, tie, seed, q.ranks).of_transfers()
        at = _same_routes(paths, q, theirs, link_of, row)
        if at is None:
            return "the routes of one orbit differ"
        if q.ranks.channels and np.any(channel != their_channel[at]):
            return f"the routes of one orbit take different virtual channels ({q.ranks.channels})"
        seen.append((paths.links, at))
        if q.ranks.turns:
            turns.append(_turns(q, topology.n_nodes, link_of, t, paths, row))
    if q.ranks.turns and turns_differ(turns):
        return f"it moves together what takes turns at a link ({q.ranks.turns})"
    links, hops = (np.concatenate(column) for column in zip(*seen, strict=True))
    return _crossing_fault(q, theirs, link_of, links, hops, full)


def _columns_fault(t: Transfers, q: Quotient, row: Rows) -> str | None:
    """What differs between transfers and their representatives, routes left out."""
    if np.any(t.blocks != q.transfers.blocks[row]) or np.any(t.tie_class != q.transfers.tie_class[row]):
        return "transfers of one orbit differ"
    pool = q.transfers.pool
    if t.pool is not None and (pool is None or len(q.orbits.rank) > 1 or np.any(t.pool != pool.take(row, axis=0))):
        return "transfers of one orbit use pools differently"
    rounds = q.transfers.rounds
    if t.rounds is not None and (rounds is None or np.any(t.rounds != rounds[row])):
        return "transfers of one orbit stand for different rounds"
    return None if _same_waits(t, q, row) else "transfers of one orbit wait for different ones"


def _nics_differ(pattern: Emitter, q: Quotient) -> bool:
    """Whether NPUs of one orbit have other links: what a NIC has unless told."""
    topology, rank = pattern.topology, q.orbits.rank[0][: pattern.p]
    of_npu = topology.src < pattern.p
    src = topology.src[of_npu]
    for values in (np.ones(src.size), topology.bandwidth_Bps[of_npu]):
        total = np.bincount(src, weights=values, minlength=pattern.p)
        if np.any(total != total[rank]):
            return True
    return False


def _representative_rows(t: Transfers, q: Quotient) -> Rows | None:
    """Row of the representative of each transfer."""
    stride = int(max(q.orbits.rank.max(initial=0), t.src.max(initial=0))) + 1
    key = q.transfers.slot.astype(np.int64) * stride + q.transfers.src
    want = t.slot.astype(np.int64) * stride + q.orbits.rank_of(t.port, t.src)
    row = find_rows(key, want)
    if key.size == 0:
        return row if want.size == 0 else None
    return row if np.array_equal(key[row], want) else None


def _same_waits(t: Transfers, q: Quotient, row: Rows) -> bool:
    counts = np.diff(t.dep_ptr)
    if np.any(counts != np.diff(q.transfers.dep_ptr)[row]):
        return False
    ports = _slot_ports(q.transfers)

    def waits(table: Transfers, at: slice) -> tuple[I32, ...]:
        slot = table.dep_slot[at]
        return q.orbits.rank_of(slot if q.orbits.is_alike else ports[slot], table.dep_src[at]), slot, table.dep_lag[at]

    every = waits(q.transfers, slice(None))
    for some in blocks(row.size):  # of a large ring, one rank has eight million transfers
        mine = waits(t, slice(int(t.dep_ptr[some.start]), int(t.dep_ptr[some.stop])))
        at = ranges(q.transfers.dep_ptr[row[some]], counts[some])
        theirs = tuple(column[at] for column in every)
        if not _all_equal(mine, theirs):  # which does not matter if only the order is another
            owner = np.repeat(np.arange(some.start, some.stop), counts[some])
            if not _all_equal(_in_order(mine, owner), _in_order(theirs, owner)):
                return False
    return True


def _all_equal(mine: tuple[I32, ...], theirs: tuple[I32, ...]) -> bool:
    return all(map(np.array_equal, mine, theirs))


def _in_order(columns: tuple[I32, ...], owner: Rows) -> tuple[I32, ...]:
    """The columns of each owner, which come in its order, sorted."""
    order = np.lexsort((*columns, owner))
    return tuple(column[order] for column in columns)


def _slot_ports(t: Transfers) -> I32:
    """Port of each slot."""
    ports = np.zeros(int(t.slot.max(initial=-1)) + 1, np.int32)
    ports[t.slot] = t.port
    return ports


def _same_routes(paths: Paths, q: Quotient, theirs: Paths, link_of: I32, row: Rows) -> I64 | None:
    """The hop that stands for each hop of the routes; None where they differ."""
    routes_here = np.bincount(paths.pair, minlength=row.size)
    routes_there = np.bincount(theirs.pair, minlength=q.transfers.src.size)
    if np.any(routes_here != routes_there[row]):
        return None
    first_there = np.concatenate(([0], np.cumsum(routes_there)))[row]
    first_here = np.concatenate(([0], np.cumsum(routes_here)))[:-1]
    route = first_there[paths.pair] + np.arange(paths.pair.size) - first_here[paths.pair]
    hops = np.diff(paths.ptr)
    if np.any(hops != np.diff(theirs.ptr)[route]):
        return None
    at: I64 = np.repeat(theirs.ptr[route] - paths.ptr[:-1], hops) + np.arange(paths.links.size)
    return at if np.array_equal(link_of[paths.links], theirs.links[at]) else None


def turns_of(pattern: Emitter, q: Quotient, tie: str, seed: int) -> I64:
    """What takes turns at each link that is crossed, and what stands for it there, (3, n): for `turns_differ`."""
    t = pattern.emit(_looked_at(pattern, q)[0])
    row = _representative_rows(t, q)
    assert row is not None  # by its check
    paths = routes_of(t, pattern.topology, tie, seed, q.ranks).of_transfers()[0]
    return _turns(q, pattern.topology.n_nodes, _with_ends(q.orbits, pattern, q.ranks.ends), t, paths, row)


def _turns(q: Quotient, n_nodes: int, link_of: I32, t: Transfers, paths: Paths, row: Rows) -> I64:
    transfer, hop, _ = _crossings(paths, np.arange(row.size))
    if q.ranks.turns == "round-robin-port":
        before = np.where(hop > 0, paths.links[np.arange(hop.size) - 1], -1)
        return np.stack([paths.links, before, np.where(hop > 0, link_of[before], -1)]).astype(np.int64)
    flows = (  # in numbers without gaps between them, as far as may be: they are told apart in linear time
        (hop * n_nodes + of.src[at]) * n_nodes + of.dst[at]
        for of, at in ((t, transfer), (q.transfers, row[transfer]))
    )
    return np.stack([paths.links, *flows]).astype(np.int64)


def turns_differ(turns: Sequence[I64]) -> bool:
    """Whether flows, or links from which chunks come, share a representative at a link where they take turns.

    Or one of them has several there. `turns`: of emitters whose transfers cross the same links.
    """
    links, one, other = np.concatenate(turns, axis=1)
    first, second = joined(links, one), joined(links, other)
    order = np.argsort(first)
    first, second = first[order], second[order]
    same = first[1:] == first[:-1]
    if np.any(second[1:][same] != second[:-1][same]):
        return True  # one has several
    second = np.sort(second[np.append(True, ~same)]) if second.size else second
    return bool(np.any(second[1:] == second[:-1]))  # several have one


def _crossing_fault(q: Quotient, theirs: Paths, link_of: I32, links: I32, at: I64, full: bool) -> str | None:
    """Whether the crossings of each link stand one to one over those of its representative, in a definite order.

    `links`, `at`: crossed by those that were looked at, and the hop that stands for each crossing.
    """
    if _repeats(q.transfers.tie_class):  # else it tells all of them apart
        transfer, hop, half = _crossings(theirs, np.arange(q.transfers.src.size))
        if _repeats(joined(theirs.links, q.transfers.tie_class[transfer], hop, half)):
            return "two transfers tie at a link without an order that the symmetry keeps"
    orbit_size = np.bincount(link_of, minlength=link_of.size)
    crossings = np.bincount(theirs.links, minlength=link_of.size)
    sizes = np.stack([np.bincount(part, minlength=part.size) for part in q.orbits.rank])
    images = sizes[np.minimum(q.transfers.port, len(sizes) - 1), q.transfers.src][theirs.pair]
    arriving = crossings * (images[0] if images.size else 0)
    if np.any(images[1:] != images[:-1]):
        arriving = np.bincount(theirs.links, weights=np.repeat(images, np.diff(theirs.ptr)), minlength=link_of.size)
    if np.any(arriving != crossings * orbit_size):
        return "it fixes a link that several ranks share"
    if _repeats(at) and _repeats(_places(link_of)[links] * theirs.links.size + at):  # a hop tells the orbit
        return "it fixes a link that several ranks share"
    if full:
        used = np.bincount(links, minlength=link_of.size)
        if np.any(used != crossings[link_of]):
            return "links of one orbit are crossed by different transfers"
    return None


def _places(group: I32) -> I64:
    """Place of each item among those of its group."""
    order, size = np.argsort(group, kind="stable"), np.bincount(group)
    place = np.empty(group.size, np.int64)
    place[order] = np.arange(group.size) - np.repeat(np.cumsum(size) - size, size)
    return place


def _repeats(values: I64) -> bool:
    """Whether a number, from 0 on, occurs twice; linear in time where their range is short."""
    if (span := int(values.max(initial=-1)) + 1) > 8 * values.size:
        ordered = np.sort(values)
        return bool(np.any(ordered[1:] == ordered[:-1]))
    there = np.zeros(span, np.bool_)
    there[values] = True
    return int(np.count_nonzero(there)) < values.size


def find_rows(key: I64, want: I64) -> Rows:
    """Place of each wanted number among sorted keys, or of a neighbor where it is not among them."""
    return finder(key)(want)


def finder(key: I64) -> Callable[[I64], Rows]:
    """What finds the places of numbers among sorted keys, or of neighbors of those that are not among them."""
    low = int(key[0]) if key.size else 0
    span = int(key[-1]) - low + 1 if key.size else 0
    if span > 4 * key.size + 1024:
        return lambda want: np.minimum(np.searchsorted(key, want), max(key.size - 1, 0))
    place = np.zeros(span + 1, np.int32)
    place[key - low if low else key] = np.arange(key.size, dtype=np.int32)
    return lambda want: place[np.clip(want - low, 0, span)]


def _crossings(paths: Paths, row: npt.NDArray[np.integer]) -> tuple[I64, I64, I64]:
    """Row, hop and half (under `split`) of each crossing of a link."""
    hops = np.diff(paths.ptr)
    route = np.repeat(np.arange(paths.pair.size), hops)
    hop = np.arange(paths.links.size) - paths.ptr[:-1][route]
    half = np.zeros(paths.pair.size, np.int64)
    half[1:] = paths.pair[1:] == paths.pair[:-1]
    return np.asarray(row)[paths.pair[route]].astype(np.int64), hop, half[route]
