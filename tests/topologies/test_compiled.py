"""Compiled code is kept where only its user can write, and damage costs a compilation and nothing else."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topologies.compiled import DISABLED, Kernel, _digest, cache_folder, cached, is_at_hand, shipped_folder
from topologies.compiler import plain
from topologies.process import ENDING, Turn
from topologies.stages import end_profile, start_profile, tell_compiling


def twice(x: int) -> int:
    return 2 * x


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No home, unless a test makes one: a file stands in its place."""
    cache_folder.cache_clear()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "nobody").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))


def hits(source: Path) -> int:
    """Kernels that are found compiled, as by a new process."""
    _digest.cache_clear()
    made: list[object] = []
    compiled: Any = cached(twice, [source], "tests.topologies.test_compiled:noted", made=made)
    assert compiled(21) == 42
    return not made


def noted(function: Callable[..., Any], made: list[object]) -> Any:
    """What numba compiles."""
    made.append(function)
    return plain(function, nogil=True)


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
def test_compiling_and_loading_are_a_stage_and_calls_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(private(tmp_path / "cache")))
    profile = start_profile()
    try:
        for calls in (1, 2):
            compiled = cached(twice, [Path(__file__)])
            assert compiled(21) == compiled(21) == 42
            assert profile.stages["compilation"].calls == calls
    finally:
        end_profile()


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
def test_what_another_process_compiles_meanwhile_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(private(tmp_path / "cache")))
    taken: list[Turn] = []

    def take(turn: Turn) -> None:
        taken.append(turn)
        if len(taken) == 1:
            assert hits(Path(__file__)) == 0

    monkeypatch.setattr(Turn, "take", take)
    assert hits(Path(__file__)) == 1
    assert len(taken) == 2


def private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
def test_code_is_found_again_until_a_source_changes_or_the_file_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, source = private(tmp_path / "cache"), tmp_path / "source.txt"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    source.write_text("one")
    assert hits(source) == 0
    assert hits(source) == 1
    for part in (0, 20, 40, 400, -1):
        (damaged,) = folder.rglob("*.o")
        damaged.write_bytes(damaged.read_bytes()[:part])
        assert hits(source) == 0, part
        assert hits(source) == 1, part
    source.write_text("two")
    assert hits(source) == 0


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
def test_code_is_at_hand_once_it_was_compiled_or_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(private(tmp_path / "cache")))
    (tmp_path / "source.txt").write_text("one")
    here, later = (cached(twice, [tmp_path / "source.txt"], nogil=True) for _ in range(2))
    assert not is_at_hand(here)
    assert here(21) == 42
    assert is_at_hand(here)
    assert is_at_hand(later), "kept"
    assert not is_at_hand(twice)


def test_the_folder_beside_the_sources_is_taken_where_it_is_ours(tmp_path: Path) -> None:
    found = cache_folder(private(tmp_path / "package"), "stamp")
    assert found is not None and found.parent == tmp_path / "package" / "__pycache__"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700 and found.name.endswith("stamp")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_in_which_others_write_is_left_for_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    package, home = private(tmp_path / "package"), private(tmp_path / "home")
    monkeypatch.setenv("HOME", str(home))
    (package / "__pycache__").mkdir()
    (package / "__pycache__").chmod(mode)
    found = cache_folder(package, "stamp")
    assert found is not None and found.parent == home / ".cache" / "weft"
    assert not list((package / "__pycache__").iterdir()), "nothing is left where nothing is kept"


def test_a_folder_that_somebody_else_has_laid_out_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a link to elsewhere, nor a folder of another user."""
    package = private(tmp_path / "package")
    first = cache_folder(package, "stamp")
    assert first is not None
    cache_folder.cache_clear()
    first.rmdir()
    first.symlink_to(private(tmp_path / "elsewhere"))
    assert cache_folder(package, "stamp") is None
    cache_folder.cache_clear()
    first.unlink()
    monkeypatch.setattr("topologies.compiled.os.geteuid", lambda: os.getuid() + 4711)
    monkeypatch.setattr("topologies.compiled.ROOT", -1)
    assert cache_folder(package, "stamp") is None


def test_the_given_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    found = cache_folder(private(tmp_path / "package"), "stamp")
    assert found is not None and found.parent == tmp_path / "given"


@pytest.mark.parametrize("mode", [0o777, None])
def test_a_given_folder_that_cannot_be_used_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: int | None
) -> None:
    """One in which others write, and a file; what is used instead is named."""
    given = tmp_path / "given"
    if mode is None:
        given.write_text("no folder")
    else:
        given.mkdir()
        given.chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(given))
    monkeypatch.setattr("topologies.compiled.TOLD", set())
    first, second = (cache_folder(private(tmp_path / name), "stamp") for name in ("one", "other"))
    assert first is not None and second is not None
    (line,) = capsys.readouterr().err.splitlines()
    assert f"NUMBA_CACHE_DIR={given} cannot be used" in line and line.endswith(f"is kept in {first.parent}")


def test_without_any_folder_there_is_no_cache(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    assert cache_folder(file, "stamp") is None


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
def test_code_that_came_with_the_package_is_taken_if_nobody_else_could_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder of one's own; damage costs a compilation and leaves it as it came."""
    source, cache = tmp_path / "source.txt", private(tmp_path / "cache")
    source.write_text("one")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    assert hits(source) == 0
    shipped = private(tmp_path / "shipped")
    monkeypatch.setattr("topologies.compiled.SHIPPED", shipped)
    (found,) = cache.iterdir()
    found.rename(shipped_folder(_digest((source,))))
    monkeypatch.setattr("topologies.compiled.cache_folder", lambda beside, stamp: None)
    heard: list[str] = []
    tell_compiling(heard.append)
    assert hits(source) == 1 and heard == []
    (kept,) = shipped_folder(_digest((source,))).glob("*.o")
    kept.write_bytes(b"damaged")
    assert hits(source) == 0 and heard == ["twice"] and kept.read_bytes() == b"damaged"
    monkeypatch.undo()
    tell_compiling(None)


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_waits_until_code_is_there(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not lost in the compiler, nor is the kernel."""
    def ended(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(private(tmp_path / "cache")))
    kernel, before = cached(twice, [Path(__file__)]), signal.signal(number, ended)
    tell_compiling(lambda name: signal.raise_signal(number))
    try:
        with pytest.raises(KeyboardInterrupt, match=str(int(number))):
            kernel(3)
        assert signal.getsignal(number) is ended
    finally:
        tell_compiling(None)
        signal.signal(number, before)
    assert len(kernel.signatures) == 1 and kernel(3) == 6


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_shipped_code_in_a_folder_in_which_others_write_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr("topologies.compiled.SHIPPED", private(tmp_path / "shipped"))
    folder = shipped_folder("stamp")
    folder.mkdir()
    folder.chmod(mode)
    assert (folder in Kernel(twice, "stamp", "").folders) == (mode == 0o755)
