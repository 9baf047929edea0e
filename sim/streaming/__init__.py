"""Packets through the slots of an aggregating switch, with loss and late workers.

Imports `sim.analytic`, `sim.engine` and `sim.program`.
"""
