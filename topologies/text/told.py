"""Values as error messages show them."""

from __future__ import annotations

LONGEST_TOLD = 60


def told(value: object) -> str:
    """A value as an error message shows it: not longer than a line."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "of thousands of digits"
    return text if len(text) <= LONGEST_TOLD else f"{text[:LONGEST_TOLD]}..."
