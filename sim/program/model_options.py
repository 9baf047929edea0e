"""All options of the model: a row each, and the field that it sets.

A row `credit_latency` of `ModelOptions` is that argument of `simulate`, that key of `[model]` in a spec, the flag
`--credit-latency`, and its line of every help and of docs/reference/spec.md. A new option is a row here, its field
below, and its use. No library is imported: the command line builds its help from here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from textwrap import wrap
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar, get_type_hints

from topologies.checks import Choice, Count, Integer, WeftError, choice
from topologies.core.ties import TIES
from topologies.units import (
    Bytes,
    BytesPerSecond,
    Picoseconds,
    PositiveBytes,
    Quantity,
    Rate,
    format_rate,
    format_size,
    format_time,
    parse_bandwidth,
    parse_size,
    parse_time,
)

WEIGHED = {"fifo": (0, 0, 0), "priority": (1, 0, 0), "smallest-first": (0, 1, 0), "lowest-chunk-first": (0, 0, 1)}
"""In which servers and pools choose: least first of the priority of a task, its work or the number of the chunk,
whichever has a weight, or most first where that is -1; then who came first. One more order is an entry here alone."""
ORDERS = tuple(WEIGHED)
DISCIPLINES = (*ORDERS, "round-robin-flow", "round-robin-port")
"""Of servers: an order of one queue, or a queue for each flow or port."""
FORWARDING = ("cut-through", "store-and-forward")
DELIVERY = ("tail", "head")

DEFAULT_CHUNKS = 16
UNLIMITED = "unlimited"
"""Of buffers and of rates at which NICs eject: the default, spelled out."""

MOST_ENGINES = 65_536
"""Limit on the engines of a NIC, each of which has a place of its own in memory."""

LEFT_OPEN = ("auto", "authors")
"""Of what ranks wait for: rules whose meaning the algorithm decides, or the algorithm and the fabric."""

FLUID, ANALYTIC = "fluid", "analytic"

T = TypeVar("T")


class Mismatch(WeftError):
    """Values that are accepted each by itself, and not together."""


class Need(NamedTuple):
    """What an option is of no use without."""

    met: "Callable[[ModelFields], bool]"
    otherwise: str  # what is told where it is not


A_NIC = Need(lambda model: model.nic is not None, "is of a NIC, and there is none: give nic shared as well")
QUEUE = Need(
    lambda model: model.nic is None or model.nic.order == "fifo",
    "with engines that take turns it is one chunk; give nic_order fifo",
)
POSTS = Need(
    lambda model: model.nic is not None or model.rank_progress != "any",
    "is about the order of posts: it needs nic shared",
)
BUFFERS = Need(lambda model: model.buffer_bytes is not None, "is of buffers, and there are none: give buffer as well")
ONE_BUFFER = Need(
    lambda model: model.buffer_bytes is not None and model.vcs == 1,
    "is about buffers of links with one virtual channel: give a buffer, and no vcs",
)


@dataclass(frozen=True)
class Option:
    """How people write one thing of the model, and what they are told of it."""

    help: str  # one line, without the default
    metavar: str = ""  # what stands for the value; SIZE, TIME and RATE have units
    default: str = ""  # as shown to people
    field: str = ""  # of `Model`, or "nic." and that of its NIC, where it has another name
    choices: tuple[str, ...] = ()  # those of the field
    needs: tuple[Need, ...] = ()
    engines_without: tuple[str, ...] = ()  # those that know the default alone
    told: str = ""  # in the line that describes a model, where it is not the default
    kind: str = "text"  # of values in a file; of `sim.study.keys.KINDS`
    least: int = 0  # of a size
    name: str = ""

    def value(self, written: Any) -> Any:
        """What a field holds.

        WeftError: no unit, or a word that is not accepted.
        """
        if written == UNLIMITED == self.default:
            return None
        if self.choices:
            return choice(written, self.choices, self.name)
        read = _UNITS[self.metavar][0] if self.metavar in _UNITS else None
        least = (self.least,) if self.least else ()
        return written if read is None else read(written, self.name.replace("_", " "), *least)

    def text(self, value: Any) -> str:
        """A value of the field for people; "" for one that the name says."""
        if value is True:
            return ""
        if self.metavar in _UNITS:
            return _UNITS[self.metavar][1](value)
        return "shared" if isinstance(value, NicFields) else str(value)


_UNITS: dict[str, tuple[Callable[..., float], Callable[[Any], str]]] = {
    "SIZE": (parse_size, format_size), "TIME": (parse_time, format_time), "RATE": (parse_bandwidth, format_rate),
}
"""Units by metavar: what reads them, and what writes them."""


class ModelOptions(TypedDict, total=False):
    """The options of a model as people write them; None is as good as left out."""

    forwarding: Annotated[str | None, Option(
        "cut-through or store-and-forward", "MODE", "cut-through", engines_without=(FLUID,))]
    deliver: Annotated[str | None, Option(
        "what counts as delivery of a chunk: tail or head", "END", "tail", engines_without=(FLUID, ANALYTIC),
        told="{} delivery")]
    chunk: Annotated[Quantity | None, Option(
        "size of a chunk; alternative to --chunks", "SIZE", field="chunk_bytes", engines_without=(FLUID,), least=1)]
    chunks: Annotated[Count | None, Option(
        "chunks per transfer; auto: chosen by point, with discipline and trees", "N|auto", str(DEFAULT_CHUNKS),
        kind="chunks")]
    header: Annotated[Quantity | None, Option(
        "added to every transfer", "SIZE", "0B", "header_bytes", engines_without=(ANALYTIC,))]
    packet_header: Annotated[Quantity | None, Option(
        "added to every chunk", "SIZE", "0B", "packet_header_bytes", engines_without=(FLUID, ANALYTIC))]
    endpoint_latency: Annotated[Quantity | None, Option(
        "time that a transfer spends outside the links", "TIME", "0s", "endpoint_latency_ps", told="endpoints {}")]
    tie: Annotated[str | None, Option("between equal routes: first, split, alternating or ecmp", "RULE", "first")]
    discipline: Annotated[str | None, Option(
        f"of links: {', '.join(ORDERS)}, or in turn {DISCIPLINES[-2]} or {DISCIPLINES[-1]}",
        "NAME", "fifo", engines_without=(FLUID, ANALYTIC), told="{}")]
    nic: Annotated[str | None, Option(
        "none, or shared: the links of an NPU share one (docs/background/model.md)", "NIC", "none",
        choices=("none", "shared"), engines_without=(FLUID, ANALYTIC))]
    injection_rate: Annotated[Rate | None, Option(
        "of a shared NIC", "RATE", "twice the links in use at once", "nic.injection_Bps", told="injection {}")]
    ejection_rate: Annotated[Quantity | None, Option(
        "at which what arrives leaves a NIC", "RATE", UNLIMITED, "nic.ejection_Bps", told="ejection {}")]
    nic_engines: Annotated[Count | None, Option(
        "transfers that a NIC takes at once", "N", "one per link in use at once", "nic.engines", told="engines {}",
        kind="integer")]
    post_time: Annotated[Quantity | None, Option(
        "between two transfers that a rank posts", "TIME", "1ns", "nic.post_ps", told="post {}")]
    push_time: Annotated[Quantity | None, Option(
        "of an engine of a NIC for 8 KiB", "TIME", "1ns", "nic.push_ps", told="push {}")]
    nic_queue: Annotated[Quantity | None, Option(
        "at which engines wait, of NICs in order of fifo", "SIZE", "64MiB", "nic.queue_bytes", needs=(QUEUE,),
        told="queue {}")]
    nic_order: Annotated[str | None, Option(
        "of the queue of a NIC: rotate (engines take turns) or fifo", "ORDER", "rotate", "nic.order")]
    send_complete: Annotated[str | None, Option(
        "when a rank's own send ends for it: delivered or pushed", "WHEN", "delivered", "nic.send_complete")]
    rank_progress: Annotated[str | None, Option(
        "what a rank waits for before its next step: auto (by the fabric), free, any, all or authors", "RULE", "auto",
        needs=(POSTS,), told="progress of ranks: {}")]
    buffer: Annotated[Quantity | None, Option(
        "room for chunks behind each link", "SIZE", UNLIMITED, "buffer_bytes", engines_without=(FLUID, ANALYTIC),
        told="buffers of {}", least=1)]
    credit_latency: Annotated[Quantity | None, Option(
        "until a link knows of room that is given back", "TIME", "its wire and router", "credit_ps", needs=(BUFFERS,),
        told="credits after {}")]
    vcs: Annotated[Count | None, Option(
        "virtual channels of each link: 1, or 2 with datelines on rings", "N", "1", engines_without=(FLUID, ANALYTIC),
        told="{} virtual channels", kind="integer")]
    bubble: Annotated[bool | None, Option(
        "chunks enter a ring only where they leave room for another one", needs=(ONE_BUFFER,), kind="flag")]
    seed: Annotated[int | None, Option("of all random numbers", "N", "0", kind="integer")]


@dataclass(frozen=True, kw_only=True)
class NicFields:
    """Fields of `sim.program.model.Nic`."""

    injection_Bps: BytesPerSecond | None = None
    ejection_Bps: BytesPerSecond | None = None
    engines: Annotated[int, Integer(1, MOST_ENGINES)] | None = None
    post_ps: Picoseconds = 1_000
    push_ps: Picoseconds = 1_000
    queue_bytes: PositiveBytes = 64 << 20
    order: Annotated[str, Choice(("rotate", "fifo"))] = "rotate"
    send_complete: Annotated[str, Choice(("delivered", "pushed"))] = "delivered"


@dataclass(frozen=True, kw_only=True)
class ModelFields:
    """Fields of `sim.program.model.Model`."""

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
    nic: NicFields | None = None
    rank_progress: Annotated[str, Choice(("auto", "free", "any", "all", "authors"))] = "auto"
    buffer_bytes: PositiveBytes | None = None
    credit_ps: Picoseconds | None = None
    vcs: Count = 1
    bubble: bool = False


def _rows() -> Iterator[Option]:
    of_nic = {f"nic.{name}": hint for name, hint in get_type_hints(NicFields, include_extras=True).items()}
    hints = of_nic | get_type_hints(ModelFields, include_extras=True)
    for name, hint in get_type_hints(ModelOptions, include_extras=True).items():
        row = next(one for one in hint.__metadata__ if isinstance(one, Option))
        field = row.field or name
        words = (one.words for one in getattr(hints[field], "__metadata__", ()) if isinstance(one, Choice))
        needs = (A_NIC, *row.needs) if field in of_nic else row.needs
        yield replace(row, name=name, field=field, needs=needs, choices=row.choices or tuple(*words))


OPTIONS: Mapping[str, Option] = {row.name: row for row in _rows()}
"""Rows by name."""

OF_NIC = {row.field[4:]: row for row in OPTIONS.values() if row.field.startswith("nic.")}
OF_MODEL = {row.field: row for row in OPTIONS.values() if not row.field.startswith("nic.")}
"""Rows by field."""


def check_needs(model: ModelFields, written: Mapping[str, object]) -> None:
    """Reject an option of no use: one that a model lacks something for.

    `written`: values by name, as people write them.
    """
    for row in OPTIONS.values():
        value = written.get(row.name, False)
        for need in row.needs:
            if value is not False and not need.met(model):
                raise Mismatch(f"{row.name if value is True else f'{row.name} {value}'}: {need.otherwise}")


def listing(heading: str, rows: Mapping[str, Option]) -> Callable[[T], T]:
    """Decorator: the docstring ends with a section of rows."""
    def listed(target: T) -> T:
        lines = [f"{(target.__doc__ or '').rstrip()}\n", heading, "-" * len(heading)]
        for name, row in rows.items():
            text = row.help.partition(";")[0] + (f"; default: {row.default}" if row.default else "")
            lines += [name, *wrap(text, 112, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)]
        target.__doc__ = "\n    ".join([*lines, ""])
        return target

    return listed


WORDS: dict[str, object] = {"true": True, "false": False, "none": None}


def parse_option(text: str) -> tuple[str, object]:
    """An option and its value: "trees=2" is ("trees", 2).

    WeftError: no name, or no value.
    """
    name, _, value = text.partition("=")
    if not name.strip() or not value.strip():
        raise WeftError(f"option {text!r}: write NAME=VALUE")
    return name.strip(), parse_value(value)


def parse_value(word: str) -> object:
    """A value as the number, the truth value or the text that it looks like.

    >>> [parse_value(word) for word in ("4", "0.5", "1/3", "true", "none", "16,-1")]
    [4, 0.5, Fraction(1, 3), True, None, '16,-1']
    """
    word = word.strip()
    if word in WORDS:
        return WORDS[word]
    if not word.isascii() or "_" in word:
        return word
    for kind in (int, float, Fraction):
        try:
            return kind(word)
        except (ValueError, ZeroDivisionError):
            continue
    return word
