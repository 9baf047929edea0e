"""What a topology can carry: maximum flows, cuts, and link loads.

Imports `topologies.core`.
"""
