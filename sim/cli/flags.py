"""Flags: the same meaning has the same name in every command; those of a spec come from `sim.study.spec`."""

from __future__ import annotations

import argparse
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any, NoReturn

from topologies import WeftError

if TYPE_CHECKING:
    from sim.study.spec import Spec

EXIT_BAD_INPUT = 2


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and takes no abbreviated flags."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **named})

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message}\n")


def add_spec(parser: argparse.ArgumentParser, *sections: str, leave_out: tuple[str, ...] = ()) -> None:
    """Add the flags of sections of a spec, and `--spec FILE` that gives them all at once.

    Parameters
    ----------
    parser : ArgumentParser
    sections : str
        "topology", "collective", "model", "sweep".
    leave_out : tuple of str
        Keys, as "section.key", that mean nothing to this command.
    """
    from sim.study.spec import SECTIONS

    if len(sections) > 1:
        parser.add_argument(
            "--spec", metavar="FILE", help="an experiment in TOML, or a result's JSON to run again; flags change it"
        )
    for section in sections:
        group = parser.add_argument_group(section)
        for key in fields(SECTIONS[section]):
            if f"{section}.{key.name}" not in leave_out:
                _add_key(group, section, key)


def _add_key(group: argparse._ArgumentGroup, section: str, key: Field[Any]) -> None:
    names = key.metadata["flags"] or (f"--{key.name.replace('_', '-')}",)
    kinds: dict[str, Any] = {"whole": int, "names": _names}
    group.add_argument(
        *names, dest=f"{section}.{key.name}", metavar=key.metadata["metavar"],
        help=key.metadata["help"].replace("%", "%%"), type=kinds.get(key.metadata["kind"], str),
        action="append" if key.metadata["kind"] == "options" else "store",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def spec_of(arguments: argparse.Namespace) -> Spec:
    """The spec that the flags describe, on top of `--spec FILE` if given."""
    from sim.study.spec import Spec

    path = getattr(arguments, "spec", None)
    return (Spec.read(path) if path else Spec()).updated(changes_of(arguments))


def changes_of(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The keys that flags give, by section: changes for `Spec.updated`."""
    changes: dict[str, dict[str, Any]] = {}
    for name, value in vars(arguments).items():
        section, dot, key = name.partition(".")
        if dot and value is not None:
            if value == ():
                raise WeftError(f"--{key} is empty: give at least one name")
            changes.setdefault(section, {})[key] = tuple(value) if isinstance(value, list) else value
    return changes


def healthy_spec_of(arguments: argparse.Namespace, command: str) -> Spec:
    """The spec of a command that does not follow faults.

    Raises
    ------
    WeftError
        The spec has a fault plan.
    """
    spec = spec_of(arguments)
    if spec.model.faults is not None:
        plan = spec.model.faults if isinstance(spec.model.faults, str) else "of the spec"
        raise WeftError(f"weft {command} does not follow faults: leave out the plan {plan}")
    return spec


def add_outputs(parser: argparse.ArgumentParser, *kinds: str) -> None:
    """Add flags for output files, among the kinds below, and `--quiet`."""
    helps = {
        "json": "write results and their provenance ('-': standard output)",
        "csv": "write a tidy table ('-': standard output)",
        "plot": "draw a figure: .png, .pdf or .svg",
        "heatmap": "draw how busy every link was, at the last row",
        "links": "write busy time and bytes of every link, at the last row, as CSV",
        "output": "write the fabric as .graphml or .json",
        "chakra": "write the schedule as Chakra traces FILE.<rank>.et, for ASTRA-sim's custom collectives",
        "goal": "write the schedule as GOAL text, for LogGOPSim and ATLAHS ('-': standard output)",
        "htsim": "write the schedule as a connection matrix .cm of htsim ('-': standard output)",
        "msccl": "write the trees of the algorithm pipelined as MSCCL XML ('-': standard output)",
        "nccl_json": "write the results as the JSON of nccl-tests ('-': standard output)",
        "perfetto": "write a timeline for ui.perfetto.dev: .json.gz or .json",
        "export": "write all finished points as a tidy table: .csv or .parquet ('-': CSV to standard output)",
    }
    group = parser.add_argument_group("output")
    for kind in kinds:
        group.add_argument(f"--{kind.replace('_', '-')}", metavar="FILE", help=helps[kind])
    add_quiet(group)


def add_quiet(group: argparse._ArgumentGroup) -> None:
    """Add `--quiet` and `--progress`: without either, progress is for a person at a terminal alone."""
    group.add_argument("--quiet", action="store_const", const=True, default=None,
                       help="neither progress nor the names of written files")
    group.add_argument("--progress", dest="quiet", action="store_const", const=False, default=None,
                       help="both, as lines, also where standard error is no terminal")


def add_figure(parser: argparse.ArgumentParser, *names: str, default: str | None = None) -> None:
    """Add the flags that choose the figure of `--plot`, among names; the first unless given.

    Parameters
    ----------
    parser : ArgumentParser
    names : str
        Keys of `sim.plots.figures.FIGURES`, and figures of the command's own.
    default : str, optional
    """
    group = parser.add_argument_group("figure")
    chosen = default or names[0]
    group.add_argument("--figure", choices=names, default=chosen, metavar="NAME",
                       help=f"what --plot draws: {', '.join(names)} ({chosen})")
    group.add_argument("--columns", type=int, choices=(1, 2), default=2, metavar="1|2",
                       help="of a two-column page that the figure takes: 3.3 or 7 inches (2)")
    if "speed-up" in names:
        group.add_argument("--baseline", metavar="NAME", help="what a speed-up is over (the first algorithm)")


def add_run(parser: argparse.ArgumentParser, *, workers: bool = True, limit: bool = True) -> None:
    """Add flags that change how a run is done and not what comes out."""
    group = parser.add_argument_group("run")
    if workers:
        group.add_argument("--workers", type=int, default=1, metavar="N", help="processes (1); results are the same")
    group.add_argument("--check", action="store_true", help="check every certificate of every run")
    if limit:
        group.add_argument("--max-events", type=int, metavar="N", help="give up a point after N services")
