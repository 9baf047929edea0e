"""Runs that are more than one program: tenants of a fabric, circuits that switch, packets through slots of a switch.

Imports `sim.simulation` and the packages below it.
"""
