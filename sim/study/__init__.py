"""Many runs: the specification of an experiment, sweeps over it, their stores and tables.

Imports `sim.simulation` and the packages below it.
"""
