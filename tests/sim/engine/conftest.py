"""The engine's tests start with little room, so that runs are short of it and get more."""

from collections.abc import Iterator

import pytest

from sim.engine import setup


@pytest.fixture(scope="module", autouse=True)
def little_room() -> Iterator[None]:
    """Room as for the smallest program."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(setup, "FEW_BLOCKS", 16)
        patched.setattr(setup, "FEW_NODES", 16)
        yield
