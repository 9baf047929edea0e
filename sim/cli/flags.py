"""Parsers: the flags of a command from its entry in `sim.cli.commands` and the keys of a spec in `sim.study.keys`."""

import argparse
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sim.cli.commands import COMMANDS, RUNS, Command, parsed
from sim.study.keys import AUTO, REPEATED, SECTIONS, flags_of, keys_of, shown_default
from topologies.checks import Integer, WeftError, nearest

if TYPE_CHECKING:
    from sim.how import How

EXIT_BAD_INPUT = 2

HELP = Path(__file__).parent / "help"

NEGATIVE = re.compile(r"-\.?\d")
"""What begins like this is a value, which its reader then rejects or takes."""

OUTPUTS = {
    "json": "write results and their provenance, to run again with --spec ('-': standard output)",
    "csv": "write a tidy table ('-': standard output)",
    "plot": "draw a figure: .png, .pdf or .svg",
    "heatmap": "draw the utilization of every link, for the last row",
    "links": "write busy time and bytes of every link, for the last row, as CSV ('-': standard output)",
    "output": "write the fabric as .graphml or .json",
    "chakra": "write the schedule as Chakra traces FILE.<rank>.et, for ASTRA-sim's custom collectives",
    "goal": "write the schedule as GOAL text, for LogGOPSim and ATLAHS ('-': standard output)",
    "htsim": "write the schedule as a connection matrix .cm of htsim ('-': standard output)",
    "ocs_plan": "write the flows of the schedule, and circuits for each of its steps, as panel-ocs-plan ('-': standard "
    "output)",
    "msccl": "write an algorithm as MSCCL XML",
    "mscclpp": "write an algorithm as an execution plan of MSCCL++",
    "forestcoll": "write the trees of an all-gather as XML of ForestColl ('-': standard output)",
    "teccl": "write an all-gather or all-to-all as JSON of TE-CCL ('-': standard output)",
    "nccl_json": "write the results as the JSON of nccl-tests ('-': standard output)",
    "tuner": "write the fastest algorithms and protocols by size, for NCCL's tuner ('-': standard output)",
    "perfetto": "write a timeline for ui.perfetto.dev: .json.gz or .json, at most 3,000,000 slices and arrows",
    "export": "write all finished points as a tidy table: .csv or .parquet ('-': CSV to standard output)",
}
"""Flags of files that commands write, and their help."""

PAGE = "report.page"

WRITTEN = (*OUTPUTS, PAGE)
"""All flags of files that are written; the page of a report is a key of its spec."""

KEPT = ("store", "out")
"""Flags of what a command looks up and adds to: the store of a sweep, the folder of a paper."""

GONE = {
    "--threads": "a run takes one core; --workers, where a command has it, does several runs at once",
    "--peak-flops": "--peak, in TFLOP/s as in weft train",
    "--skip": "every service is simulated", "--no-skip": "every service is simulated",
}
"""Flags that there were, and why there are none."""


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, and accepts no abbreviated flags."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **named})
        self._negative_number_matcher = NEGATIVE  # else "-5GB/s" is taken for a flag, and its own flag has no value

    def error(self, message: str) -> NoReturn:
        """End with one line and exit code 2; what was meant is named where it can be guessed."""
        unknown = next((word for word in message.split() if word.startswith("-")), "")
        first = message.removeprefix("unrecognized arguments: ").split()[0]
        if unknown in ("--version", "-V"):
            message += " (did you mean weft --version?)"
        elif unknown.partition("=")[0] in GONE and message.startswith("unrecognized arguments: "):
            message += f" (there is no such flag any more: {GONE[unknown.partition('=')[0]]})"
        elif unknown.partition("=")[0] == "--model" and message.startswith("unrecognized arguments: "):
            message += (" (a plan of passes runs in train, trace, sweep and share; here its collectives alone have a "
                        "meaning: --collective, or --workload where the command has it)")
        elif message.startswith("unrecognized arguments: "):
            message += nearest(unknown.partition("=")[0], self._option_string_actions)
            if not unknown and first.endswith(".toml") and "--spec" in self._option_string_actions:
                message += f" (a spec follows its flag: --spec {first})"
            elif not unknown and "--topology" in self._option_string_actions:
                message += " (a fabric follows its flag: --topology torus:8x8)"
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As in `argparse`, in the words of all other choices."""
        if action.choices is not None and value not in action.choices:
            words = [str(one) for one in action.choices]
            raise argparse.ArgumentError(
                action, f"{value!r} is unknown: choose one of {', '.join(words)}{nearest(value, words)}"
            )


OF_TENANTS = ("workload", "training", "iteration")
"""Sections whose keys a tenant has as NAME=VALUE."""


def as_typed(message: str, given: argparse.Namespace) -> str:
    """A message that begins with the key of a value, with the flag that gave it instead.

    Examples
    --------
    >>> as_typed("nic_engines is 0: give more", argparse.Namespace(**{"command": "compare", "model.nic_engines": 0}))
    '--nic-engines is 0: give more'
    """
    begins = re.match(r"(?:\[(\w+)\] |(\w+)\.)?([a-z]+(?:[_ ][a-z]+)*?) (is |(?='|-?\d))?", message)
    if begins is None or not (begins[1] or begins[2] or begins[4] is not None or "_" in begins[3]):
        return message
    named, of = begins[3].replace(" ", "_"), begins[1] or begins[2]
    for dest, value in vars(given).items():
        section, dot, key = dest.partition(".")
        if dot and key == named and value is not None and section == (of or section):
            return f"{typed(given.command, section, key)} {message[begins.end(3) + 1:]}"
    return message


def typed(command: str, section: str, key: str) -> str:
    """What gives a key of a command: its flag, or what stands for its value where it has none."""
    one = keys_of(section)[key]
    return str(one.metadata["metavar"]) if COMMANDS[command].positional == f"{section}.{key}" else flags_of(one)[0]


def with_places(message: str, name: str) -> str:
    """A message of a command, and how what it names is given that is no flag of this command.

    Examples
    --------
    >>> with_places("give --peak TFLOPS", "share"), with_places("give --peak TFLOPS", "train")
    ('give --peak TFLOPS (here --peak is peak=VALUE in --tenant)', 'give --peak TFLOPS')
    """
    flags = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]+", message))
    others = [flag for flag in flags if flag not in command_parser(name)._option_string_actions] if flags else []
    places = [place for flag in others if (place := _place(flag, name, message))]
    return f"{message} ({'; '.join(places)})" if places else message


def _place(flag: str, name: str, message: str) -> str:
    section, key = next(((section, key) for section in SECTIONS for key, one in keys_of(section).items()
                         if flag in flags_of(one)), ("", ""))
    if name == "share" and (section in OF_TENANTS or key == "algorithms"):
        key = {"algorithms": "algorithm"}.get(key, flag[2:].replace("-", "_"))
        return f"here {flag} is {key}=VALUE in --tenant"
    if name == "sweep" and key in accepted(COMMANDS[name]).get(section, ()):
        return f"here {flag} is {key} of [{section}]"
    having = [one for one in COMMANDS if flag in command_parser(one)._option_string_actions]
    told = not having or any(f"weft {one}" in message for one in having)
    return "" if told else f"{flag} is of weft {', '.join(having[:4])}{', ...' * (len(having) > 4)}"


def end_of_help(name: str) -> str:
    """What the help of a command ends with: its examples, and what else there is to say."""
    return (HELP / f"{name}.txt").read_text(encoding="utf-8").rstrip() + COMMANDS[name].notes


def examples_of(name: str) -> list[str]:
    """The examples in the help of a command, to be run as they are."""
    return [line.strip() for line in end_of_help(name).partition("\n\n")[0].splitlines()[1:]]


def command_parser(name: str) -> Parser:
    """The parser of one command."""
    parser = Parser(prog=f"weft {name}")
    fill(parser, name)
    return parser


def fill(parser: argparse.ArgumentParser, name: str) -> None:
    """Give a parser the help and the flags of a command."""
    command = COMMANDS[name]
    parser.description, parser.formatter_class = command.help, argparse.RawDescriptionHelpFormatter
    parser.epilog = end_of_help(name)
    parser.set_defaults(command=name)
    _add_spec(parser, command)
    group = parser.add_argument_group(command.more_of) if command.more_of else parser
    for flag, options in command.more.items():
        group.add_argument(flag, **options)
    _add_run(parser, command)
    if command.outputs:
        _add_outputs(parser, command)


def accepted(command: Command) -> dict[str, tuple[str, ...]]:
    """The keys that a command takes, by section, without the tables of tenants."""
    found: dict[str, tuple[str, ...]] = {}
    for use in command.uses:
        section, dot, key = use.partition(".")
        keys = (key,) if dot else tuple(keys_of(section)) if section in SECTIONS else ()
        taken = (*found.get(section, ()), *(one for one in keys if f"{section}.{one}" not in command.without))
        found[section] = tuple(dict.fromkeys(taken))
    return found


def _add_spec(parser: argparse.ArgumentParser, command: Command) -> None:
    """`--spec FILE`, the key that is written without a flag, and a flag for every other key."""
    if command.positional == "spec":
        parser.add_argument("spec", nargs="?", metavar="FILE", help="the sweep in TOML, or its JSON to run it again")
        parser.add_argument("--spec", dest="spec_again", metavar="FILE", help="the same, as other commands spell it")
    elif command.uses:
        parser.add_argument("--spec", metavar="FILE",
                            help="spec in TOML, or the JSON of a result to run it again ('-': standard input); flags "
                                 "override it")
    for section, names in accepted(command).items():
        if not names or command.positional == "spec":
            continue
        group = parser.add_argument_group(section)
        for name in names:
            add_key(parser if f"{section}.{name}" == command.positional else group, command, section, name)


def add_key(group: argparse._ActionsContainer, command: Command, section: str, name: str) -> None:
    """The flag of a key, or the key itself if the command takes it without a flag."""
    key, dest = keys_of(section)[name], f"{section}.{name}"
    kind = key.metadata["kind"]
    taken, text = command.helps.get(dest, (key.metadata["metavar"], key.metadata["help"]))
    default = "" if any(dest in one.split("|") for one in command.needs) else command.defaults.get(dest)
    if dest in command.helps and default is None:
        default = ""  # its own help says it
    elif dest == "model.chunks":
        taken, text, default = _chunks(command, taken, text, default)
    shown = shown_default(key, default)
    help_text = f"{text}{f' (default: {shown})' if shown else ''}".replace("%", "%%")
    if dest == command.positional:
        group.add_argument(dest, nargs="*" if kind in REPEATED else "?", metavar=taken, help=help_text)
    elif kind == "flag":
        group.add_argument(*flags_of(key), dest=dest, action=argparse.BooleanOptionalAction, help=help_text)
    else:
        group.add_argument(
            *flags_of(key), dest=dest, metavar=taken, help=help_text, type=partial(parsed, kind),
            action="append" if kind in REPEATED else "store",
        )


def _chunks(command: Command, taken: str, text: str, default: Any) -> tuple[str, str, Any]:
    """Metavar, help and default of `--chunks`: only a command that chooses them takes "auto"."""
    return (taken, text, AUTO) if command.chooses else ("N", text.partition(";")[0], default)


def _add_run(parser: argparse.ArgumentParser, command: Command) -> None:
    """Flags that change how a run is done, not its result."""
    if not command.run_flags:
        return
    group = parser.add_argument_group("run")
    if command.positional == "spec":  # keys of the file that are flags as well
        group.add_argument("--why", dest="account.why", action=argparse.BooleanOptionalAction,
                           help=keys_of("account")["why"].metadata["help"])
    if "workers" in command.run_flags:
        group.add_argument("--workers", type=partial(parsed, "integer"), default=1, metavar="N",
                           help="processes; results are the same with any number (default: 1)")
    if "check" in command.run_flags:
        group.add_argument("--check", action="store_true", help="check every certificate of every run")
    if "max_events" in command.run_flags:
        group.add_argument("--max-events", type=partial(_within, Integer(1)), metavar="N",
                           help="stop a run once it has N services, at the end of a picosecond (default: none, but a "
                                "run of more than 2e10 services does not start)")


def how(arguments: argparse.Namespace) -> "How":
    """How the runs of a command that simulates are done."""
    from sim.how import How  # loads the engine, which no help needs

    return How(**{name: getattr(arguments, name) for name in RUNS})


def refuse_how(arguments: argparse.Namespace, why: str) -> None:
    """Reject flags of runs where nothing is run.

    `why`: what to do instead.
    """
    usual = {"check": False, "max_events": None, "workers": 1}
    for name in COMMANDS[arguments.command].run_flags:
        if getattr(arguments, name) != usual[name]:
            raise WeftError(f"--{name.replace('_', '-')} is for simulations: {why}")


def _within(limits: Integer, text: str) -> int:
    """The value of a flag, refused before a run is prepared."""
    value = int(parsed("integer", text))
    if not limits.least <= value <= limits.most:
        raise argparse.ArgumentTypeError(f"{text!r}: give {limits.accepted}")
    return value


def _add_outputs(parser: argparse.ArgumentParser, command: Command) -> None:
    """Flags for the files that a command writes, the figure of `--plot`, and progress."""
    group = parser.add_argument_group("output")
    for kind in command.outputs:
        group.add_argument(f"--{kind.replace('_', '-')}", metavar="FILE", help=OUTPUTS[kind])
    if command.figures:
        _add_figure(group, command.figures)
    either = group.add_mutually_exclusive_group()
    either.add_argument("--quiet", action="store_const", const=True, default=None,
                        help="print neither progress nor the names of written files")
    either.add_argument("--progress", dest="quiet", action="store_const", const=False, default=None,
                        help="print both, as lines, even if standard error is not a terminal")
    group.add_argument("--profile", action="store_true",
                       help="print the time and memory of every stage on standard error, also of what is rejected or "
                            "interrupted, and add them to --json; a call may only look up what an earlier one built")


def _add_figure(group: argparse._ArgumentGroup, names: Sequence[str]) -> None:
    group.set_defaults(default_figure=names[0])
    group.add_argument("--figure", choices=names, metavar="NAME",
                       help=f"what --plot draws: {', '.join(names)} (default: {names[0]})")
    group.add_argument("--columns", type=partial(parsed, "integer"), choices=(1, 2), metavar="1|2",
                       help="width in columns of a two-column page: 3.3 or 7 inches (default: 2)")
    if "speed-up" in names:
        group.add_argument("--baseline", metavar="NAME",
                           help="what a speed-up is relative to (default: the first algorithm)")
