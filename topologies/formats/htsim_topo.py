"""Topology files of htsim (`.topo`): fat-trees of two or three tiers, wired as `FatTreeTopology` wires them.

Latencies are those of links and of switches; queues are no part of the network here. Bundles are parallel links.
"""

import re

from topologies.checks import WeftError, told
from topologies.core.topology import Topology
from topologies.formats.graph import Graph, check_size
from topologies.text.schema import Absent, tell_over

ABSENT = (
    Absent("tier", "switch_latency_ns", "0", "fat_tree_topology.cpp, _switch_latencies"),
    Absent("tier", "bundle", "1", "fat_tree_topology.cpp, _bundlesize"),
    Absent("tier", "oversubscribed", "1", "fat_tree_topology.cpp, _oversub"),
)
_HEAD = ("nodes", "tiers", "podsize")
_NEEDED = ("downlink_speed_gbps", "downlink_latency_ns", "radix_down")
_QUEUES = ("queue_up", "queue_down")
_KEYS = (*_NEEDED, "radix_up", *(row.name for row in ABSENT), *_QUEUES)


def looks_like_htsim(text: str) -> bool:
    """Whether a text has the head of such a file."""
    return bool(re.search(r"^\s*nodes\s+\d", text, re.IGNORECASE | re.MULTILINE)
                and re.search(r"^\s*tiers\s+\d", text, re.IGNORECASE | re.MULTILINE))


def parse_htsim(text: str, name: str) -> Topology:
    """The network of a file.

    `name`: of the file, for messages.
    WeftError: names the line: an unknown or missing key, or tiers that do not fit together.
    """
    head, tiers = _read(text, name)
    nodes, n_tiers, pod = (_whole(head, key, name) for key in _HEAD)
    if n_tiers not in (2, 3):
        raise WeftError(f"{name} has {n_tiers} tiers: htsim has 2 or 3")
    table = []
    for at in range(n_tiers):
        keys = {row.name: row.value for row in ABSENT} | tiers.get(at, {})
        needed = (*_NEEDED, *["radix_up"] * (at < n_tiers - 1), *(row.name for row in ABSENT))
        table.append({key: _whole(keys, key, f"{name}: tier {at}", 0 if key == "switch_latency_ns" else 1)
                      for key in needed})
    check_size(name, nodes)
    return _wire(name, nodes, pod, table).topology()


def _wire(name: str, nodes: int, pod: int, table: list[dict[str, int]]) -> Graph:
    """As `FatTreeTopology::init_network`."""
    down, up = [tier["radix_down"] for tier in table], [tier.get("radix_up", 0) for tier in table]
    tors = _share(nodes, down[0], name, "hosts", "tier 0 radix_down")
    pods = _share(nodes, pod, name, "hosts", "podsize") if len(table) == 3 else 1
    _share(pod, down[0], name, "podsize", "tier 0 radix_down")
    _share(tors, pods, name, "switches of tier 0", "pods")
    aggs_of_pod = _share(up[0], table[1]["bundle"], name, "tier 0 radix_up", "tier 1 bundle")
    if tors // pods * table[1]["bundle"] != down[1]:
        raise WeftError(f"{name}: tier 1 radix_down is {down[1]}, and {tors // pods} switches below with "
                        f"{table[1]['bundle']} links each need {tors // pods * table[1]['bundle']}")
    graph = Graph(name)
    graph.npus = dict.fromkeys(f"host{at}" for at in range(nodes))
    for kind, count, tier in (("tor", tors, 0), ("agg", aggs_of_pod * pods, 1)):
        for at in range(count):
            graph.add(f"{kind}{at}", table[tier]["switch_latency_ns"] * 1000)
    for host in range(nodes):
        _cables(graph, f"host{host}", f"tor{host // down[0]}", table, 0)
    for tor in range(tors):
        of_pod = tor // (tors // pods)
        for at in range(aggs_of_pod):
            _cables(graph, f"tor{tor}", f"agg{of_pod * aggs_of_pod + at}", table, 1)
    if len(table) == 3:
        _cores(graph, name, pods, aggs_of_pod, table)
    return graph


def _cores(graph: Graph, name: str, pods: int, aggs_of_pod: int, table: list[dict[str, int]]) -> None:
    bundle, down, up = table[2]["bundle"], table[2]["radix_down"], table[1]["radix_up"]
    of_agg = _share(up, bundle, name, "tier 1 radix_up", "tier 2 bundle")
    if pods * bundle != down:
        raise WeftError(f"{name}: tier 2 radix_down is {down}, and {pods} pods with {bundle} links each need "
                        f"{pods * bundle}")
    for at in range(of_agg * aggs_of_pod):
        graph.add(f"core{at}", table[2]["switch_latency_ns"] * 1000)
    for agg in range(pods * aggs_of_pod):
        for at in range(of_agg):
            _cables(graph, f"agg{agg}", f"core{agg % aggs_of_pod + aggs_of_pod * at}", table, 2)


def _cables(graph: Graph, below: str, above: str, table: list[dict[str, int]], tier: int) -> None:
    one = table[tier]
    for _ in range(one["bundle"]):
        graph.cable(below, above, one["downlink_speed_gbps"] * 1e9 / 8, one["downlink_latency_ns"] * 1000, tier)


def _share(whole: int, part: int, name: str, of_what: str, by_what: str) -> int:
    if whole % part:
        raise WeftError(f"{name}: {whole} {of_what} do not divide by {part}, {by_what}")
    return whole // part


def _read(text: str, name: str) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Keys of the head and of every tier, in lower case; unknown ones are noted."""
    head: dict[str, str] = {}
    tiers: dict[int, dict[str, str]] = {}
    keys, over = head, dict[str, None]()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where, key = f"{name}, line {number}", words[0].lower()
        if len(words) < 2:
            raise WeftError(f"{where}: {told(words[0])} has no value")
        if key == "tier":
            if words[1] not in ("0", "1", "2"):
                raise WeftError(f"{where}: tier {told(words[1])}: htsim has 0, 1 and 2")
            keys = tiers.setdefault(int(words[1]), {})
        elif key in (_HEAD if keys is head else _KEYS):
            if keys.get(key, words[1]) != words[1]:
                raise WeftError(f"{where}: {key} is given twice")
            keys[key] = words[1]
        else:
            over[words[0]] = None
    tell_over(name, over, "htsim")
    return head, tiers


def _whole(keys: dict[str, str], key: str, where: str, least: int = 1) -> int:
    value = keys.get(key)
    if value is None:
        raise WeftError(f"{where} lacks {key}")
    if not (value.isascii() and value.isdecimal() and len(value) < 10 and int(value) >= least):
        raise WeftError(f"{where}: {key} is {told(value)}: a whole number from {least} is expected")
    return int(value)
