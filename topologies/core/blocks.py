"""One-dimensional blocks: how the NPUs of one line are connected, and how a route runs along it.

A position on a line is a coordinate `0 .. extent-1`, or AT_SWITCH for the switch of the line. A block of
extent 1 has neither links nor a switch. Products of blocks are in topologies/multidim.py.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

AT_SWITCH = -1


class Leg(NamedTuple):
    """The segments of many routes along one line, each (n_routes,).

    From `start` so many steps `before` the switch, modulo the extent; then the switch, `entry` and steps `onward`, as
    far as there are `hops`.
    """

    start: Ints
    step: Ints
    before: Ints
    entry: Ints
    onward: Ints
    hops: Ints

    @classmethod
    def straight(cls, start: Ints, step: Ints, hops: Ints) -> "Leg":
        """Segments without a switch."""
        return cls(start, step, hops, start, step, hops)


@dataclass(frozen=True)
class Block:
    """How the NPUs of one line are connected: without a switch, and without ties, unless it says so."""

    extent: int  # number of NPUs on the line
    kind: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.kind}({self.extent})"

    @property
    def direct(self) -> bool:
        """Whether NPUs are connected to each other without a switch between them."""
        return self.extent > 1

    @property
    def has_switch(self) -> bool:
        """Whether the line has a switch."""
        return False

    @property
    def n_links(self) -> int:
        """Number of links of the line."""
        raise NotImplementedError

    def links(self) -> tuple[Ints, Ints]:
        """Source and destination position of each link of the line, (n_links,) each."""
        raise NotImplementedError

    def tied(self, a: Ints, b: Ints) -> Bools:
        """Whether two routes from `a` to `b` are equally short."""
        return np.zeros(a.shape, np.bool_)

    def leg(self, a: Ints, b: Ints, second: Bools) -> Leg:
        """Shortest walks from `a` to `b`, (n_routes,) each; the `second` one at a tie."""
        raise NotImplementedError


class Ring(Block):
    """Each NPU connected to both neighbors; two NPUs by one cable, not by two in parallel."""

    kind = "RI"

    @property
    def n_links(self) -> int:
        """Links of one line of NPUs."""
        return self.extent * min(self.extent - 1, 2)

    def links(self) -> tuple[Ints, Ints]:
        """Sources and destinations, by position."""
        offsets = sorted({1, self.extent - 1}) if self.extent > 1 else []
        return _offset_links(self.extent, offsets)

    def tied(self, a: Ints, b: Ints) -> Bools:
        """Whether both ways are equally short, for pairs of positions."""
        return np.asarray((2 * ((b - a) % self.extent) == self.extent) & (self.extent > 2))

    def leg(self, a: Ints, b: Ints, second: Bools) -> Leg:
        """The ways between pairs of positions; the second one of two where asked for."""
        ahead = (b - a) % self.extent
        backward = (2 * ahead > self.extent) | (self.tied(a, b) & second)
        return Leg.straight(a, np.where(backward, -1, 1), np.where(backward, self.extent - ahead, ahead))


class FullyConnected(Block):
    """Each NPU connected to every other."""

    kind = "FC"

    @property
    def n_links(self) -> int:
        """Links of one line of NPUs."""
        return self.extent * (self.extent - 1)

    def links(self) -> tuple[Ints, Ints]:
        """Sources and destinations, by position."""
        return _offset_links(self.extent, range(1, self.extent))

    def leg(self, a: Ints, b: Ints, second: Bools) -> Leg:
        """The ways between pairs of positions."""
        return Leg.straight(a, b - a, (a != b).astype(np.int64))


class Line(Block):
    """A ring without its wrap-around: the block of a mesh."""

    kind = "LI"

    @property
    def n_links(self) -> int:
        """Links of one line of NPUs."""
        return 2 * (self.extent - 1)

    def links(self) -> tuple[Ints, Ints]:
        """Sources and destinations, by position."""
        left = np.arange(self.extent - 1)
        return np.concatenate([left, left + 1]), np.concatenate([left + 1, left])

    def leg(self, a: Ints, b: Ints, second: Bools) -> Leg:
        """The ways between pairs of positions."""
        return Leg.straight(a, np.sign(b - a), np.abs(b - a))


@dataclass(frozen=True)
class Switched(Block):
    """Boards of NPUs in a line, the edges of each board cabled to one switch.

    With boards of 1 this is the plain switch block: every NPU has one cable to the switch. Routes between NPUs of one
    board stay on it; others leave and enter at the nearer edge, with a tie in the middle of an odd board. Between the
    two edges of a board of 3 or more, the switch is no longer than the board, and the second way. A single board has no
    switch.
    """

    board: int = 1  # NPUs per board along the line; divides the extent
    kind: ClassVar[str] = "SW"

    def __post_init__(self) -> None:
        if self.board < 1 or self.extent % self.board:
            raise WeftError(f"block {self} has boards of {self.board}: the board must divide the extent {self.extent}")

    def __str__(self) -> str:
        return f"SW({self.extent})" if self.board == 1 else f"HX{self.board}({self.extent})"

    @property
    def direct(self) -> bool:
        """Whether NPUs of a board are linked directly."""
        return self.board > 1

    @property
    def has_switch(self) -> bool:
        """Whether there are boards to join."""
        return self.extent > self.board

    @property
    def n_links(self) -> int:
        """Links of one line of NPUs."""
        boards = self.extent // self.board
        return 2 * boards * (self.board - 1 + min(self.board, 2) * self.has_switch)

    def links(self) -> tuple[Ints, Ints]:
        """Sources and destinations, by position; `AT_SWITCH` for the switch."""
        npus = np.arange(self.extent)
        left = npus[npus % self.board < self.board - 1]
        first, last = npus % self.board == 0, npus % self.board == self.board - 1
        edge = npus[first | last] if self.has_switch else npus[:0]
        switch = np.full(edge.size, AT_SWITCH)
        return np.concatenate([left, left + 1, edge, switch]), np.concatenate([left + 1, left, switch, edge])

    def tied(self, a: Ints, b: Ints) -> Bools:
        """Whether two ways are equally short, for pairs of positions."""
        between = (a // self.board != b // self.board) & (self._in_middle(a) | self._in_middle(b))
        return np.asarray(between | self._across(a, b))

    def leg(self, a: Ints, b: Ints, second: Bools) -> Leg:
        """The ways between pairs of positions; the second one of two where asked for."""
        same = (a // self.board == b // self.board) & ~(second & self._across(a, b))
        leave, enter = np.where(same, b, self._edge(a, second)), self._edge(b, second)
        before = np.abs(leave - a)
        hops = before + np.where(same, 0, 2 + np.abs(b - enter))
        return Leg(a, np.sign(leave - a), before, enter, np.sign(b - enter), hops)

    def _across(self, a: Ints, b: Ints) -> Bools:
        """Whether two NPUs are the edges of one board, and the switch between them is not farther."""
        apart = self.board - 1
        one_board = (a // self.board == b // self.board) & (np.abs(a - b) == apart)
        return np.asarray(one_board & self.has_switch & (apart >= 2))

    def port(self, npu: Ints) -> Ints:
        """The position with a switch cable that is nearest to each NPU."""
        return self._edge(npu, np.zeros(npu.shape, np.bool_))

    def _edge(self, npu: Ints, second: Bools) -> Ints:
        """The nearer board edge of each NPU; from the middle the lower one, or the upper for the `second` route."""
        last = self.board - 1
        place = npu % self.board
        upper = (2 * place > last) | (second & (2 * place == last))
        return np.asarray(npu - place + np.where(upper, last, 0))

    def _in_middle(self, npu: Ints) -> Bools:
        return np.asarray((2 * (npu % self.board) == self.board - 1) & (self.board > 1))


def _offset_links(extent: int, offsets: range | list[int]) -> tuple[Ints, Ints]:
    src = np.tile(np.arange(extent), len(offsets))
    return src, (src + np.repeat(np.array(offsets, np.int64), extent)) % extent
