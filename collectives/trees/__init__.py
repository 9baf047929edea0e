"""Trees to send along: packings of spanning trees, forests, and the schedules that stream through them.

Imports `collectives.core`.
"""
