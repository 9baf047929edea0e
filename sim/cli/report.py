"""`weft report`: one page of everything in a folder of results."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sim.cli.flags import add_quiet
from sim.cli.output import check_outputs, say_where, write_text
from sim.cli.progress import progress

NAME = "report"
HELP = "write one HTML page, readable offline, from the JSON results of a folder"
EXAMPLES = (
    "weft compare --topology torus:8x8 -b 1K -e 64M -f 4 --json out/all-reduce.json && weft report out",
    "weft report out --page report.html --title 'Swing on tori' --frames 120",
    "weft report out --page - > report.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of results, as --json writes them")
    parser.add_argument("--title", metavar="TEXT", help="of the page (Results in DIR)")
    parser.add_argument("--frames", type=int, default=60, metavar="N", help="moments that the slider plays (60)")
    group = parser.add_argument_group("output")
    group.add_argument("--page", metavar="FILE", help="the page ('-': standard output; DIR/report.html)")
    group.add_argument("--json", metavar="FILE", help="say as JSON which files are shown ('-': standard output)")
    add_quiet(group)


def run(arguments: argparse.Namespace) -> None:
    """Read, run again what is played, and write the page."""
    from sim.report import report_page
    from sim.report.results import read_results

    if arguments.page is None and arguments.folder.is_dir():
        arguments.page = str(arguments.folder / "report.html")
    check_outputs(arguments)
    results, _ = read_results(arguments.folder)
    with progress(NAME, len(results), arguments.quiet) as steps:
        page, left_out = report_page(arguments.folder, arguments.title, arguments.frames, steps.advance)
    write_text(arguments.page, page)
    for why in left_out:
        print(f"weft {NAME}: left out: {why}", file=sys.stderr)
    if arguments.json:
        shown = {"page": arguments.page, "files": [result.name for result in results], "left_out": left_out}
        write_text(arguments.json, json.dumps(shown, indent=1) + "\n")
    say_where(arguments)
