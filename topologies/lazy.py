"""What is imported when it is first used: public names of a package (PEP 562), and functions of a table by their names.

The names stand once, as imports in the package's stub `__init__.pyi`, which type checkers and editors read as it is.
Importing the package reads the stub and nothing else: no compiler, no solver, no plotting library.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any


def exports(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from the imports of its stub.

    `package`, `file`: `__name__` and `__file__` of the package's `__init__.py`; the stub is beside it.

    Examples
    --------
    >>> import topologies
    >>> "torus" in topologies.__all__, topologies.torus.__module__
    (True, 'topologies.products')
    """
    origin = _origins(Path(file).with_suffix(".pyi"))

    def get(name: str) -> object:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = origin[name]
        if module == package:  # the name of a module in the package itself
            return import_module(f"{package}.{name}")
        value = getattr(import_module(module), attribute)
        setattr(sys.modules[package], name, value)  # found without this function from now on
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *origin}), sorted(origin)


def later(name: str) -> Callable[..., Any]:
    """A function, as "module:name", whose module is imported when it is first called: for tables, few of which is used.

    Examples
    --------
    >>> later("math:gcd")(12, 18)
    6
    """
    return partial(_call, name)


def _call(name: str, /, *given: Any, **named: Any) -> Any:
    return resolve_name(name)(*given, **named)


def _origins(stub: Path) -> dict[str, tuple[str, str]]:
    """Module and attribute of every name that a stub imports, one a line: `from module import attribute as name`."""
    lines = map(str.split, stub.read_text(encoding="utf-8").splitlines())
    return {words[-1]: (words[1], words[3]) for words in lines if words[:1] == ["from"]}
