"""`weft paper NAME`: a published evaluation, point by point beside ours."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from sim.papers import PAPERS
from topologies import WeftError

NAME = "paper"
HELP = "reproduce a paper's figures and print every published point beside ours"
EXAMPLES = ("weft paper swing", "weft paper swing --quick --out out/swing")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="one of " + ", ".join(PAPERS))
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="folder for the results (out/NAME)")
    parser.add_argument("--quick", action="store_true", help="a part that ends within a minute")


def run(arguments: argparse.Namespace) -> int:
    if arguments.name not in PAPERS:
        raise WeftError(f"paper {arguments.name!r} is unknown: choose one of {', '.join(PAPERS)}")
    out = arguments.out or Path("out") / arguments.name
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise WeftError(f"--out {out}: {fault.strerror}") from None
    importlib.import_module(f"sim.papers.{arguments.name}").run(out, arguments.quick)
    return 0
