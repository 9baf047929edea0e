"""What each tenant of a shared fabric takes beside the others, and where its time went.

Imports `sim.simulation` and the packages below it.
"""
