"""Rows of named words: `state.servers[s].free_ps` in kernels, and `state.servers["free_ps"]` for all servers in Python.

A layout is declared once, as a class of words and half-words; an array of rows is a structured array of numpy. A kernel
sees the address of a row, and a word of it is one load or store. Half-words are read as int64, too.
"""

from functools import cached_property
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Word: TypeAlias = np.int64
Half: TypeAlias = np.int32


class Row:
    """A layout: the words of a row, in the order in which they lie in memory."""

    words: ClassVar[np.dtype[np.void]]

    def __init_subclass__(cls) -> None:
        cls.words = np.dtype(list(cls.__annotations__.items()), align=True)


Layout = TypeVar("Layout", bound=Row)


class _One:
    """A row as kernels see it, where they are Python."""

    __slots__ = ("columns", "index")

    def __init__(self, columns: dict[str, npt.NDArray[Any]], index: Any) -> None:
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "index", index)

    def __getattr__(self, word: str) -> np.int64:
        return np.int64(self.columns[word][self.index])

    def __setattr__(self, word: str, value: Any) -> None:
        self.columns[word][self.index] = value


class Rows(np.ndarray[Any, Any], Generic[Layout]):
    """An array of rows, whose rows kernels may have where they are Python; one that stands alone has no dimension."""

    @cached_property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Each field as a plain array, by its name."""
        return {word: self.view(np.ndarray)[word] for word in self.dtype.names or ()}

    @cached_property
    def known(self) -> dict[Any, _One]:
        """Rows that were asked for before: to make one takes as long as to read some words of it."""
        return {}

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int | np.integer):
            return self.view(np.ndarray)[index]
        one = self.known.get(index)
        if one is None:
            one = self.known[index] = _One(self.columns, index)
        return one

    def __getattr__(self, word: str) -> Any:
        if word not in self.columns:
            raise AttributeError(word)
        return np.int64(self.columns[word][()])

    def __setattr__(self, word: str, value: Any) -> None:
        if word in (self.dtype.names or ()):
            self.columns[word][()] = value
        else:
            super().__setattr__(word, value)  # numpy's own, as it makes views


def rows(layout: type[Layout], of: int | npt.NDArray[Any] = 0) -> Rows[Layout]:
    """New rows, all zero, or the rows that some memory is.

    A view of a plain array, as its columns are: a column of rows would keep the rows alive that keep it.
    """
    array = np.zeros(of, layout.words) if isinstance(of, int) else of.view(np.ndarray).reshape(-1).view(layout.words)
    return array.view(Rows)


def row(layout: type[Layout], memory: npt.NDArray[Any] | None = None) -> Rows[Layout]:
    """A row that stands alone."""
    return rows(layout, 1 if memory is None else memory).view(np.ndarray).reshape(()).view(Rows)
