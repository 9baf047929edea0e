"""Where the time went: the critical path of a run, every picosecond of it named.

Imports `sim.engine`, `sim.lower` and `sim.program`; never a fault plan.
"""
