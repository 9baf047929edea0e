"""Fabrics whose circuits change while the work runs.

Imports `sim.simulation` and what stands below it.
"""
