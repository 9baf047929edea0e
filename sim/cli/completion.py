"""`weft completion`: commands, flags and names for the shell to complete, from the parsers and the registries."""

from __future__ import annotations

import argparse
import json

from sim.cli.output import check_outputs, write_text
from sim.cli.shells import SHELLS, Command, Flag

NAME = "completion"
HELP = "print a script that completes commands, flags and names in bash, zsh or fish"
EXAMPLES = (
    "source <(weft completion bash)                                  # in ~/.bashrc",
    "weft completion zsh > ~/.zfunc/_weft                            # a folder of fpath",
    "weft completion fish > ~/.config/fish/completions/weft.fish",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.add_argument("--json", metavar="FILE", help="write what is completed as JSON instead ('-': standard output)")


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    check_outputs(arguments)
    if arguments.json:
        facts = [command._asdict() | {"flags": [flag._asdict() for flag in command.flags]} for command in commands()]
        write_text(arguments.json, json.dumps({"commands": facts}, indent=1) + "\n")
    else:
        write_text("-", SHELLS[arguments.shell](commands()))


def commands() -> list[Command]:
    """Every command with its flags and what they take."""
    from sim.cli import subparsers

    known = names_by_flag()
    found = []
    for name, (parser, help_text) in subparsers().items():
        flags = [_flag(action, known) for action in parser._actions if action.option_strings]
        operands = [_flag(action, known) for action in parser._actions if not action.option_strings]
        if name == "paper":
            operands = [one._replace(values=known["paper"]) for one in operands]
        found.append(Command(name, help_text, tuple(flags), operands[0] if operands else None))
    return found


def names_by_flag() -> dict[str, tuple[str, ...]]:
    """Names that flags take, from the registries."""
    from collectives import ALGORITHMS, COLLECTIVES
    from sim.papers import PAPERS
    from sim.program import DELIVERY, DISCIPLINES, FORWARDING
    from sim.program.model import ENGINES, PRESETS, SYMMETRY
    from topologies import TOPOLOGIES
    from topologies.core.paths import TIES
    from workloads.models import MODELS

    fabrics = tuple(family.example for family in TOPOLOGIES.values())
    forms = (form for one in ALGORITHMS.values() for kind in one.functions for form in one.forms_of(kind))
    return {
        "--topology": fabrics, "--network": fabrics, "--collective": tuple(COLLECTIVES),
        "--algorithm": tuple(ALGORITHMS), "--algorithms": tuple(ALGORITHMS), "--form": tuple(dict.fromkeys(forms)),
        "--preset": tuple(PRESETS), "--engine": tuple(ENGINES), "--symmetry": tuple(SYMMETRY),
        "--forwarding": tuple(FORWARDING), "--deliver": tuple(DELIVERY), "--discipline": tuple(DISCIPLINES),
        "--tie": tuple(TIES), "--workload": tuple(MODELS), "--loop": ("no-overlap", "wfbp", "dear"),
        "paper": tuple(PAPERS),
    }


def _flag(action: argparse.Action, known: dict[str, tuple[str, ...]]) -> Flag:
    values = tuple(str(choice) for choice in action.choices or ())
    for name in action.option_strings:
        values = values or known.get(name, ())
    taken = str(action.metavar or "")
    return Flag(
        names=tuple(action.option_strings), help=_plain(action.help or ""),
        takes="" if action.nargs == 0 else taken or "VALUE", values=values,
        files="FILE" in taken or taken == "DIR", several="[," in taken and bool(values),
    )


def _plain(text: str) -> str:
    """Help as it is printed: one line, `%%` as `%`."""
    return " ".join(text.replace("%%", "%").split())

