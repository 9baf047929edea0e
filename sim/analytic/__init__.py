"""Times without events: lower bounds on every run, and alpha-beta estimates.

Imports `sim.lower`, `sim.program` and, for the longest path of a bound, a compiled sweep of `sim.engine`; never runs
a program.
"""
