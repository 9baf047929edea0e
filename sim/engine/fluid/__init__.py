"""Flows that share links, max-min fair. Imports compile."""
