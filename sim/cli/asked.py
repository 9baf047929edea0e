"""What a call asks: its spec (the command's defaults, `--spec FILE` over them, flags over both), and its files.

Nothing that a call writes may be another of its files.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from sim.cli.commands import COMMANDS
from sim.cli.flags import KEPT, WRITTEN, accepted, typed
from sim.study.keys import AUTO, TENANT, flags_of, keys_of
from sim.study.paths import files_in, with_paths_from
from sim.study.spec import Spec, changes_in, read_sections
from sim.study.workload_keys import works
from topologies.checks import WeftError, printable
from topologies.stages import staged
from topologies.text.input_text import is_special
from workloads.models import MODELS

OTHER_NEEDS = {"tenant": '"all-reduce ring 64MiB"', "plot": "FILE", "json": "FILE"}
"""What commands need besides keys of a spec, and what stands for the value."""

LOOKED_INTO = ("chunk", "reference")
"""Engines with services."""


@staged("parse")
def spec_of(arguments: argparse.Namespace) -> Spec:
    """The spec that a call describes.

    WeftError: a section or key that the command does not use, a value that is not accepted, a file that would be
    written over one that is read, or what is missing.
    """
    changes: Mapping[str, Any] = {}
    if (path := arguments.spec) is not None:
        sections, where = sections_of(Path(path), "spec file", arguments.command), f"spec file {path}"
        changes = changes_in(sections, where)
        check_used(sections, arguments.command, where)
    own = COMMANDS[arguments.command]
    spec = Spec().updated(by_section(own.defaults)).updated(changes).updated(changes_of(arguments))
    check_apart(arguments, spec.to_dict())
    required(arguments, spec)
    if own.chooses and not works(spec):
        return spec.choosing()
    if spec.chooses:
        raise WeftError(
            f"--chunks {AUTO} tries several on one collective alone, in compare, validate and sweep: give a number"
        )
    return spec


def check_looks_into(spec: Spec) -> None:
    """WeftError: an engine whose runs have no services, for a command that says where the time of a job went."""
    if spec.engine not in LOOKED_INTO:
        raise WeftError(
            f"--engine {spec.engine}: the table says what time was spent on, service by service: choose "
            f"{' or '.join(LOOKED_INTO)}"
        )


def sections_of(path: Path, what: str, command: str) -> Mapping[str, Any]:
    """The sections of a file for a command; that another weft wrote it is told on standard error."""
    def note(text: str) -> None:
        print(printable(f"# note: {text}"), file=sys.stderr)

    return read_sections(path, what, command, COMMANDS, note)


def changes_of(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The keys that flags give, by section: changes for `Spec.updated`."""
    given = {name: value for name, value in vars(arguments).items() if "." in name and value not in (None, [])}
    return by_section({name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def by_section(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Values by section and key, from keys that are written "section.key"."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    return sections


def check_used(sections: Mapping[str, Any], command: str, where: str) -> None:
    """Reject sections and keys that the command does not use: nothing in a file is ignored silently."""
    taken = accepted(COMMANDS[command])
    for section, keys in sections.items():
        if section not in taken:
            raise WeftError(f"{where}: weft {command} does not use [{section}]: it takes {', '.join(taken)}")
        for key in keys if isinstance(keys, Mapping) else ():
            if key not in taken[section] and keys[key] is not None:
                raise WeftError(
                    f"{where}: weft {command} does not use {key!r} of [{section}]: it takes "
                    f"{', '.join(taken[section])}"
                )


def required(arguments: argparse.Namespace, spec: Spec) -> None:
    """Reject a call without what its command cannot do without: all that is missing, in one line."""
    needs = [one.split("|") for one in _needs(arguments, spec)]
    absent = [names for names in needs if not any(_given(arguments, spec, name) for name in names)]
    if not absent:
        return
    first = [_shown(arguments, names[0]) for names in absent]
    others = [", ".join(_shown(arguments, name)[1].partition(" ")[0] for name in names[1:]) for names in absent]
    flags = " ".join(f"{one[1]} (or {other})" if other else one[1] for one, other in zip(first, others, strict=True))
    *nouns, last = (noun for noun, _, _ in first)
    what = f"{', '.join(nouns)} or {last}" if nouns else last
    keys = ", ".join(key for _, _, key in first if key)
    accepted = [word for names in absent for word in _accepted(names[0])]
    words = f"; choose one of {', '.join(accepted)}" if accepted else ""
    raise WeftError(f"no {what} is given: write {flags}{f', or {keys} in --spec' if keys else ''}{words}")


def _accepted(name: str) -> Sequence[str]:
    """The values of a key, if they are a fixed set."""
    section, dot, key = name.partition(".")
    found: Sequence[str] = keys_of(section)[key].metadata["choices"] if dot else ()
    return found


def _needs(arguments: argparse.Namespace, spec: Spec) -> Iterator[str]:
    if arguments.command == "schedule" and spec.schedule.list:
        return
    yield from COMMANDS[arguments.command].needs
    if arguments.command in ("train", "trace") and spec.workload.name in MODELS:
        yield from ("workload.samples", "workload.peak", "workload.efficiency")


def _given(arguments: argparse.Namespace, spec: Spec, name: str) -> bool:
    section, dot, key = name.partition(".")
    if not dot:
        return bool(getattr(arguments, name) or (name == TENANT and spec.tenant))
    return getattr(getattr(spec, section), key) is not None


def _shown(arguments: argparse.Namespace, name: str) -> tuple[str, str, str]:
    """What is missing: as a noun, as a flag with its value, and as a key of a spec."""
    section, dot, key = name.partition(".")
    if not dot:
        return name, f"--{name} {OTHER_NEEDS[name]}", f"[[{name}]]" if name == TENANT else ""
    field = keys_of(section)[key]
    command = COMMANDS[arguments.command]
    taken, _ = command.helps.get(name, (field.metadata["metavar"], ""))
    flag = "" if name == command.positional else f"{flags_of(field)[0]} "
    noun = section if key in ("name", "spec") else key.removesuffix("s") if key != "samples" else key
    return noun.replace("_", " "), f"{flag}{taken}", name


def document_spec(arguments: argparse.Namespace, spec: Spec) -> dict[str, Any]:
    """The spec for a command's JSON: every key that the command takes, with its value; files by absolute paths."""
    taken = accepted(COMMANDS[arguments.command])
    data = spec.self_contained().to_dict(taken)
    kept = {
        section: keys if section == TENANT else {key: keys[key] for key in keys if key in taken[section]}
        for section, keys in data.items()
    }
    return with_paths_from(Path(), kept)


STDIN, STDOUT = "/dev/stdin", "/dev/stdout"
"""What "-" stands for."""

SPECS = ("spec", "spec_again")
"""Flags of files with sections."""

TRACES = r"\.\d+\.(et|et\.gz|json|eg)"

REACH = {
    "chakra": TRACES, "workload.job": f"({TRACES})?", "workload.name": f"({TRACES})?",
    "tenant.job": f"({TRACES})?", "tenant.workload": f"({TRACES})?",
    "store": "(-wal|-shm|-journal|-claims)?", "out": r"/[^/]*\.(csv|md|png|pdf|svg)", "report.folder": r"/.*\.json",
}
"""What follows the name of a flag in the names of its files, where that is not the one file: a pattern."""


class Named(NamedTuple):
    """The files of one flag or key."""

    said: str  # by the user: "--json a.json"
    path: str
    reach: str  # pattern of what follows the path

    def holds(self, other: "Named") -> bool:
        """Whether the other one is a single file, and one of these."""
        pattern = re.compile(re.escape(_real(self.path)) + self.reach, re.DOTALL)
        return re.fullmatch(other.reach, "") is not None and any(map(pattern.fullmatch, _places(other.path)))

    def meets(self, other: "Named") -> bool:
        """Whether two flags give the same key."""
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
            path = STDOUT if name == "-" else str(name)
            yield Named(f"{flag_of(flag)} {name}", path, REACH.get(flag, ""))


def _read(arguments: argparse.Namespace, data: Mapping[str, Any]) -> Iterator[Named]:
    for flag in SPECS:
        if (name := getattr(arguments, flag, None)) is not None:
            yield Named(_said(arguments, flag, name), STDIN if name == "-" else name, "")
    for section, key, name in files_in(data):
        if (dest := f"{section}.{key}") not in WRITTEN:
            yield Named(_said(arguments, dest, name), name, REACH.get(dest, ""))


def _said(arguments: argparse.Namespace, dest: str, name: str) -> str:
    """What is read, as the user wrote it: without a flag, after one, or as a key of a file."""
    section, dot, key = dest.partition(".")
    if dest == COMMANDS[arguments.command].positional:
        return f"{typed(arguments.command, section, key) if dot else 'FILE'} {name}"
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
