"""Every family of the registry refuses what is too large before it builds any of it."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from topologies import TOPOLOGIES, Family, WeftError, from_spec
from topologies.core import extents

MOST_BYTES = 2**20
"""A message takes less; 1 % of a million links takes more."""


@pytest.mark.table
@pytest.mark.parametrize("family", TOPOLOGIES.values(), ids=lambda family: family.name)
@pytest.mark.parametrize("how_many", [1, 0], ids=["one extent", "all extents"])
@pytest.mark.parametrize("extent", [3 * 10**8, 10**17 + 2])
def test_huge_extents_are_refused_before_anything_is_built(
    family: Family, how_many: int, extent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "physical_memory", lambda: 2.0**34)
    from_spec(family.example)  # so that what the family imports is loaded
    spec = re.sub(r"(?<=[x:(])\d+", str(extent), family.example, count=how_many)
    tracemalloc.start()
    try:
        with pytest.raises(WeftError) as refused:
            from_spec(spec)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(extent) in str(refused.value) and peak < MOST_BYTES


@pytest.mark.parametrize("spec", ["ring:100000000", "fat-tree:1024", "random-regular:1000x999", "hypercube:29",
                                  "dgx-a100:1000000", "switch:90000000", "circulant:100000000x1"])
def test_what_would_take_more_than_seconds_is_refused(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "physical_memory", lambda: 2.0**34)
    with pytest.raises(WeftError, match=r"at most|the limit is"):
        from_spec(spec)
