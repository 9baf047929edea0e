"""The figures of the papers, drawn again from the committed pages, are looked at as every figure is."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from docs import pictures


@pytest.mark.full
@pytest.mark.parametrize("name", pictures.DRAWN)
def test_pages_hold_what_their_figures_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inspected: list[Figure]
) -> None:
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    pictures.DRAWN[name]()
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn <= {path.name for path in (pictures.DOCS / "images").iterdir()}
    assert len(inspected) >= len(drawn) > 1
    assert all(any(axes.has_data() for axes in one.axes) for one in inspected)
