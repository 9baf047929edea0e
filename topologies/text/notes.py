"""What a reader of a foreign file passed over or took for granted: a warning, which the command line prints once."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from topologies.checks import printable


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
