"""The files of a call, those it reads and those it writes: nothing that it writes may be another one of them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from sim.cli.commands import COMMANDS
from sim.cli.flags import KEPT, WRITTEN
from sim.study.keys import flags_of, keys_of
from sim.study.paths import files_in
from topologies.checks import WeftError, printable
from topologies.text.input_text import is_special

STANDARD_INPUT, STANDARD_OUTPUT = "/dev/stdin", "/dev/stdout"
"""What "-" stands for."""

SPECS = ("spec", "spec_again")
"""Flags of files with sections."""

TRACES = r"\.\d+\.et"

REACH = {
    "chakra": TRACES, "astra.workload": TRACES, "workload.job": f"({TRACES})?", "tenant.job": f"({TRACES})?",
    "store": "(-wal|-shm|-journal|-claims)?", "out": r"/[^/]*\.(csv|md|png|pdf|svg)", "report.folder": r"/.*\.json",
}
"""What follows the name of a flag in the names of its files, where that is not the one file: a pattern."""


class Named(NamedTuple):
    """The files of one flag or key."""

    said: str  # by the user: "--json a.json"
    path: str
    reach: str  # pattern of what follows the path

    def holds(self, other: Named) -> bool:
        """Whether the other one is a single file, and one of these."""
        pattern = re.compile(re.escape(_real(self.path)) + self.reach, re.DOTALL)
        return re.fullmatch(other.reach, "") is not None and any(map(pattern.fullmatch, _places(other.path)))

    def meets(self, other: Named) -> bool:
        return self.holds(other) or other.holds(self)


def check_apart(arguments: argparse.Namespace, data: Mapping[str, Any]) -> None:
    """Reject a call that would write a file twice, or over what it reads, before anything is computed.

    `data`: sections of keys, which name files.
    WeftError: names both flags and the file.
    """
    written, read = list(_written(arguments)), list(_read(arguments, data))
    for one, other in combinations(written, 2):
        if one.meets(other) and _real(one.path) != os.devnull:
            raise WeftError(printable(f"{one.said} and {other.said} are the same file: give each a name of its own"))
    for one in written:
        for other in read:
            if one.meets(other) and not is_special(one.path):
                raise WeftError(printable(f"{one.said} would be written over what is read, {other.said}: give it "
                                          "another name"))


def _written(arguments: argparse.Namespace) -> Iterator[Named]:
    for flag in (*WRITTEN, *KEPT):
        if (name := getattr(arguments, flag, None)) is not None:
            path = STANDARD_OUTPUT if name == "-" else str(name)
            yield Named(f"{flag_of(flag)} {name}", path, REACH.get(flag, ""))


def _read(arguments: argparse.Namespace, data: Mapping[str, Any]) -> Iterator[Named]:
    for flag in SPECS:
        if (name := getattr(arguments, flag, None)) is not None:
            yield Named(_said(arguments, flag, name), STANDARD_INPUT if name == "-" else name, "")
    for section, key, name in files_in(data):
        if (dest := f"{section}.{key}") not in WRITTEN:
            yield Named(_said(arguments, dest, name), name, REACH.get(dest, ""))


def _said(arguments: argparse.Namespace, dest: str, name: str) -> str:
    """What is read, as the user wrote it: without a flag, after one, or as a key of a file."""
    section, dot, key = dest.partition(".")
    if dest == COMMANDS[arguments.command].positional:
        return f"{keys_of(section)[key].metadata['metavar'] if dot else 'FILE'} {name}"
    if dot and not getattr(arguments, dest, None):
        return f"{key} {name} of [{section}]"
    return f"{flag_of(dest)} {name}"


def flag_of(dest: str) -> str:
    """The flag of a file, as it is typed."""
    section, dot, key = dest.partition(".")
    if dot:
        return flags_of(keys_of(section)[key])[0]
    return "--spec" if dest in SPECS else f"--{dest.replace('_', '-')}"


def _places(path: str) -> set[str]:
    """Where a file is, and the link to it, if its name is one."""
    folder, name = os.path.split(path)
    return {_real(path), f"{_real(folder)}/{name}"}


def _real(path: str) -> str:
    try:
        return Path(os.path.realpath(path)).as_posix()
    except ValueError:  # no name of a file: its reader rejects it
        return path
