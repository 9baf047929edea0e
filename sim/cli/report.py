"""`weft report`: one page of everything in a folder of results."""

import argparse
import sys
from pathlib import Path

from sim.cli.asked import check_apart, spec_of
from sim.cli.flags import PAGE
from sim.cli.output import check_outputs, write_json, write_text
from sim.cli.progress import progress
from sim.report import report_page
from sim.report.results import read_results
from topologies.checks import printable


def run(arguments: argparse.Namespace) -> None:
    """Read, rerun the runs that the page plays, and write the page."""
    spec = spec_of(arguments)
    folder = Path(spec.report.folder or "")
    page_file = spec.report.page or str(folder / "report.html")
    setattr(arguments, PAGE, page_file)
    if folder.is_dir():
        check_outputs(arguments)
        check_apart(arguments, spec.to_dict())
    results, _ = read_results(folder)
    with progress("report", len(results), arguments.quiet) as steps:
        page, left_out = report_page(folder, spec.report.title, spec.report.frames, steps.advance)
    write_text(page_file, page)
    for why in left_out:
        print(printable(f"weft report: left out: {why}"), file=sys.stderr)
    files = [result.name for result in results]
    rows = [{"file": result.name, "rows": len(result.rows)} for result in results]
    write_json(arguments, spec, rows, page=page_file, files=files, left_out=left_out)
