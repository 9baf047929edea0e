"""Validation of option values from Python, the command line and files."""

from __future__ import annotations

import numpy as np

from topologies import WeftError

MOST = 2**31 - 1
"""Limit on any count: what a table of transfers can hold."""


def whole_number(value: object, what: str, also: str = "") -> int:
    """A count, from 1 to 2^31 - 1.

    `what`: the option, for messages.
    `also`: what else is accepted, for messages.
    WeftError: anything else, such as 2.5, True or "4".
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MOST:
        raise WeftError(f"{what} is {value!r}: give an integer, at least 1 and below 2^31{', ' + also if also else ''}")
    return int(value)


def rank_number(value: object, what: str, n_ranks: int, where: str) -> int:
    """A rank of a network.

    WeftError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < n_ranks:
        raise WeftError(f"{what} {value!r} is not one of the {n_ranks} ranks of {where}")
    return int(value)


def truth(value: object, what: str) -> bool:
    """True or False.

    WeftError: anything else.
    """
    if not isinstance(value, bool | np.bool_):
        raise WeftError(f"{what} is {value!r}: give true or false")
    return bool(value)
