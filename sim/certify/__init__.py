"""Is this run correct: cheap checks of an outcome against its program.

Imports `sim.program`; shares no code with the engines that it checks.
"""
