"""Edges laid out by their keys, in CSR form."""

from functools import partial

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError
from topologies.compiled import cached

I32 = npt.NDArray[np.int32]

FEW = 2**13
"""Edges for which no compiled pass is loaded."""

STREAM = 0, 2**31 - 1
"""Least and most lag of waits chunk by chunk and of windows."""


def dealt(key: I32, value: I32, lag: I32, kind: tuple[int, int], n_keys: int) -> tuple[I32, I32, I32]:
    """Edges in the order of their keys, those of one key as they come: pointers, values, lags (none of kinds below 0).

    `kind`: the least and the most lag of those that are meant.
    """
    if key.size >= 2**31:
        raise WeftError(f"{key.size} dependencies are too many: at most 2147483647")
    meant = (lag >= kind[0]) & (lag <= kind[1])
    count = int(np.count_nonzero(meant))
    # Views of what was given may be read-only: compiled loops have one type of array.
    key, value, lag = (np.require(column, np.int32, ("C", "W")) for column in (key, value, lag))
    ptr, in_order = np.zeros(n_keys + 1, np.int32), count == key.size and np.all(key[1:] >= key[:-1])
    if count > FEW and not in_order:
        values, lags = np.empty(count, np.int32), np.empty(count * (kind[1] > 0), np.int32)
        _deal(key, value, lag, *kind, ptr, values, lags)
        return ptr, values, lags
    key, value, lag = (column if count == key.size else column[meant] for column in (key, value, lag))
    np.cumsum(np.bincount(key, minlength=n_keys), out=ptr[1:])
    order = slice(None) if in_order else np.argsort(key, kind="stable")
    return ptr, value[order], lag[order] if kind[1] > 0 else lag[:0]


@partial(cached, nogil=True, _nrt=False)
def _deal(key, value, lag, least, most, ptr, values, lags):  # type: ignore[no-untyped-def]  # jitted
    """Lay out the edges of some lags by their keys; those of one key stay in order.

    `ptr` (keys + 1,): zeros; filled, as `values` are, and `lags` unless they are empty.
    """
    for at in range(key.size):
        if least <= lag[at] <= most:
            ptr[key[at] + 1] += 1
    for row in range(1, ptr.size):
        ptr[row] += ptr[row - 1]
    for at in range(key.size):
        if least <= lag[at] <= most:
            place = ptr[key[at]]
            values[place], ptr[key[at]] = value[at], place + 1
            if lags.size:
                lags[place] = lag[at]
    for row in range(ptr.size - 1, 0, -1):  # each is where the next begins by now
        ptr[row] = ptr[row - 1]
    ptr[0] = 0
