"""What a topology can carry: maximum flows, cuts, and the load of every link.

Imports `topologies.core`.
"""
