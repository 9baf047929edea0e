"""Fabrics whose circuits change while the work runs.

Imports `sim.simulation` and the packages below it.
"""
