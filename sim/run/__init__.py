"""Jobs, tenants and faulty runs, from work to result.

Imports everything from `sim.why` and `sim.analytic` down.
"""
