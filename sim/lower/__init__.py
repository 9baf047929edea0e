"""From work to a program: schedules and jobs become tasks on servers, of the ranks that represent all others.

Imports `sim.program`; never an engine.
"""
