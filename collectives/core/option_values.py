"""Values of options, as they come from Python, from the command line and from files."""

from __future__ import annotations

import numpy as np

from topologies import WeftError

MOST = 2**31 - 1
"""Of anything that is counted: what a table of transfers holds."""


def whole_number(value: object, what: str, also: str = "") -> int:
    """A number of things, from 1 to 2^31 - 1.

    Parameters
    ----------
    value : object
    what : str
        The option, for messages.
    also : str
        What else it takes, for messages.

    Raises
    ------
    WeftError
        Anything else, such as 2.5, True or "4".
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MOST:
        raise WeftError(f"{what} is {value!r}: a whole number, at least 1 and below 2^31{', ' + also if also else ''}")
    return int(value)


def rank_number(value: object, what: str, n_ranks: int, where: str) -> int:
    """A rank of a network.

    Raises
    ------
    WeftError
        Anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < n_ranks:
        raise WeftError(f"{what} {value!r} is not one of the {n_ranks} ranks of {where}")
    return int(value)


def truth(value: object, what: str) -> bool:
    """True or False.

    Raises
    ------
    WeftError
        Anything else.
    """
    if not isinstance(value, bool | np.bool_):
        raise WeftError(f"{what} is {value!r}: true or false")
    return bool(value)
