"""Packets through the slots of an aggregating switch, with loss and late workers.

Imports `sim.simulation`, `sim.faults`, and the packages below them.
"""
