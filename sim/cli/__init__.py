"""The command line: one module a command, each with NAME, HELP, EXAMPLES, add_arguments and run."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from topologies import WeftError

COMMANDS = ("compare", "validate", "topology", "schedule", "paper")
"""Modules of this package, in the order of the help. A new command is one file and one word here."""

EXIT_BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `weft`; returns the exit code."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    try:
        command: ModuleType = parsed.command_module
        return int(command.run(parsed) or 0)
    except WeftError as wrong:
        print(f"weft {parsed.command_module.NAME}: {wrong}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft", description="Simulates collective communication on network fabrics, chunk by chunk."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"sim.cli.{name}")
        sub = commands.add_parser(
            module.NAME,
            help=module.HELP,
            description=module.HELP,
            epilog="examples:\n" + "\n".join(f"  {line}" for line in module.EXAMPLES),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(command_module=module)
    return parser
