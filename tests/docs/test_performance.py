"""What pages quote of the tables of performance is what stands there, and every table says under which load."""

from __future__ import annotations

import re

import pytest

from benchmarks import quotes, tables
from benchmarks.__main__ import PEERS, PEERS_TITLE
from benchmarks.__main__ import tables as measured


@pytest.mark.parametrize("number", range(len(quotes.PAGES)))
def test_a_page_quotes_the_tables(number: int) -> None:
    """`python -m benchmarks.quotes` writes it anew."""
    page, text = list(quotes.pages())[number]
    assert page.read_text(encoding="utf-8") == text


def test_the_file_has_every_table_that_is_measured() -> None:
    found = tables.kept()
    assert list(found) == [table.title for table in measured(1, quick=False, missed=[])] + [PEERS_TITLE]
    for table in measured(1, quick=False, missed=[]):
        assert re.match(r"Load \d", found[table.title]), table.title
        assert table.note in found[table.title].splitlines()[0], table.title
        assert tuple(tables.rows_of(found, table.title)[0]) == tuple(table.head)
    assert found[PEERS_TITLE] == PEERS


@pytest.mark.parametrize(("number", "places", "said"), [
    ("0.85", 1, "0.9"), ("0.84", 1, "0.8"), ("1,754.5", 0, "1,755"), (2.5, 0, "3"), (0.049, 1, "0.0"),
])
def test_a_quote_is_rounded_as_a_reader_would(number: str | float, places: int, said: str) -> None:
    assert quotes.rounded(number, places) == said


def test_a_table_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever measures for minutes keeps what was measured."""
    from benchmarks import __main__ as bench  # the module that is patched, not the names above

    def rows() -> list[list[str]]:
        raise AssertionError("7 services where 8 were due")

    kept: list[dict[str, str]] = []
    monkeypatch.setattr(bench, "tables", lambda *_: iter([
        tables.Table("Bad", ("a",), rows), tables.Table("Good", ("a",), lambda: [["1"]])]))
    monkeypatch.setattr(bench, "kept", lambda: {"Bad": "as it was", "Gone": "dropped"})
    monkeypatch.setattr(bench, "keep", lambda texts: kept.append(dict(texts)))
    monkeypatch.setattr(bench.quotes, "write", lambda: None)
    monkeypatch.setattr("sys.argv", ["benchmarks"])
    assert bench.main() == 1
    assert kept[-1]["Bad"] == "as it was"
    assert kept[-1]["Good"].endswith("| a |\n|---|\n| 1 |")
    assert "Gone" not in kept[-1]
