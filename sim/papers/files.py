"""Tables of the papers as files, written completely or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sim.whole_file import write_text_whole


def write_table(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV, with the columns of the first."""
    rows = list(rows)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text_whole(path, text.getvalue())
