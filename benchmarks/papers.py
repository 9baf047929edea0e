"""The figures of the source papers, all of them: results in out/NAME, tables and pictures copied into docs/."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sim.papers import PAPERS
from sim.papers.tables import run_paper

ROOT = Path(__file__).parents[1]


def main(names: list[str]) -> None:
    """Run the papers named, or all."""
    for name in names or list(PAPERS):
        out = ROOT / "out" / name
        run_paper(name, out, False)
        for suffix, folder in (("*.md", "papers"), ("*.png", "images")):
            target = ROOT / "docs" / folder
            target.mkdir(parents=True, exist_ok=True)
            for file in out.glob(suffix):
                shutil.copy(file, target)


if __name__ == "__main__":
    main(sys.argv[1:])
