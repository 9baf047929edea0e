"""Fabrics whose circuits change while the work runs.

Imports `sim.lower`, `sim.engine` and what they import.
"""
