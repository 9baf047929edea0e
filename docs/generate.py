"""Writes the pages of docs/reference that come from parsers, registries and docstrings: `make docs`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
ABOUT = {
    "tutorial": "to learn: from the first command to a figure and a report",
    "guides": "to get something done",
    "reference": "to look something up",
    "background": "to understand",
    "papers": "what was published, beside ours",
}
"""The rooms of docs/, by what a reader wants; papers are results."""

ROOMS = ("topologies", "collectives", "workloads", "sim")
MODULES = (
    "collectives.in_network", "collectives.trees.aggregation", "collectives.parameter_server", "workloads.compression",
    "workloads.compression.cells", "sim.papers.compression_sizes", "sim.papers.compressed_timeline",
    "sim.papers.gradients", "sim.faults.plan", "sim.faults.retry",
    "sim.run.tenants", "sim.streaming.pool_streaming", "sim.streaming.slot_sharing", "sim.streaming.partial_aggregates",
)
"""Modules within the rooms whose names the API has as well: what one imports from there."""
NOTE = "<!-- written by `make docs`; change the code instead -->\n\n"


def pages() -> dict[str, str]:
    """Every generated page: its file name, and its text."""
    written = {"commands": commands, "algorithms": algorithms, "topologies": topologies, "api": api}
    return {"README.md": index()} | {f"reference/{name}.md": text() for name, text in written.items()}


def index() -> str:
    """The rooms, and the pages in each by their titles."""
    text = ["# Documentation\n", "Four rooms, by what a reader wants, and the results.\n"]
    for room, about in ABOUT.items():
        its = {path.name: path for path in (DOCS / room).glob("*.md")}
        links = [f"[{title(path)}]({room}/{name})" for name, path in sorted(its.items(), key=lambda one: title(one[1]))]
        text.append(f"**{room}**, {about}: {', '.join(links)}.\n")
    others = sorted(path for path in DOCS.glob("*.md") if path.name != "README.md")
    text.append(f"**More**: {', '.join(f'[{title(path)}]({path.name})' for path in others)}.\n")
    text.append("The tests run the Python in these pages and every command after a `$`, and compare what they print.")
    return "\n".join(text) + "\n"


def title(page: Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else page.stem


def commands() -> str:
    """Commands, their flags and examples, and the exit codes."""
    from sim.cli import COMMANDS, EXIT_CODES, parsers

    text = ["# Commands\n", *table(["command", "what it does"], [[f"[{name}](#weft-{name})", command.help]
                                                                for name, command in COMMANDS.items()])]
    text += [
        "\nWith `--json -` a command writes JSON to standard output, and its table to standard error.\n"
        "Progress and names of written files go to standard error: on a terminal, or with `--progress`.\n"
        "Files appear whole or not at all.\n",
        "## Exit codes\n",
        *table(["code", "meaning"], [[str(code), meaning] for code, meaning in EXIT_CODES.items()]),
    ]
    for name, parser in parsers().items():
        help_text = COMMANDS[name].help
        text += [f"\n## weft {name}\n", f"{help_text[:1].upper()}{help_text[1:]}.\n", *_examples(parser)]
        actions = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
        text += table(["flag", "takes", "what it is"], [_flag(action) for action in actions])
    return "\n".join(text) + "\n"


def _examples(parser: argparse.ArgumentParser) -> list[str]:
    """The examples, and whatever else the help ends with, as a block of code."""
    lines = (parser.epilog or "").splitlines()[1:]
    return [f"  {line}".rstrip() for line in lines] + [""]


def _flag(action: argparse.Action) -> list[str]:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    takes = "" if action.nargs == 0 or not action.option_strings else str(action.metavar or "VALUE")
    return [names, takes, (action.help or "").replace("%%", "%")]


def algorithms() -> str:
    """Algorithms by name, with the collectives that they do and their options."""
    from collectives import ALGORITHMS, COLLECTIVES

    rows = []
    for name, one in ALGORITHMS.items():
        does = [kind + _forms(one.forms_of(kind)) for kind in COLLECTIVES if kind in one.functions]
        options = "; ".join(f"`{option}`: {what}" for option, what in one.options.items())
        rows.append([f"`{name}`", one.help, one.limits, ", ".join(does), options])
    head = ["name", "what it is", "on what it works", "collectives (forms)", "options"]
    text = ["# Algorithms\n", *table(head, rows)]
    text += ["\nWhich runs on which fabric is in [matrix.md](matrix.md).\n", "## Collectives\n"]
    text += table(["name", "busbw over algbw, at 8 ranks"], [[f"`{name}`", f"{one.bus_factor(8):g}"]
                                                            for name, one in COLLECTIVES.items()])
    return "\n".join(text) + "\n"


def _forms(forms: Iterable[str]) -> str:
    names = "/".join(forms)
    return f" ({names})" if names else ""


def topologies() -> str:
    """Families of fabrics, as `--topology` takes them."""
    from topologies import TOPOLOGIES, from_spec

    rows = []
    for family in TOPOLOGIES.values():
        example = from_spec(family.example)
        size = f"{example.n_npus} NPUs, {example.n_nodes - example.n_npus} switches, {example.n_links} links"
        rows.append([f"`{family.name}`", f"`{family.example}`", size, family.help])
    text = ["# Topologies\n", *table(["family", "example", "the example has", "what it is"], rows)]
    text += ["\nRates, latencies and files: [weft topology](commands.md#weft-topology)."]
    return "\n".join(text) + "\n"


def api() -> str:
    """The public names of the rooms: signatures and first sentences."""
    text = ["# Python names\n", "The public names of every room; [python.md](python.md) shows them at work.\n"]
    for room in ROOMS:
        module = importlib.import_module(room)
        text += [f"## {room}\n", f"{first_sentence(module)}\n"]
        text += table(["name", "what it is"], [[f"`{signature(name, getattr(module, name))}`",
                                               first_sentence(getattr(module, name))] for name in module.__all__])
        text.append("")
    for path in MODULES:
        module = importlib.import_module(path)
        text += [f"## {path}\n", f"{first_sentence(module)}\n"]
        text += table(["name", "what it is"], [[f"`{signature(name, thing)}`", first_sentence(thing)]
                                               for name, thing in own_names(module)])
        text.append("")
    return "\n".join(text).rstrip() + "\n"


def own_names(module: ModuleType) -> list[tuple[str, object]]:
    """What a module offers: `__all__`, or the public functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return [(name, getattr(module, name)) for name in module.__all__]
    return [(name, thing) for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__ and callable(thing)]


def signature(name: str, thing: object) -> str:
    """A function with its parameters, without their types."""
    if not inspect.isfunction(thing):
        return name
    shown = []
    for one in inspect.signature(thing).parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in shown and not any(part.startswith("*") for part in shown):
            shown.append("*")
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        plain = one.default is None or isinstance(one.default, (str, int, float, bool, tuple))
        default = "" if one.default is one.empty else f"={one.default!r}" if plain else "=..."
        shown.append(f"{star}{one.name}{default}")
    return f"{name}({', '.join(shown)})"


def first_sentence(thing: object) -> str:
    """The first paragraph of a docstring, on one line; of plain data its kind."""
    if isinstance(thing, (Mapping, tuple)):
        return f"a {'tuple' if isinstance(thing, tuple) else 'mapping'} of {len(thing)}"
    if isinstance(thing, (int, float, str)):
        return repr(thing)
    text = inspect.getdoc(thing) or ""
    return re.sub(r"\s+", " ", text.split("\n\n")[0]).strip()


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table of Markdown, line by line."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def main() -> None:
    """Write every page."""
    for name, text in pages().items():
        (DOCS / name).write_text(NOTE + text, encoding="utf-8")


if __name__ == "__main__":
    main()
