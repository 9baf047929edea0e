"""The command line: one module a command, each with NAME, HELP, EXAMPLES, add_arguments and run."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from sim.cli.flags import EXIT_BAD_INPUT, Parser
from topologies import WeftError

COMMANDS = ("compare", "validate", "bound", "train", "optimize", "topoopt", "reconfigure", "topology", "schedule",
            "bench_codec", "paper")
"""Modules of this package, in the order of the help. A new command is one file and one word here."""

EXIT_INTERRUPTED = 130
"""As a shell counts a program that Ctrl-C ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `weft`; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    command: ModuleType = parsed.command_module
    try:
        return int(command.run(parsed) or 0)
    except WeftError as wrong:
        print(f"weft {command.NAME}: {_one_line(wrong)}", file=sys.stderr)
        return EXIT_INTERRUPTED if isinstance(wrong.__context__, KeyboardInterrupt) else EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print(f"weft {command.NAME}: interrupted, nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail again
        return 0


def _one_line(wrong: WeftError) -> str:
    return " ".join(str(wrong).split())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="weft", description="Simulates collective communication on network fabrics, chunk by chunk.")
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
