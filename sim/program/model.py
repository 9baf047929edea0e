"""What the simulation assumes beyond topology and schedule, in one frozen object that every result carries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from sim.program import DELIVERY, DISCIPLINES, FORWARDING, Cutting
from sim.program.cutting import Bytes
from topologies.checks import Choice, Count, WeftError, checked
from topologies.core.paths import TIES
from topologies.text.brief import Registry, one_line
from topologies.units import (
    Picoseconds,
    PositiveBytes,
    Quantity,
    counted,
    format_size,
    format_time,
    parse_size,
    parse_time,
)

DEFAULT_CHUNKS = 16
ENGINES = ("chunk", "reference", "analytic")
SYMMETRY = ("auto", "off")

MOST_SPREAD = 10_000
"""Limit on the perturbed runs of a spread, whose range hardly grows after some tens."""


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Model:
    """How chunks are cut, forwarded and served.

    Attributes
    ----------
    forwarding : {"cut-through", "store-and-forward"}
    deliver : {"tail", "head"}
        What counts as delivery of a chunk.
    chunks : int or None
        Chunks a transfer, cut evenly.
    chunk_bytes : int or None
        Size of a chunk; one of the two is None.
    header_bytes, packet_header_bytes : int
        Added to every transfer, and to every chunk.
    endpoint_latency_ps : int
        Time a transfer spends outside the links, charged on delivery.
    tie : {"first", "split", "alternating", "ecmp"}
        Which of two equally short routes.
    discipline : {"fifo", "priority", "smallest-first", "lowest-chunk-first"}
        Order of service of every link; `priority` serves earlier steps first.
    seed : int
        For `ecmp`.
    """

    forwarding: Annotated[str, Choice(FORWARDING)] = "cut-through"
    deliver: Annotated[str, Choice(DELIVERY)] = "tail"
    chunks: Count | None = DEFAULT_CHUNKS
    chunk_bytes: PositiveBytes | None = None
    header_bytes: Bytes = 0
    packet_header_bytes: Bytes = 0
    endpoint_latency_ps: Picoseconds = 0
    tie: Annotated[str, Choice(TIES)] = "first"
    discipline: Annotated[str, Choice(DISCIPLINES)] = "fifo"
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self.cutting

    @cached_property
    def cutting(self) -> Cutting:
        """How each transfer is cut."""
        return Cutting(self.chunks, self.chunk_bytes, self.header_bytes, self.packet_header_bytes)

    def describe(self, cut: str = "") -> str:
        """One line for people: "cut-through, 8 KiB chunks, head delivery"; `cut` is said instead of the chunks."""
        count = f"{counted(self.chunks or 1, 'chunk')} per transfer"
        size = f"{format_size(self.chunk_bytes or 0)} chunks"
        words = [self.forwarding, cut or (count if self.chunk_bytes is None else size)]
        if self.deliver != "tail":
            words.append("head delivery")
        if self.endpoint_latency_ps:
            words.append(f"endpoints {format_time(self.endpoint_latency_ps)}")
        if self.discipline != "fifo":
            words.append(self.discipline)
        return ", ".join([*words, f"ties {self.tie}"])


@checked
def make_model(
    base: Model = Model(),
    *,
    forwarding: str | None = None,
    deliver: str | None = None,
    chunk: Quantity | None = None,
    chunks: Count | None = None,
    header: Quantity | None = None,
    packet_header: Quantity | None = None,
    endpoint_latency: Quantity | None = None,
    tie: str | None = None,
    discipline: str | None = None,
    seed: int | None = None,
) -> Model:
    """A model from what a user writes: sizes and times with units; what is not given stays as in `base`.

    Raises
    ------
    WeftError
        Both `chunk` and `chunks`, or a value that is not accepted.
    """
    if chunk is not None and chunks is not None:
        raise WeftError("give a chunk size or a number of chunks, not both")
    values: dict[str, Any] = {
        "forwarding": forwarding, "deliver": deliver, "tie": tie, "discipline": discipline, "seed": seed,
        "header_bytes": None if header is None else parse_size(header, "header"),
        "packet_header_bytes": None if packet_header is None else parse_size(packet_header, "packet header"),
        "endpoint_latency_ps": None if endpoint_latency is None else parse_time(endpoint_latency, "endpoint latency"),
    }
    given = {name: value for name, value in values.items() if value is not None}
    if chunk is not None:
        given |= {"chunk_bytes": parse_size(chunk, "chunk"), "chunks": None}
    if chunks is not None:
        given |= {"chunks": chunks, "chunk_bytes": None}
    return replace(base, **given)


SWING_PAPER = Model(
    deliver="head", chunks=None, chunk_bytes=8192, header_bytes=8, endpoint_latency_ps=520_000, tie="alternating"
)
"""The set-up of the Swing paper as its figures give it (reference: 8 KiB packets, head delivery, 0.52 us endpoints)."""

PRESETS = Registry("presets", {"swing-paper": SWING_PAPER})
