"""How real machines compare: measurements are read, judged, and set beside simulated ones.

Imports `sim.study`, `sim.analytic` and what they import.
"""
