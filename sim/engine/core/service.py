"""The one place where kernels look up how long a chunk is served."""

from sim.engine.compile.door import helper


@helper
def service_ps(program, size, rate):
    """How long a chunk of a size (by its number) holds a server of a rate."""
    return program.service_ps[program.service_row[size] + rate]
