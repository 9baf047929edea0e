"""`weft completion`: commands, flags and names for the shell to complete, from the parsers and the registries."""

import argparse

import shtab

from collectives import ALGORITHMS, COLLECTIVES
from sim.cli.commands import COMMANDS
from sim.cli.flags import Parser, fill
from sim.cli.output import STANDARD_OUTPUT, write_text
from sim.program.model import ENGINES, PRESETS, SYMMETRY
from sim.program.model_options import OPTIONS
from sim.study.keys import flags_of, keys_of
from topologies import TOPOLOGIES
from workloads.models import MODELS

PREAMBLE = {"bash": "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}  # torus:8x8 is one word\n"}
"""First lines of scripts, by shell."""


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    shell = arguments.shell
    write_text(STANDARD_OUTPUT, shtab.complete(named_parser(shell), shell, preamble=PREAMBLE.get(shell, "")) + "\n")


def named_parser(shell: str) -> Parser:
    """The parser of weft, with flags that know the names and files that may follow them."""
    parser, known = Parser(prog="weft"), names_by_flag()
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help)
        fill(sub, name)
        for action in sub._actions:
            _name(action, known)
            if shell == "bash" and action.choices and "," in str(action.metavar):
                _complete_after_a_comma(action)
            if not action.option_strings and action.nargs == "?":
                action.nargs = None  # shtab completes only required arguments
    return parser


def names_by_flag() -> dict[str, tuple[str, ...]]:
    """Names that flags take, from the registries."""
    fabrics = tuple(family.example for family in TOPOLOGIES.values())
    forms = (form for one in ALGORITHMS.values() for kind in one.functions for form in one.forms_of(kind))
    return {
        "--topology": fabrics, "--network": fabrics, "--collective": tuple(COLLECTIVES),
        "--algorithm": tuple(ALGORITHMS), "--algorithms": tuple(ALGORITHMS), "--form": tuple(dict.fromkeys(forms)),
        "--preset": tuple(PRESETS), "--engine": tuple(ENGINES), "--symmetry": tuple(SYMMETRY),
        "--workload": tuple(MODELS), "--loop": ("no-overlap", "wfbp", "dear"),
        **{flags_of(keys_of("model")[name])[0]: row.choices for name, row in OPTIONS.items() if row.choices},
    }


def _name(action: argparse.Action, known: dict[str, tuple[str, ...]]) -> None:
    """Set what shtab completes after a flag: the names of a registry, a folder or a file."""
    taken = str(action.metavar or "")
    section, dot, key = action.dest.partition(".")
    if dot:
        action.choices = keys_of(section)[key].metadata["choices"] or None
    for flag in action.option_strings:
        if flag in known and action.nargs != 0:
            action.choices = known[flag]
    if action.choices is None and taken == "DIR":
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # shtab reads it
    elif action.choices is None and "FILE" in taken:
        action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it


def _complete_after_a_comma(action: argparse.Action) -> None:
    """In bash a list of names is one word: what is before its last comma stays, what follows is completed."""
    called = f"_weft_{action.dest.replace('.', '_')}"
    body = f'compgen -P "${{1%"${{1##*,}}"}}" -W "{" ".join(map(str, action.choices or ()))}" -- "${{1##*,}}"'
    preamble = {"bash": f"{called}() {{ {body}; }}\n"}
    action.complete = {"bash": called, "preamble": preamble}  # type: ignore[attr-defined]  # shtab reads it
