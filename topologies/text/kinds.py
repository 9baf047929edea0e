"""What a file is, by how it begins, so that one in the place of another is named, with the flag that takes it."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from topologies.checks import WeftError

HEAD = 65536
"""Characters that are looked at."""

TOPOLOGY, NETWORK, MACHINE, SCHEDULE, WORKLOAD = "topology file", "network", "machine", "schedule file", "workload"
MEASURED, MODEL, SPECS = "measurements", "model", ("spec file", "sweep file")

_XML = r"\A\s*(<\?xml[^>]*\?>\s*)?(<!(--.*?--|DOCTYPE[^>]*)>\s*)*"


class Kind(NamedTuple):
    """A kind of file."""

    pattern: str
    what: str  # and how it is given to weft
    read_as: tuple[str, ...] = ()  # what readers call what they read


@cache
def kinds() -> tuple[Kind, ...]:
    """Rows of `kinds.toml`. Where one of the reader's own kind fits a file as well, it reads it."""
    import tomllib  # takes 4 ms, and most commands read no file

    rows = tomllib.loads((Path(__file__).parent / "kinds.toml").read_text(encoding="utf-8"))["kind"]
    return tuple(Kind(row.get("pattern") or f"{_XML}<{row['xml']}", row["what"], tuple(row.get("read_as", ())))
                 for row in rows)


def refuse_other(text: str, path: object, what: str) -> None:
    """WeftError: a file is of a kind that is known, and not of one that is read as `what`."""
    own = (kind for kind in kinds() if what in kind.read_as)
    head = text[:HEAD]
    if any(re.search(kind.pattern, head, re.DOTALL) for kind in own):
        return
    for kind in kinds():
        if re.search(kind.pattern, head, re.DOTALL):
            raise WeftError(f"{what} {path} is {kind.what}")
