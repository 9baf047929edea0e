"""The one exception for bad input."""

from __future__ import annotations

MOST_CHARACTERS = 1500
"""Limit on a message, since it may quote megabytes of bad input."""


class WeftError(ValueError):
    """Bad input: the message names the item, what it was and what is accepted.

    The command line prints the message on one line and exits with code 2. The message is therefore a single line,
    whatever the input: line breaks become spaces, other control characters are escaped as in Python, and the middle of
    an overlong message is cut.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_one_line(str(message)))


def _one_line(message: str) -> str:
    if len(message) > MOST_CHARACTERS:
        message = f"{message[: MOST_CHARACTERS - 300]} [...] {message[-200:]}"
    if message.isprintable():
        return message
    line = " ".join(message.splitlines())
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)
