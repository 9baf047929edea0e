"""What the simulation assumes beyond topology and schedule, in one frozen object that every result carries."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NoReturn, Unpack

from sim.program.cutting import Cutting
from sim.program.model_options import (
    DEFAULT_CHUNKS,
    LEFT_OPEN,
    OF_MODEL,
    OF_NIC,
    OPTIONS,
    Mismatch,
    ModelFields,
    ModelOptions,
    NicFields,
    Option,
    check_needs,
    listing,
)
from topologies.checks import WeftError, checked
from topologies.text.brief import Registry, one_line
from topologies.units import counted, format_size

ENGINES = ("chunk", "reference", "analytic", "fluid")
WITHOUT_CHUNKS = ("analytic", "fluid")
SYMMETRY = ("auto", "off")
MOST_VCS = 2

PUSHED_BYTES = 8192
"""Bytes that an engine pushes in one push time."""

MOST_SPREAD = 1_000
"""Limit on the perturbed runs of a spread, whose range hardly grows after some tens."""


@checked
@one_line
@listing("Attributes", OF_NIC)
@dataclass(frozen=True, kw_only=True)
class Nic(NicFields):
    """The NIC that the links of an NPU share, and how its transfers get there."""

    def describe(self) -> str:
        """One line for people."""
        words = [self.order] + ["sends end when pushed"] * (self.send_complete == "pushed")
        return f"shared NICs ({', '.join([*words, *_told(self, OF_NIC).values()])})"

    def row(self) -> dict[str, object]:
        """Columns: the order, and what else differs from the default."""
        return {"nic": self.order} | {f"nic_{name}": value for name, value in changed(self) if name != "order"}


@checked
@one_line
@listing("Attributes", OF_MODEL)
@dataclass(frozen=True, kw_only=True)
class Model(ModelFields):
    """How chunks are cut, forwarded and served; docs/background/model.md."""

    nic: Nic | None = None

    def __post_init__(self) -> None:
        _ = self.cutting
        check_needs(self, {OF_MODEL[name].name: OF_MODEL[name].text(value) or True for name, value in changed(self)})
        if self.vcs > MOST_VCS:
            raise WeftError(f"vcs {self.vcs}: links have 1 virtual channel, or 2 with datelines")

    @cached_property
    def cutting(self) -> Cutting:
        """How each transfer is cut."""
        return Cutting(self.chunks, self.chunk_bytes, self.header_bytes, self.packet_header_bytes)

    def describe(self, cut: str = "", progress: str = "") -> str:
        """One line for people: "cut-through, 8 KiB chunks, head delivery".

        `cut` is said instead of the chunks, `progress` is what ranks wait for where the model leaves it to others.
        """
        count = f"{counted(self.chunks or 1, 'chunk')} per transfer"
        size = f"{format_size(self.chunk_bytes or 0)} chunks"
        words = [self.forwarding, cut or (count if self.chunk_bytes is None else size)]
        told = _told(self, OF_MODEL)
        if self.bubble:
            told["buffer_bytes"] += " with bubbles"
        ranks = told.pop("rank_progress", "")
        if progress and self.rank_progress in LEFT_OPEN and (ranks or progress != "free"):
            ranks = f"progress of ranks: {self.rank_progress} ({progress})"
        words += told.values()
        if self.nic is not None:
            words.append(self.nic.describe())
        return ", ".join([*words, *filter(None, [ranks]), f"ties {self.tie}"])


def changed(thing: Nic | Model) -> Iterator[tuple[str, Any]]:
    """Fields that differ from their default."""
    for one in fields(thing):
        if (value := getattr(thing, one.name)) != one.default:
            yield one.name, value


def _told(thing: Nic | Model, rows: Mapping[str, Option]) -> dict[str, str]:
    """What the table says of them, by field."""
    return {name: rows[name].told.format(rows[name].text(value)) for name, value in changed(thing) if rows[name].told}


_WITHOUT = {
    "fluid": "whose links carry whole transfers, all at once",
    "analytic": "whose steps run in lockstep over ideal links",
}
"""What the engines are that do not know all of a model."""


def unknown_to(engine: str, model: Model) -> dict[str, str]:
    """What a model has and an engine knows nothing of, by field, as a user writes it."""
    return {name: f"{OF_MODEL[name].name.replace('_', ' ')} {OF_MODEL[name].text(value)}".rstrip()
            for name, value in changed(model) if engine in OF_MODEL[name].engines_without}


def model_of(engine: str, model: Model, preset: str | None = None) -> Model:
    """The model of an engine: that of the fluid engine has whole transfers.

    `preset`: that the model started from, for the error.

    WeftError: the model has something that the engine knows nothing of.
    """
    base = None if preset is None else PRESETS[preset]
    for name, given in unknown_to(engine, model).items():
        from_preset = base is not None and getattr(base, name) == getattr(model, name)
        _reject(engine, f"{given} of preset {preset}" if from_preset else given)
    if engine != "fluid":
        return model
    if model.chunks != DEFAULT_CHUNKS:
        check_flows_have_no("chunks", model.chunks, 1)
    return replace(model, chunks=1)


def check_flows_have_no(name: str, value: object, left_out: object = None) -> None:
    """Reject a value for the fluid engine, unless it is as good as left out."""
    if value != left_out:
        _reject("fluid", "--why" if name == "why" else f"{name} {value}")


def _reject(engine: str, given: str) -> NoReturn:
    raise Mismatch(
        f"{given}: not with the {engine} engine, {_WITHOUT[engine]}; leave it out, or choose the chunk engine"
    )


@checked
def make_model(base: Model = Model(), **options: Unpack[ModelOptions]) -> Model:
    """A model from what a user writes: sizes and times with units; what is not given stays as in `base`.

    WeftError: both `chunk` and `chunks`, options of a NIC without one, or a value that is not accepted.
    """
    written: dict[str, Any] = {**options}
    given = {name: written[name] for name in OPTIONS if written.get(name) is not None}
    if given.keys() >= {"chunk", "chunks"}:
        raise Mismatch("give a chunk size or a number of chunks, not both")
    values = {OPTIONS[name].field: OPTIONS[name].value(value) for name, value in given.items()}
    if "chunk" in given:
        values["chunks"] = None
    if "chunks" in given:
        values["chunk_bytes"] = None
    of_nic = {field.removeprefix("nic."): values.pop(field) for field in [*values] if field.startswith("nic.")}
    which, nic = values.pop("nic", None), base.nic
    if which is not None:
        nic = None if which == "none" else nic or Nic()
    found = replace(base, **values, nic=nic and replace(nic, **of_nic))
    check_needs(found, given)
    return found


SWING_PAPER = Model(
    deliver="head", chunks=None, chunk_bytes=8192, header_bytes=8, endpoint_latency_ps=520_000, tie="alternating"
)
"""The set-up of the Swing paper as its figures give it (reference: 8 KiB packets, head delivery, 0.52 us endpoints)."""

SWING_SST = replace(SWING_PAPER, nic=Nic(order="fifo", send_complete="pushed"), rank_progress="authors", vcs=2)
"""The same with what its simulator, SST, does: ports share a fifo queue at the NIC, links have two virtual channels."""

SWING_HX = replace(SWING_SST, endpoint_latency_ps=214_000, vcs=1, tie="first")
"""`SWING_SST` with the endpoints that the figures of HammingMesh give; its links have other latencies than a torus'.

Between the edges of a board the authors' router takes the way with most credits, and the one along the board among
equal ones; with that one Swing on Hx4Mesh reaches 700.0 Gb/s at 512 MiB, where 699.5 are published (661.8 with both in
turn).
"""

PRESETS = Registry("presets", {"swing-paper": SWING_PAPER, "swing-sst": SWING_SST, "swing-hx": SWING_HX})
