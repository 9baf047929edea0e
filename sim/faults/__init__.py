"""What goes wrong during a run, and what it costs: plans of slowdowns, failures and loss, and how they are written into
a program.

Imports `sim.lower` and `sim.program`; never an engine.
"""
