"""Compiled code without the compiler: object files are loaded, and called with words.

A kernel's door (topologies/compiler.py) takes the address of words: of an array its address as an object of Python, of
a number itself, of a tuple those of its items. What the kernel returns is written over them.
"""

import ctypes
import hashlib
import json
import os
import struct
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import binding

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
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._engine.get_function_address(door))

    def __call__(self, words: list[int]) -> Any:
        row = (ctypes.c_int64 * max(len(words), len(self.reads)))(*words)
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
