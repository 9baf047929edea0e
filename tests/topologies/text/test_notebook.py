"""What a notebook shows, and rows as data frames."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from collectives import swing
from topologies import WeftError, from_spec, ring, torus
from topologies.text.brief import html_table, to_frame


def cells(page: str) -> dict[str, str]:
    """Heads and cells of a table; what is not well-formed does not parse."""
    table = ElementTree.fromstring(page)
    return {row[0].text or "": row[1].text or "" for row in table.findall("tr")}


def test_a_topology_shows_its_size_and_its_links() -> None:
    fabric = torus((4, 2), bandwidth=["400Gb/s", "100Gb/s"], latency="100ns")
    assert cells(fabric._repr_html_()) == {
        "NPUs": "8", "switches": "0", "links": "24", "shape": "4 x 2", "bandwidth": "12.5 GB/s, 50 GB/s",
        "latency": "100 ns",
    }
    assert "bandwidth" not in cells(ring(1)._repr_html_())


def test_a_schedule_shows_what_it_does() -> None:
    shown = cells(swing.all_reduce(from_spec("torus:4x4"), "1MiB")._repr_html_())
    assert (shown["size"], shown["topology"], shown["ranks"]) == ("1 MiB", "torus:4x4", "16")


def test_text_is_escaped_and_long_text_is_cut() -> None:
    fabric = replace(ring(4), name="<script>&" + "x" * 500)
    page = fabric._repr_html_()
    assert "<script>" not in page and len(page) < 1000
    assert cells(html_table("a", {"b": "<&>" * 100, "none": None, "c": 1 / 3})) == {
        "b": cells(html_table("a", {"b": "<&>" * 100}))["b"], "c": "0.333333"
    }


def test_rows_become_a_frame_with_every_key() -> None:
    frame = to_frame([{"a": 1, "b": 2.5}, {"a": 3, "c": "x"}])
    assert list(frame.columns) == ["a", "b", "c"]
    assert frame["a"].tolist() == [1, 3] and frame["b"].isna().tolist() == [False, True]
    assert to_frame([]).empty


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(WeftError, match=r"needs pandas: pip install 'weft\[frame\]'"):
        to_frame([{"a": 1}])
