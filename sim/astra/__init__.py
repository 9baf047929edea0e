"""ASTRA-sim's answer, to the nanosecond: a small simulator with its rules, which are not those of weft's engines."""

from sim.astra.run import AstraResult, run_astra

__all__ = ["AstraResult", "run_astra"]
