"""The figures and tables of the source papers beside our own: a module per paper, whose `run(left, quick)` leaves them.

Imports all of `sim` but the command line and the report.
"""

PAPERS = (
    "swing", "pipeline", "lhc", "dear", "libra", "topoopt", "optics", "hardware", "training", "seeds", "headlines",
)
"""Modules of this package. A new paper is one file and one word here."""
