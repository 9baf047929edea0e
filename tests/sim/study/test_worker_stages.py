"""Stages of workers are added up once they have ended, and those that were ended before are counted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.study.processes import gathered, processes
from topologies.stages import Profile, Stage, end_profile, start_profile


@pytest.fixture
def profile() -> Iterator[Profile]:
    yield start_profile()
    end_profile()


def test_nothing_is_gathered_where_nobody_asks() -> None:
    with gathered() as told:
        assert told is None


@pytest.mark.parametrize("ends_well", [True, False])
def test_workers_are_added_up_and_the_unmeasured_counted(profile: Profile, ends_well: bool) -> None:
    """Also where something inside has failed."""
    stages = {"engine": vars(Stage(2.0, 1.0, 8, 3))}
    try:
        with gathered() as told:
            assert told is not None
            for name, text in {"1": json.dumps(stages), "2": json.dumps(stages), "3": "", "4.json": "{"}.items():
                (told / name).write_text(text)
            if not ends_well:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert not ends_well
    assert profile.of_workers == {"engine": Stage(4.0, 2.0, 16, 6)}
    assert (profile.workers, profile.unmeasured) == (2, 1)
    assert isinstance(told, Path) and not told.exists()
    assert [row["workers"] for row in profile.rows() if row["stage"] == "engine"] == [2]


def test_who_asks_for_processes_inside_shared_ones_gets_them() -> None:
    with processes(1, share=True) as outer:
        with processes(2) as inner:
            assert inner is outer
        first = outer.submit(os.getpid).result()
        with processes(2) as again:
            assert again.submit(os.getpid).result() == first
    with processes(1) as other:
        assert other is not outer and other.submit(os.getpid).result() != first
