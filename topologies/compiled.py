"""One door to compiled code: where it is kept, which of it is trusted, and how it is called.

The compiler is imported where something has to be compiled. Kept is an object file for each kernel and kinds of
arguments (topologies/native.py). It is machine code: whoever can write it can run anything here. So a folder is used
only if it and its parent belong to this user (or to root) and nobody else can write in them, and what cannot be read
back is compiled anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache, cached_property, partial
from importlib import import_module, metadata
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from topologies.native import Native, Value, processor, take
from topologies.process import Turn, few_searches, guarded
from topologies.stages import compiling, staged

Function = Callable[..., Any]

DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""NUMBA_DISABLE_JIT=1: everything is Python, for coverage."""

ANY_PROCESSOR = ("generic", "")
"""As NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name a processor with nothing but the base instructions."""

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
ROOT = 0

TOLD: set[str] = set()
"""Folders that were asked for and cannot be used, of which that was said."""

_lock = threading.RLock()
"""The compiler does one thing at a time."""


class Part:
    """What kernels call, made for the compiler when it comes to it.

    `maker`: what makes it, as `module:name`; called with the function and the flags.
    """

    def __init__(self, function: Function, maker: str, **flags: Any) -> None:
        self.py_func, self.maker, self.flags = function, maker, flags

    def __call__(self, *given: Any) -> Any:
        """Run it as Python."""
        return self.py_func(*given)

    @cached_property
    def made(self) -> Any:
        """As the compiler knows it."""
        return resolve_name(self.maker)(self.py_func, **self.flags)


class Kernel(Part):
    """What Python calls: compiled for the kinds of its arguments when it is first called, or found compiled."""

    def __init__(self, function: Function, stamp: str, maker: str, **flags: Any) -> None:
        super().__init__(function, maker, **flags)
        self.__name__, self.stamp = function.__name__, stamp
        self.signatures: dict[tuple[Any, ...], Native] = {}

    def __call__(self, *given: Any) -> Any:
        kinds: list[Any] = []
        words: list[int] = []
        take(given, kinds, words)
        native = self.signatures.get(key := tuple(kinds))
        return (native or self._compiled(key, given))(words)

    def held(self, *given: Any) -> Callable[[], Any]:
        """A call with arguments that stay where they are; what is in their arrays may change from one to the next."""
        kinds: list[Any] = []
        words: list[int] = []
        take(given, kinds, words)
        native = self.signatures.get(key := tuple(kinds)) or self._compiled(key, given)
        return lambda kept=given: native(words)  # type: ignore[misc]  # its arrays are alive as long as it is

    @cached_property
    def folders(self) -> list[Path]:
        """Where code of its own may be: that of this user, and then what came with the package."""
        own = cache_folder(Path(self.py_func.__code__.co_filename).parent, self.stamp)
        return [*([] if own is None else [own]), *_shipped(self.stamp)]

    @property
    def stem(self) -> str:
        """How the names of its files begin."""
        return f"{self.__name__}-{self.py_func.__code__.co_firstlineno}-"

    @staged("compilation")
    def _compiled(self, kinds: tuple[Any, ...], given: tuple[Value, ...]) -> Native:
        """Without Ctrl-C halfway, and with few searches for garbage: the compiler keeps most of what it makes."""
        with guarded(), _lock, few_searches():
            said = "|".join(one.__qualname__ if isinstance(one, type) else repr(one) for one in kinds)
            name = f"{self.stem}{hashlib.sha256(said.encode()).hexdigest()[:16]}.o"
            native = self._kept(name) or self._made(name, given)
            self.signatures[kinds] = native
            return native

    def _kept(self, name: str) -> Native | None:
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):  # there is none, or it was damaged
                return Native((folder / name).read_bytes())
        return None

    def _made(self, name: str, given: tuple[Value, ...]) -> Native:
        """Compile; one process at a time does, as others would only do the same once more."""
        own = next((one for one in self.folders if one.parent != SHIPPED), None)
        turn = None if own is None else Turn((own / name).with_suffix(".lock"))
        if turn is not None:
            turn.take()
        try:
            if turn is not None and (found := self._kept(name)) is not None:
                return found  # another process has compiled it meanwhile
            compiling(self.__name__)
            code: bytes = import_module("topologies.compiler").compiled(self, given)
            if own is not None:
                with contextlib.suppress(OSError):  # the disk does not take it
                    passing = own / f"{name}.{os.getpid()}"
                    passing.write_bytes(code)
                    passing.replace(own / name)
            return Native(code)
        finally:
            if turn is not None:
                turn.give_back()


def cached(
    function: Function, sources: Iterable[Path] = (), maker: str = "topologies.compiler:plain", **flags: Any
) -> Any:
    """Compile a function when it is first called, and keep the code for the next process.

    `sources`: all files whose change makes the code stale; default: the one that the function stands in.
    `maker`: what makes it something that numba compiles, as `module:name`.
    `**flags`: of `numba.njit`.

    Examples
    --------
    >>> from pathlib import Path
    >>> def twice(x):
    ...     return 2 * x
    >>> cached(twice, [Path(__file__)])(3)
    6
    """
    stale_with = tuple(sources) or (Path(function.__code__.co_filename),)
    return function if DISABLED else Kernel(function, _digest(stale_with), maker, **flags)


def part(function: Function, maker: str = "topologies.compiler:plain", **flags: Any) -> Any:
    """A part of kernels; parameters as in `cached`."""
    return function if DISABLED else Part(function, maker, **flags)


def held(function: Function, *given: Any) -> Callable[[], Any]:
    """A function of `cached`, to be called again and again with the same arguments; see `Kernel.held`."""
    return function.held(*given) if isinstance(function, Kernel) else partial(function, *given)


def is_at_hand(function: Function) -> bool:
    """Whether a function of `cached` can run compiled without being compiled now."""
    if not isinstance(function, Kernel):
        return False  # the compiler is switched off
    return bool(function.signatures) or any(any(one.glob(f"{function.stem}*.o")) for one in function.folders)


SHIPPED = Path(__file__).parent / "shipped"
"""Code that came with the package, compiled for any processor of its kind: `python -m benchmarks.wheel`."""


def shipped_folder(stamp: str) -> Path:
    """Where code for this interpreter and this compiler would be."""
    return SHIPPED / f"{_version()}-{stamp}"


def _shipped(stamp: str) -> list[Path]:
    """The same, if nobody else can have changed it."""
    folder = shipped_folder(stamp)
    return [folder] if folder.is_dir() and _ours(SHIPPED) and _ours(folder) else []


@cache
def _digest(sources: tuple[Path, ...]) -> str:
    everywhere = Path(__file__).with_name("compiler.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in (*sources, everywhere))).hexdigest()[:16]


@cache
def cache_folder(beside: Path, stamp: str) -> Path | None:
    """The folder of compiled code, or None where there is none that can be trusted.

    Tried in turn: NUMBA_CACHE_DIR, `__pycache__` beside the sources, and the cache folder of the user.

    `beside`: folder of the sources.
    `stamp`: digest of the sources.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    parents = ([Path(given)] if given else []) + [beside / "__pycache__", *_users_own()]
    for parent in parents:
        folder = parent / f"kernel-{_machine()}-{stamp}"
        with contextlib.suppress(OSError):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _ours(parent):
                continue
            folder.mkdir(mode=0o700, exist_ok=True)
            if _ours(folder) and os.access(folder, os.W_OK):
                if given and parent != Path(given):
                    _tell_once(given, f"is kept in {parent}")
                return folder
    if given:
        _tell_once(given, "is not kept")
    return None


def _tell_once(given: str, instead: str) -> None:
    if given not in TOLD:
        TOLD.add(given)
        wanted = "a folder of your own in which nobody else can write"
        line = f"weft: NUMBA_CACHE_DIR={given} cannot be used, it is not {wanted}: compiled code {instead}"
        print(line, file=sys.stderr)


def _users_own() -> list[Path]:
    """The user's cache folder; none where the user has no home."""
    given = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):
        return [(Path(given) if given else Path.home() / ".cache") / "weft"]
    return []


@cache
def _version() -> str:
    return f"{sys.implementation.cache_tag}-numba{metadata.version('numba')}"


@cache
def _machine() -> str:
    """Interpreter, compiler and processor: hosts that share a folder never write the same file."""
    return f"{_version()}-{hashlib.sha256(processor().encode()).hexdigest()[:8]}"


def _ours(folder: Path) -> bool:
    """Whether a folder is a real one of this user or of root, in which nobody else can write."""
    found = folder.lstat()
    trusted = found.st_uid in (os.geteuid(), ROOT)
    return stat.S_ISDIR(found.st_mode) and trusted and not found.st_mode & OTHERS_WRITE
