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


def test_the_numbers_of_elements_are_allowed_where_a_format_has_them() -> None:
    root = parse_xml("<pci>0\n  <pci>12</pci>\n</pci>", "a.xml", numbered=("pci",))
    assert [child.tag for child in root.children] == ["pci"]
    with pytest.raises(WeftError, match=r"<pci> holds the text 'stray'"):
        parse_xml("<pci>stray</pci>", "a.xml", numbered=("pci",))
    with pytest.raises(WeftError, match=r"<gpu> holds the text '0'"):
        parse_xml("<pci>0<gpu>0</gpu></pci>", "a.xml", numbered=("pci",))
