"""A program and how one is made: the door through which the other rooms of `sim` come.

What the arrays mean is in `sim.contract`; how transfers become chunks, in `sim.cutting`; how columns become a
program, in `sim.assemble`; and how one is built task by task, in `sim.builder`.
"""

from __future__ import annotations

from sim.assemble import NO_POOLS, Columns, Pools, assemble
from sim.builder import ProgramBuilder
from sim.contract import (
    CLOCK_END_PS,
    DELIVERY,
    DISCIPLINES,
    FIFO,
    FORWARDING,
    I8,
    I32,
    I64,
    LOWEST_CHUNK_FIRST,
    PER_CHUNK,
    PER_TASK,
    PRIORITY,
    SMALLEST_FIRST,
    WHOLE,
    Program,
    check_choice,
    check_healthy,
)
from sim.cutting import Cutting, service_time_ps
from sim.rows import unique_rows

__all__ = [
    "CLOCK_END_PS", "DELIVERY", "DISCIPLINES", "FIFO", "FORWARDING", "I8", "I32", "I64", "LOWEST_CHUNK_FIRST",
    "NO_POOLS", "PER_CHUNK", "PER_TASK", "PRIORITY", "SMALLEST_FIRST", "WHOLE", "Columns", "Cutting", "Pools",
    "Program", "ProgramBuilder", "assemble", "check_choice", "check_healthy", "service_time_ps", "unique_rows",
]
