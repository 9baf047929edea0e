"""Fewer searches for garbage, where much is made and kept."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (20_000, 50, 1_000)
"""Thresholds of the garbage collector."""


@contextmanager
def few_searches() -> Iterator[None]:
    """While something is compiled a fifth of the time goes into searches at the usual thresholds; on a long path, more.

    Examples
    --------
    >>> with few_searches():
    ...     kept = [object() for _ in range(100_000)]
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*(own and max(own, seldom) for own, seldom in zip(thresholds, SELDOM, strict=True)))
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
