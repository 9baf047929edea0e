"""Kernels as plain Python, so that tests may call their parts, or change one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import pytest

from sim.engine import loop as _fifo
from sim.engine.compile import door as _jit
from sim.engine.core import calendar as _calendar
from sim.engine.core import lines as _fifo_line
from sim.engine.core import tasks as _fifo_task
from sim.engine.skip import events as _skip_events
from sim.engine.skip import limits as _skip_limits
from sim.engine.skip import moves as _skip_moves
from sim.engine.skip import parts as _skip_parts
from sim.engine.skip import runs as _skip_runs
from sim.engine.skip import stages as _skip_stages
from sim.engine.skip import watch as _skip_watch

SKIPPING = (
    _calendar, _fifo, _fifo_line, _fifo_task, _skip_events, _skip_limits, _skip_moves, _skip_parts, _skip_runs,
    _skip_stages, _skip_watch,
)
"""Where the parts of skipping are, below its loop."""


def as_python(patch: pytest.MonkeyPatch, modules: Iterable[ModuleType]) -> None:
    """Put Python in place of what is compiled: helpers have no callers but the loops."""
    for module in modules:
        for name, one in list(vars(module).items()):
            if isinstance(getattr(one, "py_func", None), FunctionType):
                patch.setattr(module, name, one.py_func)
            elif name in ("count_leading_zeros", "count_trailing_zeros"):
                patch.setattr(module, name, getattr(_jit, name.removeprefix("count")))


def change(
    patch: pytest.MonkeyPatch, modules: Iterable[ModuleType], function: Callable[..., Any], before: str, after: str
) -> None:
    """Change some text of a function that is Python, wherever it is called from."""
    text = "\n".join(line for line in inspect.getsource(function).splitlines() if not line.startswith("@"))
    assert text.count(before) == 1, f"{function.__name__} has {text.count(before)} times {before!r}"
    home: dict[str, Any] = {}
    exec(text.replace(before, after), function.__globals__, home)
    for module in modules:
        if vars(module).get(function.__name__) is function:
            patch.setattr(module, function.__name__, home[function.__name__])
