"""Topology files of other tools: GraphML, node-link JSON, InfraGraph, NCCL, nvidia-smi, ASTRA-sim.

Imports `topologies.core`, `topologies.text` and families.
"""
