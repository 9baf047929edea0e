"""Is this run right: cheap checks of an outcome against the program that it is said to be of.

Imports `sim.program`; shares no code with the engines that it checks.
"""
