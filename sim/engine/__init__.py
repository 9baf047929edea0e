"""Runs a program and reports when every chunk was served and delivered: the compiled event engine and its SimPy
reference.

Imports `sim.program`; the reference shares programs and outcomes with the kernel, and no code.
"""
