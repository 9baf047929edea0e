"""ASTRA-sim's answer, to the nanosecond: a small simulator with its rules, which are not those of weft's engines.

Imports the packages below `sim`, and nothing of `sim` itself: it shares no code with the engines it is compared with.
"""

from sim.astra.run import AstraResult, run_astra

__all__ = ["AstraResult", "run_astra"]
