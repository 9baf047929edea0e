"""How real machines compare: measurements are read, judged, and compared with simulated times.

Imports `sim.study`, `sim.analytic` and what they import.
"""
