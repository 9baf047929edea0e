"""The all-to-all as a plain C++ loop (plain_loop.cpp), compiled where the machine has a compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from sim.program import I32, I64, Program

SOURCE = Path(__file__).with_suffix(".cpp")
BUCKET_BITS, BUCKETS = 18, 1 << 16


@cache
def compiled() -> ctypes.CDLL | None:
    """The loop, or None where there is no compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "plain_loop.so"
        flags = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE)], check=True)
        loop = ctypes.CDLL(str(library))
    loop.run.restype = ctypes.c_int64
    return loop


def run(program: Program) -> tuple[int, int, I64, I64]:
    """Makespan, services, finish of each task and busy time of each server: those of the engine, to the picosecond."""
    loop = compiled()
    assert loop is not None
    assert program.stream_child.size == program.whole_child.size == 0
    chunks = int(program.cut_chunks[0])
    size = program.cut_size[0, 0]
    service = np.ascontiguousarray(program.service(size, program.server_rate))
    assert (program.cut_chunks == chunks).all() and (program.cut_size == size).all() and not program.cut_through
    assert service.min() >> BUCKET_BITS and int(program.route_latency_ps.min()) >> BUCKET_BITS
    first = np.ascontiguousarray(program.route_ptr[program.task_route])
    last = np.ascontiguousarray(program.route_ptr[program.task_route + 1])
    server, latency = np.ascontiguousarray(program.route_server), np.ascontiguousarray(program.route_latency_ps)
    finish, busy = np.zeros(program.n_tasks, np.int64), np.zeros(program.n_servers, np.int64)
    services = ctypes.c_int64()

    def pointer(array: I32 | I64) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    makespan = loop.run(
        *(ctypes.c_int64(n) for n in (program.n_tasks, program.n_servers, chunks)),
        *(pointer(array) for array in (first, last, server, latency, service, program.task_class, finish, busy)),
        ctypes.c_int64(BUCKET_BITS), ctypes.c_int64(BUCKETS), ctypes.byref(services),
    )
    return makespan, services.value, finish, busy
