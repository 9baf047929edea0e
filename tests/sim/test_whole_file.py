"""Files appear whole or not at all, whatever stands at their name, and whatever fails."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from sim.cli import EXIT_NOT_WRITTEN, main
from sim.whole_file import write_text_whole, write_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text_whole(file, "old\r\n")
    write_text_whole(file, "né\n")
    assert file.read_bytes() == "né\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    write_text_whole(link, "text")
    assert link.is_symlink() and target.read_text() == "text"


def test_a_pipe_gets_all_of_it_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device or address") as wrong:  # nobody reads it: no wait for ever
        write_text_whole(pipe, "text")
    assert wrong.value.errno == errno.ENXIO
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text_whole(pipe, "text")
    assert os.read(reader, 100) == b"text" and pipe.is_fifo()
    os.close(reader)


def test_pipes_without_a_name_are_written_to() -> None:
    """As those that a shell passes for >(COMMAND)."""
    reader, writer = os.pipe()
    write_text_whole(f"/dev/fd/{writer}", "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    os.close(writer)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="not on this system")
def test_a_folder_that_takes_no_files() -> None:
    """What was asked for is named, not the temporary file."""
    with pytest.raises(OSError, match=r"'/proc/a\.csv'"):
        write_text_whole("/proc/a.csv", "text")


def test_a_device_stays() -> None:
    write_text_whole(os.devnull, "text")
    assert Path(os.devnull).is_char_device()
    with pytest.raises(OSError, match="No space left on device: '/dev/full'") as wrong:
        write_text_whole("/dev/full", "text")
    assert wrong.value.errno == errno.ENOSPC


def test_a_write_that_fails_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", str(temporary))

    with pytest.raises(OSError, match=r"No space left on device: '.*/a.txt'$"):
        write_whole(file, fail)
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


SMALL = ["compare", "--topology", "ring:4", "--algorithms", "ring", "-b", "1K", "-e", "64K", "--quiet"]


@pytest.mark.parametrize("flag", ["--csv", "--json", "--plot"])
def test_a_full_disk_is_one_line_and_no_half_file(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ("a.png" if flag == "--plot" else "a.out")
    main([*SMALL, "--plot", str(tmp_path / "warm.png")] if flag == "--plot" else SMALL)
    (tmp_path / "warm.png").unlink(missing_ok=True)
    capsys.readouterr()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        code = main([*SMALL, flag, str(file)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == EXIT_NOT_WRITTEN
    assert capsys.readouterr().err == f"weft compare: {file}: File too large\n"
    assert list(tmp_path.iterdir()) == []
