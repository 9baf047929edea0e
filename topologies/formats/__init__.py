"""Topologies as other tools write them: GraphML, node-link JSON, InfraGraph, NCCL, nvidia-smi, ASTRA-sim.

Imports `topologies.core`, `topologies.text` and families.
"""
