"""The report in a real browser: it loads without complaint or network, and a click, a hover and a slider do their work.

Run by `make test-all` where a Chromium is found, and by `make test-browser`, which installs one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.cli import main
from tests.browser.chromium import Chromium, find

pytestmark = pytest.mark.browser

CURVE = "#result-0 .chart .series"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    assert find(), "there is no Chromium on this machine: make test-browser installs one"
    folder = tmp_path_factory.mktemp("results")
    words = f"validate --topology torus:4x4 --algorithms swing,ring -b 1K -e 1M -f 32 --quiet --json {folder}/a.json"
    assert main(words.split()) == 0
    assert main(["report", str(folder), "--frames", "20", "--quiet", "--title", "</script><b>Ein & Zwei"]) == 0
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        chromium.open(folder / "report.html")
        yield chromium


def test_it_loads_without_complaint_or_network(page: Chromium) -> None:
    assert page.complaints == []
    assert page.run("document.title") == "</script><b>Ein & Zwei"
    assert page.run("[...document.querySelectorAll('section')].length") == 1
    assert page.run(f"[...document.querySelectorAll('{CURVE}')].map(e => e.dataset.series)") == ["swing", "ring"]


def test_a_click_on_a_name_hides_its_curve_and_another_shows_it(page: Chromium) -> None:
    button = "#result-0 .legend button[data-series=ring]"
    page.click(button)
    assert page.run(f"[...document.querySelectorAll('{CURVE}')].map(e => e.dataset.series)") == ["swing"]
    assert page.run(f"document.querySelector('{button}').getAttribute('aria-pressed')") == "false"
    page.click(button)
    assert page.run(f"document.querySelectorAll('{CURVE}').length") == 2


def test_a_hover_shows_the_value_under_the_pointer(page: Chromium) -> None:
    page.move(*page.place("#result-0 .chart circle:nth-of-type(3)"))
    said = page.run("document.querySelector('.tooltip').innerText")
    assert said.startswith("swing (bandwidth form), 1 MiB\n")
    assert "goodput (Gb/s)" in said
    assert page.run("document.querySelector('.tooltip').hidden") is False
    page.move(2, 2)
    assert page.run("document.querySelector('.tooltip').hidden") is True


def test_the_wheel_zooms_and_a_button_goes_back(page: Chromium) -> None:
    ends = "document.querySelector('#result-0 .chart').dataset.x.split(' ').map(Number)"
    before = page.run(ends)
    page.wheel(*page.place("#result-0 .chart"), -100)
    page.wait(f"({ends})[1] - ({ends})[0] < {0.9 * (before[1] - before[0])}")
    page.click("#result-0 .reset")
    assert page.run(ends) == before


def test_another_quantity_is_drawn(page: Chromium) -> None:
    page.run("(() => { const s = document.querySelector('#result-0 .metric'); s.value = 'time (us)';"
             " s.dispatchEvent(new Event('change')); })()")
    assert page.run("document.querySelector('#result-0 .axis').textContent") == "time (us)"


def test_the_slider_plays_the_load_of_the_links(page: Chromium) -> None:
    colors = "[...document.querySelectorAll('.link')].map(e => getComputedStyle(e).stroke).join()"
    clock = "document.querySelector('.clock').textContent"
    move = ("(() => {{ const s = document.querySelector('.time'); s.value = {}; "
            "s.dispatchEvent(new Event('input')); }})()")
    page.run(move.format(0))
    first = page.run(colors), page.run(clock)
    seen = set()
    for frame in range(20):
        page.run(move.format(frame))
        seen.add(page.run(colors))
    assert len(seen) > 3
    assert page.run(clock) != first[1]
    page.run(move.format(17))
    page.click(".play")
    assert page.run("document.querySelector('.play').textContent") == "stop"
    page.wait("document.querySelector('.play').textContent === 'play'")
    assert page.run("document.querySelector('.time').value") == "19"


def test_a_link_says_its_name_and_load_and_a_click_draws_it(page: Chromium) -> None:
    page.place(".fabric")
    x, y = page.run(
        "(() => { const e = document.querySelector('.link');"
        " const p = e.getPointAtLength(e.getTotalLength() / 3).matrixTransform(e.getScreenCTM());"
        " return [p.x, p.y]; })()"
    )
    page.move(x, y)
    said = page.run("document.querySelector('.tooltip').innerText")
    assert said.startswith(page.run("document.querySelector('.link').dataset.link"))
    assert "% now" in said
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert page.run("document.querySelectorAll('.link.chosen').length") == 1
    assert page.run("document.querySelectorAll('.load.chosen').length") == 1


def test_part_of_a_bar_says_what_it_is(page: Chromium) -> None:
    page.move(*page.place(".bar span"))
    assert "% of what is shown" in page.run("document.querySelector('.tooltip').innerText")


def test_a_head_sorts_its_table(page: Chromium) -> None:
    page.run("document.querySelector('details.table').open = true")
    times = (
        "(() => { const heads = [...document.querySelectorAll('th button')];"
        " const at = heads.findIndex(b => b.dataset.column === 'size_bytes');"
        " return [...document.querySelectorAll('tbody tr')].map(r => r.children[at].textContent); })()"
    )
    page.click("th button[data-column=size_bytes]")
    rising = page.run(times)
    page.click("th button[data-column=size_bytes]")
    assert page.run(times) != rising
    assert rising[0] == "1024"


def test_nothing_went_wrong_on_the_way(page: Chromium) -> None:
    assert page.complaints == []
