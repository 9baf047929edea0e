"""The order of a run, to time it anew with other rates. Imports runs."""
