"""Schedule files of other tools: MSCCL, ForestColl, htsim.

Imports `collectives.core` and `collectives.trees`.
"""
