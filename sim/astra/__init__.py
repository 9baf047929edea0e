"""ASTRA-sim's result, to the nanosecond: a small simulator of its rules, which differ from those of weft's engines.

Imports the packages below `sim`, and nothing of `sim` itself: it shares no code with the engines it is compared with.
"""
