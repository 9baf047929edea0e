"""Strict reading of small YAML files: every error names the file, the line and the key."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topologies.checks import INT64, WeftError, choice, integer, number
from topologies.text.input_text import limit_text, read_input

if TYPE_CHECKING:
    import yaml

MOST_BYTES = 2**20
"""Size limit for a file whose every value is checked in Python."""

NUMBERS = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
"""Octal and sexagesimal numbers of YAML 1.1."""


@cache
def loader() -> Any:
    """YAML's safe loader, which rejects aliases and numbers that are others in YAML 1.2.

    Aliases could form cycles and expand to any size; 010 and 1:30 are 8 and 90 in YAML 1.1, which this loader reads.
    """
    import yaml  # heavy: loaded where it is used

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not read")
            return super().compose_node(parent, index)

        def construct_scalar(self, node: Any) -> Any:
            if node.tag in NUMBERS and OTHER_BASE.fullmatch(str(node.value)):
                raise yaml.YAMLError(f"{node.value} is one number in YAML 1.1 and another in 1.2: write it in decimal")
            return super().construct_scalar(node)

    return Loader


class Entry:
    """A value in a file; `where` is "network x.yml: line 5: NpusCount", the prefix of every error message."""

    def __init__(self, node: yaml.Node, where: str, source: str) -> None:
        self._node, self.where, self._source = node, where, source

    def refuse(self, why: str) -> WeftError:
        """The error to raise about this value."""
        return WeftError(f"{self.where}: {why}")

    def mapping(
        self, accepted: tuple[str, ...] | None = None, required: tuple[str, ...] = (), *, last: bool = False
    ) -> dict[str, Entry]:
        """The entries of a mapping; unknown, missing and repeated keys are rejected; `last`: or the last counts."""
        if self._node.id != "mapping":
            raise self.refuse("expected a mapping of keys to values")
        found: dict[str, Entry] = {}
        for key, value in self._node.value:
            line = f"{self._source}: line {key.start_mark.line + 1}"
            name = str(key.value) if key.id == "scalar" else "?"
            if accepted is not None and name not in accepted:
                raise WeftError(f"{line}: unknown key {name!r}; accepted are {', '.join(accepted)}")
            if name in found and not last:
                raise WeftError(f"{line}: key {name!r} is given twice")
            found[name] = Entry(value, f"{line}: {name}", self._source)
        for name in required:
            if name not in found:
                raise self.refuse(f"key {name!r} is missing")
        return found

    def items(self, alone: bool = False) -> list[Entry]:
        """The entries of a list; `alone`: a single value is one of one."""
        if alone and self._node.id == "scalar":
            return [self]
        if self._node.id != "sequence":
            raise self.refuse("expected a list")
        return [Entry(node, self.where, self._source) for node in self._node.value]

    def written(self) -> str | None:
        """A single value as the file has it, without quotes; None of a list or a mapping."""
        return str(self._node.value) if self._node.id == "scalar" else None

    def text(self) -> str:
        """A plain word."""
        value = self._scalar()
        if not isinstance(value, str):
            raise self.refuse(f"{value!r} is not a name")
        return value

    def choice(self, words: Collection[str], what: str) -> str:
        """One of some words; `what` they are."""
        return choice(self.text(), words, f"{self.where}: {what}")

    def integer(self, least: int = -INT64, most: int = INT64) -> int:
        """An integer from `least` to `most`."""
        return integer(self._scalar(), self.where, least, most)

    def number(self, least: float = -inf, most: float = inf, *, above: bool = False) -> float:
        """A finite number from `least` to `most`; `above`: more than `least`."""
        try:
            return float(number(self._scalar(), self.where, least, most, above=above))
        except OverflowError:
            raise self.refuse("the number is too large") from None

    def _scalar(self) -> object:
        import yaml  # heavy: loaded where it is used

        if self._node.id != "scalar":
            raise self.refuse("expected a single value")
        try:
            loaded: object = yaml.load(yaml.serialize(self._node), Loader=loader())  # safe: see there
        except (yaml.YAMLError, ValueError) as wrong:
            raise self.refuse(f"cannot be read: {' '.join(str(wrong).split())[:100]}") from None
        return loaded


def read_yaml(path: str | Path, what: str) -> Entry:
    """The whole file as one entry.

    `what`: "network", for messages.
    WeftError: the file cannot be read, is empty or larger than `MOST_BYTES`, or is not YAML.
    """
    return parse_yaml(read_input(path, what, MOST_BYTES), f"{what} {path}")


def parse_yaml(text: str, source: str) -> Entry:
    """A text as one entry.

    `source`: "network x.yml", the prefix of every error message.
    WeftError: the text is empty, longer than `MOST_BYTES`, or not YAML.
    """
    import yaml  # heavy: loaded where it is used

    if len(text) > MOST_BYTES:
        raise WeftError(f"{source}: is larger than the limit of {limit_text(MOST_BYTES)}")
    try:
        node = yaml.compose(text, Loader=loader())
    except yaml.MarkedYAMLError as wrong:
        line = wrong.problem_mark.line + 1 if wrong.problem_mark else 1
        raise WeftError(f"{source}: line {line}: not YAML: {wrong.problem}") from None
    except (yaml.YAMLError, ValueError) as wrong:
        raise WeftError(f"{source}: not YAML: {' '.join(str(wrong).split())[:200]}") from None
    except RecursionError:
        raise WeftError(f"{source}: is nested too deeply") from None
    if node is None:
        raise WeftError(f"{source}: line 1: the file is empty")
    return Entry(node, source, source)
