"""A value of every option of a model that is not its default, and what it needs beside it."""

from __future__ import annotations

from typing import Any

from sim.program.model import make_model
from sim.program.model_options import OPTIONS, Mismatch

OF_UNITS = {"SIZE": "64KiB", "TIME": "1us", "RATE": "1GB/s"}
NEEDED: tuple[dict[str, Any], ...] = (
    {}, {"buffer": "1MiB"}, {"nic": "shared"}, {"nic": "shared", "nic_order": "fifo"},
)


def changed_value(name: str) -> Any:
    row = OPTIONS[name]
    return row.choices[-1] if row.choices else OF_UNITS.get(row.metavar, True if row.kind == "flag" else 2)


def needed(name: str) -> dict[str, Any]:
    """The first options with which a model takes it."""
    for options in NEEDED:
        try:
            make_model(**options | {name: changed_value(name)})
        except Mismatch:
            continue
        return options
    raise AssertionError(f"{name} needs what is not in NEEDED")


WHAT_IT_NEEDS = {name: needed(name) for name in OPTIONS}
GIVEN = {name: WHAT_IT_NEEDS[name] | {name: changed_value(name)} for name in OPTIONS}
"""Options of a model, by the one that is tried."""
