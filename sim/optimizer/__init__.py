"""The outer loop: bandwidths, and discrete knobs, tuned against the simulated time.

Imports `sim.analytic`, `sim.why`, `sim.lower` and `sim.engine`; never `sim.study`: one design is one run of it.
"""
