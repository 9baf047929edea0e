"""The one exception that tells a user what was wrong with the input."""

from __future__ import annotations

MOST_CHARACTERS = 1500
"""Of a message: what was wrong may itself be megabytes long."""


class WeftError(ValueError):
    """Bad input: the message names the item, what it was and what is accepted.

    The command line prints the message as one line and exits with code 2. So it is one line, whatever was in the
    input: line breaks become spaces, other control characters are written as Python writes them, and what is too long
    loses its middle.
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
