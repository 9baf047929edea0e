"""Writes the pages of docs/reference that come from parsers, registries and docstrings: `make docs`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from docs.composition import on_page
from docs.producers import producers

DOCS = Path(__file__).parent
ABOUT = {
    "tutorial": "learn weft, from the first command to a figure and a report",
    "guides": "get something done",
    "migrate": "come from another tool: its file, our command, the same number",
    "reference": "look something up",
    "background": "understand how it works and why",
    "papers": "published results next to ours",
}
"""Folders of docs/, by what a reader wants; papers are results."""

ROOMS = ("topologies", "collectives", "workloads", "sim")
MODULES = (
    "collectives.in_network", "collectives.trees.aggregation", "collectives.parameter_server", "workloads.compression",
    "workloads.compression.cells", "workloads.compression.gains", "sim.faults.plan", "sim.faults.retry",
    "sim.scenarios.tenants", "sim.scenarios.pool_streaming", "sim.scenarios.slot_sharing",
    "sim.scenarios.partial_aggregates",
)
"""Modules inside the packages whose names are part of the API too."""

NOTE = "<!-- written by `make docs`; change the code instead -->\n\n"


def pages() -> dict[str, str]:
    """Every generated page: file name and text."""
    written = {"commands": commands, "spec": spec, "algorithms": algorithms, "topologies": topologies,
               "api": api, "packages": packages, "formats": formats, "workload_files": workload_files}
    return {"README.md": index()} | {f"reference/{name}.md": text() for name, text in written.items()}


def index() -> str:
    """The folders, and the pages in each by title."""
    text = ["# Documentation\n"]
    for room, about in ABOUT.items():
        its = [path for path in (DOCS / room).iterdir() if path.suffix in (".md", ".py")]
        text.append(f"## {room.capitalize()}\n\n{about[0].upper()}{about[1:]}.\n")
        text += [f"- [{title(path)}]({room}/{path.name})" for path in sorted(its, key=lambda path: title(path).lower())]
        text.append("")
    others = sorted(path for path in DOCS.glob("*.md") if path.name != "README.md")
    text += ["## More\n", *(f"- [{title(path)}]({path.name})" for path in others), ""]
    text.append("`make docs-site` makes a site of these pages, with search and the docstrings.\n")
    text.append("The tests run the Python and every command after a `$` on these pages, and compare the output.")
    return "\n".join(text) + "\n"


def title(page: Path) -> str:
    """The first heading of a page or a notebook."""
    found = re.search(r"^(?:# )?# (?!%%)(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else page.stem


def commands() -> str:
    """Commands, their flags and examples, and the exit codes."""
    from sim.cli import COMMANDS, EXIT_CODES, parsers

    text = ["# Commands\n", *table(["command", "what it does"], [[f"[{name}](#weft-{name})", command.help]
                                                                for name, command in COMMANDS.items()])]
    text += [
        "\nWith `--json -` a command writes JSON to standard output, and its table to standard error.\n"
        "Progress and the names of written files go to standard error, on a terminal or with `--progress`; elsewhere\n"
        "a line says what takes long.\n"
        "Files appear complete or not at all.\n",
        "## Exit codes\n",
        *table(["code", "meaning"], [[str(code), meaning] for code, meaning in EXIT_CODES.items()]),
    ]
    for name, parser in parsers().items():
        help_text = COMMANDS[name].help
        text += [f"\n## weft {name}\n", f"{help_text[:1].upper()}{help_text[1:]}.\n", *_examples(parser)]
        actions = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
        text += table(["flag", "value", "meaning"], [_flag(action) for action in actions])
    return "\n".join(text) + "\n"


def spec() -> str:
    """Sections of a spec, their keys, and the commands that take each section."""
    from sim.cli.commands import COMMANDS
    from sim.cli.flags import accepted
    from sim.study.keys import KINDS, SECTIONS, flags_of, keys_of, shown_default

    taken = {name: accepted(command) for name, command in COMMANDS.items()}
    text = [
        "# Keys of a spec\n",
        "A spec is a TOML file, the flags of a command, or `Spec` in Python: three spellings of the same keys. Every "
        "command takes `--spec FILE`, where FILE is a spec or the JSON of an earlier result, which runs again; flags "
        "override it. A section or key that a command does not use is an error. Defaults are those of the key; a "
        "command's own are in its [help](commands.md). `[[tenant]]` is described in "
        "[shared fabrics](../guides/shared-fabrics.md).",
    ]
    for section, kind in SECTIONS.items():
        about = first_sentence(kind).partition(": ")[2]
        users = ", ".join(f"`{name}`" for name, uses in taken.items() if section in uses)
        text += [f"\n## [{section}]\n", f"{about[:1].upper()}{about[1:]} Used by {users}.\n"]
        text += table(["key", "flag", "value", "default", "what it is"], [
            [f"`{name}`", ", ".join(f"`{flag}`" for flag in flags_of(one)),
             KINDS[one.metadata["kind"]].wanted.removeprefix("give "), shown_default(one), one.metadata["help"]]
            for name, one in keys_of(section).items()
        ])
    return "\n".join(text) + "\n"


def _examples(parser: argparse.ArgumentParser) -> list[str]:
    """The examples and anything else in the epilog of the help, as a code block."""
    lines = (parser.epilog or "").splitlines()[1:]
    return [f"  {line}".rstrip() for line in lines] + [""]


def _flag(action: argparse.Action) -> list[str]:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    takes = "" if action.nargs == 0 or not action.option_strings else str(action.metavar or "VALUE")
    return [names, takes, (action.help or "").replace("%%", "%")]


def workload_files() -> str:
    """What stands for absent attributes of workload files, and which algorithm runs a collective."""
    from workloads.formats.chakra_schema import ROWS
    from workloads.group_collectives import DEFAULTS

    text = [
        "# Workload files: defaults and collectives\n",
        "A file is read as its own tool reads it, with that tool's defaults. What is passed over is told once; refused "
        "is only what would change the time. [Formats](formats.md) lists who writes them. `--workload` and `--job` "
        "mean the same, and a flag that a format does not use is an error.\n",
        "\n## Attributes of Chakra nodes\n",
        *table(["attribute", "of", "unit", "absent", "where that is from"],
               [[f"`{row.name}`", ", ".join(row.of), row.unit, row.told, row.source] for row in ROWS]),
        "\n## Collectives of traces\n",
        "A collective runs by the first algorithm that is named and implements it (`--algorithm swing,pairwise`; in a "
        "comparison and a sweep joined, `swing+pairwise`). Where none is named, and for the "
        "collectives that none of them implements, by the first of these that the fabric admits.\n",
        *table(["collective", "algorithm"], [[kind, ", else ".join(names)] for kind, names in DEFAULTS.items()]),
        "\nA group of some NPUs runs it among themselves, in the order of the group. A barrier is messages without "
        "bytes to the members 1, 2, 4, ... further on, a gather or a scatter one message for each other member. A "
        "computation takes its duration, or, where it has none, its operations at `--peak` times `--efficiency` and "
        "its bytes at `--memory-bandwidth`, whichever takes longer; those of ASTRA-sim's `--system FILE` or of the GPU "
        "of a machine where these are not given.",
    ]
    return "\n".join(text) + "\n"


def algorithms() -> str:
    """Algorithms by name, with the collectives they implement and their options."""
    from collectives import ALGORITHMS, COLLECTIVES

    rows = []
    for name, one in ALGORITHMS.items():
        does = [kind + _forms(one.forms_of(kind)) for kind in COLLECTIVES if kind in one.functions]
        options = "; ".join(f"`{option}`: {what}" for option, what in one.options.items())
        rows.append([f"`{name}`", one.help, one.limits, ", ".join(does), options])
    head = ["name", "description", "applies to", "collectives (forms)", "options"]
    text = ["# Algorithms\n", *table(head, rows)]
    text += ["\nFor which algorithm runs on which fabric, see [matrix.md](matrix.md).\n", "## Collectives\n"]
    text += table(["name", "busbw / algbw at 8 ranks"], [[f"`{name}`", f"{one.bus_factor(8):g}"]
                                                            for name, one in COLLECTIVES.items()])
    return "\n".join(text) + "\n"


def _forms(forms: Iterable[str]) -> str:
    names = "/".join(forms)
    return f" ({names})" if names else ""


def topologies() -> str:
    """Topology families, as `--topology` takes them."""
    from topologies import TOPOLOGIES, from_spec

    rows = []
    for family in TOPOLOGIES.values():
        example = from_spec(family.example)
        size = f"{example.n_npus} NPUs, {example.n_nodes - example.n_npus} switches, {example.n_links} links"
        rows.append([f"`{family.name}`", f"`{family.example}`", size, family.help])
    text = ["# Topologies\n", *table(["family", "example", "size of the example", "description"], rows)]
    text += ["\nRates, latencies and files: [weft topology](commands.md#weft-topology)."]
    return "\n".join(text) + "\n"


def formats() -> str:
    """Files of other tools: who writes them, what is read, and what a reader takes where something is absent."""
    from topologies.text.kinds import kinds

    text = ["# Files of other tools\n", "They are read as their own tool reads them: what is absent has its default, "
            "what it does not look at is passed over with a note, and only what would change the time is refused. "
            "[The guide](../guides/formats.md) has examples.\n"]
    text += table(["format", "written or read by", "version read", "given as", "what is read", "what is not, and why"],
                  [[one.format, one.tool, one.version, f"`{one.command}`" if one.command else "", one.read, one.unread]
                   for one in producers()])
    text += ["\n## What is absent\n", "A test of each row holds that a file without it is as one with it. Of a format "
             "without rows all that is read must be there.\n"]
    text += table(["format", "where", "attribute", "value that is taken", "where the tool says so"], [
        [one.format, f"`{row.where}`", f"`{row.name}`", f"`{row.value}`" if row.value else "empty", row.source]
        for one in producers() for row in one.absent])
    text += ["\n## Recognized\n", "A file in the place of another is named for what it is, with the flag that takes "
             "it, in every command. Of these are known as well, and not read:\n",
             *(f"- {one.what}" for one in kinds() if not one.read_as)]
    return "\n".join(text) + "\n"


def api() -> str:
    """The public names of the packages: signatures and first sentences."""
    text = ["# Python names\n", "The public names of every package; [python.md](python.md) shows them in use.\n"]
    for room in ROOMS:
        module = importlib.import_module(room)
        text += [f"## {room}\n", f"{first_sentence(module)}\n"]
        text += table(["name", "description"], [[f"`{signature(name, getattr(module, name))}`",
                                               first_sentence(getattr(module, name))]
                                              for name in module.__all__ if not name.startswith("_")])
        text.append("")
    for path in MODULES:
        module = importlib.import_module(path)
        text += [f"## {path}\n", f"{first_sentence(module)}\n"]
        text += table(["name", "description"], [[f"`{signature(name, thing)}`", first_sentence(thing)]
                                               for name, thing in own_names(module)])
        text.append("")
    return "\n".join(text).rstrip() + "\n"


def packages() -> str:
    """Every package: what it answers and what it imports, from its docstring."""
    text = ["# Packages\n", "What each package answers, and what it may import, from its `__init__`. "
            "[Architecture](../background/design.md) has the picture.\n"]
    for room in ROOMS:
        rows = []
        for path in sorted((DOCS.parent / room).rglob("__init__.py")):
            name = ".".join(path.parent.relative_to(DOCS.parent).parts)
            first, *others = (inspect.getdoc(importlib.import_module(name)) or "").split("\n\n")
            told = [first, *(one for one in others if "Imports" in one)]
            rows.append([f"`{name}`", " ".join(re.sub(r"\s+", " ", one).strip() for one in told)])
        text += [f"## {room}\n", *table(["package", "what it answers"], rows), ""]
    return "\n".join(text).rstrip() + "\n"


def own_names(module: ModuleType) -> list[tuple[str, object]]:
    """Public names of a module: `__all__`, or the public functions and classes that it defines."""
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
    """The first paragraph of a docstring, on one line; for plain data, its type."""
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
    model = DOCS / "background" / "model.md"
    model.write_text(on_page(model.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
