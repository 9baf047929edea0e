"""Every pair of features runs in both engines, or is refused for the reason that the page gives."""

from __future__ import annotations

import pytest

from docs.composition import NONE_HERE, OF_ONE_KIND, PAIRS, Both, on_page
from docs.generate import DOCS
from sim import simulate
from topologies import WeftError

TOGETHER = [pair for pair in PAIRS if frozenset(pair) not in NONE_HERE]
REFUSED = [pair for pair in PAIRS if NONE_HERE.get(frozenset(pair), OF_ONE_KIND[0]) not in OF_ONE_KIND]


@pytest.mark.table
@pytest.mark.parametrize("pair", TOGETHER, ids="-".join)
def test_both_run_together_in_both_engines(pair: tuple[str, str]) -> None:
    both = Both(pair)
    work, arguments = both.work(), both.arguments()
    found = simulate(work, **arguments)
    assert found.outcome is not None
    if found.engine == "chunk":
        other = simulate(work, engine="reference", **arguments)
        assert (found.time_ps, found.events) == (other.time_ps, other.events)


@pytest.mark.parametrize("pair", REFUSED, ids="-".join)
def test_a_pair_without_a_meaning_is_refused(pair: tuple[str, str]) -> None:
    both = Both(pair)
    with pytest.raises(WeftError):
        simulate(both.work(), **both.arguments())


def test_the_page_has_the_table() -> None:
    page = (DOCS / "background" / "model.md").read_text(encoding="utf-8")
    assert on_page(page) == page, "make docs"
