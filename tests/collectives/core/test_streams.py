"""Are transfers that are emitted and packed part by part those that are emitted at once?"""

from __future__ import annotations

import numpy as np
import pytest

from collectives import ALGORITHMS, algorithms_for, build
from collectives.core import streams
from collectives.core.transfers import Transfers
from topologies import WeftError, from_spec


@pytest.mark.table
@pytest.mark.parametrize("fabric", ["ring:6", "torus:4x4", "fat-tree:4", "random-regular:10x3x1"])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", ["all-reduce", "all-to-all"])
def test_parts_are_the_whole(monkeypatch: pytest.MonkeyPatch, fabric: str, name: str, kind: str) -> None:
    """Every column, for every algorithm that runs there: named links, pools and rounds as well."""
    if name not in algorithms_for(kind):
        return
    try:
        pattern = build(name, kind, from_spec(fabric), "64KiB").pattern
    except WeftError:
        return
    sources = np.arange(pattern.n_sources or pattern.p)
    whole = pattern.emit(sources)
    monkeypatch.setattr(streams, "PART", 5)
    assert_same(streams.emitted(pattern.emit, sources), whole)
    for some in (sources[1::2], sources[:1]):
        assert_same(streams.emitted(pattern.emit, some), pattern.emit(some))


def assert_same(found: Transfers, whole: Transfers) -> None:
    for name, one, other in zip(whole._fields, found, whole, strict=True):
        assert (one is None) == (other is None), name
        assert one is None or (np.array_equal(one, other) and not one.flags.writeable), name
