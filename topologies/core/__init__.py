"""What a topology is: nodes, links, routes, symmetry.

Imports `topologies.text`, `topologies.units` and `topologies.checks`; never a family of fabrics.
"""
