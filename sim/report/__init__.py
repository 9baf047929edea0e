"""The report: one HTML page, with all that it needs inside, from the JSON results of a folder.

Imports `sim.plots`, `sim.study` and what they import.
"""

from sim.report.page import report_page

__all__ = ["report_page"]
