"""The command line: one module a command, each with NAME, HELP, EXAMPLES, add_arguments and run."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from sim.cli.flags import EXIT_BAD_INPUT, Parser
from sim.cli.signals import Terminated, ends_in_order
from topologies import WeftError

COMMANDS = ("compare", "validate", "judge", "sweep", "bound", "train", "share", "trace", "optimize", "topoopt",
            "reconfigure", "topology", "schedule", "pool", "paper", "report", "plot", "astra",
            "completion")
"""Modules of this package, in the order of the help. A new command is one file and one word here."""

EXIT_NOT_WRITTEN = 1
"""A full disk, a file that cannot be written."""

EXIT_INTERRUPTED = 130
"""As a shell counts a program that Ctrl-C ended."""

EXIT_TERMINATED = 143
"""As a shell counts a program that SIGTERM ended."""

EXIT_CODES = {
    0: "done",
    EXIT_NOT_WRITTEN: "an output could not be written: a full disk, a file that is gone",
    EXIT_BAD_INPUT: "bad input, said in one line on standard error; nothing was written",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
    EXIT_TERMINATED: "ended by SIGTERM",
}
"""What the exit codes mean."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `weft`; returns the exit code."""
    try:
        parsed = _parser().parse_args(arguments)
    except KeyboardInterrupt:  # while the commands are imported
        print("weft: interrupted, nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED
    command: ModuleType = parsed.command_module
    try:
        with ends_in_order():
            code = int(command.run(parsed) or 0)
        sys.stdout.flush()
        return code
    except WeftError as wrong:
        print(f"weft {command.NAME}: {_one_line(wrong)}", file=sys.stderr)
        return _interrupted(wrong.__context__) if isinstance(wrong.__context__, KeyboardInterrupt) else EXIT_BAD_INPUT
    except KeyboardInterrupt as signal:
        print(f"weft {command.NAME}: interrupted, nothing was written", file=sys.stderr)
        return _interrupted(signal)
    except BrokenPipeError:
        _settle_standard_output()
        return 0
    except OSError as fault:
        _settle_standard_output()
        named = f"{fault.filename}: " if fault.filename else ""
        print(f"weft {command.NAME}: {named}{fault.strerror or fault}", file=sys.stderr)
        return EXIT_NOT_WRITTEN


def _interrupted(signal: KeyboardInterrupt) -> int:
    return EXIT_TERMINATED if isinstance(signal, Terminated) else EXIT_INTERRUPTED


def _settle_standard_output() -> None:
    """What it could not take is dropped: the flush at exit must not fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(wrong: WeftError) -> str:
    return " ".join(str(wrong).split())


def subparsers() -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """The parser and the help of every command, by its name: for completion, and for the reference in docs/."""
    parsers = next(action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in parsers._choices_actions}
    return {name: (parser, helps[name]) for name, parser in parsers.choices.items()}


def _parser() -> argparse.ArgumentParser:
    codes = "".join(f"  {code:<4} {meaning}\n" for code, meaning in EXIT_CODES.items())
    parser = Parser(
        prog="weft",
        description="Simulates collective communication on network fabrics, chunk by chunk.",
        epilog=f"weft COMMAND --help has examples.\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
