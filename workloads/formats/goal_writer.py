"""GOAL text writer: a schedule for LogGOPSim and ATLAHS.

Every transfer is a send and a receive with a tag of its own; what it waits for is a `requires` at its source. GOAL has
no chunks: a transfer is one message, or `chunks` of them, each of which waits for those of other transfers that the
chunks of the schedule wait for.
Routes are not part of the format.
"""

from collections import defaultdict
from collections.abc import Sequence

from collectives.core.schedule import Schedule
from collectives.core.transfers import WHOLE, Transfers
from topologies.checks import Count, WeftError, checked
from topologies.stages import counting
from workloads.formats.message_limit import check_messages

MOST_MESSAGES = 2_000_000


@checked
def schedule_to_goal(schedule: Schedule, chunks: Count = 1) -> str:
    """A schedule as GOAL text.

    Parameters
    ----------
    schedule : Schedule
    chunks : int
        Messages that each transfer is cut into, their sizes equal but for a byte.

    Raises
    ------
    WeftError
        Switches that send or pools, which GOAL does not know; a wait for a transfer of two other ranks; too many
        messages.
    """
    pattern = schedule.pattern
    if not pattern.is_of_ranks:
        raise WeftError(f"GOAL of {pattern.name}: its switches add or its ranks have slots, and GOAL knows only ranks")
    check_messages(pattern, MOST_MESSAGES, "GOAL", chunks)
    writer = _Writer(pattern.p)
    writer.transfers(pattern.transfers(), schedule.block_bytes, chunks)
    head = f"{pattern.name} {schedule.kind.name} of {schedule.size_bytes} B on {schedule.topology.name}"
    return writer.text(head)


class _Writer:
    """Lines of every rank: operations first, then what waits for what."""

    def __init__(self, n_ranks: int) -> None:
        self.lines: list[list[str]] = [[] for _ in range(n_ranks)]
        self.waits: list[list[str]] = [[] for _ in range(n_ranks)]
        self.tags: dict[tuple[int, int], int] = defaultdict(int)

    def text(self, head: str) -> str:
        """The file; the block of the last rank is the last."""
        text = [f"// weft: {head}", f"num_ranks {len(self.lines)}"]
        for rank, (lines, waits) in enumerate(zip(self.lines, self.waits, strict=True)):
            text += ["", f"rank {rank} {{", *lines, *waits, "}"]
        return "\n".join(text) + "\n"

    def transfers(self, t: Transfers, block_bytes: int, chunks: int) -> None:
        """Add transfers and their waits."""
        src, dst = t.src.tolist(), t.dst.tolist()
        row_of = {pair: row for row, pair in enumerate(zip(src, t.slot.tolist(), strict=True))}
        sizes = (t.blocks * block_bytes).tolist()
        ends: list[dict[int, list[str]]] = []
        for row in counting("transfers as sends and receives", range(len(src))):
            if src[row] == dst[row]:
                ends.append({src[row]: [self._label(src[row], "calc 0")] * chunks})
            else:
                pairs = [self._message(src[row], dst[row], size) for size in _cut(sizes[row], chunks)]
                ends.append({src[row]: [one for one, _ in pairs], dst[row]: [one for _, one in pairs]})
        for row in counting("transfers whose waits are written", range(len(src))):
            rank = src[row]
            for at in range(int(t.dep_ptr[row]), int(t.dep_ptr[row + 1])):
                parent = row_of[int(t.dep_src[at]), int(t.dep_slot[at])]
                if rank not in ends[parent]:
                    raise WeftError(
                        f"GOAL: a transfer of rank {rank} waits for one from rank {src[parent]} to rank {dst[parent]}, "
                        "and GOAL knows waits inside a rank only"
                    )
                self._wait(rank, ends[row][rank], ends[parent][rank], int(t.dep_lag[at]))

    def _message(self, src: int, dst: int, size_bytes: int) -> tuple[str, str]:
        """Add a send and its receive; returns their labels."""
        tag = self.tags[src, dst]
        self.tags[src, dst] += 1
        send = self._label(src, f"send {size_bytes}b to {dst} tag {tag}")
        return send, self._label(dst, f"recv {size_bytes}b from {src} tag {tag}")

    def _label(self, rank: int, what: str) -> str:
        label = f"l{len(self.lines[rank]) + 1}"
        self.lines[rank].append(f"{label}: {what}")
        return label

    def _wait(self, rank: int, labels: Sequence[str], parents: Sequence[str], lag: int) -> None:
        """Whole: every chunk waits for the last one; otherwise chunk j for chunk j - lag."""
        if lag == WHOLE:
            pairs = [(label, parents[-1]) for label in dict.fromkeys(labels)]
        else:
            pairs = [(labels[at], parents[at - lag]) for at in range(lag, len(labels))]
        self.waits[rank] += [f"{label} requires {other}" for label, other in pairs]


def _cut(size_bytes: int, chunks: int) -> list[int]:
    small, larger = divmod(size_bytes, chunks)
    return [small + 1] * larger + [small] * (chunks - larger)
