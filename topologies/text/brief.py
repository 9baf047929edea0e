"""How objects print themselves: one line of at most 120 characters, whatever they hold."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TypeGuard, TypeVar

import numpy as np

from topologies.checks import WeftError, nearest, told

WIDTH = 120
"""Characters of a `repr`."""

VALUE_WIDTH = 40
"""Characters of one value within it."""

T = TypeVar("T")


def one_line(cls: type[T]) -> type[T]:
    """Class decorator: `repr` names the fields that differ from their defaults, long values by their size alone.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @one_line
    ... @dataclass
    ... class Rates:
    ...     name: str
    ...     rate_Bps: np.ndarray
    ...     seed: int = 0
    >>> Rates("links", np.zeros((64, 2)))
    Rates(name='links', rate_Bps=<(64, 2) float64>)
    """
    cls.__repr__ = _brief  # type: ignore[method-assign]  # one for all classes
    return cls


class UnknownName(WeftError, KeyError):
    """A registry has no such name."""

    __str__ = ValueError.__str__  # that of KeyError has quotes around it


class Registry(dict[str, T]):
    """Things by name; `repr` is one line, and a name that is not there is answered with the nearest.

    Examples
    --------
    >>> Registry("colors", {"red": 1, "blue": 2})
    <2 colors: red, blue>
    """

    def __init__(self, what: str, things: Mapping[str, T]) -> None:
        super().__init__(things)
        self.what = what

    def __missing__(self, name: object) -> T:
        raise UnknownName(f"no such name among {self.what}: {told(name)}{nearest(name, self)}")

    def __repr__(self) -> str:
        return f"<{cut(f'{len(self)} {self.what}: ' + ', '.join(self), WIDTH - 20)}>"


def cut(text: str, width: int = WIDTH) -> str:
    """Text on one line; what is too long loses its middle."""
    text = " ".join(text.split())
    keep = (width - 3) // 2
    return text if len(text) <= width else f"{text[:width - 3 - keep]}...{text[-keep:]}"


def _brief(self: object) -> str:
    name, shown, dots = type(self).__name__, "", "..."
    for field, value in _told(self):
        part = f"{', ' if shown else ''}{field}={_value(value)}"
        if len(name) + len(shown) + len(part) + len(dots) + 4 > WIDTH:
            return f"{name}({shown}{', ' if shown else ''}{dots})"
        shown += part
    return f"{name}({shown})"


def _told(thing: object) -> Iterator[tuple[str, object]]:
    """Fields and values that are not plain defaults."""
    if is_dataclass(thing):
        for field in fields(thing):
            if field.repr and field.init:
                value = getattr(thing, field.name)
                default = field.default_factory() if field.default_factory is not MISSING else field.default
                if not _same(value, default):
                    yield field.name, value
        return
    defaults = getattr(thing, "_field_defaults", {})
    for name in getattr(thing, "_fields", ()):
        value = getattr(thing, name)
        if not _same(value, defaults.get(name, MISSING)):
            yield name, value


def _same(value: object, default: object) -> bool:
    if isinstance(value, np.ndarray):
        return False
    return value is default or (type(value) is type(default) and bool(value == default))


def _is_collection(value: object) -> TypeGuard[Collection[object]]:
    """Whether its length says how much is in it: a NamedTuple's is only its number of fields."""
    return isinstance(value, (tuple, list, dict, set, frozenset)) and not hasattr(value, "_fields")


def _value(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.shape if value.ndim != 1 else value.size} {value.dtype}>"
    if _is_collection(value) and len(value) > VALUE_WIDTH // 3:
        return f"<{type(value).__name__} of {len(value)}>"  # at least three characters an item
    if callable(value):
        return f"<{getattr(value, '__name__', type(value).__name__)}>"
    text = repr(value)
    if len(text) <= VALUE_WIDTH and text.isprintable():
        return text
    if _is_collection(value):
        return f"<{type(value).__name__} of {len(value)}>"
    return cut(text, VALUE_WIDTH) if isinstance(value, (str, int, float)) else f"{type(value).__name__}(...)"
