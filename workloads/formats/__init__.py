"""Workloads and traces as other tools write them: Chakra, GOAL, LIBRA, ASTRA-sim, SimAI.

Imports jobs and schedules.
"""
