"""The four packages export their public names when they are used, and importing them loads nothing heavy."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = ("topologies", "collectives", "workloads", "sim")
HEAVY = {"numba", "scipy", "networkx", "rustworkx", "matplotlib", "rich", "clarabel", "simpy", "yaml", "pandas"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_resolves(package: str) -> None:
    module = importlib.import_module(package)
    assert len(module.__all__) > 10
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_a_public_name_means_one_thing() -> None:
    """Whatever is imported with `*`; a ring is a fabric and the algorithm on it, and the field has no other word."""
    names = [name for package in PACKAGES for name in importlib.import_module(package).__all__]
    assert {name for name in names if names.count(name) > 1} == {"ring"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_public_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        importlib.import_module(package).no_such_name  # noqa: B018  # looked up, not used


@pytest.mark.parametrize("package", PACKAGES)
def test_import_of_a_package_loads_nothing_heavy(package: str) -> None:
    code = f"import sys, {package}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert package in loaded
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_of_a_package_has_the_name_of_something_else_that_it_exports(package: str) -> None:
    """A module that is imported becomes an attribute of its package, and would hide the other."""
    stub = Path(importlib.import_module(package).__file__ or "").with_suffix(".pyi")
    lines = [line.split() for line in stub.read_text(encoding="utf-8").splitlines() if line.startswith("from ")]
    exported = {name for _, module, *_, name in lines if module != package}
    assert len(exported) > 10
    assert [name for name in sorted(exported) if find_spec(f"{package}.{name}") is not None] == []
