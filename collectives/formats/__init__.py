"""Schedules as other tools write them: MSCCL, ForestColl, htsim.

Imports `collectives.core` and `collectives.trees`.
"""
