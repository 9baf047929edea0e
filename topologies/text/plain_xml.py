"""Plain XML: elements, attributes and line numbers; files that declare a document type or entities are rejected."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from xml.parsers import expat

from topologies.errors import WeftError

MOST_DEPTH = 64
"""Limit on nested elements."""


@dataclass
class Element:
    """An element of a file."""

    tag: str
    attributes: dict[str, str]
    where: str  # "topology file a.xml, line 3: <gpu>", the prefix of every error message
    children: list[Element] = field(default_factory=list)

    def check(self, attributes: Collection[str], children: Collection[str]) -> None:
        """Reject attributes and children that are not listed."""
        for name in self.attributes:
            if name not in attributes:
                raise WeftError(f"{self.where} has the unknown attribute {name!r}: known are {', '.join(attributes)}")
        for child in self.children:
            if child.tag not in children:
                known = f"known inside <{self.tag}> are {', '.join(children)}" if children else "it holds no elements"
                raise WeftError(f"{child.where} is unknown inside <{self.tag}>: {known}")

    def text(self, name: str) -> str:
        """The value of an attribute."""
        if name not in self.attributes:
            raise WeftError(f"{self.where} lacks the attribute {name!r}")
        return self.attributes[name]

    def whole(self, name: str, lowest: int = 0) -> int:
        """An integer attribute."""
        value = self.text(name)
        if not value.isdecimal() or len(value) > 15 or int(value) < lowest:
            raise WeftError(f"{self.where} has {name}={value!r}: give an integer from {lowest}")
        return int(value)


def parse_xml(text: str, name: str) -> Element:
    """The root element of a text.

    `name`: of the file, for messages.
    WeftError: not well-formed, nested too deeply, or with a document type: entities could expand to any size.
    """
    stack: list[Element] = []
    roots: list[Element] = []
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, f"{name}, line {parser.CurrentLineNumber}: <{tag}>")
        if len(stack) >= MOST_DEPTH:
            raise WeftError(f"{element.where} is nested more than {MOST_DEPTH} deep")
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def end(tag: str) -> None:
        stack.pop()

    def refuse(*declared: object) -> None:
        raise WeftError(f"{name} declares a document type or entities: only plain XML is accepted")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as fault:
        raise WeftError(f"{name} is not XML: {fault}") from None
    return roots[0]
