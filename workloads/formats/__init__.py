"""Workload and trace files of other tools: Chakra, GOAL, LIBRA, ASTRA-sim, SimAI.

Imports jobs and schedules.
"""
