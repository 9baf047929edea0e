"""What the links of a fabric are like: the keywords that builders share, and how they are read.

Families whose links differ, such as boxes, have keywords or defaults of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypedDict

import numpy as np
import numpy.typing as npt

from topologies.checks import Default, WeftError
from topologies.units import Quantities, Quantity, parse_bandwidth, parse_time

DEFAULT_BANDWIDTH: Quantity = "400Gb/s"
DEFAULT_LATENCY: Quantity = "100ns"
DEFAULT_HOP_LATENCY: Quantity = "300ns"


class Times(TypedDict, total=False):
    """Latency of links, one for all or one per dimension or tier, and what is added on every arrival at a node."""

    latency: Annotated[Quantities, Default(DEFAULT_LATENCY)]
    hop_latency: Annotated[Quantity, Default(DEFAULT_HOP_LATENCY)]


class Links(TypedDict, total=False):
    """The same, and bandwidth per direction of every cable, one for all or one per dimension or tier."""

    bandwidth: Annotated[Quantities, Default(DEFAULT_BANDWIDTH)]
    latency: Annotated[Quantities, Default(DEFAULT_LATENCY)]
    hop_latency: Annotated[Quantity, Default(DEFAULT_HOP_LATENCY)]


class EqualLinks(TypedDict, total=False):
    """The same where all cables are alike."""

    bandwidth: Annotated[Quantity, Default(DEFAULT_BANDWIDTH)]
    latency: Annotated[Quantity, Default(DEFAULT_LATENCY)]
    hop_latency: Annotated[Quantity, Default(DEFAULT_HOP_LATENCY)]


def per_dimension(value: Quantities, n_dims: int, what: str) -> list[Quantity]:
    """One value per dimension, from a single value or one per dimension.

    WeftError: neither 1 nor `n_dims` values.
    """
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Iterable):
        value = [value]
    values = list(value)
    if len(values) == 1:
        return values * n_dims
    if len(values) != n_dims:
        raise WeftError(f"{what} has {len(values)} values; give one for all dimensions or {n_dims}, one per dimension")
    return values


def per_tier(
    bandwidth: Quantities, latency: Quantities, n_tiers: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Bytes per second and picoseconds of a link of each tier."""
    rates = [parse_bandwidth(rate, "bandwidth") for rate in per_dimension(bandwidth, n_tiers, "bandwidth")]
    times = [parse_time(time, "latency") for time in per_dimension(latency, n_tiers, "latency")]
    return np.array(rates, np.float64), np.array(times, np.int64)


def parse_link(bandwidth: Quantity, latency: Quantity) -> tuple[float, int]:
    """Bandwidth in bytes/s and latency in ps of one link."""
    return parse_bandwidth(bandwidth, "link bandwidth"), parse_time(latency, "link latency")
