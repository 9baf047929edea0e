"""The figures and tables of the source papers, printed next to our own numbers: one module per paper.

Each has HELP and `run(out, quick)`, which writes tables and pictures to the folder `out`.

Imports all of `sim` but the command line and the report.
"""

PAPERS = ("swing", "pipeline", "lhc", "dear", "libra", "topoopt")
"""Modules of this package. A new paper is one file and one word here."""
