"""Where the time of one tenant went: its own walk from the end, piece by piece, with nothing kept for the others."""

from __future__ import annotations

from sim.scenarios.tenants import Shares
from sim.why.faulty_path import walk_of
from sim.why.path import Wait
from sim.why.spans import Names


def account(result: Shares, name: str) -> dict[str, int]:
    """Parts in ps by name."""
    run, (share,) = result.run, [one for one in result.shares if one.name == name]
    mine = [task for task, number in enumerate(run.lowered.task_operation.tolist()) if number in share.operations]
    last = max(mine, key=lambda task: (int(run.logged.finish_ps[task]), -task))
    named = Names(run.lowered).labels
    walk = walk_of(run.lowered.program, run.logged, named)
    parts: dict[str, int] = {}
    for piece in walk.trail([Wait(last, 0, delivered=True)]).listed(walk.names):
        said = piece.name
        if piece.server in run.lowered.late:
            said = named.server(piece.server)
        else:
            number = int(run.lowered.task_operation[piece.task])
            owner = next((one.name for one in result.shares if number in one.operations), None)
            if owner is None:
                said = run.job.operations[number].name
            elif owner != name:
                said = f"behind {owner}: {said}"
        parts[said] = parts.get(said, 0) + max(piece.end_ps - max(piece.start_ps, share.arrival_ps), 0)
    return {said: time for said, time in parts.items() if time}
