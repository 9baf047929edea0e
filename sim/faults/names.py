"""What the names in a fault plan refer to on a topology."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from topologies import Topology, WeftError
from topologies.checks import told

EVERY, DIMENSION, BOTH_WAYS, ONE_WAY = range(4)
"""How much of a fabric a link name covers, from all of it down to one direction of a cable."""


def breadth(name: str) -> int:
    """How much a link name covers: EVERY, DIMENSION, BOTH_WAYS or ONE_WAY."""
    if name == "*":
        return EVERY
    return DIMENSION if name.startswith("dimension ") else BOTH_WAYS if "--" in name else ONE_WAY


def links_named(topology: Topology, name: str) -> list[int]:
    """Links that a name refers to; none for a circuit that could be up, and is not.

    WeftError: no link has that name.
    """
    if name == "*":
        return list(range(topology.n_links))
    known = _names_of(topology)
    word, _, number = name.partition(" ")
    if word == "dimension" and number.isascii() and number.isdecimal() and len(number) < 10:
        found = np.flatnonzero(topology.dimension == int(number)).tolist()
    else:
        both = name.split("--")
        names = [name] if len(both) != 2 else dict.fromkeys((f"{both[0]}->{both[1]}", f"{both[1]}->{both[0]}"))
        found = sorted(link for one in names for link in known.links.get(one, ()))
    if not found and not _could_be(topology, name):
        some = ", ".join(topology.link_name(link) for link in range(min(3, topology.n_links)))
        raise WeftError(f"topology {topology.name} has no link {told(name)}: " + (
            f"its links are {some}, ...; or write a--b for both directions, dimension 0, or *" if some else "none"
        ))
    return found


def node_named(topology: Topology, name: str, *, npu: bool = False) -> int:
    """The node of a name.

    WeftError: there is none, or it is no NPU where one is needed.
    """
    n_nodes = topology.n_npus if npu else topology.n_nodes
    node = _names_of(topology).nodes.get(name, n_nodes)
    if node < n_nodes:
        return node
    first, last = topology.node_name(0), topology.node_name(n_nodes - 1)
    raise WeftError(
        f"topology {topology.name} has no {'NPU' if npu else 'node'} {told(name)}: they are {first} to {last}"
    )


def _could_be(topology: Topology, name: str) -> bool:
    """Whether a name is of a circuit that switches can make."""
    nodes, optics = _names_of(topology).nodes, topology.optics
    ends = [nodes.get(end, topology.n_npus) for end in name.replace("--", "->").split("->")]
    if optics is None or optics.only or len(ends) != 2 or max(ends) >= topology.n_npus:
        return False
    return ends[0] != ends[1] and (ends[0] - ends[1]) % optics.rails == 0


class _Names(NamedTuple):
    """Links and nodes by their names; parallel links share one."""

    links: dict[str, list[int]]
    nodes: dict[str, int]


def _names_of(topology: Topology) -> _Names:
    if topology not in _KNOWN:
        links: dict[str, list[int]] = {}
        for link in range(topology.n_links):
            links.setdefault(topology.link_name(link), []).append(link)
        nodes: dict[str, int] = {}
        for node in range(topology.n_nodes):
            nodes.setdefault(topology.node_name(node), node)
        _KNOWN[topology] = _Names(links, nodes)
    return _KNOWN[topology]


_KNOWN: WeakKeyDictionary[Topology, _Names] = WeakKeyDictionary()
