"""GOAL text reader: the schedules of LogGOPSim and ATLAHS, as a job.

A rank is the NPU of the same number. A `send` is a message, whose `recv` is the next one of that source and tag; it
has ended at both ends when it has arrived, and sending takes no time of a CPU: overheads and gaps (`o`, `g`) belong to
the topology and the model. A `calc` of n is n ns on a stream of the rank, `cpu 0` being "compute". `requires`
waits for the end of an operation, `irequires` for its start: of a send or a receive, when whatever that waits for has
ended, of a calc, when it has its stream. A `nic`, which ATLAHS writes, is passed over: the topology has the links.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.text.input_text import read_input
from topologies.units import counted
from workloads.formats.waits import smallest_first
from workloads.job import COMPUTE_STREAM, Job

PS_PER_NS = 1000
MOST_OPERATIONS = 1_000_000
MOST_RANKS = 1_000_000

_TOKEN = re.compile(r"\s+|//[^\n]*|/\*.*?\*/|(?P<word>[A-Za-z_][A-Za-z0-9_]*|-?[0-9]+b?|[{}:])", re.DOTALL)
_LABEL = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")

_OPTIONS = {"send": ("tag", "cpu", "nic"), "recv": ("tag", "cpu", "nic"), "calc": ("cpu",)}


class _Word(NamedTuple):
    text: str
    line: int


@dataclass
class _Event:
    """One operation of a rank."""

    kind: str  # {"send", "recv", "calc"}
    rank: int
    line: int
    amount: int  # bytes, or ns
    peer: int = -1
    tag: int = 0
    cpu: int = 0
    after: list[int] = field(default_factory=list)  # events whose end it waits for
    with_start_of: list[int] = field(default_factory=list)  # events whose start it waits for


@checked
def read_goal(path: str | Path, topology: Topology) -> Job:
    """The job of a GOAL file on a topology.

    Parameters
    ----------
    path : path
    topology : Topology
        With at least as many NPUs as the file has ranks.

    Raises
    ------
    WeftError
        Names the file and line: not GOAL, an undefined rank or label, unmatched sends and receives, or a dependency
        cycle.
    """
    return open_goal(path, topology)[0]


def open_goal(path: str | Path, topology: Topology) -> tuple[Job, list[str]]:
    """The job, and notes of what is passed over; as `read_goal`."""
    return _opened(read_input(path, "GOAL file"), topology, str(path))


@checked
def parse_goal(text: str, topology: Topology, name: str = "GOAL") -> Job:
    """The job of a GOAL text; parameters and errors as for `read_goal`."""
    return _opened(text, topology, name)[0]


def _opened(text: str, topology: Topology, name: str) -> tuple[Job, list[str]]:
    parser = _Parser(text, name)
    events, n_ranks = parser.parse()
    if n_ranks > topology.n_npus:
        raise WeftError(f"{name} has {counted(n_ranks, 'rank')}, and {topology.name} only "
                        f"{counted(topology.n_npus, 'NPU')}")
    notes = ["nic of messages is passed over: the topology says which links a rank has"] if parser.nics else []
    return _job(events, _pair(events, name), topology, name), notes


class _Parser:
    """Words to events."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.rest = _words(text, name)
        self.words: deque[_Word] = deque()  # of those to come, as many as were looked at
        self.events: list[_Event] = []
        self.last = _Word("", 1)
        self.nics = False  # whether messages name one other than 0

    def parse(self) -> tuple[list[_Event], int]:
        """Events of all ranks, and the number of ranks."""
        self._expect("num_ranks")
        n_ranks = self._number("the number of ranks", 1, MOST_RANKS)
        seen: set[int] = set()
        while self._peek():
            self._expect("rank")
            rank = self._rank(n_ranks)
            if rank in seen:
                raise self._wrong(f"rank {rank} comes twice")
            seen.add(rank)
            self._expect("{")
            self._block(rank, n_ranks)
        if not seen:
            raise self._wrong("no rank has operations")
        return self.events, n_ranks

    def _block(self, rank: int, n_ranks: int) -> None:
        labels: dict[str, int] = {}
        while self._peek() != "}":
            word = self._next("an operation or '}'")
            if word in _OPTIONS and self._peek() != ":":
                self._operation(word, rank, n_ranks)
                continue
            if not _LABEL.match(word):
                raise self._wrong(f"{word!r} is no operation: send, recv, calc or a label is expected")
            following = self._next("':', requires or irequires")
            if following == ":":
                if word in labels:
                    raise self._wrong(f"label {word!r} comes twice in rank {rank}")
                kind = self._next("send, recv or calc")
                if kind not in _OPTIONS:
                    raise self._wrong(f"{kind!r} is no operation: send, recv and calc are known")
                labels[word] = len(self.events)
                self._operation(kind, rank, n_ranks)
            elif following in ("requires", "irequires"):
                other = self._next("a label")
                for one in (word, other):
                    if one not in labels:
                        raise self._wrong(f"label {one!r} is not defined before in rank {rank}")
                event = self.events[labels[word]]
                (event.after if following == "requires" else event.with_start_of).append(labels[other])
            else:
                raise self._wrong(f"{following!r} after {word!r}: ':', requires or irequires is expected")
        self._expect("}")

    def _operation(self, kind: str, rank: int, n_ranks: int) -> None:
        line, amount = self.last.line, self._amount(kind)
        event = _Event(kind, rank, line, amount)
        if kind != "calc":
            self._expect("to" if kind == "send" else "from")
            if self._peek() == "-1":
                raise self._wrong("a receive from any source is not read: which message it takes depends on the run")
            event.peer = self._rank(n_ranks)
        while self._peek() in _OPTIONS[kind] and self._peek(1) != ":":
            option = self._next("an option")
            value = self._number(option, -1 if option == "tag" else 0, 2**31 - 1)
            if option == "tag" and value < 0:
                raise self._wrong("a receive of any tag is not read: which message it takes depends on the run")
            if option == "nic":
                self.nics |= value > 0
            else:
                setattr(event, option, value)
        self.events.append(event)
        if len(self.events) > MOST_OPERATIONS:
            raise self._wrong(f"more than {MOST_OPERATIONS:,} operations")

    def _amount(self, kind: str) -> int:
        word = self._next("a size such as 8b" if kind != "calc" else "a time in ns")
        if kind != "calc" and word.isdecimal() and self._peek() == "b":
            word += self._next("b")
        number = word.removesuffix("b")
        if not number.isdecimal() or len(number) > 15 or (word != number) != (kind != "calc"):
            raise self._wrong(f"{word!r}: {'a size in bytes such as 8b' if kind != 'calc' else 'whole ns'} is expected")
        return int(number)

    def _rank(self, n_ranks: int) -> int:
        return self._number("a rank", 0, n_ranks - 1)

    def _number(self, what: str, low: int, high: int) -> int:
        word = self._next(what)
        if not word.removeprefix("-").isdecimal() or len(word) > 15 or not low <= int(word) <= high:
            raise self._wrong(f"{what} is {word!r}: {low} to {high} is expected")
        return int(word)

    def _peek(self, ahead: int = 0) -> str:
        """A word to come; "" after the last."""
        while len(self.words) <= ahead:
            word = next(self.rest, None)
            if word is None:
                return ""
            self.words.append(word)
        return self.words[ahead].text

    def _next(self, what: str) -> str:
        if not self._peek():
            raise WeftError(f"{self.name} ends after line {self.last.line}, where {what} is expected")
        self.last = self.words.popleft()
        return self.last.text

    def _expect(self, word: str) -> None:
        found = self._next(repr(word))
        if found != word:
            raise self._wrong(f"{found!r} stands where {word!r} is expected")

    def _wrong(self, why: str) -> WeftError:
        return WeftError(f"{self.name}, line {self.last.line}: {why}")


def _words(text: str, name: str) -> Iterator[_Word]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise WeftError(f"{name}, line {line}: {text[at : at + 20].split()[0]!r} is not GOAL")
        if found["word"]:
            yield _Word(found["word"], line)
        line += found[0].count("\n")
        at = found.end()


def _pair(events: list[_Event], name: str) -> dict[int, int]:
    """The send of each receive: of a source, a destination and a tag, first come, first served."""
    waiting: dict[tuple[int, int, int], tuple[deque[int], deque[int]]] = defaultdict(lambda: (deque(), deque()))
    for number, event in enumerate(events):
        if event.kind == "send":
            waiting[event.rank, event.peer, event.tag][0].append(number)
        elif event.kind == "recv":
            waiting[event.peer, event.rank, event.tag][1].append(number)
    pairs = {}
    for (src, dst, tag), (sends, receives) in waiting.items():
        if len(sends) != len(receives):
            line = events[(sends or receives)[0]].line
            raise WeftError(
                f"{name}, line {line}: rank {src} sends {len(sends)} messages of tag {tag} to rank {dst}, which "
                f"receives {len(receives)}"
            )
        for send, receive in zip(sends, receives, strict=True):
            if events[send].amount != events[receive].amount:
                raise WeftError(
                    f"{name}, line {events[receive].line}: {events[receive].amount} bytes are received of the "
                    f"{events[send].amount} that line {events[send].line} sends"
                )
            pairs[receive] = send
    return pairs


class _Waits(NamedTuple):
    """What an event waits for."""

    ended: list[int]  # events
    begun: list[int]  # calcs


def _waits(events: list[_Event], number: int) -> _Waits:
    ended, begun, open_, seen = list(events[number].after), [], list(events[number].with_start_of), {number}
    while open_:
        other = open_.pop()
        if events[other].kind == "calc" and events[other].amount:
            begun.append(other)
        elif other not in seen:
            seen.add(other)
            ended += events[other].after
            open_ += events[other].with_start_of
    return _Waits(list(dict.fromkeys(ended)), list(dict.fromkeys(begun)))


def _job(events: list[_Event], pairs: dict[int, int], topology: Topology, name: str) -> Job:
    """Operations in an order that respects what they wait for; a receive that waits itself is a join of its rank."""
    waits = [_waits(events, number) for number in range(len(events))]
    parents = [[*found.ended, *found.begun, *([pairs[number]] if number in pairs else [])]
               for number, found in enumerate(waits)]
    marked = {one for found in waits for one in found.begun}
    job = Job(topology)
    operation: dict[int, int] = {}
    start: dict[int, int] = {}  # of calcs whose start matters: a mark that they follow on their stream

    def named(number: int) -> str:
        return f"{name}, line {events[number].line}: the {events[number].kind}"

    for number in smallest_first(dict(enumerate(parents)), named):
        event = events[number]
        after = [*(operation[one] for one in waits[number].ended), *(start[one] for one in waits[number].begun)]
        label = f"line {event.line}"
        if event.kind == "send":
            operation[number] = job.send(label, event.amount, [event.rank], [event.peer], after=after)
        elif event.kind == "recv":
            message = operation[pairs[number]]
            operation[number] = message if not after else _join(job, label, event.rank, [message, *after])
        elif event.amount == 0:
            operation[number] = _join(job, label, event.rank, after)
        else:
            if number in marked:
                start[number] = _calc(job, f"{label} begins", event, 0, after)
                after = [*after, start[number]]
            operation[number] = _calc(job, label, event, event.amount * PS_PER_NS, after)
    return job


def _calc(job: Job, label: str, event: _Event, time_ps: int, after: list[int]) -> int:
    stream = COMPUTE_STREAM if event.cpu == 0 else f"cpu {event.cpu}"
    return job.compute(label, time_ps, kind="calc", stream=stream, npus=[event.rank], after=after)


def _join(job: Job, label: str, rank: int, after: list[int]) -> int:
    """An operation that takes no time: nothing, sent to oneself."""
    return job.send(label, 0, [rank], [rank], kind="join", after=after)
