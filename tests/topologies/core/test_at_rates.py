"""A network at other rates shares its wiring with the first, and is what it would be if it were built alone."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from topologies import Topology, WeftError, from_spec, torus
from topologies.core.rateless import RATES

WIRING = ("kind", "src", "dst", "dimension", "coords", "link_ptr")


@pytest.mark.parametrize("spec", ["torus:4x3", "multidim:RI(4)_SW(3)", "hx2mesh:2x2", "fat-tree:4", "leaf-spine:2x3x2"])
def test_fabrics_that_differ_in_rates_share_the_arrays_of_their_wiring(spec: str) -> None:
    slow, fast = (from_spec(spec, bandwidth=rate) for rate in ("100Gb/s", "400Gb/s"))
    assert all(getattr(slow, name) is getattr(fast, name) for name in WIRING)
    assert (4 * slow.bandwidth_Bps == fast.bandwidth_Bps).all()


@pytest.mark.parametrize("spec", ["torus:4x3", "multidim:RI(4)_SW(3)", "hx2mesh:2x2", "fat-tree:4", "dragonfly:3x2"])
def test_it_equals_a_network_that_is_built_alone(spec: str) -> None:
    found = from_spec(spec, latency="20ns")
    alone = Topology(**{one.name: getattr(found, one.name) for one in fields(found) if one.init})
    for one in fields(found):
        mine, its = getattr(found, one.name), getattr(alone, one.name)
        assert np.array_equal(mine, its) if isinstance(mine, np.ndarray) else mine == its, one.name
    assert found.n_npus == alone.n_npus
    assert not any(getattr(found, name).flags.writeable for name in RATES)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("bandwidth_Bps", 0.0, "positive, finite"), ("bandwidth_Bps", np.nan, "positive, finite"),
     ("latency_ps", -1, "negative latency"), ("hop_latency_ps", -1, "negative hop latency")],
)
def test_other_rates_are_checked(name: str, value: float, why: str) -> None:
    fabric = torus((4,))
    rates = {one: getattr(fabric, one).copy() for one in RATES}
    rates[name][1] = value
    with pytest.raises(WeftError, match=why):
        fabric.at_rates(**rates)
    with pytest.raises(WeftError, match=f"{name} has 3 entries"):
        fabric.at_rates(**{**rates, name: rates[name][:3]})
