"""Strict reading of small JSON files: one object without repeated keys, of finite numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from topologies.errors import WeftError
from topologies.text.input_text import read_input

MOST_BYTES = 16 * 2**20


def read_json_object(path: str | Path, what: str) -> dict[str, Any]:
    """The object of a JSON file.

    Parameters
    ----------
    path : path
    what : str
        "system file", for messages.

    Raises
    ------
    WeftError
        The file cannot be read, is not JSON, is not an object, says a key twice, or has a number that is not finite.
    """
    text = read_input(path, what, MOST_BYTES)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise WeftError(f"{what} {path}: key {key!r} is given twice")
            found[key] = value
        return found

    def infinite(word: str) -> Any:
        raise WeftError(f"{what} {path}: {word} is not a finite number")

    try:
        found = json.loads(text, object_pairs_hook=unique, parse_constant=infinite)
    except json.JSONDecodeError as wrong:
        raise WeftError(f"{what} {path}: line {wrong.lineno}: not JSON: {wrong.msg}") from None
    except RecursionError:
        raise WeftError(f"{what} {path}: is nested too deeply") from None
    except WeftError:
        raise
    except ValueError as wrong:
        raise WeftError(f"{what} {path}: not JSON: {wrong}") from None
    if not isinstance(found, dict):
        raise WeftError(f"{what} {path}: expected an object of keys and values")
    return found
