"""The command line, what the user types: each command is an entry of `sim.cli.commands` and a module with `run`.

Imports every other package of `sim`; the module of a command is imported when the command runs.
"""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from functools import partial
from typing import Any, NoReturn

from sim.cli.beats import speaking
from sim.cli.commands import COMMANDS
from sim.cli.flags import EXIT_BAD_INPUT, Parser, as_typed, command_parser, with_places
from sim.cli.signals import Terminated, ends_at_once, ends_in_order
from sim.version import weft_version
from topologies.checks import WeftError, nearest, out_of_memory, told
from topologies.process import few_searches, keep_freed, while_compiling
from topologies.stages import end_profile, staged, start_profile, tell_compiling
from topologies.text.schema import notes_on_stderr

EXIT_NOT_WRITTEN = 1
"""A full disk, a file that cannot be written."""

EXIT_INTERRUPTED = 130
"""The shell convention for a program ended by Ctrl-C."""

EXIT_TERMINATED = 143
"""The shell convention for a program ended by SIGTERM."""

EXIT_CODES = {
    0: "done",
    EXIT_NOT_WRITTEN: "an output could not be written: a full disk, a file that is gone",
    EXIT_BAD_INPUT: "bad input, reported in one line on standard error; nothing was written",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
    EXIT_TERMINATED: "ended by SIGTERM",
}
"""Meaning of the exit codes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `weft`; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stderr is None:  # closed by the shell: else what is told there would be printed on standard output
        with open(os.devnull, "w", encoding="utf-8") as nobody, redirect_stderr(nobody):
            return main(words)
    name = words[0] if words else ""
    if name not in COMMANDS:
        _answer(words)
    parsed = command_parser(name).parse_args(words[1:])
    parsed.stages = start_profile() if getattr(parsed, "profile", False) else None
    try:
        code = _run(name, parsed)
        if parsed.stages is not None:
            _module("output").say_stages(parsed.stages)
        return code
    finally:
        end_profile()


def _run(name: str, parsed: argparse.Namespace) -> int:
    """Run a command; what is wrong is said in one line."""
    try:
        with ends_in_order():
            command, output = (_module(one) for one in (name, "output"))  # help needs neither
            if not gc.isenabled():  # a process that `sim.__main__` began: what is loaded stays, not searched again
                gc.freeze()
                gc.enable()
                keep_freed()
            if not getattr(parsed, "quiet", False):
                tell_compiling(_say_compiling)
            while_compiling(partial(ends_at_once, name))
            output.check_outputs(parsed)
            with speaking(name, getattr(parsed, "quiet", True)), notes_on_stderr():
                command.run(parsed)
            output.say_where(parsed)
            if sys.stdout is not None:
                sys.stdout.flush()
        return 0
    except WeftError as wrong:
        said = as_typed(" ".join(str(wrong).split()), parsed)
        print(f"weft {name}: {with_places(said, name)}", file=sys.stderr)
        return _interrupted(wrong.__context__) if isinstance(wrong.__context__, KeyboardInterrupt) else EXIT_BAD_INPUT
    except KeyboardInterrupt as signal:
        print(f"weft {name}: interrupted, nothing was written", file=sys.stderr)
        return _interrupted(signal)
    except MemoryError as fault:
        print(f"weft {name}: {out_of_memory(fault)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        _settle_standard_output()
        return 0
    except OSError as fault:
        _settle_standard_output()
        named = f"{fault.filename}: " if fault.filename else ""
        print(f"weft {name}: {named}{fault.strerror or fault}", file=sys.stderr)
        return EXIT_NOT_WRITTEN
    finally:
        tell_compiling(None)
        while_compiling(None)


def _say_compiling(kernel: str) -> None:
    print(f"compiling the engine, once: {kernel}", file=sys.stderr, flush=True)


@staged("imports")
@few_searches()
def _module(name: str) -> Any:
    return importlib.import_module(f"sim.cli.{name}")


def _answer(words: list[str]) -> NoReturn:
    """Words that begin with no command: the help, the version, or what is wrong in one line."""
    overview = _overview()
    if words[:1] and words[0].startswith("-"):
        overview.parse_args(words)
    elif words:
        overview.error(f"command {told(words[0])} is unknown: choose one of {', '.join(COMMANDS)}"
                       f"{nearest(words[0], (*COMMANDS, '--help', '--version'))}")
    overview.error(f"no command is given: choose one of {', '.join(COMMANDS)}; weft --help says what each does")


_ended_by: KeyboardInterrupt | None = None
"""Its frames hold what was built: it is kept, for to free millions of objects takes seconds at the end of a process."""


def _interrupted(signal: KeyboardInterrupt) -> int:
    global _ended_by
    _ended_by = signal
    return EXIT_TERMINATED if isinstance(signal, Terminated) else EXIT_INTERRUPTED


def _settle_standard_output() -> None:
    """Unwritten output is dropped: the flush at exit must not fail again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parsers() -> dict[str, Parser]:
    """The parser of every command, by its name: for completion, and for the reference in docs/."""
    return {name: command_parser(name) for name in COMMANDS}


def _overview() -> argparse.ArgumentParser:
    """The parser of `weft` itself, which knows commands by name and help alone."""
    codes = "".join(f"  {code:<4} {meaning}\n" for code, meaning in EXIT_CODES.items())
    parser = Parser(
        prog="weft",
        description="Simulates collective communication on network fabrics, chunk by chunk.",
        epilog=f"weft COMMAND --help has examples.\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"weft {weft_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.help)
    return parser
