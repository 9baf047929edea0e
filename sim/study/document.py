"""The JSON that every command writes: the spec, the version of weft, and the results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sim.program.model import Model
from sim.version import weft_version

UNREPEATABLE = ("wall_s", "seconds_per_evaluation")
"""Keys of rows with the time that this machine took: everything else is the same when a document runs again."""


def document(
    command: str, spec: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], *, model: Model | None = None,
    **more: Any,
) -> str:
    """The document of a run; `weft COMMAND --spec FILE` gives the same rows again.

    Parameters
    ----------
    command : str
    spec : mapping
        Sections of keys.
    rows : iterable of mapping
    model : Model, optional
        The resolved model of the spec.
    **more
        Further keys, before the rows.

    Returns
    -------
    str
        JSON with the keys weft, command, spec, model (where there is one), those of `more`, and rows.
    """
    data: dict[str, Any] = {"weft": weft_version(), "command": command, "spec": spec}
    if model is not None:
        data["model"] = asdict(model)
    return json.dumps(data | more | {"rows": list(rows)}, indent=1) + "\n"
