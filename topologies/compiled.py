"""One door to the compiler's cache: where compiled code is kept, and which of it is trusted.

Cached code is machine code inside a pickle: whoever can write it can run anything here. So a folder is used only if it
and its parent belong to this user (or to root) and nobody else can write in them, and what cannot be read back is
compiled anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock

from topologies.process import Turn, few_searches, guarded
from topologies.stages import compiling, staged

Function = Callable[..., Any]

ANY_PROCESSOR = ("generic", "")
"""As NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name a processor with nothing but the base instructions."""

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
ROOT = 0

TOLD: set[str] = set()
"""Folders that were asked for and cannot be used, of which that was said."""


def cached(function: Function, sources: Iterable[Path] = (), **flags: Any) -> Function:
    """Compile a function when it is first called, and keep the code for the next process.

    `sources`: all files whose change makes the code stale; default: the one that the function stands in.
    `**flags`: of `numba.njit`.

    Examples
    --------
    >>> from pathlib import Path
    >>> def twice(x):
    ...     return 2 * x
    >>> cached(twice, [Path(__file__)])(3)
    6
    """
    njit: Any = numba.njit  # its stubs lack flags
    config: Any = numba.config
    compiled: Function = njit(**flags)(function)
    if not config.DISABLE_JIT:
        own_file = Path(function.__code__.co_filename)
        stamp = _digest(tuple(sources) or (own_file,))
        folder = cache_folder(own_file.parent, stamp)
        own = None if folder is None else _Cache(function, _Place(folder, stamp))
        caches = _Caches(function.__name__, own, _shipped(function, stamp))
        compiled._cache = caches  # type: ignore[attr-defined]  # numba's own
        compiled.compile = partial(_undisturbed, compiled.compile, caches)  # type: ignore[attr-defined]  # the same
    return compiled


def is_at_hand(function: Function) -> bool:
    """Whether a function of `cached` can run compiled without being compiled now."""
    if not hasattr(function, "py_func"):
        return False  # the compiler is switched off
    return bool(function.signatures) or function._cache.is_kept()  # type: ignore[attr-defined]  # numba's own


@staged("compilation")
def _undisturbed(compile_or_load: Function, caches: _Caches, signature: Any) -> Any:
    """Without Ctrl-C halfway, and with few searches for garbage: the compiler keeps most of what it makes."""
    with guarded(), global_compiler_lock, few_searches():
        _load_numba()
        try:
            return compile_or_load(signature)
        finally:
            caches.let_others_go_on()


@cache
def _load_numba() -> None:
    """Load what numba loads before its first kernel, without SciPy's linear algebra: half a second of a command.

    Numba asks there whether SciPy has a BLAS; kernels that use one import it when they are compiled.
    """
    from numba.np import linalg

    checks: Any = linalg
    asks = checks.ensure_blas
    if find_spec("scipy") is not None:
        checks.ensure_blas = lambda: None
    from numba.np import arraymath

    found: Any = arraymath
    checks.ensure_blas = found.ensure_blas = asks


SHIPPED = Path(__file__).parent / "shipped"
"""Code that came with the package, compiled for any processor of its kind: `python -m benchmarks.wheel`."""


def shipped_folder(stamp: str) -> Path:
    """Where code for this interpreter and this compiler would be."""
    return SHIPPED / f"{sys.implementation.cache_tag}-numba{numba.__version__}-{stamp}"


def _shipped(function: Function, stamp: str) -> _Cache | None:
    """The code of a function that came with the package, if nobody else can have changed it."""
    folder = shipped_folder(stamp)
    if folder.is_dir() and _ours(SHIPPED) and _ours(folder):
        return _Shipped(function, _Place(folder, stamp))
    return None


@cache
def _digest(sources: tuple[Path, ...]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


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
def _machine() -> str:
    """Interpreter, compiler and processor: hosts that share a folder never write the same file."""
    processor = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    version = f"{sys.implementation.cache_tag}-numba{numba.__version__}"
    return f"{version}-{hashlib.sha256(processor.encode()).hexdigest()[:8]}"


def _ours(folder: Path) -> bool:
    """Whether a folder is a real one of this user or of root, in which nobody else can write."""
    found = folder.lstat()
    trusted = found.st_uid in (os.geteuid(), ROOT)
    return stat.S_ISDIR(found.st_mode) and trusted and not found.st_mode & OTHERS_WRITE


class _Place:
    """What numba asks a locator: the folder, and what tells fresh code from stale."""

    def __init__(self, folder: Path, stamp: str) -> None:
        self.folder, self.stamp = folder, stamp
        self.line = 0

    def from_function(self, function: Function, file: str) -> _Place:
        place = _Place(self.folder, self.stamp)
        place.line = function.__code__.co_firstlineno
        return place

    def get_cache_path(self) -> str:
        return str(self.folder)

    def get_source_stamp(self) -> str:
        return self.stamp

    def get_disambiguator(self) -> str:
        return str(self.line)

    def ensure_cache_path(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)


class _Cache(caching.FunctionCache):
    """A cache whose damage costs a compilation and nothing else."""

    def __init__(self, function: Function, place: _Place) -> None:
        implementation: Any = type("_Implementation", (caching.CompileResultCacheImpl,), {"_locator_classes": [place]})
        self._impl_class = implementation
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba has no types

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep code for the next process, if the disk takes it."""
        with contextlib.suppress(OSError):
            super().save_overload(signature, data)  # type: ignore[no-untyped-call]  # numba has no types

    def find(self, signature: Any, context: Any) -> Any:
        """The code of a signature; None where there is none, or none that can be read."""
        try:
            return super().load_overload(signature, context)  # type: ignore[no-untyped-call]  # numba has no types
        except Exception:  # a truncated pickle may raise anything
            self._forget()
            return None

    def _forget(self) -> None:
        """Remove the index: what it names is compiled anew."""
        with contextlib.suppress(OSError):
            os.unlink(self._cache_file._index_path)


class _Shipped(_Cache):
    """Code for any processor of its kind, which nothing is added to or removed from."""

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        found, (triple, *_), code = super()._index_key(signature, codegen)  # type: ignore[no-untyped-call]  # numba has no types
        return found, (triple, *ANY_PROCESSOR), code

    def _forget(self) -> None:
        """It stays as it came."""


class _Caches(caching.NullCache):
    """The user's own cache, then what came with the package; what neither has is announced before it is compiled.

    One process compiles a function at a time: others would only do the same once more, and numba's index of what is
    kept does not bear two that write.
    """

    def __init__(self, name: str, own: _Cache | None, shipped: _Cache | None) -> None:
        self.name, self.own, self.shipped = name, own, shipped
        self._turn = None if own is None else Turn(Path(own._cache_file._index_path).with_suffix(".lock"))

    @property
    def cache_path(self) -> str | None:
        """The folder of the user's own."""
        return None if self.own is None else str(self.own.cache_path)

    def is_kept(self) -> bool:
        """Whether there is code of any signature."""
        return any(one is not None and Path(one._cache_file._index_path).exists() for one in (self.own, self.shipped))

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The code of a signature; None where there is none."""
        if (found := self._found(signature, context)) is not None:
            return found
        if self._turn is not None:
            self._turn.take()
            if (found := self._found(signature, context)) is not None:
                return found  # another process has compiled it meanwhile
        compiling(self.name)
        return None

    def let_others_go_on(self) -> None:
        """After it was compiled and kept, or could not be."""
        if self._turn is not None:
            self._turn.give_back()

    def _found(self, signature: Any, context: Any) -> Any:
        for one in (self.own, self.shipped):
            if one is not None and (found := one.find(signature, context)) is not None:
                return found
        return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep code for the next process."""
        if self.own is not None:
            self.own.save_overload(signature, data)
