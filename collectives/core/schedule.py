"""A schedule: a proved pattern of transfers, and the size of the array it moves."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from collectives.core.collective import Collective
from collectives.core.pattern import Pattern
from topologies import Topology, WeftError
from topologies.checks import Integer, Natural, checked
from topologies.text.brief import cut, html_table
from topologies.units import Quantity, format_size, parse_size

ELEMENT_BYTES = 4
MOST_BYTES = 2**60
"""Limit on an array, so that the sum over its transfers stays below 2^63."""


@checked
@dataclass(frozen=True, eq=False)
class Schedule:
    """What must move, in what order, and how much of it.

    Attributes
    ----------
    pattern : Pattern
        Transfers and dependencies, proved.
    size_bytes : int
        Size of the array as nccl-tests counts it.
    element_bytes : int
        Blocks are padded to a multiple of this.
    """

    pattern: Pattern
    size_bytes: Natural
    element_bytes: Annotated[int, Integer(1)] = ELEMENT_BYTES
    EXAMPLE: ClassVar[str] = 'build("ring", "all-reduce", topology, "1MiB")'

    def __post_init__(self) -> None:
        padded = self.kind.blocks_per_rank(self.pattern.n_blocks, self.pattern.p) * self.block_bytes
        if self.size_bytes > MOST_BYTES or padded > 2 * MOST_BYTES:
            elements = f" in elements of {self.element_bytes} B" if self.size_bytes <= MOST_BYTES else ""
            raise WeftError(f"size {self.size_bytes} B{elements} is out of range: at most 1 EiB (2^60 B)")
        weights, p = self.kind.weights, self.pattern.group_size
        sums = -(-self.size_bytes * p // self.element_bytes), p * p * -(-self.size_bytes // (p * self.element_bytes))
        if weights is not None and sum(weights) not in sums:  # filled up at the end, or as blocks that are equal
            raise WeftError(f"{self.name}: its pairs have {sum(weights):,} elements, not those of another size")
        self.pattern.prove_unless_later()

    def __repr__(self) -> str:
        what = f"{cut(self.name, 40)} {self.kind.name} of {format_size(self.size_bytes)}"
        return f"<Schedule {what} on {cut(self.topology.name, 30)}>"

    def _repr_html_(self) -> str:
        return html_table(f"{self.name} {self.kind.name}", {
            "size": format_size(self.size_bytes),
            "block": format_size(self.block_bytes),
            "topology": self.topology.name,
            "ranks": self.pattern.p,
            "correctness": self.proof,
        })

    @property
    def topology(self) -> Topology:
        """The fabric that it is made for."""
        return self.pattern.topology

    @property
    def kind(self) -> Collective:
        """The collective that it implements."""
        return self.pattern.kind

    @property
    def name(self) -> str:
        """Algorithm and form."""
        return self.pattern.name

    @property
    def proof(self) -> str:
        """The topology on which the pattern was proved."""
        return self.pattern.proof

    @property
    def block_bytes(self) -> int:
        """Size of one block, padded to a multiple of the element size, or of an element if blocks are unequal; 0 for an
        empty array."""
        if self.kind.weights is not None:
            return self.element_bytes if self.size_bytes else 0
        blocks = self.kind.blocks_per_rank(self.pattern.n_blocks, self.pattern.p)
        return -(-self.size_bytes // (blocks * self.element_bytes)) * self.element_bytes


@checked
def schedule(pattern: Pattern, size: Quantity, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """A pattern at a size: "2MiB" or a number of bytes."""
    return Schedule(pattern, parse_size(size), element_bytes)
