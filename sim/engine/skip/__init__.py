"""Stretches of a run that repeat, and how they are skipped. Imports the loop."""
