"""The figures and tables of the source papers, printed beside our own numbers: one module a paper.

Each has HELP and `run(out, quick)`, which leaves tables and pictures in the folder `out`.

Imports all of `sim` but the command line and the report.
"""

PAPERS = ("swing", "pipeline", "lhc", "dear", "libra", "topoopt")
"""Modules of this package. A new paper is one file and one word here."""
