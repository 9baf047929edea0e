"""Figures. Nothing outside this package imports matplotlib."""
