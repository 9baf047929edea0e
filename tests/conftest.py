"""What every test runs under."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("new", deadline=None)
settings.load_profile("same")  # a change is judged on the same draws as the one before; `make verify` draws anew


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-in", type=int, default=1, metavar="K", help="of each parametrised test, every K-th case")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the compiler every test runs and not every case: the cases of a test differ in data, not in lines."""
    place: Counter[str] = Counter()
    kept, left_out = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        (left_out if place[test] % config.getoption("--one-in") else kept).append(item)
        place[test] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests were started with it ignored (nohup, CI)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
