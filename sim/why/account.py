"""The account of the critical path of runs whose log would not fit: carried forward with everything that is pending.

Every chunk on its way, server and task remembers how the time until now divides into names, along what it waited for.
The memory grows with tasks and servers, not with services, and the last delivery knows the whole account. Parts and
names are those of `sim.why.path`; there are no pieces, and where several waits end in one picosecond another of them
may be followed than there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.engine.run import AccountLabels, Progress, advance_to_end, start
from sim.program import Program
from sim.why.path import QUEUEING, SERIALISATION
from topologies.units import format_time


@dataclass(frozen=True)
class Account:
    """Where the time went, without the way it took.

    Attributes
    ----------
    makespan_ps : int
    parts : dict of str to int
        Picoseconds under each name, largest first; they sum to the makespan.
    service_ps : dict of str to int
        Services on the path by class of server, other tasks' included.
    """

    makespan_ps: int
    parts: dict[str, int]
    service_ps: dict[str, int]

    def __str__(self) -> str:
        lines = [f"{format_time(self.makespan_ps)} = {self.makespan_ps} ps, of which"]
        for name, part in self.parts.items():
            lines.append(f"  {part:>16} ps  {part / max(self.makespan_ps, 1):6.1%}  {name}")
        return "\n".join(lines)


def plain_labels(program: Program) -> AccountLabels:
    """Every server a class of its own, every latency propagation."""
    return AccountLabels(
        classes=tuple(f"server {server}" for server in range(program.n_servers)),
        server_class=np.arange(program.n_servers, dtype=np.int32),
        latencies=("propagation",),
        latency_ps=program.hop_latency_ps[:, None],
    )


def account(
    program: Program,
    labels: AccountLabels | None = None,
    *,
    max_events: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Account:
    """Run a program and account its critical path, in memory that does not grow with the services.

    Parameters
    ----------
    program : Program
    labels : AccountLabels, optional
        Classes of servers and names of latencies; one class a server if not given.
    max_events, progress
        As in `sim.engine.run.run`.
    """
    labels = plain_labels(program) if labels is None else labels
    one = start(program, labels=labels)
    outcome = advance_to_end(one, max_events, progress)
    row = one.state.account[: int(one.state.account_columns[0])].tolist()
    n = len(labels.classes)
    parts = {f"{SERIALISATION}, {name}": row[i] for i, name in enumerate(labels.classes)}
    parts |= {f"{QUEUEING}, {name}": row[n + i] for i, name in enumerate(labels.classes)}
    parts |= {name: row[2 * n + i] for i, name in enumerate(labels.latencies)}
    service = {name: row[i] + row[n + i] for i, name in enumerate(labels.classes)}
    by_size = sorted(parts.items(), key=lambda item: -item[1])
    return Account(
        outcome.makespan_ps,
        {name: ps for name, ps in by_size if ps},
        {name: ps for name, ps in service.items() if ps},
    )
