"""Jobs, tenants and faulty runs, from work to result.

Imports `sim.simulation` and what stands below it.
"""
