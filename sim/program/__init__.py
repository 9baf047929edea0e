"""What the engines run: a program is arrays of servers, routes, tasks and dependencies, and this is how one is made.

Imports `topologies` only: `contract` says what the arrays mean, `cutting` how transfers become chunks, `assemble` how
columns become a program, and `builder` how one is built task by task.
"""

from __future__ import annotations

from sim.program.assemble import NO_POOLS, Columns, Nics, Pools, Posting, Works, assemble
from sim.program.builder import ProgramBuilder
from sim.program.columns import i32, unique_rows
from sim.program.contract import (
    CLOCK_END_PS,
    DELIVERY,
    DISCIPLINES,
    FIFO,
    FORWARDING,
    I8,
    I32,
    I64,
    LOWEST_CHUNK_FIRST,
    ORDERS,
    PER_CHUNK,
    PER_TASK,
    PRIORITY,
    PUSHED,
    ROUND_ROBIN_FLOW,
    ROUND_ROBIN_PORT,
    SMALLEST_FIRST,
    WHOLE,
    Program,
    check_healthy,
)
from sim.program.cutting import Cutting, service_time_ps
from sim.program.waits import Waits, waits_of

__all__ = [
    "CLOCK_END_PS", "DELIVERY", "DISCIPLINES", "FIFO", "FORWARDING", "I8", "I32", "I64", "LOWEST_CHUNK_FIRST",
    "NO_POOLS", "ORDERS", "PER_CHUNK", "PER_TASK", "PRIORITY", "PUSHED", "ROUND_ROBIN_FLOW", "ROUND_ROBIN_PORT",
    "SMALLEST_FIRST", "WHOLE", "Columns", "Cutting", "Nics", "Pools", "Posting", "Program", "ProgramBuilder", "Waits",
    "Works", "assemble", "check_healthy", "i32", "service_time_ps", "unique_rows", "waits_of",
]
