"""Is a table of transfers that would not fit in memory refused before it is filled?"""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from collectives import build
from collectives.core import transfers
from collectives.core.transfers import BYTES_PER_ROW, TransferTable
from topologies import WeftError, from_spec
from topologies.core import extents

RANKS = 45_000


def test_what_a_table_takes_is_what_is_measured() -> None:
    emit = build("ring", "all-reduce", from_spec(f"ring:{RANKS}"), "1GiB").pattern.emission._emit
    tracemalloc.start()
    table = emit(np.array([7]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.src.size == 4 * (RANKS - 1)
    assert 0.7 < peak / (BYTES_PER_ROW * table.src.size) < 1.3


def test_the_transfers_of_one_rank_are_refused_before_any_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, kept = from_spec(f"ring:{RANKS}"), list[int]()
    chosen = transfers._chosen

    def counted(column: Any, kind: Any, where: Any, n: int) -> Any:
        kept.append(n)
        return chosen(column, kind, where, n)

    monkeypatch.setattr(transfers, "_chosen", counted)
    monkeypatch.setattr(extents, "physical_memory", lambda: 2.0**20)
    said = rf"ring on ring:{RANKS} is too large: at least 44,999 transfers of 1 rank take about .* of memory"
    with pytest.raises(WeftError, match=said):
        build("ring", "reduce-scatter", topology, "1GiB")
    assert not kept


def test_a_table_at_the_limit_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "physical_memory", lambda: 3.0 * BYTES_PER_ROW / extents.MEMORY_SHARE)
    table = TransferTable(np.arange(3))
    table.add(0, np.array([1, 2, 0]))
    assert table.build().src.size == 3
    with pytest.raises(WeftError, match="at least 4 transfers of 3 ranks"):
        table.add(1, np.array([-1, -1, 1]))
