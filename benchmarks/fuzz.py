"""Fuzzing of every reader of files with atheris: `python -m benchmarks.fuzz READER -max_total_time=60`.

Needs `pip install atheris`, which is no dependency of weft. The readers are those of `tests.reader_table`; whatever
they raise other than a `WeftError` of one line ends the run and leaves the input in a file `crash-*`. `-rss_limit_mb`
and `-timeout` bound memory and seconds of one input.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["topologies", "collectives", "workloads", "sim", "json", "tomllib", "yaml"]):
    from tests.reader_table import Reader, readers
    from topologies import WeftError


def fuzz(reader: Reader, folder: Path, arguments: list[str]) -> None:
    """Feed a reader mutations of its example until libFuzzer's limits are reached."""
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "good").write_bytes(reader.good)
    path = folder / f"x{reader.suffix}"

    def one(data: bytes) -> None:
        path.write_bytes(data)
        try:
            reader.read(path)
        except WeftError as wrong:
            if not str(wrong).isprintable():
                raise RuntimeError(f"more than one line: {wrong}") from None

    atheris.Setup([sys.argv[0], *arguments, str(corpus)], one)
    atheris.Fuzz()


def main() -> None:
    """Fuzz the reader that is named, or say which there are."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
    known = readers(folder)
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        raise SystemExit(f"name a reader: {', '.join(known)}")
    fuzz(known[sys.argv[1]], folder, sys.argv[2:])


if __name__ == "__main__":
    main()
