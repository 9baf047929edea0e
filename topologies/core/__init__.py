"""What a topology is: nodes, links, routes, symmetry.

Imports `topologies.text`, `topologies.units` and `topologies.errors`; never a family of fabrics.
"""
