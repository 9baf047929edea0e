"""Foreign files as their own tool reads them: what it takes where something is absent, and what it passes over.

What was passed over or taken for granted is a warning, which the command line prints once.
"""

import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from topologies.checks import printable
from topologies.text.plain_xml import Element


class InputNote(UserWarning):
    """A file was read, and not all of it, or not all was there."""


def note(text: str) -> None:
    """Tell whoever reads a file."""
    warnings.warn(InputNote(text), stacklevel=2)


@contextmanager
def notes_on_stderr() -> Iterator[None]:
    """Print every note once, as a comment, whatever becomes of other warnings."""
    told: set[str] = set()
    with warnings.catch_warnings():
        before = warnings.showwarning
        warnings.simplefilter("always", InputNote)

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is not InputNote:
                before(message, category, *where, **more)
            elif str(message) not in told:
                told.add(str(message))
                print(printable(f"# note: {message}"), file=sys.stderr, flush=True)

        warnings.showwarning = show
        yield


MOST_NAMED = 6
"""Names of what was passed over, in a note."""


class Absent(NamedTuple):
    """What a tool takes where an attribute is absent."""

    where: str  # the element or object that has it
    name: str
    value: str  # as it would stand in the file
    source: str  # where the tool says so


Known = Mapping[str, tuple[Collection[str], Collection[str]]]
"""Attributes and children that matter to a tool, by element."""


def fill(root: Element, rows: Iterable[Absent]) -> None:
    """Write what is absent into an element and all below it."""
    for row in rows:
        for element in [one for one in root.every() if one.tag == row.where]:
            element.attributes.setdefault(row.name, row.value)


def pass_over(root: Element, known: Known, tool: str, where: str) -> None:
    """Drop the elements that a tool does not know, and note them with the attributes that it does not know."""
    over: dict[str, None] = {}
    for element in root.every():
        attributes, children = known[element.tag]
        over |= dict.fromkeys(f"{name} of <{element.tag}>" for name in element.attributes if name not in attributes)
        over |= dict.fromkeys(f"<{one.tag}> in <{element.tag}>" for one in element.children if one.tag not in children)
        element.children[:] = [one for one in element.children if one.tag in children]
    tell_over(where, over, tool)


def tell_over(where: str, names: Collection[str], tool: str) -> None:
    """A note of what was passed over, if anything was."""
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        note(f"{where}: passed over, as {tool} does: {', '.join(list(names)[:MOST_NAMED])}{more}")
