"""Platforms of SimGrid whose routes are lists of links: zones in each other, with gateways.

A route is found as SimGrid finds it: by a bypass, else in the zone that both ends share, by its table (Full), ways of
the fewest links (Floyd, Dijkstra, with its ties), spokes (Cluster) or coordinates (Vivaldi), and then inside the zone
of each end, to its gateway. A link is an edge of the network, or two if its directions are apart. Where several links
may follow it, or come before it, wires lead from one to the other, at `WIRE` times the slowest rate: a link that both
directions share is one edge. A link that every message has to itself (FATPIPE) is a wire with its latency where another
link of the route is no faster; else each route has its own.
"""

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, permutations

import numpy as np

from topologies.checks import WeftError, told
from topologies.core.links import network_of
from topologies.core.paths import Ints, Paths
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import Topology
from topologies.formats.graph import check_size, foreign_Bps, foreign_ps
from topologies.text.plain_xml import Element
from topologies.units import from_seconds

WIRE = 10**6
DUPLEX = ("SPLITDUPLEX", "FULLDUPLEX")
_WAYS = ("_UP", "_DOWN")
_TABLES = ("full", "floyd", "dijkstra", "dijkstracache")
ROUTES = ("route", "zoneRoute", "ASroute")
BYPASSES = ("bypassRoute", "bypassZoneRoute", "bypassASroute")

Piece = tuple[str | int, ...]
"""Part of a route: a point by its name, links by number, a point; points are hosts, routers and middles of stars."""


@dataclass(eq=False)
class _Zone:
    """A zone, or a cluster."""

    name: str
    line: "list[_Zone]"  # zones around it, the outermost first, and itself
    routing: str
    inside: list[str] = field(default_factory=list)  # hosts, routers and zones
    table: dict[tuple[str, str], Piece] = field(default_factory=dict)
    bypass: dict[tuple[str, str], Piece] = field(default_factory=dict)
    spokes: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)  # links out of a point, and into it
    backbone: list[int] = field(default_factory=list)
    before: dict[str, dict[str, str]] = field(default_factory=dict)  # from each point: what comes before another


def network_of_zones(root: Element, name: str) -> Topology:
    """The network of a platform of any zones.

    `name`: of the file, for messages.
    WeftError: names the line: a link, host, router or gateway that does not exist, a route twice, a bad quantity.
    """
    made = _Platform(name)
    for visit in (made.add_link, made.add, made.join):
        _each(root, visit, made.zones)
    if not made.hosts:
        raise WeftError(f"{name} has no hosts: it is no platform, or a part of one")
    return made.topology()


def _each(element: Element, visit: Callable[[Element, _Zone | None], None], zones: dict[str, _Zone],
          zone: _Zone | None = None) -> None:
    for child in element.children:
        visit(child, zone)
        _each(child, visit, zones, zones.get(child.text("id")) if child.tag in ("zone", "AS") else zone)


class _Platform:
    """What a file declares, and the routes of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[str, None] = {}
        self.zones: dict[str, _Zone] = {}
        self.zone_of: dict[str, _Zone] = {}
        self.links: list[tuple[str, float, int]] = []  # name, bytes per second (infinite for wires), latency
        self.number: dict[str, int] = {}  # of links, by name
        self.fat: set[int] = set()
        self.doors: set[str] = set()  # routers that routes between zones pass
        self.place: dict[str, list[float]] = {}
        self.delay: dict[tuple[str, str], int] = {}
        self.edges: dict[Piece, list[int]] = {}
        self.to_door = cache(lambda src, dst: self.routes(src, dst))  # doors are few

    def add_link(self, one: Element, zone: _Zone | None) -> None:
        """What links there are, wherever they are declared."""
        if one.tag in ("link", "backbone"):
            policy = one.attributes.get("sharing_policy", "SHARED")
            if policy == "WIFI":
                raise WeftError(f"{one.where} has sharing_policy='WIFI': what a radio carries depends on who sends")
            self._link(one, one.text("id"), one.text("bandwidth"), one.attributes.get("latency", "0"), policy)
        elif one.tag == "peer":
            for way, rate in zip(_WAYS, ("bw_out", "bw_in"), strict=True):
                self._link(one, f"link_{one.text('id')}{way}", one.text(rate), "0", "SHARED")

    def _link(self, one: Element, name: str, rate: str, latency: str, policy: str) -> list[int]:
        """A new link, and its way back if that is apart."""
        if policy not in ("SHARED", "FATPIPE", *DUPLEX):
            raise WeftError(f"{one.where} has sharing_policy={told(policy)}: read are SHARED, SPLITDUPLEX and FATPIPE")
        quantities = foreign_Bps(rate, f"{one.where} bandwidth"), foreign_ps(latency, f"{one.where} latency")
        names = [name + way for way in _WAYS] if policy in DUPLEX else [name]
        for each in names:
            if each in self.number:
                raise WeftError(f"{one.where}: there is a link {told(each)} already")
            self.number[each] = len(self.links)
            self.links.append((each, *quantities))
        if policy == "FATPIPE":
            self.fat.add(self.number[name])
        return [self.number[each] for each in names]

    def add(self, one: Element, zone: _Zone | None) -> None:
        """Zones, and what is in them."""
        if one.tag in ("zone", "AS"):
            routing = one.text("routing").lower()
            if routing not in (*_TABLES, "none", "cluster", "vivaldi"):
                raise WeftError(f"{one.where} has routing={told(one.text('routing'))}: read are Full, Floyd, Dijkstra, "
                                "DijkstraCache, None, Cluster and Vivaldi")
            self._zone(one, zone, routing)
        elif one.tag == "cluster":
            self._cluster(one, zone)
        elif one.tag in ("host", "router", "peer", "cabinet", "backbone"):
            if zone is None:
                raise WeftError(f"{one.where} is in no zone")
            if one.tag == "backbone":
                zone.backbone = [self.number[one.text("id")]]
            elif one.tag == "cabinet":
                for host, _ in self._hosts(one, zone):
                    up, down = self._link(one, f"link_{host}", one.text("bw"), one.text("lat"), "SPLITDUPLEX")
                    zone.spokes[host] = [up], [down]
            else:
                self._point(one, one.text("id"), zone, one.tag != "router")
            if one.tag == "peer":
                up, down = (self.number[f"link_{one.text('id')}{way}"] for way in _WAYS)
                zone.spokes[one.text("id")] = [up], [down]

    def _zone(self, one: Element, parent: _Zone | None, routing: str) -> _Zone:
        made = _Zone(one.text("id"), parent.line.copy() if parent else [], routing)
        made.line.append(made)
        self._new(one, made.name, parent)
        self.zones[made.name] = made
        return made

    def _new(self, one: Element, name: str, zone: _Zone | None) -> None:
        if name in self.zone_of or name in self.zones:
            raise WeftError(f"{one.where}: there is a zone, host or router {told(name)} already")
        if zone:
            self.zone_of[name] = zone
            zone.inside.append(name)

    def _point(self, one: Element, name: str, zone: _Zone, host: bool) -> None:
        self._new(one, name, zone)
        if host:
            self.hosts[name] = None
        if where := one.attributes.get("coordinates"):
            try:
                self.place[name] = [float(word) for word in where.split()]
                _, _, _ = self.place[name]
            except ValueError:
                raise WeftError(f"{one.where} has coordinates={told(where)}: three numbers are expected") from None

    def _hosts(self, one: Element, zone: _Zone) -> Iterator[tuple[str, int]]:
        """Names and numbers of the hosts of a cluster or a cabinet, which are added."""
        check_size(self.name, len(self.hosts) + sum(map(len, radical(one))))
        for number in (number for part in radical(one) for number in part):
            host = f"{one.text('prefix')}{number}{one.text('suffix')}"
            self._point(one, host, zone, True)
            yield host, number

    def _cluster(self, one: Element, parent: _Zone | None) -> None:
        if one.text("topology") != "FLAT":
            raise WeftError(f"{one.where} has topology={told(one.text('topology'))}, and another cluster is beside it: "
                            "that is read of a platform of one")
        zone = self._zone(one, parent, "cluster")
        if one.text("bb_bw"):
            zone.backbone = self._link(one, f"{zone.name}_backbone", one.text("bb_bw"), one.text("bb_lat"),
                                       one.text("bb_sharing_policy"))
        limit = one.text("limiter_link")
        for host, number in self._hosts(one, zone):
            name = f"{zone.name}_link_{number}"
            ways = self._link(one, name, one.text("bw"), one.text("lat"), one.text("sharing_policy"))
            limiter = self._link(one, f"{name}_limiter", limit, "0", "SHARED") if limit.strip("0") else []
            zone.spokes[host] = [*limiter, ways[0]], [ways[-1], *limiter]
        self._point(one, one.attributes.get("router_id") or
                    f"{one.text('prefix')}{zone.name}_router{one.text('suffix')}", zone, False)

    def join(self, one: Element, zone: _Zone | None) -> None:
        """Routes, and links of hosts to the middle of their zone."""
        if one.tag == "host_link" and zone:
            up, down = (self._known_link(one, one.text(way)) for way in ("up", "down"))
            zone.spokes[self._known(one, "id")] = [up], [down]
        elif one.tag in (*ROUTES, *BYPASSES):
            if zone is None or (one.tag in ROUTES and zone.routing not in _TABLES):
                raise WeftError(f"{one.where} is in no zone that has routes: Full, Floyd and Dijkstra have")
            src, dst = (self._known(one, end) for end in ("src", "dst"))
            for end in (src, dst) if one.tag in ROUTES else ():
                if self.zone_of.get(end) is not zone:
                    raise WeftError(f"{one.where} names {told(end)}, which is not in the zone {told(zone.name)}")
            one_door, other = self._door(one, src, "gw_src"), self._door(one, dst, "gw_dst")
            listed = one.all("link_ctn")
            if not listed:
                raise WeftError(f"{one.where} has no links")
            there: Piece = one_door, *(self._step(link, False) for link in listed), other
            back: Piece = other, *(self._step(link, True) for link in reversed(listed)), one_door
            both = one.tag in ROUTES and src != dst and one.attributes.get("symmetrical", "YES").upper() == "YES"
            for ends, piece in [((src, dst), there), ((dst, src), back)][:1 + both]:
                known = zone.table if one.tag in ROUTES else zone.bypass
                if known.get(ends, piece) != piece:
                    raise WeftError(f"{one.where}: there is another route from {told(ends[0])} to {told(ends[1])}; "
                                    "routes are symmetrical unless they say NO")
                known[ends] = piece

    def _known(self, one: Element, end: str) -> str:
        name = one.text(end)
        if name not in self.zone_of and name not in self.zones:
            raise WeftError(f"{one.where} has {end}={told(name)}: there is no such host, router or zone")
        return name

    def _known_link(self, one: Element, name: str) -> int:
        if name not in self.number:
            ways = " (UP, DOWN)" if name + _WAYS[0] in self.number else ""
            raise WeftError(f"{one.where} names the link {told(name)}{ways}: there is no such link")
        return self.number[name]

    def _step(self, one: Element, back: bool) -> int:
        """A link of a route, or of the way back."""
        way = one.attributes.get("direction", "NONE")
        if way == "NONE" or one.text("id") in self.number:
            return self._known_link(one, one.text("id"))
        one.choice("direction", ("UP", "DOWN", "NONE"))
        return self._known_link(one, one.text("id") + _WAYS[(way == "DOWN") != back])

    def _door(self, one: Element, name: str, gateway: str) -> str:
        """Where a route to a host or router, or to a zone, ends."""
        if name not in self.zones:
            return name
        door = self._known(one, gateway)
        if door in self.zones or self.zones[name] not in self.zone_of[door].line:
            raise WeftError(f"{one.where} has {gateway}={told(door)}: no host or router of {told(name)}")
        self.doors.add(door)
        return door

    def routes(self, src: str, dst: str) -> list[Piece]:
        """The pieces of the route between two hosts or routers.

        WeftError: there is none.
        """
        if src == dst:
            return []
        lines = self.zone_of[src].line, self.zone_of[dst].line
        depth = next((at for at, (one, other) in enumerate(zip(*lines, strict=False)) if one is not other),
                     min(map(len, lines)))
        if not depth:
            raise WeftError(f"{self.name}: {told(src)} and {told(dst)} are in no zone together: no route between them")
        zone = lines[0][depth - 1]
        ends = [line[depth].name if len(line) > depth else end for line, end in zip(lines, (src, dst), strict=True)]
        found = self._bypass(zone, src, dst, [line[depth:][::-1] for line in lines]) or self._way(zone, *ends)
        return [*self.to_door(src, found[0][0]), *found, *self.to_door(found[-1][-1], dst)]

    def _bypass(self, zone: _Zone, src: str, dst: str, inner: list[list[_Zone]]) -> list[Piece]:
        """A bypass of the zone for the two, of those between zones the first as SimGrid looks for them."""
        if not zone.bypass or (src, dst) in zone.bypass or not all(inner):
            return [zone.bypass[src, dst]] if (src, dst) in zone.bypass else []
        names = [[one.name for one in line] for line in inner]
        for far in range(max(map(len, names))):
            for i, j in [*(pair for near in range(far) for pair in ((near, far), (far, near))), (far, far)]:
                if i < len(names[0]) and j < len(names[1]) and (names[0][i], names[1][j]) in zone.bypass:
                    return [zone.bypass[names[0][i], names[1][j]]]
        return []

    def _way(self, zone: _Zone, src: str, dst: str) -> list[Piece]:
        """The pieces between two that are in a zone."""
        if zone.routing in ("cluster", "vivaldi"):
            return self._star(zone, src, dst)
        if zone.routing == "full" and (src, dst) in zone.table:
            return [zone.table[src, dst]]
        if zone.routing in _TABLES[1:]:
            if src not in zone.before:
                zone.before |= _floyd(zone) if zone.routing == "floyd" else {src: _dijkstra(zone, src)}
            if dst in zone.before.get(src, ()):
                steps = [dst]
                while steps[-1] != src:
                    steps.append(zone.before[src][steps[-1]])
                pieces = [zone.table[pair] for pair in pairwise(reversed(steps))]
                return [one for last, piece in pairwise([pieces[0][:1], *pieces])
                        for one in (*self.to_door(last[-1], piece[0]), piece)]
        raise WeftError(f"{self.name}: no route from {told(src)} to {told(dst)} in the zone {told(zone.name)}")

    def _star(self, zone: _Zone, src: str, dst: str) -> list[Piece]:
        if zone.routing == "vivaldi":
            ends = [end if end not in self.zones else f"router_{end}" for end in (src, dst)]
            if missing := next((end for end in ends if end not in self.place), ""):
                raise WeftError(f"{self.name}: {told(missing)} lacks coordinates in the Vivaldi zone {told(zone.name)}")
            way = *zone.spokes.get(src, ((), ()))[0], self._apart(*ends), *zone.spokes.get(dst, ((), ()))[1]
            return [(ends[0], *way, ends[1])]
        ups, downs = zone.spokes.get(src, ([], []))[0], zone.spokes.get(dst, ([], []))[1]
        if not ups and not downs:
            return [(src, dst)]
        middle = zone.name + " in", zone.name + (" out" if zone.backbone else " in")
        bone = self._fat(zone.backbone, [self._fastest(zone)] if self.fat else [], zone.name)
        bones: list[Piece] = [(middle[0], *bone, middle[1])]
        return [(src, *self._fat(ups, ups + zone.backbone, src), middle[0]), *bones[:len(bone)],
                (middle[1], *self._fat(downs, downs + zone.backbone, dst), dst)]

    def _apart(self, src: str, dst: str) -> int:
        """A wire with the latency of the distance of two points: in the plane, and to it, in milliseconds."""
        name = f"distance of {src} to {dst}"
        if name not in self.number:
            (x, y, up), (to_x, to_y, down) = self.place[src], self.place[dst]
            far = math.sqrt((x - to_x) ** 2 + (y - to_y) ** 2) + abs(up) + abs(down)
            self.number[name] = len(self.links)
            self.links.append((name, math.inf, from_seconds(far / 1000, name)))
        return self.number[name]

    def _fastest(self, zone: _Zone | None = None) -> int:
        """The fastest link that messages share: of those to the points of a zone, or of all."""
        spokes = [link for ways in zone.spokes.values() for link in ways[0]] if zone else []
        some = spokes or range(len(self.links))
        return max((link for link in some if link not in self.fat and self.links[link][1] < math.inf),
                   key=lambda link: self.links[link][1], default=-1)

    def _fat(self, links: list[int], beside: list[int], route: str, alone: bool = False) -> list[int]:
        """Links of a route, with wires or its own for those that every message has to itself.

        `beside`: links that its messages cross as well.
        `alone`: whether no other messages cross them.
        """
        if self.fat.isdisjoint(links):
            return links
        made, others = [], [link for link in beside if link >= 0 and link not in self.fat]
        slowest = min((self.links[link][1] for link in others), default=math.inf)
        for link in links:
            name, rate, latency_ps = self.links[link]
            if link in self.fat:
                if not (alone or slowest <= rate):
                    raise WeftError(f"{self.name}: the link {told(name)} is a FATPIPE, and the slowest that messages "
                                    f"cross by way of {told(route)}: rates of each message are not simulated")
                own = f"{name} by {route}"
                if own not in self.number:
                    self.number[own] = len(self.links)
                    self.links.append((own, math.inf if slowest <= rate else rate, latency_ps))
                link = self.number[own]
            made.append(link)
        return made

    def _pieces(self) -> Iterator[Piece]:
        """All pieces of routes, once or more."""
        for zone in self.zones.values():
            for table in (zone.table, zone.bypass):
                for (src, dst), piece in table.items():
                    alone = zone.routing == "full" and src in self.hosts and dst in self.hosts
                    inner = [link for link in piece if isinstance(link, int)]
                    if not self.fat.isdisjoint(inner):
                        beside = [] if alone else [self._fastest(self.zones.get(end)) for end in (src, dst)]
                        table[src, dst] = piece[0], *self._fat(inner, inner + beside, f"{src}-{dst}", alone), piece[-1]
                yield from (piece for ends, piece in table.items() if ends[0] != ends[1])
            ends = [one for one in zone.inside if one in self.hosts or one in self.doors or one in self.zones]
            pairs: Iterable[tuple[str, str]] = ()
            if zone.routing == "vivaldi":
                pairs = permutations(ends, 2)
            elif zone.routing == "cluster":
                linked = [one for one in ends if one in zone.spokes]
                bare = [one for one in ends if one not in zone.spokes and one not in self.zones]
                pairs = *zip(linked, linked, strict=True), *permutations(bare, 2), *(
                    pair for one in bare for other in linked[:1] for pair in ((one, other), (other, one)))
            for src, dst in pairs:
                yield from self._star(zone, src, dst)

    def topology(self) -> Topology:
        """The network; one star has the routes of any other network."""
        pieces = list(dict.fromkeys(self._pieces()))
        before, after = (defaultdict[str | int, set[str | int]](set) for _ in range(2))
        for one, other in (pair for piece in pieces for pair in pairwise(piece)):
            after[one].add(other)
            before[other].add(one)

        @cache
        def start(item: str | int) -> str:
            """The node where a link begins: of the only one before it, or its own."""
            if isinstance(item, str):
                return item
            only = next(iter(before[item])) if len(before[item]) == 1 else None
            return f"{self.links[item][0]} in" if only is None else only if isinstance(only, str) else end(only)

        @cache
        def end(item: str | int) -> str:
            if isinstance(item, str):
                return item
            only = next(iter(after[item])) if len(after[item]) == 1 else None
            alone = only is None or (isinstance(only, int) and before[only] == {item})
            return f"{self.links[item][0]} out" if only is None or alone else start(only)

        used = {item for piece in pieces for item in piece if isinstance(item, int)}
        rates = [self.links[item][1] for item in used if self.links[item][1] < math.inf]
        if not rates:
            raise WeftError(f"{self.name} has no route over a link with a rate")
        wire = max(max(rates), WIRE * min(rates))
        nodes = dict.fromkeys(self.hosts) | dict.fromkeys(
            node for piece in pieces for item in piece for node in (start(item), end(item)))
        check_size(self.name, len(nodes))
        at = {node: number for number, node in enumerate(nodes)}
        rows: dict[str | int | tuple[str, str], tuple[str, str, float, int]] = {
            item: (start(item), end(item), min(wire, self.links[item][1]), self.links[item][2]) for item in used}
        rows |= {(end(one), start(other)): (end(one), start(other), wire, 0)
                 for piece in pieces for one, other in pairwise(piece) if end(one) != start(other)}
        order = sorted(rows, key=lambda key: (at[rows[key][0]], at[rows[key][1]]))
        index = {key: number for number, key in enumerate(order)}
        for piece in pieces:
            keys = [key for one, other in pairwise(piece) for key in ((end(one), start(other)), other)]
            self.edges[piece] = [index[key] for key in keys if key in index]
        src, dst, speeds, times = zip(*(rows[key] for key in order), strict=True)
        star = {id(self.zone_of[host]) for host in self.hosts}
        alone = len(star) == 1 and self.zone_of[next(iter(self.hosts))].routing == "cluster"
        return network_of(
            self.name, len(self.hosts), len(nodes), [(at[one], at[other]) for one, other in zip(src, dst, strict=True)],
            speeds, times, [0] * len(nodes), router=ShortestPathRouter() if alone else ZoneRouter(self),
            node_names=tuple(nodes),
        )


@dataclass(frozen=True, eq=False)
class ZoneRouter:
    """Routes of a platform, of which there is one for each pair, whatever the tie rule."""

    platform: _Platform

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """Routes of pairs of hosts."""
        known: dict[tuple[int, int], list[int]] = {}
        platform, names = self.platform, topology.node_names
        routes: list[list[int]] = []
        for pair in zip(src.tolist(), dst.tolist(), strict=True):
            if pair not in known:
                ends = [names[end] for end in pair]
                if strange := next((end for end in ends if end not in platform.zone_of), ""):
                    raise WeftError(f"topology {topology.name}: {strange} is part of a link: no routes from or to it")
                known[pair] = [link for piece in platform.routes(*ends) for link in platform.edges[piece]]
            routes.append(known[pair])
        ptr = np.cumsum([0, *map(len, routes)])
        return Paths(ptr, np.array([link for route in routes for link in route], np.int32), np.arange(len(routes)))


def _floyd(zone: _Zone) -> dict[str, dict[str, str]]:
    """What comes before each point on the way from each, as Floyd's loops leave it."""
    at = {name: number for number, name in enumerate(zone.inside)}
    never = 2**40
    cost, before = np.full((len(at), len(at)), never), np.full((len(at), len(at)), -1)
    for (src, dst), piece in zone.table.items():
        cost[at[src], at[dst]], before[at[src], at[dst]] = len(piece) - 2, at[src]
    for middle in range(len(at)):
        through = cost[:, middle, None] + cost[None, middle]
        shorter = through < np.minimum(cost, never)
        cost, before = np.where(shorter, through, cost), np.where(shorter, before[None, middle], before)
    return {src: {dst: zone.inside[last] for dst, last in zip(at, row, strict=True) if last >= 0}
            for src, row in zip(at, before.tolist(), strict=True)}


def _dijkstra(zone: _Zone, src: str) -> dict[str, str]:
    """What comes before each point on the way from one; of equally long ways, the queue decides as SimGrid's does."""
    onward: dict[str, dict[str, int]] = {name: {} for pair in zone.table for name in pair}
    for (one, other), piece in zone.table.items():
        onward[one][other] = len(piece) - 2
    at = {name: number for number, name in enumerate(onward)}
    cost, before, queue = {src: 0}, dict[str, str](), [(0, at.get(src, 0), src)]
    while queue:
        here = heapq.heappop(queue)[2]
        for there, links in onward.get(here, {}).items():
            if cost[here] + links < cost.get(there, math.inf):
                cost[there], before[there] = cost[here] + links, here
                heapq.heappush(queue, (cost[there], at[there], there))
    return before


def radical(element: Element) -> list[range]:
    """The numbers that "0-15,20" are."""
    found = []
    for part in element.text("radical").split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise WeftError(f"{element.where} has radical={told(element.text('radical'))}: ranges such as 0-15 are "
                            "expected")
        found.append(range(first, last + 1))
    return found
