"""Buffers of an MSCCL program, holding sets of contributions instead of numbers."""

from __future__ import annotations

from collectives.core.proof import ScheduleError

Value = frozenset[tuple[int, int]]
"""Contributions (rank, chunk) summed in a place."""

Buffer = tuple[str, int]


class Memory:
    """Input, output and scratch buffers of every GPU.

    `kind`: the collective.
    `p`, `chunks`: GPUs, and chunks of the entire buffer (output of an all-gather, input of a reduce-scatter).
    `in_place`: whether input and output share memory.
    `name`: for messages.
    """

    def __init__(self, kind: str, p: int, chunks: int, in_place: bool, name: str) -> None:
        self.kind, self.p, self.chunks, self.in_place, self.name = kind, p, chunks, in_place, name
        self.per = chunks // p if kind in ("all-gather", "reduce-scatter", "all-to-all") else chunks
        self.values: dict[tuple[int, str, int], Value] = {}
        for gpu in range(p):
            own = self.per if kind == "all-gather" else chunks
            if kind == "broadcast" and gpu:
                continue
            for at in range(own):
                self.values[self._place(gpu, ("i", at))] = frozenset([(gpu, at)])

    def execute(
        self, gpu: int, kind: str, src: Buffer, dst: Buffer, count: int, arrived: list[Value]
    ) -> list[Value]:
        """Execute a step; returns what it sends."""
        sent = []
        for at in range(count):
            here, there = ((buffer, offset + at) for buffer, offset in (src, dst))
            if kind == "s":
                sent.append(self._read(gpu, here))
            elif kind in ("r", "rcs"):
                self.values[self._place(gpu, there)] = arrived[at]
                sent.append(arrived[at])
            elif kind in ("rrs", "rrc", "rrcs"):
                total = self._add(gpu, self._read(gpu, here), arrived[at])
                if kind != "rrs":
                    self.values[self._place(gpu, there)] = total
                sent.append(total)
            elif kind == "cpy":
                self.values[self._place(gpu, there)] = self._read(gpu, here)
            elif kind == "re":
                total = self._add(gpu, self._read(gpu, there), self._read(gpu, here))
                self.values[self._place(gpu, there)] = total
        return sent

    def check(self) -> None:
        """Compare the contents with what the collective requires.

        ScheduleError: names the GPU and the chunk.
        """
        for gpu in range(self.p):
            for at, wanted in self._wanted(gpu):
                found = self.values.get(self._place(gpu, ("o", at)), frozenset())
                if found != wanted:
                    lacks = sorted(wanted - found)
                    what = f"lacks the contribution of rank {lacks[0][0]}" if lacks else "holds more than it should"
                    raise ScheduleError(f"{self.name}: GPU {gpu} ends with an output whose chunk {at} {what}")

    def _wanted(self, gpu: int) -> list[tuple[int, Value]]:
        everyone = range(self.p)
        if self.kind == "all-gather":
            return [(at, frozenset([divmod(at, self.per)])) for at in range(self.chunks)]
        if self.kind == "reduce-scatter":
            return [(at, frozenset((r, gpu * self.per + at) for r in everyone)) for at in range(self.per)]
        if self.kind == "all-to-all":
            return [(at, frozenset([(at // self.per, gpu * self.per + at % self.per)])) for at in range(self.chunks)]
        if self.kind == "broadcast":
            return [(at, frozenset([(0, at)])) for at in range(self.chunks)]
        if self.kind == "reduce" and gpu:
            return []
        return [(at, frozenset((r, at) for r in everyone)) for at in range(self.chunks)]

    def _place(self, gpu: int, place: Buffer) -> tuple[int, str, int]:
        """Location of a buffer place; input and output share theirs if in place."""
        buffer, at = place
        if self.in_place and buffer in "io":
            if self.kind == "all-gather" and buffer == "i":
                at += gpu * self.per
            if self.kind == "reduce-scatter" and buffer == "o":
                at += gpu * self.per
            buffer = "io"
        return gpu, buffer, at

    def _read(self, gpu: int, place: Buffer) -> Value:
        found = self.values.get(self._place(gpu, place))
        if found is None:
            raise ScheduleError(f"{self.name}: GPU {gpu} reads {place[0]}[{place[1]}], which is still empty")
        return found

    def _add(self, gpu: int, one: Value, other: Value) -> Value:
        twice = one & other
        if twice:
            rank, chunk = min(twice)
            raise ScheduleError(f"{self.name}: GPU {gpu} adds chunk {chunk} of rank {rank} twice")
        return one | other
