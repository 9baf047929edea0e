"""Bytes that a hierarchical collective sends in each dimension (libra.md section 1.1; BlueConnect, MLSys'19)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from topologies import WeftError

F64 = npt.NDArray[np.float64]

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")


def dimension_traffic(kind: str, size_bytes: float, sizes: Sequence[int]) -> F64:
    """Bytes that each NPU sends in each dimension, (D,).

    A reduce-scatter climbs from dimension 1 and shrinks by the size of each group that it passes; an all-gather comes
    down again and grows; an all-reduce is both; an all-to-all sends the whole buffer through every dimension.

    `size_bytes`: buffer of an NPU before: for an all-gather its shard, otherwise the full array.
    `sizes`: NPUs of the group in each dimension; 1 for a dimension that it does not use.
    WeftError: a kind that does not go dimension by dimension.
    """
    p = np.asarray(sizes, np.float64)
    if kind == "all-to-all":
        return size_bytes * (p - 1) / p
    below = np.concatenate(([1.0], np.cumprod(p)[:-1]))
    if kind == "all-gather":
        return size_bytes * (np.prod(p) / (below * p)) * (p - 1)
    factor = {"reduce-scatter": 1.0, "all-reduce": 2.0}.get(kind)
    if factor is None:
        raise WeftError(f"collective {kind!r} is not hierarchical: choose one of {', '.join(KINDS)}")
    return factor * size_bytes / below * (p - 1) / p
