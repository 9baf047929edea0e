"""MSCCL XML writer: the trees of a forest as thread blocks that the MSCCL runtime executes.

Each node of a tree has one thread block that receives from its parent and sends to its first child, and one more for
each further child; likewise upward. A tree uses the lowest channel that none of its links uses yet.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from collectives.formats.msccl_program import MOST_BLOCKS, MOST_BLOCKS_OF_CHANNEL, MOST_CHANNELS, MOST_COUNT
from collectives.trees.forest import Forest, Tree, pieces_of
from topologies import WeftError

_COLL = {"all-reduce": "allreduce", "all-gather": "allgather", "reduce-scatter": "reduce_scatter"}

MOST_BYTES = 2**48
"""Above any array: 0 stands for no limit in some runtimes, and for no array at all in microsoft/msccl."""


@dataclass
class _Thread:
    """A thread block with its single step (and the waits before it)."""

    send: int
    receive: int
    channel: int
    steps: list[tuple[str, int, int, tuple[int, int] | None]] = field(default_factory=list)
    waited_for: bool = False


class _Writer:
    def __init__(self, p: int, buffer: str) -> None:
        self.gpus: list[list[_Thread]] = [[] for _ in range(p)]
        self.buffer = buffer
        self.used: dict[int, set[tuple[int, int]]] = defaultdict(set)

    def channel(self, pairs: set[tuple[int, int]]) -> int:
        """The lowest channel that these (sender, receiver) pairs do not use yet."""
        channel = 0
        while not self.used[channel].isdisjoint(pairs):
            channel += 1
        self.used[channel] |= pairs
        return channel

    def add(
        self, gpu: int, kind: str, at: int, count: int, channel: int, *, send: int = -1, receive: int = -1,
        after: Sequence[int] = (),
    ) -> int:
        """Add a thread block with one step that waits for others of its GPU; returns its index."""
        thread = _Thread(send, receive, channel)
        for one in after[:-1]:
            thread.steps.append(("nop", at, 0, (one, len(self.gpus[gpu][one].steps) - 1)))
        for one in after:
            self.gpus[gpu][one].waited_for = True
        last = (after[-1], len(self.gpus[gpu][after[-1]].steps) - 1) if after else None
        thread.steps.append((kind, at, count, last))
        self.gpus[gpu].append(thread)
        return len(self.gpus[gpu]) - 1

    @property
    def n_channels(self) -> int:
        return max((channel for channel, pairs in self.used.items() if pairs), default=0) + 1

    def check(self) -> None:
        """Reject what no runtime loads: every limit that is exceeded, in one line."""
        blocks, gpu = max((len(threads), -gpu) for gpu, threads in enumerate(self.gpus))
        over = [(self.n_channels, MOST_CHANNELS, "channels"), (blocks, MOST_BLOCKS, f"thread blocks on GPU {-gpu}")]
        for end in ("send", "receive"):
            of_channel = Counter(
                (gpu, one.channel) for gpu, threads in enumerate(self.gpus) for one in threads if getattr(one, end) >= 0
            )
            for (gpu, channel), count in of_channel.most_common(1):
                what = f"thread blocks that {end} on channel {channel} of GPU {gpu}"
                over.append((count, MOST_BLOCKS_OF_CHANNEL, what))
        said = [f"{n} {what} (at most {most}: {n - most} too many)" for n, most, what in over if n > most]
        if said:
            raise WeftError(f"MSCCL XML: the trees need {' and '.join(said)}; use fewer trees per root, or deeper ones")


def to_msccl(kind: str, up: Forest | None = None, down: Forest | None = None, name: str = "weft") -> str:
    """A forest as MSCCL XML, in place.

    `kind`: "all-gather" takes `down`, "reduce-scatter" `up`, "all-reduce" both.
    `up`, `down`: must have equal shares at every root.
    WeftError: an unsupported collective, or trees that need more channels or thread blocks than the runtime has.
    """
    if kind not in _COLL:
        raise WeftError(f"MSCCL XML of a {kind}: choose one of {', '.join(_COLL)}")
    forest = up or down
    assert forest is not None
    p = forest.topology.n_npus
    per_root = forest.blocks_of_root(0)
    writer = _Writer(p, "o" if kind == "all-gather" else "i")
    for piece in pieces_of(forest.topology, kind, up, down)[0]:
        first = piece.blocks[0]
        root, part = first % p, first // p
        if kind == "all-reduce":
            root, part = divmod(first, per_root)
        for start in range(0, len(piece.blocks), MOST_COUNT):
            count = min(MOST_COUNT, len(piece.blocks) - start)
            _write_piece(writer, root * per_root + part + start, count, piece.up, piece.down)
    writer.check()
    return _xml(writer, kind, name, p, p * per_root)


def _write_piece(writer: _Writer, at: int, count: int, up: Tree | None, down: Tree | None) -> None:
    summed: list[int] = []
    if up is not None and up.edges:
        channel = writer.channel({(edge.child, edge.parent) for edge in up.edges})
        children, parent = _family(up)
        for node in reversed([up.root, *(edge.child for edge in up.edges)]):
            below, above = children[node], parent.get(node, -1)
            waits: list[int] = []
            for child in below[1:] if node != up.root else below:
                waits = [writer.add(node, "rrc", at, count, channel, receive=child, after=waits)]
            if node == up.root:
                summed = waits
            elif below:
                writer.add(node, "rrs", at, count, channel, send=above, receive=below[0], after=waits)
            else:
                writer.add(node, "s", at, count, channel, send=above)
    if down is not None and down.edges:
        channel = writer.channel({(edge.parent, edge.child) for edge in down.edges})
        children, parent = _family(down)
        for node in [down.root, *(edge.child for edge in down.edges)]:
            below, received = children[node], list(summed)
            if node != down.root:
                first = below[0] if below else -1
                kind = "rcs" if below else "r"
                received = [writer.add(node, kind, at, count, channel, send=first, receive=parent[node])]
                below = below[1:]
            for child in below:
                writer.add(node, "s", at, count, channel, send=child, after=received)


def _family(tree: Tree) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Children and parent of each node."""
    children: dict[int, list[int]] = defaultdict(list)
    for edge in tree.edges:
        children[edge.parent].append(edge.child)
    return children, {edge.child: edge.parent for edge in tree.edges}


def _xml(writer: _Writer, kind: str, name: str, p: int, chunks: int) -> str:
    lines = [
        f'<algo name={quoteattr(name)} proto="Simple" nchannels="{writer.n_channels}" nchunksperloop="{chunks}" '
        f'ngpus="{p}" coll="{_COLL[kind]}" inplace="1" outofplace="0" minBytes="0" maxBytes="{MOST_BYTES}">'
    ]
    i_chunks, o_chunks = {"all-gather": (0, chunks), "reduce-scatter": (chunks, 0)}.get(kind, (chunks, 0))
    for gpu, threads in enumerate(writer.gpus):
        lines.append(f'  <gpu id="{gpu}" i_chunks="{i_chunks}" o_chunks="{o_chunks}" s_chunks="0">')
        for number, thread in enumerate(threads):
            lines.append(f'    <tb id="{number}" send="{thread.send}" recv="{thread.receive}" chan="{thread.channel}">')
            for at, (step, place, count, waits) in enumerate(thread.steps):
                block, which = waits or (-1, -1)
                has = int(thread.waited_for and at == len(thread.steps) - 1)
                lines.append(
                    f'      <step s="{at}" type="{step}" srcbuf="{writer.buffer}" srcoff="{place}" '
                    f'dstbuf="{writer.buffer}" dstoff="{place}" cnt="{count}" depid="{block}" deps="{which}" '
                    f'hasdep="{has}"/>'
                )
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>"]) + "\n"
