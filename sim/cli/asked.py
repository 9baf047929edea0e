"""The spec of a call: the command's defaults, `--spec FILE` over them, and the flags over both."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.cli.commands import COMMANDS
from sim.cli.files import check_apart
from sim.cli.flags import accepted
from sim.study.keys import AUTO, TENANT, flags_of, keys_of
from sim.study.paths import with_paths_from
from sim.study.spec import Spec, changes_in, read_sections
from topologies.checks import WeftError, printable
from topologies.stages import staged
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
    spec = Spec().updated(by_section(COMMANDS[arguments.command].defaults))
    if path := arguments.spec:
        sections, where = sections_of(Path(path), "spec file", arguments.command), f"spec file {path}"
        changes = changes_in(sections, where)
        check_used(sections, arguments.command, where)
        spec = spec.updated(changes)
    spec = spec.updated(changes_of(arguments))
    check_apart(arguments, spec.to_dict())
    required(arguments, spec)
    if COMMANDS[arguments.command].chooses:
        return spec.choosing()
    if spec.chooses:
        raise WeftError(
            f"--chunks {AUTO} is for compare, validate and sweep, which try several on one collective; give a number"
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
