"""Which weft this is."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def weft_version() -> str:
    """Version of the installed distribution; of pyproject.toml when run from a source tree that is not installed."""
    try:
        return version("weft")
    except PackageNotFoundError:
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])
