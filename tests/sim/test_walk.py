"""A call enters the files that the table of the design names, and no other of `sim`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from collectives import build
from sim import FaultPlan, SlowLink, Tenant, share_fabric, simulate
from tests.places import ROOT
from topologies import torus

SCHEDULE = build("swing", "all-reduce", torus((2, 2)), "1KiB")
CALLS: dict[str, Callable[[], object]] = {
    "alone": lambda: simulate(SCHEDULE),
    "checked": lambda: simulate(SCHEDULE, check=True),
    "faults": lambda: simulate(SCHEDULE, faults=FaultPlan(faults=(SlowLink(link="npu0--npu1", share=0.5),))),
    "tenants": lambda: share_fabric([Tenant(name="a", work=SCHEDULE), Tenant(name="b", work=SCHEDULE)]),
}
DESIGN = (ROOT / "docs/background/design.md").read_text(encoding="utf-8")
TABLE = DESIGN.partition("file by file")[2].partition("\n## ")[0]


def entered(call: Callable[[], object]) -> set[str]:
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    call()  # kernels that are compiled now would enter the compiler's door
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {name.removeprefix(f"{ROOT}/") for name in files if name.startswith(f"{ROOT}/sim/")}


@pytest.mark.parametrize("name", CALLS)
def test_every_file_that_a_call_enters_is_in_the_table(name: str) -> None:
    files = entered(CALLS[name])
    assert len(files) > 8
    assert {one for one in files if f"{one.rsplit('/', 1)[-1]}`" not in TABLE
            and f"`{one.rsplit('/', 1)[0]}/`" not in TABLE} == set()
