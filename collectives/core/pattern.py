"""A pattern: the transfers of an algorithm on a topology, independent of the array size; proved when built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import chain
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from collectives.core import by_value
from collectives.core.carried import BlocksOf, Carried, OfMany
from collectives.core.collective import Collective, Ends
from collectives.core.emission import FEW_TRANSFERS, Accepted, Emission, Emit, digest_of
from collectives.core.process_groups import check_reserved
from collectives.core.proof import ScheduleError, prove_carried
from collectives.core.symmetry import Group, Groups, read_groups
from collectives.core.transfers import Pool, Transfers
from topologies import Topology, WeftError
from topologies.checks import Choice, Count, Integer, Name, Natural, checked, integer, told
from topologies.core.epochs import Epochs
from topologies.core.paths import evenly
from topologies.core.rateless import wiring_of
from topologies.stages import staged
from topologies.text.brief import cut

PROOF_MOVES = 150_000
PROOF_TRANSFERS = 40_000
"""Limits on block moves in total, and on transfers per port, for proving a pattern itself: about two seconds."""

ALONE_MOVES = 2_500_000
"""Limit on block moves of a pattern that provides no smaller one: half a minute, and 3 GiB, for a list of sends."""

PROGRESS = ("free", "any", "all")
"""What a rank may wait for before its next step."""

CHECKED_COUNTS = 16
CHECKED_RANKS = 1024
"""Of a pattern too large to prove: transfers whose blocks are counted, and the most ranks for which they are."""

_BLOCKS = Integer(0)

_PROVED: set[bytes] = set()
"""Digests of what was proved in this process."""

_SHRINKING: list[int] = []
"""Ranks of the patterns whose smaller members are under construction."""


_LATER = ContextVar("_LATER", default=False)
"""Whether proofs wait until somebody asks for them."""


@contextmanager
def proofs_later() -> Iterator[None]:
    """Within it, patterns and schedules are built whose proofs wait until they are simulated or shown.

    For what is compared by bounds before it is simulated. Not exported: built by others, a pattern is proved.
    """
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)


class _Owed:
    """The proof of a pattern and its copies; once it is there, its words."""

    def __init__(self, prove: Callable[[], str]) -> None:
        self._prove: Callable[[], str] | None = prove
        self._said = ""

    def settle(self) -> str:
        if self._prove is not None:
            self._said, self._prove = self._prove(), None
        return self._said


@dataclass(frozen=True)
class OwnProof:
    """A proof by another method than `prove`. Not exported: whoever could make one could call anything proved."""

    prove: Callable[[], str]  # in full, of the transfers that are emitted; returns a description
    unnamed: bool = False  # it is the only proof: the blocks of the transfers have no names


@dataclass(frozen=True)
class Smaller:
    """The same algorithm on a smaller topology. Not exported either, for what it proves is another pattern."""

    build: Callable[[], Pattern]


@checked
@dataclass(frozen=True, eq=False, kw_only=True)
class Pattern:
    """Transfers, their dependencies, the blocks they carry, and the collective they implement.

    A pattern that does not implement its collective cannot be built: construction proves it or, above `PROOF_MOVES` and
    `PROOF_TRANSFERS`, proves the same algorithm on a smaller topology of the same family. If there is no smaller one,
    the pattern itself is proved.

    Receivers stage what arrives: a transfer carries what its own dependencies have brought to its source, and nothing
    that happens to be there already. A program that adds in place has to wait for every addition to a block before it
    sends that block.

    "proved" speaks of the arrays themselves: they are emitted once, read-only, and are what is simulated and written.
    "proved on torus:4x4" speaks of that smaller member, and of the generator as far as it is the same at both sizes: of
    the pattern itself, the links that transfers name and the ranges of all columns are checked in every part that is
    emitted, the numbers of blocks in a few transfers, and that the first sources are emitted alike each time.

    Attributes
    ----------
    topology : Topology
    kind : Collective
    algorithm, form : str
        The form is "" if an algorithm has only one.
    n_blocks : int
        Number of equal blocks the collective moves, over all ranks.
    emit : callable (ranks) -> Transfers
        The transfers of the given sources only. Kept as an `Emission`, which checks and freezes them.
    blocks_of : callable (source, slot) -> sequence of int
        Blocks carried by a transfer, for the proof.
    groups : sequence of Group
        Symmetries, largest first.
    smaller : Smaller or None
        Of weft's own builders: the same algorithm on a smaller topology, proved where a pattern is itself too large. A
        function of a caller is rejected, for nothing ties what it returns to what is simulated. Used when built and
        not kept, nor is `own_proof`: `dataclasses.replace` with other transfers leaves them behind.
    root : int
    n_sources : int or None
        Number of sources of transfers if switches are among them (default: the ranks).
    pools : tuple of Pool
        Pools of every source, in the numbering used by the transfers.
    own_proof : OwnProof or None
        Of weft's own builders, for what the general proof cannot do; text or a function of a caller proves nothing.
    note : str
        What a reader of a result should know: "32 trees per root, 0.4 % below the optimum"; or "".
    progress : {"free", "any", "all"}
        What a rank of the authors' own program waits for before its next step, if a model asks for it.
    phases : tuple of int
        Steps with which a rank of that program enters a phase on all ports together.
    pipeline : tuple of int
        First slot of each part of the array that goes through the steps behind the one before, where pools limit how
        many of them are in one dimension; empty where all of it goes at once.
    circuits : Epochs or None
        The circuits that are up one after the other, where they are switched between steps.
    is_part : bool
        Whether these are some transfers of a collective, so that no bound on all of it holds.
    is_unnamed : bool
        Whether the blocks of the transfers have no names, and the proof is another than the general one.
    """

    topology: Topology
    kind: Collective
    algorithm: Name
    form: Name = ""
    n_blocks: int
    emit: Emit
    blocks_of: BlocksOf
    groups: Groups | Sequence[Group] = ()  # those computed on demand stay so: they are not walked for a check
    smaller: InitVar[Smaller | None] = None
    root: int = 0
    n_sources: Count | None = None
    pools: tuple[Pool, ...] = ()
    own_proof: InitVar[OwnProof | None] = None
    note: str = ""
    progress: Annotated[str, Choice(PROGRESS)] = "free"
    phases: tuple[Natural, ...] = ()
    pipeline: tuple[Natural, ...] = ()
    circuits: Epochs | None = None
    is_part: bool = False
    is_unnamed: bool = field(init=False)
    _owed: _Owed = field(init=False)

    def __post_init__(self, smaller: Smaller | None, own_proof: OwnProof | None) -> None:
        p = self.p
        check_reserved(self.kind)
        if self.n_blocks < 1 or self.n_blocks % self.kind.blocks_multiple(p):
            raise WeftError(f"{self.name}: {self.n_blocks} blocks do not fit {self.kind.name} over {p} ranks")
        if not 0 <= self.root < p:
            raise WeftError(f"root {self.root} is not one of the {p} ranks")
        n_sources, nodes = self.n_sources or p, self.topology.n_nodes
        if not p <= n_sources <= nodes:
            raise WeftError(f"{self.name}: n_sources is {n_sources}: give {p} (the ranks) to {nodes} (all nodes)")
        if not isinstance(self.groups, Groups):
            object.__setattr__(self, "groups", read_groups(self.groups, n_sources, self.topology.n_links))
        object.__setattr__(self, "is_unnamed", own_proof is not None and own_proof.unnamed)
        accepted = Accepted(n_sources, len(self.pools), self.is_unnamed)
        object.__setattr__(self, "emit", Emission(self.emit, self.topology, accepted, self.name))
        object.__setattr__(self, "_owed", _Owed(self._to_prove(smaller, own_proof)))
        self.prove_unless_later()

    def __repr__(self) -> str:
        return f"<Pattern {cut(self.name, 40)} {self.kind.name} on {cut(self.topology.name, 40)}>"

    def __reduce__(self) -> tuple[Callable[[Topology, bytes], Pattern], tuple[Topology, bytes]]:
        """A pickle keeps the proof, and has by value the functions that emit transfers: most are closures."""
        self.prove()
        state = {name: value for name, value in vars(self).items() if name != "topology"}
        return _restored, (self.topology, by_value.dumps(state, (self.topology, wiring_of(self.topology))))

    def on(self, topology: Topology) -> Pattern:
        """The same transfers, with their proof, on a topology of the same NPUs and links; WeftError on any other."""
        mine = self.topology
        links = (topology.src, mine.src), (topology.dst, mine.dst)
        if topology.n_npus != self.p or not all(one is other or np.array_equal(one, other) for one, other in links):
            raise WeftError(f"{self.name} on {mine.name} cannot be moved to {topology.name}: other NPUs or links")
        groups = self.groups.on(topology) if isinstance(self.groups, Groups) else self.groups
        return _copy({**vars(self), "topology": topology, "groups": groups})

    def named(self, form: Name) -> Pattern:
        """The same transfers, with their proof, as another form of the algorithm."""
        return _copy({**vars(self), "form": form})

    @property
    def p(self) -> int:
        """Number of ranks."""
        return self.topology.n_npus

    @property
    def group_size(self) -> int:
        """Ranks per collective: all, unless process groups are given."""
        return self.kind.group_size or self.p

    @property
    def name(self) -> str:
        """Algorithm and form: "swing (bandwidth)"."""
        return f"{self.algorithm} ({self.form})" if self.form else self.algorithm

    @property
    def is_of_ranks(self) -> bool:
        """Whether ranks alone send, and none waits for a slot: all that most formats of other tools know."""
        return not self.pools and not self.in_switches

    @property
    def in_switches(self) -> bool:
        """Whether what is no rank sends too: switches reduce and multicast, or hand on."""
        return (self.n_sources or self.p) > self.p

    def at_hand(self, most: int) -> AbstractContextManager[None]:
        """Within it all transfers are emitted once, where there are at most so many."""
        return self.emission.at_hand(most)

    def transfers(self) -> Transfers:
        """The transfers of every source."""
        return self.emit(np.arange(self.n_sources or self.p))

    def is_too_large(self, most_moves: int | None = None) -> bool:
        """Whether a proof would be too expensive, judging by the transfers of four ranks."""
        if self.kind.weights is not None:
            return self.n_blocks > most_moves if most_moves else False  # of messages that are made one by one
        most_moves, most_transfers = most_moves or PROOF_MOVES, most_moves or PROOF_TRANSFERS
        if self.p > most_transfers:
            return True  # every rank takes part
        few = evenly(self.p, 4)
        t = self.emission.first(few) if _LATER.get() else self.emit(few)  # of weft's own, all at once
        most = np.bincount(t.port).max(initial=0) * self.p // few.size
        return bool(int(t.blocks.sum()) * self.p // few.size > most_moves or most > most_transfers)

    @property
    def proof(self) -> str:
        """"proved", or "proved on torus:4x4" for a larger member of the same family."""
        return self.prove()

    @staged("proof")
    def prove(self) -> str:
        """Prove what has not been proved yet; ScheduleError where it does not implement its collective."""
        return self._owed.settle()

    def prove_unless_later(self) -> None:
        """Prove it now, but for those who build several to simulate few."""
        if not _LATER.get():
            self.prove()

    @staged("proof")
    def _to_prove(self, smaller: Smaller | None, own_proof: OwnProof | None) -> Callable[[], str]:
        """The proof that is left to be done; WeftError where there can be none."""
        is_no_smaller = bool(_SHRINKING) and self.p >= _SHRINKING[-1]  # such as torus:6x6x6, which cannot be halved
        most_moves = ALONE_MOVES if smaller is None and own_proof is None else None
        if not self.is_unnamed and (is_no_smaller or not self.is_too_large(most_moves)):
            self.emission.freeze()
            return self._prove_whole
        self._check_few()
        if own_proof is not None:
            return own_proof.prove
        if smaller is None:
            raise WeftError(
                f"{self.name} on {self.topology.name} is too large to prove (more than {ALONE_MOVES:,} blocks moved), "
                "and it provides no smaller topology for the proof"
            )
        _SHRINKING.append(self.p)
        try:
            return partial(self._prove_on, smaller.build())
        finally:
            _SHRINKING.pop()

    def _prove_on(self, small: Pattern) -> str:
        if small.proof != "proved":
            return small.proof
        same = (small.p, small.n_blocks) == (self.p, self.n_blocks) and self._is_proved()
        return "proved" if same else f"proved on {small.topology.name}"

    def _prove_whole(self) -> str:
        """Prove the transfers that will be emitted, unless the same ones were proved before."""
        ends, t, carried, digest = self._all()
        if self.kind.weights is not None:
            t = t._replace(blocks=self._counted(t, carried))
        if digest not in _PROVED:
            prove_carried(ends, self.p, t, carried)
            _PROVED.add(digest)
        return "proved"

    def _counted(self, t: Transfers, carried: Carried) -> npt.NDArray[np.int64]:
        """Blocks of each transfer, all of whose elements it has."""
        assert self.kind.weights is not None
        weights, counts = np.array(self.kind.weights), carried.counts
        owner = np.repeat(np.arange(counts.size), counts)
        found = np.bincount(owner, weights[carried.block], counts.size).astype(np.int64)
        wrong = np.flatnonzero(found != t.blocks)
        if wrong.size:
            row = wrong[0]
            where = f"{self.name} on {self.topology.name}: slot {t.slot[row]} of rank {t.src[row]}"
            raise ScheduleError(f"{where} declares {t.blocks[row]} elements and its blocks have {found[row]}")
        return counts

    def _is_proved(self) -> bool:
        """Whether exactly these transfers were proved, as those of a smaller member that is none."""
        return self._all()[3] in _PROVED

    def _all(self) -> tuple[Ends, Transfers, Carried, bytes]:
        """What is asked, the transfers of every source, from now on frozen, their blocks, and the digest of it all."""
        t = self.emission.freeze()
        carried = self._all_carried(t)
        ends = Ends.of(self.kind, self.p, self.n_blocks, self.root)
        return ends, t, carried, digest_of(self.kind.name, ends, self.p, self.root, t, carried)

    def _all_carried(self, t: Transfers) -> Carried:
        """The blocks of many transfers; looked at one by one only where not all of them are as they should be."""
        if isinstance(self.blocks_of, OfMany):
            found = self.blocks_of.of_rows(t.src, t.slot)
            if found.block.min(initial=0) >= 0 and found.block.max(initial=-1) < self.n_blocks:
                return found
        sources, slots = t.src.tolist(), t.slot.tolist()
        with suppress(TypeError):
            rows = [*map(tuple, map(self.blocks_of, sources, slots))]
            blocks = [*chain.from_iterable(rows)]
            if _BLOCKS.fits_all(blocks) and max(blocks, default=-1) < self.n_blocks:
                return Carried(rows)
        return Carried([self._carried(source, slot) for source, slot in zip(sources, slots, strict=True)])

    def _carried(self, source: int, slot: int) -> tuple[int, ...]:
        """The blocks of a transfer, as integers in range."""
        found = self.blocks_of(source, slot)
        where = f"{self.name}: blocks_of(source {source}, slot {slot})"
        try:
            blocks = tuple(found)
        except TypeError:
            raise ScheduleError(f"{where} is {told(found)}: give a sequence of block numbers") from None
        if not _BLOCKS.fits_all(blocks) or (blocks and max(blocks) >= self.n_blocks):
            most = self.n_blocks - 1
            blocks = tuple(integer(block, f"{where}, item {at},", 0, most) for at, block in enumerate(blocks))
        return blocks

    def _check_few(self) -> None:
        """What can be checked of a pattern that is not proved itself, from the transfers that are kept of it."""
        t, n = self.emission.kept()
        if t.src.size * self.p < FEW_TRANSFERS * n:
            self.emission.freeze()
        if self.is_unnamed or self.p > CHECKED_RANKS:
            return  # its blocks have no names, or take long to list
        rows = evenly(t.src.size, min(t.src.size, CHECKED_COUNTS))
        for row in rows.tolist():
            source, slot, declared = int(t.src[row]), int(t.slot[row]), int(t.blocks[row])
            found = len(self._carried(source, slot))
            if found != declared:
                where = f"{self.name} on {self.topology.name}: slot {slot} of rank {source}"
                raise ScheduleError(f"{where} declares {declared} blocks and has {found}")

    @property
    def emission(self) -> Emission:
        """What emits its transfers."""
        assert isinstance(self.emit, Emission)
        return self.emit


def _restored(topology: Topology, data: bytes) -> Pattern:
    return _copy({"topology": topology, **by_value.loads(data, (topology, wiring_of(topology)))})


def _copy(state: Mapping[str, Any]) -> Pattern:
    """A pattern that was proved before."""
    pattern: Pattern = object.__new__(Pattern)
    vars(pattern).update(state)
    return pattern
