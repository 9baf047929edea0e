"""One NPU's part of one phase of a stream: how ASTRA-sim's ring, direct and halving-doubling collectives advance.

A preparation takes the size and the peer of the next message, waits for the endpoint delay and, where it reduces, for
the memory; then it is ready. The phase prepares `parallel` messages when it begins and one after each receive. A ready
preparation is a credit, and a credit sends the oldest message prepared. The phase ends when all is sent and all credits
but the first are back.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from sim.astra.network import MessageNetwork

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


class PhaseSpec(NamedTuple):
    """A phase of a collective: one algorithm among some NPUs."""

    kind: str  # one of `KINDS`
    algorithm: str  # {"ring", "direct", "halvingDoubling"}
    members: tuple[int, ...]  # NPUs of the phase in their order, n of them
    size: int  # bytes that each NPU contributes
    direction: int  # 1 is clockwise, -1 anticlockwise
    window: int  # messages in flight of `direct`; 0 for n - 1
    delay_ns: int  # endpoint delay
    is_local: bool = False  # in a communicator group of fewer than all NPUs

    @property
    def final_size(self) -> int:
        """Bytes that each NPU has afterwards."""
        n = len(self.members)
        return {"all-gather": self.size * n, "reduce-scatter": self.size // n}.get(self.kind, self.size)

    @property
    def sends(self) -> int:
        """Messages of one NPU."""
        n = len(self.members)
        if self.algorithm == "halvingDoubling":
            rounds = n.bit_length() - 1
            return 2 * rounds if self.kind == "all-reduce" else rounds
        if self.kind == "all-to-all" and self.algorithm == "ring":
            return n * (n - 1) // 2
        return 2 * (n - 1) if self.kind == "all-reduce" else n - 1


class Host(Protocol):
    """What a phase needs of its NPU."""

    npu: int
    network: MessageNetwork

    def later(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Call after a delay."""

    def reduction_ns(self, size: int) -> int:
        """Time to reduce a message of some bytes into local memory."""


class Phase:
    """Advances as its receives and delays end.

    `tag`: of the messages.
    `ended`: called once.
    """

    def __init__(self, host: Host, spec: PhaseSpec, tag: int, ended: Callable[[], None]) -> None:
        self.host, self.spec, self.tag, self.ended = host, spec, tag, ended
        n = self.n = len(spec.members)
        self.parallel = (min(spec.window, n - 1) or n - 1) if spec.algorithm == "direct" else 1
        of_direct = self.parallel * (n - 1 if spec.is_local else 1)
        self.others = {"ring": n - 1, "direct": of_direct}.get(spec.algorithm, n.bit_length() - 2)
        self.sends_left, self.credit, self.received = spec.sends, 0, 0
        self._plain_left = self._others_left = 0
        self._odd = False
        self._prepared: deque[tuple[int, int, int]] = deque()
        self._index = spec.members.index(host.npu)
        gathers = spec.kind == "all-gather"
        self._message = spec.size if gathers else spec.size // n
        self._offset, self._falling = 1, False
        if spec.algorithm == "halvingDoubling":
            self._message = spec.size if gathers else spec.size // 2
            self._offset, self._falling = (n // 2, True) if gathers else (1, False)

    def begin(self) -> None:
        """Prepare as many packets as go at once."""
        for _ in range(self.parallel):
            self._prepare()

    def _prepare(self) -> None:
        if not self._plain_left and not self._others_left:
            self._plain_left, self._others_left, self._odd = self.parallel, self.others, not self._odd
        reduces = False
        if self._plain_left:
            self._plain_left -= 1
        else:
            self._others_left -= 1
            reduces = self.spec.kind == "reduce-scatter" or (self.spec.kind == "all-reduce" and self._odd)
        size = self._message
        self._prepared.append((size, *self._peers()))
        self.host.later(self.spec.delay_ns, (lambda: self._reduce(size)) if reduces else self._ready)
        self._advance()

    def _reduce(self, size: int) -> None:
        self.host.later(self.host.reduction_ns(size), self._ready)

    def _peers(self) -> tuple[int, int]:
        """Destination and source of the message to prepare."""
        members, offset = self.spec.members, self._offset * self.spec.direction
        if self.spec.algorithm == "halvingDoubling":
            up = self._offset == 0 or self._index // self._offset % 2 == 0
            partner = members[(self._index + (self._offset if up else -self._offset)) % self.n]
            return partner, partner
        return members[(self._index + offset) % self.n], members[(self._index - offset) % self.n]

    def _advance(self) -> None:
        """Peer and size of the message after this one."""
        if self.spec.algorithm == "direct":
            self._offset = self._offset % (self.n - 1) + 1
        elif self.spec.algorithm == "halvingDoubling":
            self._step()
            if self._offset == self.n and self.spec.kind == "all-reduce":
                self._falling = True
                self._step()

    def _step(self) -> None:
        if self._falling:
            self._offset, self._message = self._offset // 2, self._message * 2
        else:
            self._offset, self._message = self._offset * 2, self._message // 2

    def _ready(self) -> None:
        self.credit += 1
        if self.spec.algorithm == "direct" and self.spec.kind == "all-reduce" and self.sends_left <= self.n - 1:
            if self.received < self.n - 1:
                return
            for _ in range(self.parallel):
                self._send()
        else:
            self._send()
        if not self.sends_left and self.credit == self.parallel:
            self.ended()

    def _send(self) -> None:
        if self._prepared and self.sends_left and self.credit:
            size, dst, src = self._prepared.popleft()
            self.sends_left -= 1
            self.credit -= 1
            self.host.network.send(("collective", self.tag, self.host.npu, dst, size))
            self.host.network.receive(("collective", self.tag, src, self.host.npu, size), self._receive)

    def _receive(self, _: Any) -> None:
        self.received += 1
        self._prepare()
