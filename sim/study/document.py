"""The JSON that every command writes: the spec, the version of weft, and the results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sim.program.model import Model
from sim.study.keys import AUTO
from sim.version import __version__

MEASURED = ("seconds_per_evaluation", "s_per_evaluation", "bound_cpu_s", "trees_cpu_s")
"""Columns with the time that this machine took. Rows of a document have `wall_s` alone of them."""


def document(
    command: str, spec: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], *, model: Model | None = None,
    **more: Any,
) -> str:
    """The document of a run; `weft COMMAND --spec FILE` gives the same rows again.

    `spec`: sections of keys.
    `model`: the resolved model of the spec.
    `**more`: further keys, before the rows.
    Returns JSON with the keys weft, command, spec, model (where there is one), those of `more`, timing (by column of
        `MEASURED`: the value of each row) and rows. All of a row but `wall_s` is the same whenever it runs again.
    """
    table = list(rows)
    timing = {name: [row.get(name) for row in table] for name in MEASURED if any(name in row for row in table)}
    data: dict[str, Any] = {"weft": __version__, "command": command, "spec": spec}
    if model is not None:
        chosen = spec.get("model", {}).get("chunks") == AUTO
        data["model"] = asdict(model) | ({"chunks": AUTO} if chosen else {})
    if timing:
        more["timing"] = timing
    kept = [{name: value for name, value in row.items() if name not in timing} for row in table]
    return json.dumps(data | more | {"rows": kept}, indent=1) + "\n"
