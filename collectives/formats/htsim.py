"""The connection matrix (`.cm`) of htsim, written: a schedule as flows that trigger one another.

Each transfer is a flow. A flow that waits for others is started by a trigger: `oneshot` for one, `barrier` for
several. A flow fires one trigger at its source when its last byte is acknowledged, and one at its destination when the
last byte has arrived, so transfers that wait for it at the same end must wait for the same set of flows. Chunks,
routes and reductions are not part of the format: dependencies between chunks become dependencies between flows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from collectives.core.schedule import Schedule
from collectives.core.transfers import Parents, Transfers, parents_of
from topologies import WeftError
from topologies.stages import counting

MOST_BYTES = 2**31 - 1
"""Limit on a flow: htsim stores sizes in 32 bits."""

MOST_FLOWS = 2_000_000


def to_htsim(schedule: Schedule) -> str:
    """A schedule as a connection matrix.

    WeftError: switches that send, or pools; an empty flow, or one of 2 GiB or more; dependencies that one trigger at
        each end of a flow cannot express.
    """
    pattern = schedule.pattern
    if not pattern.is_of_ranks:
        raise WeftError(f"htsim of {pattern.name}: its switches reduce or its ranks have slots, but .cm has only flows")
    t = pattern.transfers()
    flows = [row for row in range(t.src.size) if t.src[row] != t.dst[row]]
    if len(flows) > MOST_FLOWS:
        raise WeftError(f"htsim of {pattern.name}: {len(flows):,} flows: the limit is {MOST_FLOWS:,}")
    parents = parents_of(t)
    groups = dict.fromkeys(parents[row] for row in flows if parents[row])
    trigger = {waited: number for number, waited in enumerate(groups, start=1)}
    fired = _fired(t, parents, trigger, pattern.name)
    lines = [f"Nodes {pattern.p}", f"Connections {len(flows)}"]
    lines += [f"Triggers {len(trigger)}"] * bool(trigger)
    for number, row in enumerate(counting("flows written", flows), start=1):
        size = int(t.blocks[row]) * schedule.block_bytes
        if not 0 < size <= MOST_BYTES:
            raise WeftError(f"htsim of {pattern.name}: a flow of {size} B; 1 to {MOST_BYTES} are accepted")
        begin = f"trigger {trigger[parents[row]]}" if parents[row] else "start 0"
        words = [f"{t.src[row]}->{t.dst[row]} id {number} {begin} size {size}"]
        words += [f"{end}_done_trigger {fired[row, end]}" for end in ("send", "recv") if (row, end) in fired]
        lines.append(" ".join(words))
    for waited, number in trigger.items():
        kind = "oneshot" if len(waited) == 1 else f"barrier count {len(waited)}"
        lines.append(f"trigger id {number} {kind}")
    return "\n".join(lines) + "\n"


def _fired(
    t: Transfers, parents: Sequence[Parents], trigger: Mapping[Parents, int], name: str
) -> dict[tuple[int, str], int]:
    """The trigger each flow fires at either end, depending on where the flows waiting for it start."""
    sources: dict[int, set[int]] = defaultdict(set)
    for row, waited in enumerate(parents):
        if waited and t.src[row] != t.dst[row]:
            sources[trigger[waited]].add(int(t.src[row]))
    fired: dict[tuple[int, str], int] = {}
    for waited, number in trigger.items():
        for row in waited:
            end = "send" if sources[number] == {int(t.src[row])} else "recv"
            if (row, end) in fired:
                raise WeftError(
                    f"htsim of {name}: the transfer from rank {t.src[row]} to rank {t.dst[row]} releases several "
                    f"groups of others at its {end} end, but .cm has one trigger there"
                )
            fired[row, end] = number
    return fired
