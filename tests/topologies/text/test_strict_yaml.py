"""Numbers that the two versions of YAML read differently."""

from __future__ import annotations

import pytest

from topologies import WeftError
from topologies.text.strict_yaml import parse_yaml


def number(text: str) -> float:
    return parse_yaml(f"key: {text}", "file").mapping()["key"].number()


@pytest.mark.parametrize("text", ["010", "-007", "0_7", "1:30", "1:30.5", "+00"])
def test_a_number_of_another_base_is_refused(text: str) -> None:
    """010 is 8 in YAML 1.1 and 10 in 1.2; 1:30 is 90, or text."""
    with pytest.raises(WeftError, match=r"file: line 1: key: .* is one number in YAML 1\.1 and another in 1\.2"):
        number(text)


def test_other_numbers_are_read() -> None:
    assert [number(text) for text in ("0", "10", "-7", "0.5", "0x10", "1_000")] == [0, 10, -7, 0.5, 16, 1000]
    assert parse_yaml("key: '010'", "file").mapping()["key"].text() == "010"
