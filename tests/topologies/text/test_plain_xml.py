"""XML of other tools: elements and attributes, and nothing besides."""

from __future__ import annotations

import pytest

from topologies import WeftError
from topologies.text.plain_xml import parse_xml


def test_elements_have_attributes_and_children() -> None:
    root = parse_xml('<algo name="a">\n  <gpu id="0"/>\n</algo>', "a.xml")
    assert (root.tag, root.text("name"), [child.whole("id") for child in root.all("gpu")]) == ("algo", "a", [0])


def test_text_is_not_ignored() -> None:
    with pytest.raises(WeftError, match=r"a\.xml, line 1: <algo> holds the text 'stray'"):
        parse_xml("<algo>stray<gpu/></algo>", "a.xml")
