"""Which weft this is."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS_VERSION = 16
"""Goes up when any simulated number changes, with an entry under "changed results" in CHANGELOG.md: stores of sweeps do
not mix results of different versions."""


def _version() -> str:
    """Version of the installed distribution; of pyproject.toml when run from a source tree that is not installed."""
    try:
        return version("weft")
    except PackageNotFoundError:
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])


__version__ = _version()
