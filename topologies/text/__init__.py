"""Strict readers of JSON, YAML and XML, and how objects print themselves: bad input produces one clear line.

Imports `topologies.checks` only.
"""
