"""ASTRA-sim's communicator groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies import WeftError
from workloads.formats.comm_groups import read_comm_groups


def test_groups(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text('{"1": [0, 2], "12": [3, 1], "tp": [0, 1]}', encoding="utf-8")
    assert read_comm_groups(path, 4) == {"1": (0, 2), "12": (3, 1), "tp": (0, 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"0": [0]}', "group '0' has 1 NPUs: it means all 4"),
        ('{"1": [0], "1": [1]}', "key '1' is given twice"),
        ('{"1": [0], "01": [1]}', "group 1 is given twice"),
        ('{"1": []}', "group 1: a list of NPUs"),
        ('{"1": 3}', "group 1: a list of NPUs"),
        ('{"1": [4]}', "group 1: NPU is 4: give an integer from 0 to 3"),
        ('{"1": [true]}', "NPU is True"),
        ('{"1": [1, 1]}', "group 1 names an NPU twice"),
        ("[]", "an object of keys and values"),
        ("{", "is not JSON"),
        ('{"1": [NaN]}', "NaN is not a finite number"),
        ("[" * 200_000, "nested too deeply"),
        ("", "is empty"),
        ('{"1": [' + "9" * 5000 + "]}", "groups.json"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "groups.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WeftError, match=r"groups\.json") as wrong:
        read_comm_groups(path, 4)
    assert message in str(wrong.value)


def test_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_bytes(b'{"1": [0]}\xff')
    with pytest.raises(WeftError, match="not UTF-8 text"):
        read_comm_groups(path, 4)
