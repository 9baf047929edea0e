"""The one place where kernels look up how long a chunk is served."""

from __future__ import annotations

from sim.engine.compile.door import helper, u64


@helper
def service_ps(program, size, rate):
    return program.service_ps[u64(program.service_row[u64(size)] + rate)]
