"""The store: whole rows or none, whatever else is on the disk."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sim.study.store import FORMAT, Claims, Finished, Store
from topologies import WeftError


def point(number: int, **changes: object) -> Finished:
    spec = {"topology": {"spec": "ring:4"}}
    made = Finished(f"{number:032x}", spec, {"time_s": 0.1 * number, "notes": ["a"]}, None, 0.5, "0.1.0")
    return made._replace(**changes)  # type: ignore[arg-type]  # names of fields


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sweep.db"


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing can be made; permissions do not stop root, but no one makes files in /proc."""
    if os.geteuid() == 0:
        yield Path("/proc")
        return
    tmp_path.chmod(0o555)
    yield tmp_path
    tmp_path.chmod(0o755)


@contextmanager
def full_disk(limit_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond the limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_points_come_back_as_they_were(file: Path) -> None:
    refused = point(2, row=None, refused="too small")
    with Store(file) as store:
        assert store.add(point(1)) and store.add(refused)
    with Store(file) as store:
        assert store.get(point(1).key) == point(1)
        assert store.get(refused.key) == refused
        assert store.get(point(3).key) is None
        assert point(1).key in store and point(3).key not in store
        assert store.reasons() == {point(1).key: None, refused.key: "too small"}


def test_a_stored_point_never_changes(file: Path) -> None:
    with Store(file) as store:
        assert store.add(point(1))
        assert not store.add(point(1, wall_s=7.0))
        assert store.get(point(1).key) == point(1) and len(store) == 1


def test_points_can_be_forgotten(file: Path) -> None:
    with Store(file) as store:
        for number in range(3):
            store.add(point(number))
        store.forget([point(0).key, point(2).key])
        assert set(store.reasons()) == {point(1).key}


def test_another_connection_sees_a_point_at_once(file: Path) -> None:
    with Store(file) as writer, Store(file) as reader:
        writer.add(point(1))
        assert reader.get(point(1).key) == point(1)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CREATE TABLE other (a)", "is another kind of database"),
        ("PRAGMA user_version = 3", "is another kind of database"),
    ],
)
def test_a_foreign_database_is_left_alone(file: Path, statement: str, why: str) -> None:
    with sqlite3.connect(file) as database:
        database.execute(statement)
    before = file.read_bytes()
    with pytest.raises(WeftError, match=why):
        Store(file)
    assert file.read_bytes() == before


def test_a_store_of_another_format_is_refused(file: Path) -> None:
    Store(file).close()
    with sqlite3.connect(file) as database:
        database.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(WeftError, match=f"has format {FORMAT + 1}, and this weft reads {FORMAT}"):
        Store(file)


@pytest.mark.parametrize("text", ["1", "12", "[topology]\nspec = 'ring:4'\n" * 100], ids=len)
def test_text_is_no_store(text: str, file: Path) -> None:
    """Not even a byte, which SQLite takes for an empty database."""
    file.write_text(text)
    for only_look in (False, True):
        with pytest.raises(WeftError, match="file is not a database"):
            Store(file, read_only=only_look)
    assert file.read_text() == text


def test_an_empty_file_becomes_a_store(file: Path) -> None:
    file.touch()
    with Store(file) as store:
        assert len(store) == 0


def test_only_looking_makes_no_file(file: Path) -> None:
    with pytest.raises(WeftError, match="does not exist: run the sweep first"):
        Store(file, read_only=True)
    assert not file.exists()


def test_an_empty_file_is_a_new_store_and_nothing_to_look_at(file: Path) -> None:
    file.touch()
    with pytest.raises(WeftError, match="is empty: run the sweep first"):
        Store(file, read_only=True)
    Store(file).close()
    with Store(file, read_only=True) as store:
        assert len(store) == 0


def test_a_folder_that_cannot_be_written_is_named(unwritable: Path) -> None:
    with pytest.raises(WeftError, match=f"store {unwritable}/none.db: unable to open"):
        Store(unwritable / "none.db")
    with pytest.raises(WeftError, match=f"claims file {unwritable}/none.db-claims"):
        Claims(unwritable / "none.db")


def test_a_full_disk_takes_whole_points_only(file: Path) -> None:
    with Store(file) as store:
        with full_disk(200_000), pytest.raises(OSError, match=r"(disk is full|disk I/O error); .*sweep.db'"):
            _ = [store.add(point(number, row={"text": "x" * 500})) for number in range(1000)]
        kept = len(store)
        assert 10 < kept < 100
    with Store(file) as store:
        assert sorted(store.reasons()) == [point(number).key for number in range(kept)]
        assert store.add(point(kept))
    with sqlite3.connect(file) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_claims_of_one_process_are_given_back(file: Path) -> None:
    with Claims(file) as claims:
        assert claims.take("0" * 32) and claims.take("f" * 32)
        claims.give_back("0" * 32)
        assert claims.take("0" * 32)
        assert claims.path.exists()
    assert not claims.path.exists()
