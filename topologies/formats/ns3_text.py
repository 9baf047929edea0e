"""Topology text of ns-3 as ASTRA-sim and SimAI read it: numbers of nodes, switches and links, then one line a link.

ASTRA-sim's begins with nodes, switches and links; SimAI's with nodes, GPUs of a server, NVSwitches, switches, links and
the GPU. The numbers of the switches follow; all other nodes are NPUs, in their order. A link has two nodes, a rate, a
delay and the share of packets that are lost. Switches add no time of their own. Where several ways are as short, those
over NVSwitches come first.
"""

import re
from collections.abc import Iterator

from topologies.checks import WeftError, told
from topologies.core.topology import Topology
from topologies.formats.graph import Graph, check_size, foreign_Bps, foreign_ps

_SHORT = re.compile(r"\s*\d+\s+\d+\s+\d+\s*\n")
_LONG = re.compile(r"\s*(?:\d+\s+){5}[A-Za-z]\w*(?:[ \t]+\d+)?\s*\n")
_LINK = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s*[kKMGT]?i?[bB](?:ps|/s)\s+\S+\s+\S+\s*$", re.MULTILINE)


def looks_like_ns3(text: str) -> bool:
    """Whether a text begins as such a file and has a line of a link."""
    return bool((_SHORT.match(text) or _LONG.match(text)) and _LINK.search(text))


def parse_ns3(text: str, name: str) -> Topology:
    """The network of a file.

    `name`: of the file, for messages.
    WeftError: names the line: fewer numbers than announced, a node that is none, a bad rate, a link that loses packets.
    """
    words = _Words(text, name)
    is_long = _LONG.match(text) is not None
    nodes, *more = (words.count() for _ in range(5 if is_long else 3))
    nvswitches, switches, links = more[1:] if is_long else (0, *more)
    if is_long:
        words.rest_of_line()
    check_size(name, nodes)
    fast = [words.node(nodes) for _ in range(min(nvswitches, nodes))]
    others = [words.node(nodes) for _ in range(min(switches, nodes))]
    graph = Graph(name)
    passing = dict.fromkeys((*fast, *others))
    graph.npus = dict.fromkeys(f"npu{node}" for node in range(nodes) if node not in passing)
    names = {node: f"npu{node}" for node in range(nodes)} | {
        node: graph.add(f"{'nvswitch' if node in fast else 'switch'}{node}") for node in passing}
    for _ in range(links):
        one, other = words.node(nodes), words.node(nodes)
        rate = foreign_Bps(words.next(), f"{words.where}: rate", bare=1)
        delay = foreign_ps(words.next(), f"{words.where}: delay")
        if words.next().strip("0") not in ("", "."):
            raise WeftError(f"{words.where}: the link loses packets, which is not simulated here: write 0")
        if one == other:
            raise WeftError(f"{words.where}: a link from node {one} to itself")
        graph.cable(names[one], names[other], rate, delay)
    if left := words.left():
        raise WeftError(f"{name}: {told(left)} after the {links} links that its first line announces")
    return graph.topology()


class _Words:
    """The words of a text, with the line of the last one."""

    def __init__(self, text: str, name: str) -> None:
        self._words: Iterator[tuple[int, str]] = iter(
            [(at, word) for at, line in enumerate(text.splitlines(), start=1) for word in line.split()])
        self._name, self.line = name, 1
        self._ahead: tuple[int, str] | None = None

    @property
    def where(self) -> str:
        """The beginning of messages."""
        return f"{self._name}, line {self.line}"

    def next(self) -> str:
        """The next word."""
        found = self._ahead or next(self._words, None)
        self._ahead = None
        if found is None:
            raise WeftError(f"{self.where}: the file ends before all links that its first line announces")
        self.line = found[0]
        return found[1]

    def rest_of_line(self) -> None:
        """Skip what is left of a line."""
        line = self.line
        while (found := next(self._words, None)) is not None and found[0] == line:
            pass
        self._ahead = found

    def count(self) -> int:
        """A number."""
        word = self.next()
        if not (word.isascii() and word.isdecimal() and len(word) < 10):
            raise WeftError(f"{self.where}: {told(word)} where a number is expected")
        return int(word)

    def node(self, nodes: int) -> int:
        """The number of a node."""
        found = self.count()
        if found >= nodes:
            raise WeftError(f"{self.where}: node {found} of {nodes}, which are numbered from 0")
        return found

    def left(self) -> str:
        """The word after the last; "" if there is none."""
        found = self._ahead or next(self._words, None)
        return "" if found is None else found[1]
