"""Trees: packings of spanning trees, forests, and the schedules that stream along them.

Imports `collectives.core`.
"""
