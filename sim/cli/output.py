"""Files of results: checked before a run, written whole or not at all."""

import argparse
import errno
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sim import plots
from sim.cli.asked import by_section, check_apart, document_spec, flag_of
from sim.cli.flags import PAGE, WRITTEN
from sim.study.spec import Spec
from sim.study.tables import Row, aligned, document, screen_width, to_csv
from sim.whole_file import write_text_whole
from sim.whole_file import write_whole as write_whole
from topologies.checks import WeftError, not_installed, printable
from topologies.stages import Profile, staged
from topologies.units import counted, format_size

FIGURES = (".png", ".pdf", ".svg")
SUFFIXES = {"plot": FIGURES, "heatmap": FIGURES, "output": (".graphml", ".json"), PAGE: (".html",),
            "export": (".csv", ".parquet"), "perfetto": (".gz", ".json")}
USUAL = {"json": ".json", "csv": ".csv", "links": ".csv", "nccl_json": ".json", "goal": ".goal", "htsim": ".cm",
         "ocs_plan": ".json", "msccl": ".xml", "mscclpp": ".json", "tuner": ".csv", "forestcoll": ".xml",
         "teccl": ".json"}
"""Suffixes of what may have any, but none of another kind of output."""

OUTPUT_KINDS = frozenset(USUAL.values()).union(*SUFFIXES.values())

TEXTS = ("json", "csv", "links", PAGE, "export", "goal", "htsim", "ocs_plan", "nccl_json", "tuner", "forestcoll",
         "teccl")
"""Flags whose file may be standard output."""

STANDARD_OUTPUT = "-"


def check_outputs(arguments: argparse.Namespace) -> None:
    """Reject outputs that cannot be written, before anything is computed.

    WeftError: no such folder, a folder or a named pipe instead of a file, no permission, the suffix of another kind,
    or one that is also read, or written twice.
    """
    if hasattr(arguments, "figure"):
        _settle_figure(arguments)
    if getattr(arguments, "baseline", None) and not (arguments.plot and arguments.figure == "speed-up"):
        raise WeftError(f"--baseline {arguments.baseline} is of a speed-up: add --plot FILE --figure speed-up")
    for flag in WRITTEN:
        name = getattr(arguments, flag, None)
        if name is None or (name == STANDARD_OUTPUT and flag in TEXTS):
            continue
        given, path = f"{flag_of(flag)} {name}", Path(name)
        if name == STANDARD_OUTPUT:
            raise WeftError(f"{given} is standard output, which takes text: give a file name")
        _check_reached(given, path)
        for folder in (path.parent, path.resolve().parent):  # also behind a link
            if not folder.is_dir():
                raise WeftError(f"{given}: there is no folder {folder}")
        if path.is_dir():
            raise WeftError(f"{given} is a folder: give a file name")
        if path.resolve().is_fifo():  # those of this process, as of >(COMMAND), have no name of their own
            raise WeftError(f"{given} is a named pipe, which waits for its reader: give a file name, or /dev/stdout")
        if not os.access(path.parent, os.W_OK):
            raise WeftError(f"{given}: the folder {path.parent} is not writable")
        if SUFFIXES.get(flag) == FIGURES and find_spec("matplotlib") is None:
            raise WeftError(f"{given}: {not_installed('matplotlib')}")
        if flag in SUFFIXES and path.suffix not in SUFFIXES[flag]:
            raise WeftError(f"{given} has the suffix {path.suffix!r}: write {' or '.join(SUFFIXES[flag])}")
        if flag in USUAL and path.suffix in OUTPUT_KINDS - {USUAL[flag]}:
            raise WeftError(f"{given} has the suffix {path.suffix!r} of another kind of file: write {USUAL[flag]}")
    check_apart(arguments, by_section({name: value for name, value in vars(arguments).items() if "." in name}))


def _check_reached(given: str, path: Path) -> None:
    """Reject a name that is too long, or a link that leads nowhere but to itself."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # it is made, or there is no such folder
    except OSError as fault:
        raise WeftError(f"{given}: {fault.strerror}") from None


def _settle_figure(arguments: argparse.Namespace) -> None:
    """Fill in what of a figure is not given, if one is drawn."""
    for flag in ("figure", "columns"):
        if not arguments.plot and (given := getattr(arguments, flag)) is not None:
            raise WeftError(f"--{flag} {given} is of a figure: add --plot FILE")
    arguments.figure = arguments.figure or arguments.default_figure
    arguments.columns = arguments.columns or 2


@staged("output")
def write_text(path: str, text: str) -> None:
    """Write text to a file, or to standard output for "-"."""
    if path == STANDARD_OUTPUT:
        if sys.stdout is None:  # closed by the shell
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")
        sys.stdout.write(text)
    else:
        write_text_whole(path, text)


@staged("output")
def write_json(arguments: argparse.Namespace, spec: Spec, rows: Sequence[Row], **more: Any) -> None:
    """Write the document of a command to the file of `--json`, if there is one.

    `**more`: further keys of the document; `model` is the model that was simulated.
    """
    if arguments.json:
        asked = document_spec(arguments, spec)
        if getattr(arguments, "stages", None):
            more["stages"] = arguments.stages.rows()
        write_text(arguments.json, document(arguments.command, asked, rows, **more))


@staged("output")
def write_csv(arguments: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Write rows to the file of `--csv`, if there is one."""
    if arguments.csv:
        write_text(arguments.csv, to_csv(rows))


@staged("output")
def write_figure(
    arguments: argparse.Namespace, rows: Sequence[Row], specs: Sequence[Spec] = (), size_bytes: int | None = None
) -> None:
    """Draw the figure that `--figure` names to the file of `--plot`."""
    def drawing(path: Path) -> plots.Drawing:
        return plots.Drawing(rows, path, arguments.columns, specs, getattr(arguments, "baseline", None), size_bytes)

    write_whole(arguments.plot, lambda path: plots.draw(arguments.figure, drawing(path)))


@staged("output")
def say(arguments: argparse.Namespace, *lines: str) -> None:
    """Print readable lines: to standard output, or to standard error if a file goes to standard output.

    A line of text that is longer than one of the terminal goes on below itself. Names are of files, and of what files
    say: what a terminal would obey is escaped.
    """
    taken = any(getattr(arguments, flag, None) == STANDARD_OUTPUT for flag in WRITTEN)
    stream = sys.stderr if taken else sys.stdout
    if stream is None:  # closed by the shell: nobody reads, and files are written all the same
        return
    width = screen_width() if stream.isatty() else sys.maxsize
    for line in "\n".join(lines).split("\n"):
        print(folded(printable(line), width), file=stream)


def folded(line: str, width: int) -> str:
    """A line broken between words, the rest indented below its text."""
    if len(line) <= width:
        return line
    start = re.match(r"(#?\s*)(\S+(?: \S+)? {2,})?", line)
    mark, label = (start[1], start[2] or "  ") if start else ("", "")
    return textwrap.fill(line, width, subsequent_indent=mark + " " * len(label), break_on_hyphens=False,
                         break_long_words=False)


def say_where(arguments: argparse.Namespace) -> None:
    """Report which files were written: at a terminal, or with `--progress`."""
    quiet = getattr(arguments, "quiet", True)  # a command that writes no files has no flag for it
    if quiet or (quiet is None and not sys.stderr.isatty()):
        return
    for flag in WRITTEN:
        name = getattr(arguments, flag, None)
        if name not in (None, STANDARD_OUTPUT):
            print(f"wrote {name}", file=sys.stderr)


def say_stages(profile: Profile) -> None:
    """Print what each stage took, on standard error."""
    lines = [
        [_stage_name(row), f"{row['wall_s']:.3f}", f"{row['cpu_s']:.3f}", format_size(row["peak_bytes"]),
         f"{row['calls']}"]
        for row in sorted(profile.rows(), key=lambda row: -row["cpu_s"])
    ]
    table = aligned([["stage", "wall s", "CPU s", "peak grew by", "calls"], *lines], left=1)
    print(table, *_of_workers(profile), sep="\n", file=sys.stderr)


def _stage_name(row: Row) -> str:
    return f"{row['stage']}, {counted(row['workers'], 'worker')}" if "workers" in row else str(row["stage"])


def _of_workers(profile: Profile) -> list[str]:
    """How workers are counted, and those that are not."""
    lines = []
    if profile.workers:
        lines.append("# rows of workers: the sum over all of them, waiting for points included: "
                     "it may exceed the time of the command")
    if profile.unmeasured:
        ended = counted(profile.unmeasured, "worker")
        lines.append(f"# not in the table: what {ended} did before they were interrupted")
    return lines
