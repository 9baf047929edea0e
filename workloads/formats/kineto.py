"""Kineto profiles of PyTorch (Chrome traces), one a rank, as Chakra traces.

What a profile says of order is kept, and its times are those of computations alone:

- Work of one stream runs in its order, and begins when the host has launched it. The host takes the time between its
  launches; while it waits for the GPU, for what it waited for.
- A collective begins behind what its thread launched before it, as ProcessGroupNCCL does, and behind the one before it
  on its stream.
- What comes behind a `wait` of a collective, or behind an event of another stream, waits for it; and so does work that
  was launched on an idle stream and began as the collective ended. Where a profile does not say for what a thread has
  its stream wait, as behind DDP's buckets, it is for the all-gathers that the thread called before, or all collectives.

Work that follows closely on other work of its stream is one computation with it.
"""

import gzip
import json
import re
import zlib
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from topologies.checks import WeftError, told
from topologies.text.input_text import read_input_bytes
from topologies.units import counted
from workloads.formats.chakra import MOST_BYTES, MOST_NODES, Trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_nodes import STREAM
from workloads.formats.chakra_schema import Node, TensorInfo
from workloads.formats.flight_recorder import BYTES, WORDS, Key, collective_node, complete, kind_of, message_node

ENDINGS = (".json", ".json.gz")
HEAD = 2**16

CLOSE_US = 5.0
"""Between the end of work of a stream and the begin of the next: both are launched, and the GPU goes from one to the
other; and between the end of a collective and what waited for it."""

PAIR_US = 20.0
"""Between the record of an event and the wait for it, where one call does both, as each collective that begins."""

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime")
PEERS = "send", "recv"
OF_MESSAGES = (*PEERS, "coalesced", "")
"""What is said of a kernel that moves the messages of several calls."""

_SYNC = re.compile(r"(cuda|hip|cu|ur)?(Device|Stream|Event|Ctx)Synchronize", re.IGNORECASE)
_LIBRARY = re.compile(r"(nccl|rccl|mscclKernel|mscclppKernel)", re.IGNORECASE)


class Work(NamedTuple):
    """What a stream of the GPU did."""

    name: str
    begin: float  # us, as all times here
    end: float
    stream: str
    launch: float
    thread: str
    moves: tuple[Mapping[str, Any], ...] = ()  # of a collective or of messages: what `record_param_comms` says


class Profile(NamedTuple):
    """What is read of a file."""

    rank: int
    groups: Mapping[str, tuple[int, ...]]
    work: Sequence[Work]  # by launch
    waits: Sequence[tuple[float, str, Mapping[str, Any]]]  # time, thread, and for what
    events: Sequence[tuple[float, str, str, float]]  # time, stream, which stream it waits for, up to which time
    syncs: Sequence[tuple[float, float, str]]  # begin and end of a wait of the host, and its stream; "": the device
    where: str


def files_of(name: str) -> list[Path]:
    """The profiles in a folder, or those whose names begin so."""
    path = Path(name)
    folder, stem = (path, "") if path.is_dir() else (path.parent, path.name)
    if path.is_file() or not folder.is_dir():
        return []
    some = (one for one in folder.iterdir() if one.name.startswith(stem) and one.name.endswith(ENDINGS))
    return sorted(one for one in some if one.is_file() and is_profile(one))


def is_profile(path: Path) -> bool:
    """Whether a file begins as Kineto writes it."""
    try:
        with (gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as stream:
            head = stream.read(HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    return b'"traceEvents"' in head or b'"distributedInfo"' in head


def read_profiles(name: str, n_npus: int) -> tuple[list[Trace], list[str]]:
    """The profiles of all ranks as traces, and notes.

    WeftError: names the file and what is wrong: a rank that is missing or there twice, or an operation that is not
        known.
    """
    found: dict[int, Profile] = {}
    for path in files_of(name):
        one = read_profile(path, n_npus)
        if one.rank in found:
            raise WeftError(f"{one.where} is of rank {one.rank}, as {found[one.rank].where.split()[-1]} is: give the "
                            "files of one run")
        found[one.rank] = one
    for rank in range(n_npus):
        if rank not in found:
            raise WeftError(f"workload {name}: there is no profile of rank {rank}, and the network has {n_npus} NPUs")
    ranks = [found[rank] for rank in range(n_npus)]
    sizes, dropped = _shared(ranks)
    unequal = sum(len(set(some)) > 1 for some in sizes.values())
    notes = [f"{dropped:,} collectives are left out that not all ranks of their group have recorded"] if dropped else []
    notes += [f"{unequal:,} all-to-alls of unequal parts are timed as equal ones of the same bytes"] if unequal else []
    mean = {key: sum(some) // len(some) for key, some in sizes.items()}
    return [_Tracer(one, mean).trace() for one in ranks], notes


def _shared(ranks: Sequence[Profile]) -> tuple[dict[Key, list[int]], int]:
    """Sizes of the collectives that all ranks of their group have, and how many calls others are."""
    calls = [[(key, _bytes(move, one.where)) for key, move in _turns(one)] for one in ranks]
    sizes: dict[Key, list[int]] = {key: [] for key in complete([key for key, _ in some] for some in calls)}
    for key, size in chain.from_iterable(calls):
        if key in sizes:
            sizes[key].append(size)
    return sizes, sum(map(len, calls)) - sum(map(len, sizes.values()))


def _turns(one: Profile) -> Iterable[tuple[Key, Mapping[str, Any]]]:
    count: dict[str, int] = defaultdict(int)
    for work in one.work:
        for move in work.moves:
            if kind_of(_word(move)) is not None:
                group = _group(move)
                count[group] += 1
                turn = move.get("Seq", count[group])
                yield (group, one.groups[group], turn if isinstance(turn, int) else count[group]), move


def _group(move: Mapping[str, Any]) -> str:
    return str(move.get("Process Group Name", ""))


def _word(move: Mapping[str, Any]) -> str:
    return str(move.get("Collective name", ""))


def _peer(move: Mapping[str, Any]) -> Any:
    return move.get({"send": "Dst Rank", "recv": "Src Rank"}.get(_word(move), ""))


def _bytes(move: Mapping[str, Any], where: str, key: str = "In msg nelems") -> int:
    count = move.get(key)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**50:
        raise WeftError(f"{where}: {key} of {told(_word(move))} is {told(count)}: a number of elements is expected")
    return count * BYTES.get(str(move.get("dtype")), 1)


def read_profile(path: Path, n_npus: int) -> Profile:
    """The profile of one rank; WeftError: as `read_profiles`."""
    where = f"profile {path}"
    data = read_input_bytes(path, "profile", MOST_BYTES)
    try:
        if data[:2] == b"\x1f\x8b":
            unzip = zlib.decompressobj(wbits=31)
            data = unzip.decompress(data, MOST_BYTES + 1)
        whole = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError, zlib.error) as error:
        raise WeftError(f"{where} is not JSON: {error}") from None
    whole = whole if isinstance(whole, dict) else {}
    events, about = whole.get("traceEvents"), whole.get("distributedInfo")
    if not isinstance(events, list) or not all(isinstance(one, dict) for one in events):
        raise WeftError(f"{where}: traceEvents, a list of events, is expected, of at most {MOST_BYTES >> 20} MiB")
    about = about if isinstance(about, dict) else {}
    digits = re.findall(r"\d+", path.name.split(".")[0])
    rank = about.get("rank", int(digits[-1]) if digits and len(digits[-1]) < 9 else 0 if n_npus == 1 else None)
    if rank is None:
        raise WeftError(f"{where} says no rank: neither distributedInfo nor the name of the file has one")
    if not isinstance(rank, int) or not 0 <= rank < n_npus:
        raise WeftError(f"{where} is of rank {told(rank)}: the network has {counted(n_npus, 'NPU')}")
    return _Reader(where, n_npus).profile(rank, about, events)


_IDS = ("correlation", "External id", "wait_on_cuda_event_record_corr_id")


class _Reader:
    """Puts together what a file has in many events."""

    def __init__(self, where: str, n_npus: int) -> None:
        self.where, self.n_npus = where, n_npus
        self.groups: dict[str, tuple[int, ...]] = {}

    def profile(self, rank: int, about: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Profile:
        if about.get("world_size", self.n_npus) != self.n_npus:
            raise WeftError(f"{self.where} is of a job of {told(about['world_size'])} ranks: the network has "
                            f"{counted(self.n_npus, 'NPU')}")
        groups = about.get("pg_config")
        for one in groups if isinstance(groups, list) else ():
            if isinstance(one, dict):
                self._know(one.get("pg_name"), one.get("ranks"), one.get("pg_size"))
        timed = [one for one in events if one.get("ph") == "X" and isinstance(one.get("args"), dict)]
        for one in timed:
            if any(isinstance(said, (list, dict)) for said in (one.get("cat"), *map(one["args"].get, _IDS))):
                raise WeftError(f"{self.where}: event {told(one.get('name'))}: cat, {', '.join(_IDS)} are no lists")
        calls = {one["args"].get("correlation"): one for one in timed if one.get("cat") in RUNTIME}
        said = [one for one in timed if one.get("name") == "record_param_comms"]
        for one in said:
            self._know(_group(one["args"]), one["args"].get("Process Group Ranks"), one["args"].get("Group size"))
        by_id = {one["args"].get("External id"): one["args"] for one in said if kind_of(_word(one["args"]))}
        peers = sorted(((self._span(one)[0], one["args"]) for one in said if _word(one["args"]) in PEERS),
                       key=lambda one: one[0])
        work = sorted((self._work(one, calls, by_id) for one in timed if one.get("cat") in ON_GPU),
                      key=lambda one: (one.launch, one.begin))
        if not work:
            raise WeftError(f"{self.where} has no kernels: profile the GPU as well (ProfilerActivity.CUDA)")
        if len(work) > MOST_NODES:
            raise WeftError(f"{self.where}: more than {MOST_NODES:,} kernels")
        waits = [(self._span(one)[0], _thread(one), one["args"]) for one in said if _word(one["args"]) == "wait"]
        events = self._events(timed, calls)
        waits += [] if events else self._unsaid(timed, waits)
        return Profile(rank, self.groups, self._with_messages(work, peers), sorted(waits, key=lambda one: one[0]),
                       events, self._syncs(timed), self.where)

    def _unsaid(self, timed: Sequence[Mapping[str, Any]], waits: Sequence[tuple[float, str, Any]]) -> list[Any]:
        """Waits of the streams of threads, for events that were recorded earlier and of which nothing is said."""
        last = defaultdict(lambda: -PAIR_US)  # of a thread: a record, or a wait that says for what
        calls = [(self._span(one)[0], _thread(one), str(one.get("name"))) for one in timed if one.get("cat") in RUNTIME]
        found: list[Any] = []
        for time, thread, name in sorted([*calls, *((time, thread, "record") for time, thread, _ in waits)]):
            if name == "record" or name.endswith(("EventRecord", "EventRecordWithFlags")):
                last[thread] = time
            elif name.endswith("StreamWaitEvent"):
                found += [(time, thread, {})] if time - last.pop(thread, -PAIR_US) >= PAIR_US else []
        return found

    def _know(self, name: Any, ranks: Any, size: Any) -> None:
        """A process group; its ranks are cut off in the middle where there are many."""
        text = str(ranks or "")
        listed = tuple(int(rank) for rank in re.findall(r"\d{1,9}", text)) if "..." not in text else ()
        if not listed and size == self.n_npus:
            listed = tuple(range(self.n_npus))
        if listed and max(listed) >= self.n_npus:
            raise WeftError(f"{self.where}: process group {told(name)} has rank {max(listed)} of {self.n_npus} NPUs")
        if listed and isinstance(size, int) and size != len(listed):
            raise WeftError(f"{self.where}: process group {told(name)} has {len(listed)} ranks, and a size of {size}")
        if listed:
            self.groups.setdefault(str(name), listed)

    def _span(self, one: Mapping[str, Any]) -> tuple[float, float]:
        try:
            begin = float(one["ts"])
            end = begin + float(one.get("dur", 0))
        except (KeyError, TypeError, ValueError):
            begin = end = -1.0
        if not 0 <= begin <= end < 1e18:
            raise WeftError(f"{self.where}: event {told(one.get('name'))} has no time (ts, dur)")
        return begin, end

    def _work(self, one: Mapping[str, Any], calls: Mapping[Any, Any], by_id: Mapping[Any, Any]) -> Work:
        args, name = one["args"], str(one.get("name", ""))
        begin, end = self._span(one)
        call = calls.get(args.get("correlation"), one)
        stream = f"stream {args.get('stream', one.get('tid'))}"
        said = args if "Collective name" in args else by_id.get(args.get("External id"), {})
        moves = (said,) if _LIBRARY.match(name) and said.get("Group size") != 1 else ()
        self._know(_group(said), said.get("Process Group Ranks"), said.get("Group size"))
        return Work(name, begin, end, stream, min(self._span(call)[0], begin), _thread(call), moves)

    def _with_messages(self, work: Sequence[Work], peers: Sequence[tuple[float, Mapping[str, Any]]]) -> list[Work]:
        """Kernels of which nothing is said move the messages that were asked for since the last one, as one group."""
        found: list[Work] = []
        times, taken = [time for time, _ in peers], 0
        for one in work:
            if not one.moves or _word(one.moves[0]) not in OF_MESSAGES:
                found.append(one)
                continue
            until = bisect(times, one.launch)
            some = tuple(args for _, args in peers[taken:until]) or one.moves
            taken = max(taken, until)
            if _word(some[0]) not in PEERS:
                raise WeftError(f"{self.where}: no record_param_comms says what {told(one.name)} moves, as it does "
                                "since PyTorch 2.2")
            found.append(one._replace(moves=some))
        for move in chain.from_iterable(one.moves for one in found):
            if kind_of(_word(move)) is None and not isinstance(_peer(move), int):
                raise WeftError(f"{self.where}: operation {told(_word(move))} is not known, or names no peer: known "
                                f"are {', '.join(WORDS)}")
            if _word(move) not in PEERS and _group(move) not in self.groups:
                raise WeftError(f"{self.where}: the ranks of process group {told(_group(move))} are not there")
        return found

    def _events(self, timed: Sequence[Mapping[str, Any]], calls: Mapping[Any, Any]) -> list[Any]:
        """Waits of streams for events of others, which profiles have that were asked for them."""
        found = []
        for one in timed:
            args = one["args"]
            recorded = calls.get(args.get("wait_on_cuda_event_record_corr_id"))
            if one.get("cat") == "cuda_sync" and recorded is not None and args.get("wait_on_stream") is not None:
                at = self._span(calls.get(args.get("correlation"), one))[0]
                found.append((at, f"stream {args.get('stream')}", f"stream {args['wait_on_stream']}",
                              self._span(recorded)[0]))
        return sorted(found)

    def _syncs(self, timed: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, str]]:
        streams = {one["args"].get("correlation"): f"stream {one['args'].get('stream')}" for one in timed
                   if one.get("cat") == "cuda_sync" and one.get("name") == "Stream Sync"}
        return sorted((*self._span(one), streams.get(one["args"].get("correlation"), "?" if "Stream" in one["name"] or
                       "Event" in one["name"] else "")) for one in timed
                      if one.get("cat") in RUNTIME and _SYNC.match(str(one.get("name"))))


def _thread(one: Mapping[str, Any]) -> str:
    return str(one.get("tid"))


class _Called(NamedTuple):
    """A collective or message that its thread may have its stream wait for."""

    turn: Any
    nodes: list[int]
    kind: str
    thread: str


class _Tracer:
    """The nodes of a rank: of the host, of its streams, and of what it moves."""

    def __init__(self, one: Profile, sizes: Mapping[Key, int]) -> None:
        self.one, self.sizes, self.clock = one, sizes, 0.0
        self.keys = iter(list(_turns(one)))
        busy: dict[str, float] = defaultdict(float)
        for work in one.work:
            busy[work.stream] += 0 if work.moves else work.end - work.begin
        self.main = max(busy, key=lambda stream: busy[stream])
        told_of = json.dumps([{"pg_name": name, "ranks": ranks} for name, ranks in one.groups.items()])
        self.nodes = [Node(0, "process groups", "metadata", inputs=TensorInfo(told_of))]
        self.host: list[int] = []  # what the host's next node waits for
        self.last: dict[str, tuple[list[int], float]] = {}  # of a stream: nodes, and when they ended
        self.open: dict[str, tuple[int, float]] = {}  # computations that may go on, and when they began
        self.recent: dict[str, str] = {}  # of a thread: the stream of its last computation
        self.asked: dict[str, list[int]] = defaultdict(list)  # of a thread: what it has waited for since
        self.due: dict[str, list[int]] = defaultdict(list)  # of a stream
        self.history: dict[str, list[tuple[float, list[int]]]] = defaultdict(list)  # of a stream, by launch
        self.called: dict[str, list[_Called]] = defaultdict(list)  # of a group, and not waited for yet
        self.ended: list[tuple[float, list[int]]] = []  # collectives

    def trace(self) -> Trace:
        launches = [work.launch for work in self.one.work]
        self.clock = launches[0]
        syncs = [sync for sync in self.one.syncs if bisect(launches, sync[0]) == bisect(launches, sync[1])]
        steps = [
            *((wait[0], 0, at) for at, wait in enumerate(self.one.waits)),
            *((event[0], 1, at) for at, event in enumerate(self.one.events)),
            *((sync[0], 2, at) for at, sync in enumerate(syncs)),
            *((work.launch, 3, at) for at, work in enumerate(self.one.work)),
        ]
        for _, kind, at in sorted(steps):
            if kind == 0:
                self._asks(*self.one.waits[at][1:])
            elif kind == 1:
                _, stream, of, until = self.one.events[at]
                self.due[stream] += self._before(of, until)
            elif kind == 2:
                self._holds(*syncs[at])
            elif self.one.work[at].moves:
                self._moves(self.one.work[at])
            else:
                self._computes(self.one.work[at])
        return Trace("", (), tuple(self.nodes))

    def _add(self, name: str, kind: str, after: Iterable[int], duration: float = 0.0, *attributes: Attribute) -> int:
        number = len(self.nodes)
        self.nodes.append(Node(number, name, kind, data_after=tuple(dict.fromkeys(after)), duration_us=duration,
                               attributes=attributes))
        return number

    def _host_until(self, time: float) -> None:
        gap, self.clock = max(time - self.clock, 0.0), max(time, self.clock)
        self.host = [self._add("host", "compute", self.host, gap, Attribute("is_cpu_op", True, "bool"))]

    def _closed(self, stream: str) -> list[int]:
        """The last nodes of a stream, to which nothing is added from now on."""
        self.open.pop(stream, None)
        return self.last[stream][0] if stream in self.last else []

    def _before(self, stream: str, until: float) -> list[int]:
        """What a stream was given before a time."""
        line = self.history[stream]
        at = bisect([launch for launch, _ in line], until)
        found = line[at - 1][1] if at else []
        if found and found == self._of(stream):
            self.open.pop(stream, None)
        return found

    def _of(self, stream: str) -> list[int]:
        return self.last[stream][0] if stream in self.last else []

    def _asks(self, thread: str, args: Mapping[str, Any]) -> None:
        """A thread has its stream wait for a collective."""
        if args:
            line = self.called[_group(args)]
            at = next((at for at, one in enumerate(line) if one.turn == args.get("Seq")), -1 if "Seq" in args else 0)
            self.asked[thread] += line.pop(at).nodes if line and at >= 0 else []
            return
        mine = [one for line in self.called.values() for one in line if one.thread == thread]
        gathers = [one for one in mine if one.kind == "all-gather"]
        for one in gathers or mine:
            self.asked[thread] += one.nodes
        for line in self.called.values():
            line[:] = [one for one in line if one not in (gathers or mine)]

    def _holds(self, begin: float, end: float, stream: str) -> None:
        """The host waits for a stream, for the one that it got free by, or for all."""
        done = sorted((ended, name) for name, (_, ended) in self.last.items() if ended <= end + CLOSE_US)
        some = {"": list(self.last), "?": [name for _, name in done[-1:]]}.get(stream, [stream])
        self._host_until(begin)
        self.host += [node for name in some for node in self._closed(name)]
        self.clock = max(end, self.clock)

    def _computes(self, work: Work) -> None:
        nodes, ended = self.last.get(work.stream, ([], -1.0))
        after = [*self.asked.pop(work.thread, ()), *self.due.pop(work.stream, ())]
        self.recent[work.thread] = work.stream
        if work.stream in self.open and not after and work.begin - ended <= CLOSE_US:
            number, begin = self.open[work.stream]
            self.nodes[number] = self.nodes[number]._replace(duration_us=max(work.end, ended) - begin)
        else:
            low, high = max(ended, work.launch, work.begin - CLOSE_US), work.begin
            first = bisect(self.ended, (low, []))
            after += [node for time, some in self.ended[first:] if time <= high for node in some]
            self._host_until(work.launch)
            lane = [] if work.stream == self.main else [Attribute(STREAM, work.stream, "string")]
            number = self._add(work.name, "compute", [*self.host, *nodes, *after], work.end - work.begin, *lane)
            self.open[work.stream] = number, work.begin
        self._put(work, [number])

    def _moves(self, work: Work) -> None:
        behind = [*self._closed(self.recent.get(work.thread, "")), *self._closed(work.stream)]
        behind += self.due.pop(work.stream, ())
        self._host_until(work.launch)
        found = []
        for move in work.moves:
            kind, where = kind_of(_word(move)), self.one.where
            if kind is not None:
                key, _ = next(self.keys)
                if key not in self.sizes:
                    continue
                size = self.sizes[key] if kind == "all-to-all" else _bytes(move, where)
                what, ends = collective_node(kind, size, _group(move))
            else:
                sends = _word(move) == "send"
                size = _bytes(move, where, "In msg nelems" if sends else "Out msg nelems") or _bytes(move, where)
                what, ends = message_node(sends, _peer(move), size)
            found.append(self._add(work.name, what, [*self.host, *behind], 0.0, *ends))
            self.called[_group(move)].append(_Called(move.get("Seq"), found[-1:], kind or "", work.thread))
        if found:
            self._put(work, found)
            self.ended.insert(bisect(self.ended, (work.end, [])), (work.end, found))

    def _put(self, work: Work, nodes: list[int]) -> None:
        self.last[work.stream] = nodes, work.end
        self.history[work.stream].append((work.launch, nodes))
