"""The built documentation asks the network for nothing, finds what is sought, has every public name, and fits a phone.

Run by `make docs-site`, which builds it; that its links and anchors lead somewhere is the builder's own check.
"""

from __future__ import annotations

import inspect
import json
import re
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

from docs.generate import MODULES, ROOMS, own_names
from tests.browser.chromium import Chromium, find
from tests.places import ROOT

pytestmark = pytest.mark.site

DOCS, SITE = ROOT / "docs", ROOT / "out" / "site"
PHONE = 390
"""Width of its screen."""

FETCHED = {"src", "srcset", "poster", "data", "background", "action"}
"""Attributes whose address a browser loads, or sends something to; of a link in the head, `href` too."""


class Fetched(HTMLParser):
    """Collects the addresses that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        loads = FETCHED | ({"href", "imagesrcset"} if tag in ("link", "base", "image", "use") else set())
        self.found += [value for name, value in attributes if name in loads and value]
        self.found += [value for name, value in attributes if name == "style" and value and "url(" in value]


def fetched(page: str) -> list[str]:
    reader = Fetched()
    reader.feed(page)
    return reader.found + styled("".join(re.findall(r"<style.*?</style>", page, re.DOTALL)))


def styled(css: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", css)


def remote(addresses: list[str]) -> list[str]:
    return [one for one in addresses if re.match(r"\s*([a-zA-Z+.-]*:)?//", one)]


def pages() -> list[Path]:
    """The pages of the site, without the reports of the gallery, which tests/browser looks at."""
    found = sorted(page for page in SITE.rglob("*.html") if "_downloads" not in page.parts)
    assert len(found) > 30, "make docs-site builds it"
    return found


def known() -> set[str]:
    """The names of Python that pages describe."""
    packed = (SITE / "objects.inv").read_bytes().split(b"\n", 4)[4]
    rows = [line.split() for line in zlib.decompress(packed).decode().splitlines()]
    return {name for name, role, *_ in rows if role.startswith("py:")}


def test_no_page_loads_anything_from_the_network() -> None:
    assert {page.name: remote(fetched(page.read_text(encoding="utf-8"))) for page in pages()} == {
        page.name: [] for page in pages()}
    for sheet in SITE.rglob("*.css"):
        assert remote(styled(sheet.read_text(encoding="utf-8"))) == [], sheet


@pytest.mark.parametrize("text", [
    '<script src="https://x.org/a.js"></script>', '<link rel="stylesheet" href="//x.org/a.css">', "<img src=HTTP://x.org/a.png>",
    "<style>@import 'https://x.org/a.css';</style>", "<p style='background: url(https://x.org/a.png)'>",
    '<svg><image href="https://x.org/a.png"/></svg>',
])
def test_what_would_be_loaded_is_found(text: str) -> None:
    found = [one for one in fetched(text) if "x.org" in one]
    assert remote(styled(found[0]) or found) != []
    assert remote(fetched(text.replace("https:", "").replace("HTTP:", "").replace("//x.org/", ""))) == []


def test_every_page_is_there() -> None:
    written = [*DOCS.rglob("*.md"), *DOCS.rglob("*.rst"), *DOCS.rglob("*.myst"), *(DOCS / "tutorial").glob("*.py")]
    sources = {path.relative_to(DOCS).with_suffix(".html") for path in written}
    built = {page.relative_to(SITE) for page in pages()}
    assert built - sources == {Path(name) for name in ("genindex.html", "py-modindex.html", "search.html")}
    assert sources - built == {Path("README.html")}


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_described(room: str) -> None:
    module = import_module(room)
    things = {f"{room}.{name}": getattr(module, name) for name in module.__all__}
    said = {name for name, thing in things.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
    assert len(said) > 10
    assert said - known() == set()


def test_every_name_of_the_inner_modules_is_described() -> None:
    names = ((path, name, thing) for path in MODULES for name, thing in own_names(import_module(path)))
    expected = {f"{path}.{name}" for path, name, thing in names if callable(thing)}
    assert expected - known() == set()


def test_notebooks_show_what_their_cells_display() -> None:
    for notebook in (DOCS / "tutorial").glob("*.py"):
        page = (SITE / "tutorial" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        assert "dataframe" in page or "<table" in page
        assert re.search(r'<img [^>]*src="\.\./_images/', page), notebook


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    assert find(), "there is no Chromium on this machine: make test-browser installs one"
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.mark.browser
def test_search_works_from_a_folder(browser: Chromium) -> None:
    browser.call("Page.navigate", url=(SITE / "search.html").as_uri() + "?q=straggler")
    browser.wait("document.querySelectorAll('#search-results li a').length > 3")
    assert "Imperfect fabrics" in browser.run("document.querySelector('#search-results').innerText")
    assert browser.complaints == []


@pytest.mark.browser
def test_pages_fit_a_phone_and_load_without_complaint(browser: Chromium) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=PHONE, height=800, deviceScaleFactor=1, mobile=True)
    wide = []
    for page in pages():
        browser.open(page)
        if browser.run("document.documentElement.scrollWidth") > PHONE:
            wide.append(page.name)
    assert wide == []
    assert browser.complaints == []


@pytest.mark.browser
def test_a_dark_screen_gets_a_dark_page(browser: Chromium) -> None:
    shade = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number))"
    seen = []
    for scheme in ("light", "dark"):
        features = json.loads(f'[{{"name": "prefers-color-scheme", "value": "{scheme}"}}]')
        browser.call("Emulation.setEmulatedMedia", features=features)
        browser.open(SITE / "index.html")
        seen.append(browser.run(shade))
    assert seen[0] > 200 > 60 > seen[1]
