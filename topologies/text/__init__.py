"""Strict readers of JSON, YAML and XML: bad input ends in one clear line.

Imports `topologies.errors` and `topologies.units`.
"""
