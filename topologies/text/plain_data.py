"""JSON and TOML text to plain data; every failure is one line that names the file."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from topologies.checks import WeftError
from topologies.lazy import later
from topologies.text.input_text import read_input

MOST_BYTES = 2**20
"""Size limit for a TOML file, since these are written by hand."""

_LEAST, _MOST = -(2**63), 2**64 - 1

_LONG_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]++\s*+\.\s*+){64}""")
"""A dotted key that the parser would handle in quadratic time: minutes for a MiB of `a.a.a`."""


def parse_json(text: str, what: str) -> Any:
    """The value of a JSON text.

    `what`: "spec file a.json", the prefix of every error message.
    WeftError: not JSON, nested too deeply, a key given twice, or an integer of more than 64 bits.
    """
    return _parsed(partial(json.loads, object_pairs_hook=_unique), text, what, "JSON")


def read_json_object(path: str | Path, what: str) -> dict[str, Any]:
    """The object of a JSON file, whose numbers are finite; `what` is "system file".

    WeftError: as for `read_input` and `parse_json`; not an object, or a number that is not finite.
    """
    name = f"{what} {path}"

    def infinite(word: str) -> Any:
        raise WeftError(f"{word} is not a finite number")

    parse = partial(json.loads, object_pairs_hook=_unique, parse_constant=infinite)
    found = _parsed(parse, read_input(path, what), name, "JSON")
    if not isinstance(found, dict):
        raise WeftError(f"{name}: an object of keys and values is expected")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of some pairs, whose keys differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise WeftError(f"key {twice!r} is given twice")
    return found


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The tables of a TOML text; parameters and errors as for `parse_json`."""
    if _LONG_KEY.search(text):
        raise WeftError(f"{what} has a key of more than 64 parts")
    found: dict[str, Any] = _parsed(later("tomllib:loads"), text, what, "TOML")
    return found


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file; `what` is "sweep file".

    WeftError: as for `read_input` and `parse_toml`; larger than `MOST_BYTES`.
    """
    return parse_toml(read_input(path, what, MOST_BYTES), f"{what} {path}")


def _parsed(parse: Callable[[str], Any], text: str, what: str, kind: str) -> Any:
    try:
        data = parse(text)
    except RecursionError:
        raise WeftError(f"{what} is nested too deeply") from None
    except WeftError as wrong:
        raise WeftError(f"{what}: {wrong}") from None
    except ValueError as error:  # raised by both parsers, and by Python for a number with thousands of digits
        raise WeftError(f"{what} is not {kind}: {error}") from None
    for number in _whole_numbers(data):
        if not _LEAST <= number <= _MOST:
            raise WeftError(f"{what} has an integer of {number.bit_length()} bits: the limit is 64")
    return data


def _whole_numbers(data: Any) -> Iterator[int]:
    waiting = [data]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, int):
            yield one
