"""A pattern: the transfers of an algorithm on a topology, independent of the array size; proved when built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from collectives.core import by_value
from collectives.core.collective import Collective
from collectives.core.proof import BlocksOf, prove
from collectives.core.symmetry import Group
from collectives.core.transfers import Pool, Transfers
from topologies import Topology, WeftError
from topologies.text.brief import cut

PROOF_MOVES = 150_000
PROOF_TRANSFERS = 40_000
"""Limits on block moves in total, and on transfers per port, for proving a pattern itself: about two seconds."""

_PROVED: dict[tuple[object, ...], str] = {}

_SHRINKING: list[int] = []
"""Ranks of the patterns whose smaller members are under construction."""

Emit = Callable[[npt.NDArray[np.integer]], Transfers]


@dataclass(frozen=True, eq=False, kw_only=True)
class Pattern:
    """Transfers, their dependencies, the blocks they carry, and the collective they implement.

    A pattern that does not implement its collective cannot be built: construction proves it or, above `PROOF_MOVES` and
    `PROOF_TRANSFERS`, proves the same algorithm on a smaller topology of the same family. If there is no smaller one,
    the pattern itself is proved.

    Attributes
    ----------
    topology : Topology
    kind : Collective
    algorithm, form : str
        The form is "" if an algorithm has only one.
    n_blocks : int
        Number of equal blocks the collective moves, over all ranks.
    emit : callable (ranks) -> Transfers
        The transfers of the given sources only.
    blocks_of : callable (source, slot) -> sequence of int
        Blocks carried by a transfer, for the proof.
    groups : sequence of Group
        Symmetries, largest first.
    smaller : callable () -> Pattern, or None
        The same algorithm on a smaller topology, for the proof of a pattern that is itself too large.
    root : int
    key : tuple or None
        Everything the transfers depend on, including options: patterns with equal keys are proved once.
    n_sources : int or None
        Number of sources of transfers if switches are among them (default: the ranks).
    pools : tuple of Pool
        Pools of every source, in the numbering used by the transfers.
    own_proof : callable () -> str, or None
        Proves a pattern that is too large for the general proof, in full, by its own method; returns a description.
    only_own_proof : bool
        Whether that is the only proof, for transfers whose blocks are unnamed.
    note : str
        What a reader of a result should know: "32 trees per root, 0.4 % below the optimum"; or "".
    proof : str
        "proved", or "proved on torus:4x4" for a larger member of the same family.
    """

    topology: Topology
    kind: Collective
    algorithm: str
    form: str = ""
    n_blocks: int
    emit: Emit
    blocks_of: BlocksOf
    groups: Sequence[Group] = ()
    smaller: Callable[[], Pattern] | None = None
    root: int = 0
    key: tuple[object, ...] | None = None
    n_sources: int | None = None
    pools: tuple[Pool, ...] = ()
    own_proof: Callable[[], str] | None = None
    only_own_proof: bool = False
    note: str = ""
    proof: str = field(init=False)

    def __post_init__(self) -> None:
        p = self.p
        if self.n_blocks < 1 or self.n_blocks % self.kind.blocks_multiple(p):
            raise WeftError(f"{self.name}: {self.n_blocks} blocks do not fit {self.kind.name} over {p} ranks")
        if not 0 <= self.root < p:
            raise WeftError(f"root {self.root} is not one of the {p} ranks")
        object.__setattr__(self, "proof", self._prove())

    def __repr__(self) -> str:
        return f"<Pattern {cut(self.name, 40)} {self.kind.name} on {cut(self.topology.name, 40)}>"

    def __reduce__(self) -> tuple[Callable[[Topology, bytes], Pattern], tuple[Topology, bytes]]:
        """A pickle keeps the proof, and has by value the functions that emit transfers: most are closures."""
        state = {name: value for name, value in vars(self).items() if name != "topology"}
        return _restored, (self.topology, by_value.dumps(state, self.topology))

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

    def transfers(self) -> Transfers:
        """The transfers of every source."""
        return self.emit(np.arange(self.n_sources or self.p))

    def is_too_large(self) -> bool:
        """Whether a proof would be too expensive, judging by the transfers of four ranks."""
        if self.p > PROOF_TRANSFERS:
            return True  # every rank takes part
        few = np.unique(np.linspace(0, self.p - 1, 4).astype(np.int64))
        t = self.emit(few)
        most = np.bincount(t.port).max(initial=0) * self.p // few.size
        return bool(int(t.blocks.sum()) * self.p // few.size > PROOF_MOVES or most > PROOF_TRANSFERS)

    def _prove(self) -> str:
        key = self.key and (self.kind.name, self.algorithm, self.form, self.root, self.p, self.n_blocks, *self.key)
        if key is None or key not in _PROVED:
            proof = self._prove_anew()
            if key is None:
                return proof
            _PROVED[key] = proof
        return _PROVED[key]

    def _prove_anew(self) -> str:
        is_no_smaller = bool(_SHRINKING) and self.p >= _SHRINKING[-1]  # such as torus:6x6x6, which cannot be halved
        if not self.only_own_proof and (is_no_smaller or not self.is_too_large()):
            prove(self.kind, self.p, self.n_blocks, self.root, self.transfers(), self.blocks_of)
            return "proved"
        if self.own_proof is not None:
            return self.own_proof()
        if self.smaller is None:
            raise WeftError(
                f"{self.name} on {self.topology.name} is too large to prove (more than {PROOF_MOVES:,} blocks moved or "
                f"{PROOF_TRANSFERS:,} transfers per port), and it provides no smaller topology for the proof"
            )
        _SHRINKING.append(self.p)
        try:
            small = self.smaller()
        finally:
            _SHRINKING.pop()
        same = self.key is not None and (small.key, small.p) == (self.key, self.p)
        return f"proved on {small.topology.name}" if small.proof == "proved" and not same else small.proof


def _restored(topology: Topology, data: bytes) -> Pattern:
    pattern = object.__new__(Pattern)
    for name, value in {"topology": topology, **by_value.loads(data, topology)}.items():
        object.__setattr__(pattern, name, value)
    return pattern
