"""Runs the commands of docs/gallery.md, keeps their reports, and takes their pictures: `python -m docs.gallery`."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from sim.cli import main
from tests.browser.chromium import Chromium

DOCS = Path(__file__).parent
LOOKS = {"light": (1000, "light"), "dark": (1000, "dark"), "phone": (390, "light")}
DARK_PHONES = ("training",)


def run(page: Path) -> None:
    """Run the commands of a page in the current folder."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", "").splitlines():
            program, *words = shlex.split(line)
            if program == "mkdir":
                Path(*words).mkdir()
                continue
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                if program != "weft" or main([*words, "--quiet"]):
                    raise SystemExit(f"{line} failed")


def pictures(page: Path, reports: Path, profile: Path) -> None:
    """Take the pictures that a page shows of reports: images/report-NAME-LOOK.png."""
    with Chromium(profile) as chromium:
        for name, look in re.findall(r"images/report-([\w-]+)-(\w+)\.png", page.read_text(encoding="utf-8")):
            width, scheme = LOOKS[look]
            chromium.look(width, "dark" if look == "phone" and name in DARK_PHONES else scheme)
            chromium.open(reports / f"{name}.html")
            chromium.run("document.querySelectorAll('.time').forEach((one) => {"
                         " one.value = one.max / 2; one.dispatchEvent(new Event('input')); })")
            chromium.picture(DOCS / "images" / f"report-{name}-{look}.png")


def make() -> None:
    page, reports = DOCS / "gallery.md", DOCS / "gallery"
    reports.mkdir(exist_ok=True)
    with TemporaryDirectory() as place, contextlib.chdir(place):
        run(page)
        for report in Path().glob("*.html"):
            shutil.copy(report, reports)
        pictures(page, reports, Path(place) / "profile")


if __name__ == "__main__":
    make()
