"""Strict readers of JSON, YAML and XML: bad input produces one clear line.

Imports `topologies.errors` and `topologies.units`.
"""
