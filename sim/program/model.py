"""What the simulation assumes beyond topology and schedule, in one frozen object that every result carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NoReturn

from sim.program import DELIVERY, DISCIPLINES, FORWARDING, Cutting
from sim.program.cutting import Bytes
from topologies.checks import Choice, Count, Integer, WeftError, checked, choice
from topologies.core.paths import TIES
from topologies.text.brief import Registry, one_line
from topologies.units import (
    BytesPerSecond,
    Picoseconds,
    PositiveBytes,
    Quantity,
    Rate,
    counted,
    format_rate,
    format_size,
    format_time,
    parse_bandwidth,
    parse_size,
    parse_time,
)

DEFAULT_CHUNKS = 16
ENGINES = ("chunk", "reference", "analytic", "fluid")
WITHOUT_CHUNKS = ("analytic", "fluid")
UNLIMITED = "unlimited"
"""Of buffers and of rates at which NICs eject: the default, spelled out."""

SYMMETRY = ("auto", "off")
NICS = ("none", "shared")
NIC_ORDERS = ("rotate", "fifo")
MOST_VCS = 2
SEND_COMPLETE = ("delivered", "pushed")
RANK_PROGRESS = ("free", "any", "all", "authors")

MOST_ENGINES = 65_536
"""Limit on the engines of a NIC, each of which has a place of its own in memory."""

PUSHED_BYTES = 8192
"""Bytes that an engine pushes in one push time."""

MOST_SPREAD = 10_000
"""Limit on the perturbed runs of a spread, whose range hardly grows after some tens."""


class Mismatch(WeftError):
    """Values that are accepted each by itself, and not together."""


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Nic:
    """The NIC that the links of an NPU share, and how its transfers get there.

    Attributes
    ----------
    injection_Bps, ejection_Bps : float or None
        Rates in bytes/s. Without one for injection, twice the sum of the NPU's links; without one for ejection, what
        arrives goes through no server.
    engines : int or None
        Transfers that are pushed at once; None: one per link.
    post_ps : int
        Between two posts of a rank.
    push_ps : int
        In which an engine pushes 8 KiB, and other chunks in proportion.
    queue_bytes : int
        Chunks in the queue at which engines wait.
    order : {"rotate", "fifo"}
        Whether the queue holds one chunk, so that engines take turns, or `queue_bytes`.
    send_complete : {"delivered", "pushed"}
        When a rank's own send no longer holds up its next one.
    """

    injection_Bps: BytesPerSecond | None = None
    ejection_Bps: BytesPerSecond | None = None
    engines: Annotated[int, Integer(1, MOST_ENGINES)] | None = None
    post_ps: Picoseconds = 1_000
    push_ps: Picoseconds = 1_000
    queue_bytes: PositiveBytes = 64 << 20
    order: Annotated[str, Choice(NIC_ORDERS)] = "rotate"
    send_complete: Annotated[str, Choice(SEND_COMPLETE)] = "delivered"

    def describe(self) -> str:
        """One line for people."""
        words = [self.order] + ["sends end when pushed"] * (self.send_complete == "pushed")
        for name, (word, text) in _TOLD_OF_NIC.items():
            if (value := getattr(self, name)) != getattr(Nic, name):
                words.append(f"{word} {text(value)}")
        return f"shared NICs ({', '.join(words)})"

    def row(self) -> dict[str, object]:
        """Columns: the order, and what else differs from the default."""
        changed = {name: getattr(self, name) for name in (*_TOLD_OF_NIC, "send_complete")
                   if getattr(self, name) != getattr(Nic, name)}
        return {"nic": self.order} | {f"nic_{name}": value for name, value in changed.items()}


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
    discipline : {"fifo", "priority", "smallest-first", "lowest-chunk-first", "round-robin-flow", "round-robin-port"}
        Order of service of every link; `priority` serves earlier steps first, and those of round robin serve flows, or
        the links from which chunks come, in turn.
    seed : int
        For `ecmp`.
    nic : Nic or None
        None: transfers start at their links.
    rank_progress : {"free", "any", "all", "authors"}
        What a rank waits for before it posts its next step; docs/background/model.md.
    buffer_bytes : int or None
        Room for chunks behind each link, at the node that it leads to; None: unlimited.
    credit_ps : int or None
        Until room that is given back is known to the link; None: its wire and the router behind it once more.
    vcs : int
        Virtual channels of each link, 1 or 2: with 2, routes change channel at the dateline of a ring.
    bubble : bool
        Whether a chunk enters a ring only where it leaves room for another one.
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
    nic: Nic | None = None
    rank_progress: Annotated[str, Choice(RANK_PROGRESS)] = "free"
    buffer_bytes: PositiveBytes | None = None
    credit_ps: Picoseconds | None = None
    vcs: Count = 1
    bubble: bool = False

    def __post_init__(self) -> None:
        _ = self.cutting
        if self.credit_ps is not None and self.buffer_bytes is None:
            raise Mismatch(f"credit latency {format_time(self.credit_ps)}: is of buffers, and there are none")
        if self.vcs > MOST_VCS:
            raise WeftError(f"vcs {self.vcs}: links have 1 virtual channel, or 2 with datelines")
        if self.bubble and (self.buffer_bytes is None or self.vcs > 1):
            raise Mismatch("bubble: is about buffers of links with one virtual channel: give a buffer, and no vcs")
        if self.nic is None and self.rank_progress == "any":
            raise Mismatch("rank progress 'any' is about the order of posts: it needs nic shared")

    @cached_property
    def cutting(self) -> Cutting:
        """How each transfer is cut."""
        return Cutting(self.chunks, self.chunk_bytes, self.header_bytes, self.packet_header_bytes)

    def describe(self, cut: str = "", progress: str = "") -> str:
        """One line for people: "cut-through, 8 KiB chunks, head delivery".

        `cut` is said instead of the chunks, `progress` is what the algorithm's authors have ranks wait for.
        """
        count = f"{counted(self.chunks or 1, 'chunk')} per transfer"
        size = f"{format_size(self.chunk_bytes or 0)} chunks"
        words = [self.forwarding, cut or (count if self.chunk_bytes is None else size)]
        if self.deliver != "tail":
            words.append("head delivery")
        if self.endpoint_latency_ps:
            words.append(f"endpoints {format_time(self.endpoint_latency_ps)}")
        if self.discipline != "fifo":
            words.append(self.discipline)
        if self.buffer_bytes is not None:
            words.append(f"buffers of {format_size(self.buffer_bytes)}{' with bubbles' * self.bubble}")
        if self.credit_ps is not None:
            words.append(f"credits after {format_time(self.credit_ps)}")
        if self.vcs > 1:
            words.append(f"{self.vcs} virtual channels")
        if self.nic is not None:
            words.append(self.nic.describe())
        if self.rank_progress != "free":
            of_authors = f" ({progress})" if progress and self.rank_progress == "authors" else ""
            words.append(f"progress of ranks: {self.rank_progress}{of_authors}")
        return ", ".join([*words, f"ties {self.tie}"])


_WITHOUT: dict[str, tuple[str, dict[str, object]]] = {
    "fluid": ("whose links carry whole transfers, all at once", {
        "forwarding": "cut-through", "deliver": "tail", "chunk_bytes": None, "packet_header_bytes": 0,
        "discipline": "fifo", "nic": None, "buffer_bytes": None, "vcs": 1,
    }),
    "analytic": ("whose steps run in lockstep over ideal links", {
        "deliver": "tail", "header_bytes": 0, "packet_header_bytes": 0, "discipline": "fifo", "nic": None,
        "rank_progress": "free", "buffer_bytes": None, "vcs": 1,
    }),
}
"""What an engine is, and fields of which it knows one value alone; the others are known to it, or need one of these."""

_GIVEN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "chunk_bytes": ("chunk", format_size), "header_bytes": ("header", format_size),
    "packet_header_bytes": ("packet header", format_size), "buffer_bytes": ("buffer", format_size),
    "nic": ("nic", lambda nic: "shared"), "why": ("--why", lambda why: ""), "faults": ("faults", lambda plan: ""),
}
"""How a user writes a field: name and value; others by their own."""


def unknown_to(engine: str, model: Model) -> dict[str, str]:
    """What a model has and an engine knows nothing of, by field, as a user writes it."""
    known = _WITHOUT[engine][1].items() if engine in _WITHOUT else ()
    return {name: _as_given(name, getattr(model, name)) for name, value in known if getattr(model, name) != value}


def model_of(engine: str, model: Model, preset: str | None = None) -> Model:
    """The model of an engine: that of the fluid engine has whole transfers.

    `preset`: that the model started from, for the error.

    Raises
    ------
    WeftError
        The model has something that the engine knows nothing of.
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
        _reject("fluid", _as_given(name, value))


def _as_given(name: str, value: object) -> str:
    word, text = _GIVEN.get(name, (name.replace("_", " "), str))
    return f"{word} {text(value)}".rstrip()


def _reject(engine: str, given: str) -> NoReturn:
    raise Mismatch(
        f"{given}: not with the {engine} engine, {_WITHOUT[engine][0]}; leave it out, or choose the chunk engine"
    )


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
    nic: str | None = None,
    injection_rate: Rate | None = None,
    ejection_rate: Rate | Annotated[str, Choice((UNLIMITED,))] | None = None,
    nic_engines: Count | None = None,
    post_time: Quantity | None = None,
    push_time: Quantity | None = None,
    nic_queue: Quantity | None = None,
    nic_order: str | None = None,
    send_complete: str | None = None,
    rank_progress: str | None = None,
    buffer: Quantity | None = None,
    credit_latency: Quantity | None = None,
    vcs: Count | None = None,
    bubble: bool | None = None,
) -> Model:
    """A model from what a user writes: sizes and times with units; what is not given stays as in `base`.

    Raises
    ------
    WeftError
        Both `chunk` and `chunks`, options of a NIC without one, or a value that is not accepted.
    """
    if chunk is not None and chunks is not None:
        raise Mismatch("give a chunk size or a number of chunks, not both")
    values: dict[str, Any] = {
        "forwarding": forwarding, "deliver": deliver, "tie": tie, "discipline": discipline, "seed": seed,
        "rank_progress": rank_progress, "vcs": vcs, "bubble": bubble,
        "buffer_bytes": None if buffer in (None, UNLIMITED) else parse_size(buffer, "buffer", 1),
        "credit_ps": None if credit_latency is None else parse_time(credit_latency, "credit latency"),
        "header_bytes": None if header is None else parse_size(header, "header"),
        "packet_header_bytes": None if packet_header is None else parse_size(packet_header, "packet header"),
        "endpoint_latency_ps": None if endpoint_latency is None else parse_time(endpoint_latency, "endpoint latency"),
    }
    given = {name: value for name, value in values.items() if value is not None}
    if buffer == UNLIMITED:
        given["buffer_bytes"] = None
    if chunk is not None:
        given |= {"chunk_bytes": parse_size(chunk, "chunk", 1), "chunks": None}
    if chunks is not None:
        given |= {"chunks": chunks, "chunk_bytes": None}
    of_nic = _nic(base.nic, nic, {
        "injection_rate": injection_rate, "ejection_rate": ejection_rate, "nic_engines": nic_engines,
        "post_time": post_time, "push_time": push_time, "nic_queue": nic_queue, "nic_order": nic_order,
        "send_complete": send_complete,
    })
    return replace(base, **given, nic=of_nic)


def _nic(base: Nic | None, which: str | None, options: dict[str, Any]) -> Nic | None:
    """The NIC that options describe, from that of a preset."""
    if which is not None:
        choice(which, NICS, "nic")
        base = None if which == "none" else base or Nic()
    given = {name: value for name, value in options.items() if value is not None}
    if base is None and given:
        name = next(iter(given))
        raise Mismatch(f"{name} {given[name]}: is of a NIC, and there is none: give nic shared as well")
    values: dict[str, Any] = {}
    for name, value in given.items():
        field, read = _OF_NIC[name]
        if name == "ejection_rate" and value == UNLIMITED:
            values[field] = None
        else:
            values[field] = value if read is None else read(value, name.replace("_", " "))
    found = None if base is None else replace(base, **values)
    if found is not None and found.order == "rotate" and "nic_queue" in given:
        queue = f"nic_queue {given['nic_queue']}"
        raise Mismatch(f"{queue}: with engines that take turns it is one chunk; give nic_order fifo")
    return found


_OF_NIC: dict[str, tuple[str, Callable[[object, str], float] | None]] = {
    "injection_rate": ("injection_Bps", parse_bandwidth), "ejection_rate": ("ejection_Bps", parse_bandwidth),
    "nic_engines": ("engines", None), "post_time": ("post_ps", parse_time), "push_time": ("push_ps", parse_time),
    "nic_queue": ("queue_bytes", parse_size), "nic_order": ("order", None), "send_complete": ("send_complete", None),
}
"""Field of each option of a NIC, and what reads it."""

_TOLD_OF_NIC: dict[str, tuple[str, Callable[[Any], str]]] = {
    "injection_Bps": ("injection", format_rate), "ejection_Bps": ("ejection", format_rate), "engines": ("engines", str),
    "post_ps": ("post", format_time), "push_ps": ("push", format_time), "queue_bytes": ("queue", format_size),
}
"""How the numbers of a NIC are told."""


SWING_PAPER = Model(
    deliver="head", chunks=None, chunk_bytes=8192, header_bytes=8, endpoint_latency_ps=520_000, tie="alternating"
)
"""The set-up of the Swing paper as its figures give it (reference: 8 KiB packets, head delivery, 0.52 us endpoints)."""

SWING_SST = replace(SWING_PAPER, nic=Nic(order="fifo", send_complete="pushed"), rank_progress="authors", vcs=2)
"""The same with what its simulator, SST, does: ports share a fifo queue at the NIC, links have two virtual channels."""

SWING_HX = replace(SWING_SST, endpoint_latency_ps=214_000, vcs=1)
"""`SWING_SST` with the endpoints that the figures of HammingMesh give; its links have other latencies than a torus'."""

PRESETS = Registry("presets", {"swing-paper": SWING_PAPER, "swing-sst": SWING_SST, "swing-hx": SWING_HX})
