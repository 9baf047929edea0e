"""One door to compiled code: where it is kept, which of it is trusted, and how it is called.

The compiler is imported where something has to be compiled. Kept is an object file for each kernel and kinds of
arguments (topologies/compiled.py). It is machine code: whoever can write it can run anything here. So a folder is used
only if it and its parent belong to this user (or to root) and nobody else can write in them, and what cannot be read
back is compiled anew.

Compiled code without the compiler: object files are loaded, and called with words.

A kernel's door (topologies/compiler.py) takes the address of words: of an array its address as an object of Python, of
a number itself, of a tuple those of its items. What the kernel returns is written over them.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from llvmlite import binding

from topologies.process import Turn, few_searches, guarded, held_back
from topologies.stages import compiling, staged

Value = Any
"""An array, a number, or a tuple of such."""

IN_ROWS, IN_COLUMNS, ELSE = 0x1, 0x2, 0x500
"""Flags of numpy that tell types of arrays apart: contiguous in either order; aligned, and writable."""

DIGEST = 32

READ: dict[str, Callable[[int], Any]] = {
    "bool": bool, "uint64": lambda word: word % 2**64,
    "float64": lambda word: struct.unpack("d", struct.pack("q", word))[0],
}
"""What a word stands for, by its type; others are the integer itself."""


def take(given: tuple[Value, ...], kinds: list[Any], words: list[int]) -> None:
    """Append what tells the types of arguments apart, and their words.

    Examples
    --------
    >>> kinds, words = [], []
    >>> take((3, (True, 1)), kinds, words)
    >>> kinds, words
    ([<class 'int'>, <class 'tuple'>, <class 'bool'>, <class 'int'>], [3, 1, 1])
    """
    for one in given:
        if isinstance(one, np.ndarray):
            flags = one.flags.num
            kinds += one.dtype, one.ndim, flags & (ELSE | (IN_ROWS if flags & IN_ROWS else IN_COLUMNS))
            words.append(id(one))
        elif isinstance(one, tuple):
            kinds.append(type(one))
            take(one, kinds, words)
        else:
            kinds.append(type(one))
            word = struct.unpack("q", struct.pack("d", one))[0] if isinstance(one, float | np.floating) else int(one)
            words.append(word)


def packed(code: bytes, door: str, returns: Sequence[str], *, many: bool, runtime: bool) -> bytes:
    """What is kept of a kernel.

    `door`: the name of its function.
    `returns`: types of what it returns; `many`: as a tuple.
    `runtime`: it calls numba's, which has to be loaded.
    """
    head = json.dumps([door, list(returns), many, runtime]).encode() + b"\n"
    return hashlib.sha256(head + code).digest() + head + code


class Native:
    """Code that can be called.

    ValueError: what was kept is damaged.
    """

    def __init__(self, kept: bytes) -> None:
        body = kept[DIGEST:]
        if hashlib.sha256(body).digest() != kept[:DIGEST]:
            raise ValueError("damaged")
        head, _, code = body.partition(b"\n")
        door, returns, self.many, runtime = json.loads(head)
        self.reads = [READ.get(kind) for kind in returns]
        if runtime:
            import_module("topologies.compiler").load_runtime()
        machine = _target().create_target_machine(codemodel="jitdefault", jit=True)  # which the engine takes
        self._engine = binding.create_mcjit_compiler(empty := binding.parse_assembly(""), machine)
        self._engine.remove_module(empty)  # which would be compiled, for 1.5 ms
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._engine.get_function_address(door))

    def __call__(self, words: list[int]) -> Any:
        return self.at(self.row(words))

    def row(self, words: list[int]) -> Any:
        """Arguments where the code reads them; what it returns is written over the first of them."""
        return (ctypes.c_int64 * max(len(words), len(self.reads)))(*words)

    def at(self, row: Any) -> Any:
        """Call with the arguments in a row."""
        if status := self._call(row):
            raise RuntimeError(f"a kernel ended with status {status}")
        found = tuple(row[i] if read is None else read(row[i]) for i, read in enumerate(self.reads))
        return found if self.many else found[0] if found else None


@cache
def _target() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple()


def processor() -> str:
    """The processor that code is compiled for."""
    name, features = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if name is not None or features is not None:
        return f"{name} {features}"
    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"


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


@cache
def _said(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else repr(kind)


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
        row, first = native.row(words), words[: len(native.reads)]

        def call(kept: tuple[Any, ...] = given) -> Any:  # its arrays are alive as long as it is
            row[: len(first)] = first
            return native.at(row)

        return call

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
        with _lock, few_searches():
            name = f"{self.stem}{hashlib.sha256('|'.join(map(_said, kinds)).encode()).hexdigest()[:16]}.o"
            with held_back():
                if (native := self._kept(name)) is not None:
                    self.signatures[kinds] = native
                    return native
            with guarded():
                native = self.signatures[kinds] = self._made(name, given)
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
    return f"{sys.implementation.cache_tag}-numba{_compiler()}"


def _compiler() -> str:
    """Version of numba, by the folder of its metadata; what reads metadata takes longer than loading all kernels."""
    found = find_spec("numba")
    beside = [] if found is None or found.origin is None else Path(found.origin).parents[1].glob("numba-*.dist-info")
    versions = [one.stem.partition("-")[2] for one in beside]
    return versions[0] if len(versions) == 1 else import_module("importlib.metadata").version("numba")


@cache
def _machine() -> str:
    """Interpreter, compiler and processor: hosts that share a folder never write the same file."""
    return f"{_version()}-{hashlib.sha256(processor().encode()).hexdigest()[:8]}"


def _ours(folder: Path) -> bool:
    """Whether a folder is a real one of this user or of root, in which nobody else can write."""
    found = folder.lstat()
    trusted = found.st_uid in (os.geteuid(), ROOT)
    return stat.S_ISDIR(found.st_mode) and trusted and not found.st_mode & OTHERS_WRITE
