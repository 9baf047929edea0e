"""What a schedule is: collectives, transfers, patterns, their proof and their symmetry.

Imports `topologies` only; never an algorithm.
"""
