"""How real machines compare: measurements are read, judged, and set beside simulated ones.

Imports `sim.study` and what it imports.
"""
