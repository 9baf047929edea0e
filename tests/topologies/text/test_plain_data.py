"""JSON and TOML as plain data: numbers of at most 64 bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topologies import WeftError
from topologies.text.plain_data import parse_json, parse_toml


@pytest.mark.parametrize("parse", [parse_json, parse_toml])
def test_numbers_of_more_than_64_bits_are_refused(parse: Callable[[str, str], object]) -> None:
    text = '{"a": [{"b": 18446744073709551616}]}' if parse is parse_json else "a = [{b = 0x1_0000_0000_0000_0000}]"
    with pytest.raises(WeftError, match="file has an integer of 65 bits: the limit is 64"):
        parse(text, "file")
