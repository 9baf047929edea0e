"""What every test runs under."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings

os.environ["COLUMNS"] = "120"  # tables are broken where a line of the terminal ends

pytest_plugins = ["tests.costs", "tests.sampling", "tests.fresh"]

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile(
    "mutants", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
)  # `make mutants` asks only whether a test fails
settings.load_profile("same")  # a change is judged on the same draws as the one before; see tests/fresh.py


def pytest_configure(config: pytest.Config) -> None:
    """Notes of readers are no errors; tests of them use `pytest.warns`."""
    config.addinivalue_line("filterwarnings", "ignore::topologies.text.schema.InputNote")


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests were started with it ignored (nohup, CI)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
