"""The sample of `make test`: of each table some cases, and everything that is no table.

A *table* is a parametrized test with the mark `table`: its cases differ in data, and a sample of them runs nearly the
same lines. `--sample K` keeps of each table

- every K-th case, by a hash of its name, so that neither order nor a new case changes which;
- a case with each name of the registries that the table has: algorithms, collectives, families of topologies;
- a case with each degenerate size that it has: every shape of up to three extents that are at most 3, an extent of 0,
  1, 2 and 3, an odd one, a prime one, a power of two, and each number of dimensions;
- a case with each value of a parameter that has few.

Of each hypothesis test it draws 2 in K of the examples, but 80 / K at least. Tests with the mark `full` are left out
whole, but for `--keep-full`; a light test stands beside each. `--seconds S` keeps of a dear function what S seconds pay
for, or one case of at most `--dearest D` (`tests/costs.py`). The last lines of a run say how much was left to
`make test-all`. `--rest` turns it around: what such a sample leaves out, and tests of which it draws fewer examples,
with all of them, so that a sample and its rest are every test. `--drawn-anew` leaves to `make fresh` what it draws;
`--part K/N` takes one N-th of what is then left, the K-th modulo N.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test, settings

from collectives import ALGORITHMS, COLLECTIVES
from tests import costs
from tests.places import SHARED
from topologies import TOPOLOGIES

COSTS = costs.read()

SHORT_AXIS = 12
"""Values of a parameter; those of one with more are sampled like cases."""

FEWEST_DRAWS = 80
"""Divided by K."""

_NAMES = re.compile(
    rf"(?<!\w)({'|'.join(sorted({*ALGORITHMS, *COLLECTIVES, *TOPOLOGIES}, key=len, reverse=True))})(?!\w)"
)
_SHAPES = re.compile(r"(?<![\w.])(\d+(?:x\d+)*)B?(?![\w.])")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weft")
    group.addoption("--sample", type=int, metavar="K", help="of each table one case in K, and more")
    group.addoption("--seconds", type=float, metavar="S", default=math.inf,
                    help="of a sample, CPU seconds for each test function")
    group.addoption("--dearest", type=float, metavar="D",
                    help="of a sample, CPU seconds of a case that is run where S do not pay for it (3.5 S)")
    group.addoption("--keep-full", action="store_true", help="of a sample, keep the tests with the mark `full`")
    group.addoption("--rest", action="store_true", help="of --sample, what it leaves out")
    group.addoption("--drawn-anew", action="append", default=[], metavar="PATH",
                    help="of --rest, leave out what `make fresh` draws")
    group.addoption("--part", type=_part, default=(0, 1), metavar="K/N",
                    help="of --sample and --rest, one N-th, by the names")
    group.addoption("--at-least", type=int, default=0, metavar="N", help="fail where fewer tests have passed")


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    return int(part) % int(parts), int(parts)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT] = Counter()


LEFT = pytest.StashKey[Counter[str]]()
"""What was left out: by kind, the number of cases."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After `-m` has chosen: what a sample leaves out is what the full run would run."""
    share = config.getoption("--sample")
    if not share:
        return
    seconds = config.getoption("--seconds")
    left = _left_out(items, share, config.getoption("--keep-full"), seconds, config.getoption("--dearest"))
    out = {item for some in left.values() for item in some}
    if config.getoption("--rest"):
        anew = [(config.rootpath / path).resolve() for path in config.getoption("--drawn-anew")]
        drawn = {item for item in items
                 if _draws_less(item, share, seconds) == 0 or any(map(item.path.is_relative_to, anew))}
        out = drawn.difference(out)
    else:
        draws = _draw_less([item for item in items if item not in out], share, seconds)
        tables = {_table_of(item) for item in items if item.get_closest_marker("table")}
        config.stash[LEFT] = Counter(
            {"draws": draws, "tables": len(tables), **{kind: len(some) for kind, some in left.items()}}
        )
    part, parts = config.getoption("--part")
    out |= {item for item in items if crc32(item.nodeid.encode()) // share % parts != part}
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def _left_out(
    items: list[pytest.Item], share: int, keeps_full: bool, seconds: float, dearest: float | None
) -> dict[str, list[pytest.Item]]:
    """What a sample leaves out, by kind."""
    full = set() if keeps_full else {item for item in items if item.get_closest_marker("full")}
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in full:
            functions[_table_of(item)].append(item)
    sampled = {
        name: sample(some, share) if some[0].get_closest_marker("table") else some for name, some in functions.items()
    }
    paid = {name: some[: _paid(name, some[0], seconds, dearest)] for name, some in sampled.items()}
    return {
        "full": list(full),
        "table": [item for name, some in functions.items() for item in set(some).difference(sampled[name])],
        "dear": [item for name, some in sampled.items() for item in some[len(paid[name]) :]],
    }


def _paid(name: str, item: pytest.Item, seconds: float, dearest: float | None) -> int | None:
    """How many of a function's sampled cases are kept; None for all."""
    cost = COSTS.get(name)
    return None if cost is None or _drawing(item) is not None else costs.affordable(seconds, cost, dearest)


def _table_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _draw_less(items: list[pytest.Item], share: int, seconds: float) -> int:
    """Cut the examples that hypothesis tests draw; by how many in all."""
    left = 0
    for function, item in {_drawing(item): item for item in items}.items():
        if function is not None:
            less = _draws_less(item, share, seconds)
            asked = function._hypothesis_internal_use_settings  # where hypothesis's own plugin for pytest reads it
            function._hypothesis_internal_use_settings = settings(asked, max_examples=asked.max_examples - less)
            left += less
    return left


def _draws_less(item: pytest.Item, share: int, seconds: float) -> int:
    """How many examples a sample does not draw of a test."""
    function = _drawing(item)
    if function is None:
        return 0
    asked = function._hypothesis_internal_use_settings.max_examples
    drawn = _draws(asked, share)
    cost = COSTS.get(_table_of(item), 0.0)
    return int(asked - (max(1, int(drawn * seconds / cost)) if cost > seconds else drawn))


def _drawing(item: pytest.Item) -> Any:
    """The function behind a hypothesis test; None for others."""
    test = getattr(item, "obj", None)
    return getattr(test, "__func__", test) if test is not None and is_hypothesis_test(test) else None


def _draws(asked: int, share: int) -> int:
    return min(asked, max(1, FEWEST_DRAWS // share, 2 * asked // share))


def sample(table: list[pytest.Item], share: int) -> list[pytest.Item]:
    """The cases of a table that are kept; see the module."""
    order = sorted(table, key=lambda item: crc32(item.nodeid.encode()))
    kept = [item for item in order if crc32(item.nodeid.encode()) % share == 0] or order[:1]
    traits = _traits(table)
    seen = {trait for item in kept for trait in traits[item.nodeid]}
    for item in order:
        if not traits[item.nodeid] <= seen:
            kept.append(item)
            seen |= traits[item.nodeid]
    return kept


def _traits(table: list[pytest.Item]) -> dict[str, set[Hashable]]:
    """What each case stands for."""
    axes = _short_axes(table)
    return {
        item.nodeid: {
            *_traits_of_text(item.nodeid.partition("[")[2].removesuffix("]")),
            *((axis, _values(item)[axis]) for axis in axes),
        }
        for item in table
    }


def _short_axes(table: list[pytest.Item]) -> list[str]:
    """Parameters of few values that several cases share."""
    few = min(SHORT_AXIS, len(table) - 1)
    return [name for name in _values(table[0]) if len({_values(item)[name] for item in table}) <= few]


def _values(item: Any) -> dict[str, int]:
    """Parameters of a case by identity: the cases of a table share the objects of an axis."""
    return {name: id(value) for name, value in item.callspec.params.items()} if hasattr(item, "callspec") else {}


def _traits_of_text(text: str) -> Iterator[str]:
    yield from _NAMES.findall(text)
    for shape in _SHAPES.findall(_NAMES.sub(lambda name: " ", text).replace(":", " ").replace("-", " ")):
        extents = [int(part) for part in shape.split("x")]
        if max(extents) <= 3 and len(extents) <= 3:
            yield shape
        yield f"{len(extents)} extents"
        for extent in extents:
            yield from _traits_of_number(extent)


def _traits_of_number(number: int) -> Iterator[str]:
    if number <= 3:
        yield f"extent {number}"
    else:
        yield "odd" if number % 2 else "even"
        if number & (number - 1) == 0:
            yield "power of two"
        if number < 10**6 and all(number % factor for factor in range(2, math.isqrt(number) + 1)):
            yield "prime"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands over what it left out; a run of too few tests fails."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left"] = dict(session.config.stash[LEFT])
    elif len(_passed(session.config)) < session.config.getoption("--at-least"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _passed(config: pytest.Config) -> list[Any]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.stats.get("passed", []) if reporter else []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """All workers collect the same: the last one's account is everyone's."""
    node.config.stash[LEFT] = Counter(getattr(node, "workeroutput", {}).get("left", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left, passed = config.stash[LEFT], len(_passed(config))
    if config.getoption("--sample") and not config.getoption("--rest"):
        terminalreporter.write_line(
            f"sample: {passed:,} cases passed; left to `make test-all`: {left['table']:,} cases of {left['tables']} "
            f"tables, {left['full']} tests that have a light one beside them, {left['dear']:,} dear cases, "
            f"{left['draws']:,} drawn examples"
        )
    least = config.getoption("--at-least")
    if passed < least:
        terminalreporter.write_line(f"FAILED: {passed:,} cases passed; at least {least:,} must")
    if not SHARED.exists():
        terminalreporter.write_line("NOT RUN: tests on the files of other tools, for ../shared/data is not here")
