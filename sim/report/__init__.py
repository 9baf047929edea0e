"""The report: one self-contained HTML page from the JSON results of a folder.

Imports `sim.plots`, `sim.study` and what they import.
"""

from sim.report.page import report_page

__all__ = ["report_page"]
