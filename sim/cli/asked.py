"""The spec of a call: the command's defaults, `--spec FILE` over them, and the flags over both."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.cli.commands import COMMANDS
from sim.cli.flags import accepted
from sim.study.keys import AUTO, TENANT, flags_of, keys_of
from sim.study.paths import with_paths_from
from sim.study.spec import Spec, changes_in, read_sections
from topologies.checks import WeftError
from topologies.stages import staged


@staged("parse")
def spec_of(arguments: argparse.Namespace) -> Spec:
    """The spec that a call describes.

    WeftError: a section or key that the command does not use, or a value that is not accepted.
    """
    spec = Spec().updated(by_section(COMMANDS[arguments.command].defaults))
    if path := arguments.spec:
        sections, where = sections_of(Path(path), "spec file", arguments.command), f"spec file {path}"
        changes = changes_in(sections, where)
        check_used(sections, arguments.command, where)
        spec = spec.updated(changes)
    spec = spec.updated(changes_of(arguments))
    if COMMANDS[arguments.command].chooses:
        return spec.choosing()
    if spec.chooses:
        raise WeftError(f"--chunks {AUTO} is for compare, validate and sweep; give a number")
    return spec


def sections_of(path: Path, what: str, command: str) -> Mapping[str, Any]:
    """The sections of a file for a command; that another weft wrote it is told on standard error."""
    return read_sections(path, what, command, COMMANDS, lambda text: print(f"# note: {text}", file=sys.stderr))


def changes_of(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The keys that flags give, by section: changes for `Spec.updated`."""
    given = {name: value for name, value in vars(arguments).items() if "." in name and value not in (None, [])}
    for name, value in given.items():
        if value == ():
            raise WeftError(f"--{name.partition('.')[2].replace('_', '-')} is empty: give at least one name")
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


def required(arguments: argparse.Namespace, spec: Spec, *names: str) -> None:
    """Reject a spec without one of these keys, as "section.key": the command has nothing to do."""
    for name in names:
        section, _, key = name.partition(".")
        if getattr(getattr(spec, section), key) is None:
            what = keys_of(section)[key]
            flag = "" if name == COMMANDS[arguments.command].positional else f"{flags_of(what)[0]} "
            raise WeftError(
                f"no {key.removesuffix('s').replace('_', ' ')} is given: write {flag}{what.metadata['metavar']}, "
                f"or {key} in [{section}] of --spec"
            )


def document_spec(arguments: argparse.Namespace, spec: Spec) -> dict[str, Any]:
    """The spec for a command's JSON: every key that the command takes, with its value; files by absolute paths."""
    taken = accepted(COMMANDS[arguments.command])
    data = spec.self_contained().to_dict(taken)
    kept = {
        section: keys if section == TENANT else {key: keys[key] for key in keys if key in taken[section]}
        for section, keys in data.items()
    }
    return with_paths_from(Path(), kept)
