"""What the dear tests cost, so that a sample may leave most of their cases to the rest.

`tests/costs.txt` has a line for each test function that takes more than `LISTED` CPU seconds in a sample: seconds a
case, and its name; `make costs` writes it anew. `--seconds S` of a sample keeps of such a function as many cases as S
seconds pay for; one at least, unless that takes more than `--dearest` seconds, `DEAREST` times S where not given. A
hypothesis test draws fewer examples.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

COSTS = Path(__file__).with_name("costs.txt")

LISTED = 0.25
"""Seconds; what takes less is not listed."""

DEAREST = 3.5
"""A case of more than so many shares of a function is left to the rest."""


def read() -> dict[str, float]:
    """CPU seconds of a case by the name of its function, drawn as a sample of one in 16 draws."""
    lines = COSTS.read_text().splitlines() if COSTS.exists() else []
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def affordable(seconds: float, cost: float, dearest: float | None = None) -> int:
    """How many cases of `cost` seconds a function may run in `seconds`; one, where it takes at most `dearest`."""
    return int(min(seconds, 1e9) // cost) or int(cost <= (DEAREST * seconds if dearest is None else dearest))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("weft").addoption("--write-costs", action="store_true", help="write tests/costs.txt from this run")


STARTED = pytest.StashKey[float]()


def _cpu() -> float:
    """Of this process and of what it started and waited for: other load does not count."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[STARTED] = _cpu()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    item.user_properties.append(("cpu", _cpu() - item.stash[STARTED]))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--write-costs"):
        COSTS.write_text(listed(terminalreporter.stats.get("", [])))


def listed(reports: list[Any]) -> str:
    """The file: what `reports` of teardowns say of each function."""
    by_function: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        spent = dict(report.user_properties).get("cpu")
        if report.when == "teardown" and spent is not None:
            by_function[report.nodeid.partition("[")[0]].append(spent)
    dear = {name: each for name, each in by_function.items() if sum(each) > LISTED}
    return "".join(f"{sum(each) / len(each):.3f} {name}\n" for name, each in sorted(dear.items()))
