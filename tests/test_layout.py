"""What is tested is this checkout, the packages are where the design says, and their tests mirror them."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests import import_graph
from tests.places import ROOT

ROOMS = ("topologies", "collectives", "workloads", "sim")
OF_NO_PACKAGE = {"browser", "data", "determinism", "docs", "oracles", "oracles/general_loop"}
"""Folders of tests that try the whole from outside, or have no tests but what tests use."""


def packages() -> set[str]:
    return {path.parent.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("__init__.py")}


def folders_of_tests() -> set[str]:
    """Folders below tests/ with a file that is committed or about to be."""
    tests = ROOT / "tests"
    return {path.parent.relative_to(tests).as_posix() for path in tests.rglob("*.py")} - {"."}


@pytest.mark.parametrize("room", ROOMS)
def test_room_is_imported_from_this_checkout(room: str) -> None:
    module = importlib.import_module(room)
    assert module.__file__ is not None
    assert Path(module.__file__).parent == ROOT / room


@pytest.mark.parametrize("room", ROOMS)
def test_room_is_typed(room: str) -> None:
    assert (ROOT / room / "py.typed").exists()


def test_every_folder_of_tests_mirrors_a_package() -> None:
    assert folders_of_tests() - OF_NO_PACKAGE <= packages()


def test_every_package_has_tests() -> None:
    assert {name for name in packages() if not list((ROOT / "tests" / name).glob("test_*.py"))} == set()


def test_no_modules_import_each_other() -> None:
    assert import_graph.circles() == []


MOST_FLOORS = {"topologies": 6, "collectives": 6, "workloads": 6, "sim": 9}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_down_few_floors(room: str) -> None:
    """The longest chain of imports among the files and folders of a package; one that goes in a circle raises."""
    found = import_graph.floors(room)
    assert max(found.values()) <= MOST_FLOORS[room], sorted(found.items(), key=lambda one: -one[1])


MOST_INSIDE = 18
"""Imports of our own modules inside functions, which hide from a reader what a module stands on."""


def test_imports_stand_at_the_top_or_say_why_not() -> None:
    inside = [one for one in import_graph.imports() if one.inside]
    assert len(inside) <= MOST_INSIDE, [f"{one.module}:{one.line}" for one in inside]
    assert [f"{one.module}:{one.line} has no reason" for one in inside if "  # " not in one.text] == []


def test_scipy_is_loaded_where_it_is_used() -> None:
    """Half a second of every command, and of every refusal, where a module that all of them load imports it."""
    top = re.compile(r"^(?:from|import) scipy", re.MULTILINE)
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 400
    assert [path for path in files if top.search(path.read_text(encoding="utf-8"))] == []


def test_every_package_says_what_it_answers_and_what_it_imports() -> None:
    """In two sentences, the docstring of its `__init__`."""
    silent = []
    for name in sorted(packages()):
        text = ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text(encoding="utf-8"))) or ""
        if "Imports" not in text or len(re.findall(r"\.(?=\s|$)", text)) != 2:
            silent.append(name)
    assert silent == []


def test_every_public_name_has_a_docstring() -> None:
    """Functions, classes, methods and properties of the four packages."""
    silent = []
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        inner: list[tuple[ast.Module | ast.FunctionDef | ast.ClassDef, str]] = [
            (ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT).as_posix())
        ]
        for node, name in inner:
            for one in node.body:
                if isinstance(one, ast.FunctionDef | ast.ClassDef) and not one.name.startswith("_"):
                    silent += [f"{name} {one.name}"] * (ast.get_docstring(one) is None)
                    inner += [(one, f"{name} {one.name}")] * isinstance(one, ast.ClassDef)
    assert silent == []


def test_what_a_checker_is_told_to_ignore_has_its_reason_on_the_line() -> None:
    files = [path for folder in (*ROOMS, "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")]
    silent = re.compile(r"# (?:type: ignore|noqa)(?:\[[\w, -]+\]|: [A-Z0-9, ]+)?\s*$")
    numbered = [(path, enumerate(path.read_text(encoding="utf-8").splitlines(), 1)) for path in files]
    assert [f"{path}:{at}" for path, lines in numbered for at, line in lines if silent.search(line)] == []


BRITISH = re.compile(
    r"(?:(?:al|til|ant|ptim|rgan|ummar|inim|axim|ecogn|hron)is(?:e|ed|es|er|ing|ation)\b"
    r"|colour|behaviour|neighbour|favour|honour|labelled|\bcentres?\b|\bgrey\b)", re.IGNORECASE,
)
"""Words that the house spells as Americans do: serialization, utilization, color, center."""
KEPT = {"utilisation"}
"""A column of `--links`: keys and columns of files are never renamed."""


def test_spelling_is_american() -> None:
    folders = (*ROOMS, "docs", "examples", "benchmarks", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")
             if path.suffix in (".py", ".pyi", ".md", ".toml") and path != Path(__file__)]
    found = {f"{path.relative_to(ROOT)}: {word}" for path in [*files, *ROOT.glob("*.md")]
             for word in set(re.findall(r"\w+", path.read_text(encoding="utf-8"))) - KEPT if BRITISH.search(word)}
    assert found == set()
