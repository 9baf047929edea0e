"""Simulated optical fabrics: plans that switch circuits, circuits that follow demand, TopoOpt's clusters and search.

Imports `sim.simulation` and the packages below it.
"""
