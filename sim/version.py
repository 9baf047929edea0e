"""Which weft this is."""

from functools import cache
from pathlib import Path

RESULTS_VERSION = 35
"""Goes up when any simulated number changes, with an entry under "changed results" in CHANGELOG.md: stores of sweeps do
not mix results of different versions."""


@cache
def weft_version() -> str:
    """Version of the installed distribution; of pyproject.toml when run from a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # an eighth of the start of a small command

    try:
        return version("weft")
    except PackageNotFoundError:
        import tomllib

        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])


def __getattr__(name: str) -> str:
    if name == "__version__":
        return weft_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
