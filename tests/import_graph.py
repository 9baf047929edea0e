"""Who imports whom in the four packages, read from the sources: modules, floors, and imports inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import networkx as nx

from tests.places import ROOT

PACKAGES = ("topologies", "collectives", "workloads", "sim")


class Import(NamedTuple):
    """A module of ours that a module imports.

    Attributes
    ----------
    module, imported : str
    line : int
    text : str
        The line, for its comment.
    inside : bool
        Inside a function.
    """

    module: str
    imported: str
    line: int
    text: str
    inside: bool


@cache
def modules() -> dict[str, Path]:
    """Every module by its name; a package has the name of its folder."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def imports() -> tuple[Import, ...]:
    """Every import of one of our modules by another, those for type checkers included."""
    return tuple(one for name, path in modules().items() for one in _imports_of(name, path))


def _imports_of(name: str, path: Path) -> Iterator[Import]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
    while waiting:
        node, inside = waiting.pop()
        within = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            waiting.append((child, within))
            for imported in _imported(child):
                if imported != name:
                    assert isinstance(child, ast.Import | ast.ImportFrom)
                    yield Import(name, imported, child.lineno, lines[child.lineno - 1], within)


def _imported(node: ast.AST) -> set[str]:
    """The modules of ours that a statement imports: `from package import module` is the module."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in modules()}
    if isinstance(node, ast.ImportFrom) and node.module in modules():
        full = {f"{node.module}.{alias.name}" for alias in node.names}
        return full & modules().keys() or {node.module}
    return set()


def circles() -> list[list[str]]:
    """Modules that import each other, directly or through others."""
    graph = nx.DiGraph((one.module, one.imported) for one in imports())
    return [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]


def floors(package: str) -> dict[str, int]:
    """The floor of each file and folder of a package: one above the highest of what it imports in that package.

    Raises
    ------
    networkx.NetworkXUnfeasible
        Folders import each other.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from({name.split(".")[1] for name in modules() if name.startswith(f"{package}.")})
    for one in imports():
        (above, *upper), (below, *lower) = one.module.split("."), one.imported.split(".")
        if above == below == package and upper and lower and upper[0] != lower[0]:
            graph.add_edge(upper[0], lower[0])
    found: dict[str, int] = {}
    for name in reversed(list(nx.topological_sort(graph))):
        found[name] = 1 + max((found[below] for below in graph.successors(name)), default=0)
    return found
