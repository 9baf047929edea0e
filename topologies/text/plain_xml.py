"""Plain XML: elements, attributes and line numbers; files that declare a document type or entities are rejected."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from topologies.checks import WeftError, told

MOST_DEPTH = 64
"""Limit on nested elements."""


@dataclass
class Element:
    """An element of a file."""

    tag: str
    attributes: dict[str, str]
    where: str  # "topology file a.xml, line 3: <gpu>", the prefix of every error message
    children: list[Element] = field(default_factory=list)

    def every(self) -> Iterator[Element]:
        """The element and all below it, each before those inside it."""
        yield self
        for child in self.children:
            yield from child.every()

    def all(self, tag: str) -> list[Element]:
        """The children of one kind."""
        return [child for child in self.children if child.tag == tag]

    def text(self, name: str) -> str:
        """The value of an attribute."""
        if name not in self.attributes:
            raise WeftError(f"{self.where} lacks the attribute {name!r}")
        return self.attributes[name]

    def choice(self, name: str, accepted: Collection[str]) -> str:
        """An attribute with a few values."""
        value = self.text(name)
        if value not in accepted:
            raise WeftError(f"{self.where} has {name}={value!r}: accepted are {', '.join(accepted)}")
        return value

    def whole(self, name: str, least: int = 0, most: int = 10**15 - 1) -> int:
        """An integer attribute."""
        value = self.text(name)
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 15 and least <= int(value) <= most):
            to = "" if most == 10**15 - 1 else f" to {most}"
            raise WeftError(f"{self.where} has {name}={value!r}: give an integer from {least}{to}")
        return int(value)


def parse_xml(text: str, name: str, numbered: Collection[str] = (), *, named_type: bool = False) -> Element:
    """The root element of a text.

    `name`: of the file, for messages.
    `named_type`: whether a document type may be named, as some tools demand; it is not read, and declares nothing here.
    `numbered`: elements whose text may be numbers, which say nothing of them: some tools count elements there.
    WeftError: not well-formed, nested too deeply, or with a document type: entities could expand to any size.
    """
    stack: list[Element] = []
    roots: list[Element] = []
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, f"{name}, line {parser.CurrentLineNumber}: <{tag}>")
        for name_of, value in attributes.items():
            if not value.isprintable():
                raise WeftError(f"{element.where} has {name_of}={told(value)}: control characters are not accepted")
        if len(stack) >= MOST_DEPTH:
            raise WeftError(f"{element.where} is nested more than {MOST_DEPTH} deep")
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def end(tag: str) -> None:
        stack.pop()

    def refuse(*declared: object) -> None:
        raise WeftError(f"{name} declares a document type or entities: only plain XML is accepted")

    def doctype(*declared: object) -> None:
        if not named_type or declared[-1]:  # what is declared inside
            refuse()

    def characters(text: str) -> None:
        if stack and stack[-1].tag in numbered and re.fullmatch(r"[\d.eE+\s-]*", text):
            return
        if text.strip():
            where = stack[-1].where if stack else f"{name}, line {parser.CurrentLineNumber}"
            raise WeftError(f"{where} holds the text {told(text.strip())}: all that is read is in attributes")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as fault:
        raise WeftError(f"{name} is not XML: {fault}") from None
    return roots[0]
