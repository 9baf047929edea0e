"""The one exception that tells a user what was wrong with the input."""

from __future__ import annotations


class WeftError(ValueError):
    """Bad input: the message names the item, what it was and what is accepted.

    The command line prints the message as one line and exits with code 2.
    """
