"""A job: operations on the NPUs of a network, and their dependencies.

An operation covers some NPUs, and what it waits for is local: on each NPU it begins when the operations named in
`after` have ended on that NPU. A collective has ended on an NPU when the NPU has sent and received everything; a
message has ended at its source and at its destination when it has arrived. So ranks drift apart as they do in a
real program, and only data holds them together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.placed import placed
from collectives.core.schedule import Schedule
from topologies import Topology, WeftError
from topologies.checks import MOST_COUNT, Count, Integer, Natural, checked
from topologies.core.epochs import Epochs
from topologies.core.extents import memory_limit, shown_limit
from topologies.text.brief import one_line
from topologies.units import Bytes, Picoseconds, Quantity, format_size, parse_time

Ranks = npt.NDArray[np.int64]

Priority = Annotated[int, Integer(-MOST_COUNT, MOST_COUNT)]
"""Priorities are 32 bits wide."""

COMPUTE_STREAM = "compute"

CLOCK = "clock: "
"""Streams whose names begin so wait for a time: neither the speed of an NPU nor its faults touch them."""

OPERATION_BYTES = 1_000
"""Of an operation of a job in memory, with its name: measured on pipelines of 200,000."""


@checked
@one_line
class Compute(NamedTuple):
    """Work on one stream of every covered NPU."""

    duration_ps: Picoseconds
    stream: str


@checked
@one_line
class Communicate(NamedTuple):
    """A schedule; of its process groups, those that are covered take part."""

    schedule: Schedule


@checked
@one_line
class Send(NamedTuple):
    """A message from each source to the destination in the same place.

    Attributes
    ----------
    size_bytes : int or tuple of int
        Of every message, each source having one; or of each message, and then a source may have several, which keep
        their order.
    src, dst : tuple of int
    via : tuple of tuple of int
        Links that each message crosses; empty where the topology chooses.
    laps : int
        How often a message counts the latency of its route: 2 where an acknowledgement comes back over it.
    detached : bool
        Whether a source goes on at once, so that the operation has ended there as it begins.
    """

    size_bytes: Natural | tuple[Natural, ...]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    via: tuple[tuple[int, ...], ...] = ()
    laps: Count = 1
    detached: bool = False

    @property
    def routed(self) -> "Send":
        """The messages without their sizes: equal for sends that go the same routes."""
        return self._replace(size_bytes=() if self.ordered else 0)

    @property
    def ordered(self) -> bool:
        """Whether messages keep the order in which they are given."""
        return isinstance(self.size_bytes, tuple)


class Reconfigure(NamedTuple):
    """A change of circuits: links of the topology go down, and others come up.

    It begins when all that crosses the links in `down` is delivered, and what crosses those in `up` waits for its end.
    Circuits that are up in the beginning are in no `up`.
    """

    delay_ps: Picoseconds
    down: tuple[int, ...]  # links
    up: tuple[int, ...]  # links
    controller: str  # changes on one optical controller take place one at a time
    # whether to wait for the links in `down`; without, the certificate of circuits says whether the job did
    drain: bool = True


Work = Compute | Communicate | Send | Reconfigure


@checked
@one_line
@dataclass(frozen=True)
class Operation:
    """One node of the job.

    Attributes
    ----------
    name : str
        "forward 3".
    kind : str
        Category in tables and figures: "forward", "tensor all-reduce".
    work : Compute, Communicate, Send or Reconfigure
    npus : tuple of int or None
        NPUs covered; None for all.
    after : tuple of int
        Earlier operations that it waits for, by their numbers.
    priority : int
        Smaller first, when a stream or a dimension has a choice.
    turn : int
        Small first, where what has arrived at a server at one time waits for it; then earlier operations go first.
    together : bool
        Whether a collective begins on all its NPUs at once, when the last of them is there.
    tenant : str or None
        Whose it is, where several share the fabric.
    """

    name: str
    kind: str
    work: Work
    npus: tuple[int, ...] | None
    after: tuple[int, ...]
    priority: Priority
    turn: Priority = 0
    together: bool = False
    tenant: str | None = None


@checked
@one_line
@dataclass
class Job:
    """Operations on a network, in topological order.

    Attributes
    ----------
    topology : Topology
    operations : list of Operation
    speed : (p,) float64 or None
        Compute speed of each NPU; 1 is the speed for which durations are given.
    implements : Schedule or None
        The schedule of which its operations are the messages, divided and on circuits of their own.

    Examples
    --------
    >>> from topologies import ring
    >>> job = Job(ring(4))
    >>> first = job.compute("forward", 10**9)
    >>> second = job.compute("backward", 2 * 10**9, after=[first])
    >>> len(job.operations)
    2
    """

    topology: Topology
    operations: list[Operation] = field(default_factory=list)
    speed: npt.NDArray[np.float64] | None = None
    implements: Schedule | None = None

    def __post_init__(self) -> None:
        one_each = self.speed is None or self.speed.shape == (self.topology.n_npus,)
        if not one_each or (self.speed is not None and not np.all((self.speed > 0) & np.isfinite(self.speed))):
            raise WeftError(f"speeds must be {self.topology.n_npus} positive, finite numbers, one per NPU")

    @classmethod
    @checked
    def of(cls, schedule: Schedule) -> "Job":
        """A schedule alone: a job of one collective on all NPUs, and of the changes of its circuits."""
        job = cls(schedule.topology)
        job.collective(schedule.name, schedule)
        epochs, optics = schedule.pattern.circuits, schedule.topology.optics
        if epochs is not None and optics is not None:
            change_circuits(job, epochs, f"{optics.delay_ps}ps", per_port=optics.per_port, paid=optics.paid)
        return job

    @property
    def alone(self) -> Schedule | None:
        """The schedule, of a job that is one collective on all NPUs and nothing else; None of any other."""
        return self.of_schedule if len(self.operations) == 1 else None

    @property
    def of_schedule(self) -> Schedule | None:
        """The schedule, of a job that is one collective on all NPUs, and the changes of its circuits."""
        if self.implements is not None or not self.operations:
            return self.implements
        one, *others = self.operations
        if not isinstance(one.work, Communicate) or one.npus is not None or one.tenant is not None:
            return None
        schedule = one.work.schedule
        own = schedule.pattern.circuits is not None and all(isinstance(other.work, Reconfigure) for other in others)
        return schedule if own or not others else None

    @checked
    def compute(
        self, name: str, duration_ps: Picoseconds, *, kind: str | None = None, stream: str = COMPUTE_STREAM,
        npus: Iterable[int] | None = None, after: Iterable[int] = (), priority: Priority = 0,
    ) -> int:
        """Add a computation; returns its index.

        Parameters
        ----------
        name : str
        duration_ps : int
            At speed 1; may be given as text ("1.5us").
        kind : str, optional
            Default: the name.
        stream : str
            Computations of one stream of an NPU run one at a time.
        npus : iterable of int, optional
            Default: all.
        after : iterable of int
            Operations to wait for.
        priority : int
        """
        return self._add(name, kind, Compute._make((duration_ps, stream)), npus, after, priority)

    @checked
    def collective(
        self, name: str, schedule: Schedule, *, kind: str | None = None, npus: Iterable[int] | None = None,
        after: Iterable[int] = (), priority: Priority = 0, turn: Priority = 0, together: bool = False,
    ) -> int:
        """Add a collective; returns its index.

        Parameters
        ----------
        name : str
        schedule : Schedule
            On the topology of the job; its process groups may be smaller than that.
        kind : str, optional
            "all-reduce" and so on unless given.
        npus : iterable of int, optional
            Whole process groups; all of them unless given.
        after : iterable of int
        priority : int
        turn : int
            Of operations whose transfers arrive at a server at one time, those of the smallest turn go first.
        together : bool
            Whether nothing is sent before the last NPU is there, as nothing is received before; otherwise each NPU
            sends when it is there.
        """
        if schedule.topology is not self.topology:
            raise WeftError(f"operation {name!r} runs on {schedule.topology.name}, not on the topology of the job")
        return self._add(name, kind or schedule.kind.name, Communicate(schedule), npus, after, priority, turn, together)

    @checked
    def send(
        self, name: str, size_bytes: Bytes | Sequence[Natural], src: Sequence[int], dst: Sequence[int], *,
        kind: str = "send", after: Iterable[int] = (), priority: Priority = 0, via: Sequence[Sequence[int]] = (),
        laps: Count = 1, detached: bool = False,
    ) -> int:
        """Add messages from each of `src` to the rank in the same place of `dst`; returns the number.

        Parameters
        ----------
        name : str
        size_bytes : int or sequence of int
            Of every message, each source having one, also as text ("8KiB"); or one size per message.
        src, dst : sequence of int
        kind : str
        after : iterable of int
        priority : int
        via : sequence of sequence of int, optional
            Links that each message crosses; needs one size per message.
        laps : int
            How often a message counts the latency of its route: 2 where an acknowledgement comes back over it.
        detached : bool
            Whether a source goes on at once.
        """
        ends = tuple(src), tuple(dst)
        several = not isinstance(size_bytes, int)
        sizes = (size_bytes,) if isinstance(size_bytes, int) else tuple(size_bytes)
        if not several and (len(src) != len(dst) or len(set(src)) < len(src)):
            raise WeftError(f"operation {name!r} needs as many destinations as sources, each source once")
        if len(ends[0]) != len(ends[1]) or (several and len(sizes) != len(ends[0])):
            raise WeftError(f"operation {name!r} needs as many destinations and sizes as sources")
        if via and not (several and len(via) == len(sizes)):
            raise WeftError(f"operation {name!r} needs the links and the size of each message")
        if not several and list(ends[0]) != sorted(ends[0]):
            pairs = sorted(zip(*ends, strict=True))
            ends = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        routes = tuple(map(tuple, via)) if via else ()
        for message in zip(*ends, routes, strict=True) if via else ():
            self._check_route(name, *message)
        work = Send._make((sizes if several else sizes[0], *ends, routes, laps, detached))
        return self._add(name, kind, work, {*ends[0], *ends[1]}, after, priority)

    def _check_route(self, name: str, src: int, dst: int, links: tuple[int, ...]) -> None:
        """Reject links that do not lead from one node to another."""
        at, topology = src, self.topology
        for link in links:
            if not 0 <= link < topology.n_links or topology.src[link] != at:
                raise WeftError(f"operation {name!r}: link {link} does not begin at {topology.node_name(at)}")
            at = int(topology.dst[link])
        if at != dst:
            end = topology.node_name(at)
            raise WeftError(f"operation {name!r}: the links {list(links)} lead to {end}, not to {dst}")

    @checked
    def reconfigure(
        self, name: str, delay: Quantity, down: Iterable[int], up: Iterable[int], *, kind: str = "reconfiguration",
        controller: str = "optical controller", after: Iterable[int] = (), drain: bool = True,
    ) -> int:
        """Add a change of circuits; returns its number.

        Parameters
        ----------
        name : str
        delay : quantity
            How long the links are dark that come up.
        down, up : iterable of int
            Links of the topology: the change waits until all that crosses `down` has been delivered, and all that
            crosses `up`, in operations before and after this one, waits for the change.
        kind : str
        controller : str
            Changes on one optical controller take place one at a time.
        after : iterable of int
            Operations to wait for, on all the NPUs that they cover.
        drain : bool
            Whether to wait for the links in `down`; if not, a run in which something still crosses one is an error.
        """
        delay_ps = parse_time(delay, "reconfiguration delay")
        links = tuple(sorted(set(down))), tuple(sorted(set(up)))
        for link in (*links[0], *links[1]):
            if not 0 <= link < self.topology.n_links:
                raise WeftError(f"operation {name!r} names link {link} of the {self.topology.n_links}")
        return self._add(name, kind, Reconfigure(delay_ps, *links, controller, drain), None, after, 0)

    def _add(
        self, name: str, kind: str | None, work: Work, npus: Iterable[int] | None, after: Iterable[int], priority: int,
        turn: Priority = 0, together: bool = False,
    ) -> int:
        waits = tuple(dict.fromkeys(after))
        if waits and not 0 <= min(waits) <= max(waits) < len(self.operations):
            other = next(one for one in waits if not 0 <= one < len(self.operations))
            raise WeftError(f"operation {name!r} waits for operation {other}, which does not exist yet")
        covered = None if npus is None else tuple(sorted(set(npus)))
        if covered and not 0 <= covered[0] <= covered[-1] < self.topology.n_npus:
            raise WeftError(f"operation {name!r} names an NPU that is not one of the {self.topology.n_npus}")
        operation = object.__new__(Operation)  # without its check: all of it was read before
        vars(operation).update(
            name=name, kind=kind or name, work=work, npus=covered, after=waits, priority=priority, turn=turn,
            together=together, tenant=None,
        )
        self.operations.append(operation)
        return len(self.operations) - 1

    @checked
    def ranks(self, operation: Operation) -> Ranks:
        """NPUs that an operation covers."""
        return np.arange(self.topology.n_npus) if operation.npus is None else np.array(operation.npus, np.int64)


def repeat(job: Job, name: str, like: Operation, after: Sequence[int]) -> int:
    """Add what a job on as many NPUs has, under another name and after other operations; returns the number."""
    operation = object.__new__(Operation)  # without its check: all of it was read before
    vars(operation).update(vars(like) | {"name": name, "after": tuple(after)})
    job.operations.append(operation)
    return len(job.operations) - 1


def change_circuits(
    job: Job, epochs: Epochs, delay: Quantity, *, per_port: bool = False, paid: bool = False,
    drain: bool = True,
) -> None:
    """Add the changes from each epoch to the next.

    `epochs`: whose topology is that of the job; built with `keep` where changes are per port.
    `per_port`, `paid`: as in `Epochs.changes`.
    `drain`: whether changes wait for the circuits in use.
    """
    first = len(job.operations)
    for name, down, up, controller, before in epochs.changes(per_port=per_port, paid=paid):
        waits = [first + one for one in before]
        job.reconfigure(name, delay, down, up, controller=controller, after=waits, drain=drain)


def on_network(job: Job, topology: Topology) -> Job:
    """The same operations and transfers on a topology of the same nodes and links: other bandwidths, another router."""
    moved: dict[int, Schedule] = {}

    def placed(one: Operation) -> Operation:
        if not isinstance(one.work, Communicate):
            return one
        schedule = one.work.schedule
        if id(schedule) not in moved:
            moved[id(schedule)] = replace(schedule, pattern=schedule.pattern.on(topology))
        return replace(one, work=Communicate(moved[id(schedule)]))

    return Job(topology, list(map(placed, job.operations)), job.speed)


def on_npus(job: Job, topology: Topology, npus: Sequence[int]) -> Job:
    """A job of as many ranks on some NPUs of a topology, in their order, which routes its messages.

    WeftError: circuits, or collectives that are made for whole networks.
    """
    where, schedules = tuple(npus), dict[int, Schedule]()

    def moved(ranks: Iterable[int]) -> tuple[int, ...]:
        return tuple(where[rank] for rank in ranks)

    def work_of(work: Work) -> Work:
        if isinstance(work, Communicate):
            if id(work.schedule) not in schedules:
                schedules[id(work.schedule)] = placed(work.schedule, topology, where)
            return Communicate(schedules[id(work.schedule)])
        if isinstance(work, Send) and not work.via:
            return work._replace(src=moved(work.src), dst=moved(work.dst))
        if isinstance(work, Compute):
            return work
        raise WeftError("circuits and routes are of a whole network, not of some NPUs of one")

    everyone = range(job.topology.n_npus)
    return Job(topology, [
        replace(one, work=work_of(one.work),
                npus=tuple(sorted(moved(everyone if one.npus is None else one.npus)))) for one in job.operations])


def check_room(n_operations: int, what: str) -> None:
    """Reject a job of more operations than fit in memory, before it is built.

    `what`: makes it so large, for the message.
    """
    need = n_operations * OPERATION_BYTES
    if need > memory_limit():
        raise WeftError(
            f"{what}: a job of at least {n_operations:,} operations, about {format_size(need)} of memory; "
            f"{shown_limit()}"
        )
