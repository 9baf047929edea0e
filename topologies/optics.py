"""Optical circuits: which interfaces they connect, through which device, and how long that device takes to switch.

A server has a number of optical interfaces. Duplex: an interface sends and receives on one cable, and a circuit
connects one interface at each end in both directions. Simplex: the two fibers of an interface are patched separately,
and a circuit leads from one server to another in one direction.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement, cycle, islice, permutations, product
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from topologies.boxes import boxes_apart
from topologies.checks import Count, WeftError, checked, choice, nearest
from topologies.circulants import circulant
from topologies.core.epochs import packet_links
from topologies.core.extents import check_memory, format_extents, parse_extents
from topologies.core.links import (
    DEFAULT_BANDWIDTH,
    DEFAULT_LATENCY,
    EqualLinks,
    Links,
    network_of,
    parse_link,
    per_tier,
)
from topologies.core.rateless import wiring_of
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import Optics, Topology
from topologies.products import fully_connected, torus
from topologies.totient_rings import select_permutations, totient_perms
from topologies.twisted_tori import twisted_torus
from topologies.units import Quantity, bytes_per_s, counted, parse_time

Pair = tuple[int, int]


@checked
def optical(
    n: Count, interfaces: Count, pairs: Sequence[Pair], duplex: bool = True, *,
    bandwidth: Quantity = DEFAULT_BANDWIDTH, latency: Quantity = DEFAULT_LATENCY, hop_latency: Quantity = 0,
    name: str = "optical",
) -> Topology:
    """The network made by circuits. Servers forward; parallel circuits become one link with their combined bandwidth.

    Parameters
    ----------
    n : int
        Servers.
    interfaces : int
        Per server.
    pairs : sequence of (int, int)
        Ends of each circuit; (from, to) if simplex. The same pair may have several.
    duplex : bool
    bandwidth, latency : quantity
        Per direction of a circuit.
    hop_latency : quantity
        Added on every arrival at a server.
    name : str

    Raises
    ------
    WeftError
        A circuit that joins a server to itself or to one that does not exist, or more circuits at a server than it has
        interfaces.
    """
    for a, b in pairs:
        if not (0 <= a < n and 0 <= b < n) or a == b:
            raise WeftError(f"circuit {a}-{b}: its ends are two different servers of 0 to {n - 1}")
    sides = {"circuits": (0, 1)} if duplex else {"outgoing circuits": (0,), "incoming circuits": (1,)}
    for what, ends in sides.items():
        for server, count in Counter(pair[end] for pair in pairs for end in ends).items():
            if count > interfaces:
                raise WeftError(f"server {server} has {count} {what}, and {counted(interfaces, 'interface')} for them")
    rate, latency_ps = parse_link(bandwidth, latency)
    joined = Counter([*pairs, *((b, a) for a, b in pairs if duplex)])
    hop_ps = np.full(n, parse_time(hop_latency, "hop latency"), np.int64)
    rates = [rate * count for count in joined.values()]
    return network_of(name, n, n, [*joined], rates, [latency_ps] * len(joined), hop_ps, dimension=0)


RINGS, KAUTZ, FULL = "rings", "kautz", "full"

TORUS, TWISTED, TURNS = "torus", "twisted", "turns"
"""All that the switches of a pod, or a rotor, can make."""

DEFAULT_DELAY = "10us"

POLICIES = ("", "demand", "provisioned")

_FLAGS = ("duplex", "per-port", "paid", "single")
_VALUES = ("delay", "circuits", "policy")

MOST_SERVERS, MOST_STATES = 7, 40_000
"""Limits on servers, and on their circuits, that are all looked at: those of 6 servers with 2 ports are 27,990."""

MOST_KEPT = 1024
"""Limit on the circuits between pairs that are kept, for other rates of their fabric."""

_BETWEEN: dict[tuple[Any, ...], Topology] = {}

CUBE = 4
"""Chips along an edge of a pod's cube, inside which cables are electrical."""


def _apart(n: int) -> Topology:
    """Servers without a link."""
    return network_of("", n, n, [], [], [], np.zeros(n, np.int64))


def _switched(
    name: str, base: Topology, ports: int, links: EqualLinks, given: Mapping[str, Any], **more: Any
) -> Topology:
    """The fabric of some optical ports at every NPU of a base, whose own links stay up."""
    policy, delay = given.get("policy", ""), str(given.get("delay", DEFAULT_DELAY))
    rate = parse_link(links["bandwidth"], links["latency"])[0]
    delay_ps = sum(parse_time(part, "reconfiguration delay") for part in delay.split("+"))
    choice(policy or POLICIES[1], POLICIES[1:], "policy of circuits")
    flags = [bool(given.get(flag.replace("-", "_"))) for flag in _FLAGS]
    duplex, per_port, paid, single = flags
    optics = Optics(ports, duplex, delay_ps, per_port, paid, single, given.get("circuits", ""), policy, rate, **more)
    base = replace(base, optics=optics)
    return replace(_built(first_circuits(optics), base, links), name=name)


def _read(
    family: str, argument: str, sizes: str, flags: Sequence[str] = _FLAGS, values: Sequence[str] = _VALUES
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Sizes and options of "16x4,delay=10us,per-port"."""
    size, *options = argument.split(",")
    what = f"{family}:{argument}"
    extents, forms = parse_extents(size, what), sizes.split(" or ")
    if len(extents) not in [form.count("x") + 1 for form in forms]:
        raise WeftError(f"{what} has {counted(len(extents), 'extent')}: write {sizes}, such as {EXAMPLES[family]}")
    given: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        accepted = (*flags, *(f"{one}={'TIME' if one in ('delay', 'dwell') else 'NAME'}" for one in values))
        if bool(equals) != (name in values) or not (equals or name in flags):
            raise WeftError(f"{what}: option {option!r} is unknown: choose among {', '.join(accepted)}"
                            f"{nearest(name, accepted)}")
        if (key := name.replace("-", "_")) in given:
            raise WeftError(f"{what}: option {name!r} is given twice")
        given[key] = value if equals else True
    return extents, given


EXAMPLES = {
    "ocs": "ocs:16x4,delay=10us", "patch-panel": "patch-panel:16x4,look-ahead", "hybrid": "hybrid:16x4,delay=25ms",
    "rails": "rails:8x8,delay=25ms", "rotor": "rotor:16x4,dwell=90us,delay=10us", "pod": "pod:4x4x8",
}
"""A spec of each family."""


def parse_ocs(argument: str, **links: Unpack[EqualLinks]) -> Topology:
    """Servers behind circuit switches."""
    return _servers("ocs", argument, *_read("ocs", argument, "SERVERSxPORTS"), links)


def parse_patch_panel(argument: str, **links: Unpack[EqualLinks]) -> Topology:
    """The same behind a patch panel, whose robot plugs the first circuits too; looking ahead, on a second plane."""
    flags = ("look-ahead", "duplex", "per-port", "single")
    sizes, given = _read("patch-panel", argument, "SERVERSxPORTS", flags)
    delay = "10ms" if given.pop("look_ahead", False) else "300s+10ms"
    return _servers("patch-panel", argument, sizes, {"delay": delay, "paid": True} | given, links)


def _servers(
    family: str, argument: str, sizes: tuple[int, ...], given: Mapping[str, Any], links: EqualLinks
) -> Topology:
    n, ports = sizes
    check_memory(f"{family}:{argument}", n, n * ports)
    return _switched(f"{family}:{argument}", _apart(n), ports, links, given)


def parse_hybrid(argument: str, **links: Unpack[Links]) -> Topology:
    """Servers on a packet switch, and with optical ports beside it."""
    (n, ports), given = _read("hybrid", argument, "SERVERSxPORTS")
    check_memory(f"hybrid:{argument}", n + 1, n * (ports + 2))
    (rate, _), (latency_ps, _) = per_tier(links["bandwidth"], links["latency"], 2)
    ends = [pair for v in range(n) for pair in ((v, n), (n, v))]
    hop_ps = np.full(n + 1, parse_time(links["hop_latency"], "hop latency"), np.int64)
    base = network_of("", n, n + 1, ends, [rate] * 2 * n, [latency_ps] * 2 * n, hop_ps, dimension=0)
    return _switched(f"hybrid:{argument}", base, ports, _second(links), given)


def parse_rails(argument: str, **links: Unpack[Links]) -> Topology:
    """Boxes of GPUs around a switch; GPUs of equal place in their boxes share a circuit switch, their rail (Opus)."""
    sizes, given = _read("rails", argument, "BOXESxGPUS or BOXESxGPUSxPORTS")
    boxes, gpus, ports = (*sizes, 1)[:3]
    check_memory(f"rails:{argument}", boxes * (gpus + 1), boxes * gpus * (ports + 2))
    base = boxes_apart(boxes, gpus, **links)
    hop_ps = np.full(base.n_nodes, parse_time(links["hop_latency"], "hop latency"), np.int64)
    return _switched(f"rails:{argument}", replace(base, hop_latency_ps=hop_ps), ports, _second(links), given,
                     rails=gpus)


def _second(links: Links) -> EqualLinks:
    """What circuits are like, beside links that stay."""
    rates, latencies = per_tier(links["bandwidth"], links["latency"], 2)
    return {"bandwidth": bytes_per_s(float(rates[1])), "latency": f"{latencies[1]}ps",
            "hop_latency": links["hop_latency"]}


def parse_rotor(argument: str, **links: Unpack[EqualLinks]) -> Topology:
    """Servers whose circuits take turns, whatever is asked for: each dwells, then its port is dark for the delay."""
    (n, ports), given = _read("rotor", argument, "SERVERSxPORTS", (), ("dwell", "delay"))
    dwell_ps = parse_time(given.pop("dwell", "90us"), "dwell of a rotor")
    if dwell_ps < 1 or not 1 <= ports < max(n, 2):
        raise WeftError(f"rotor:{argument}: circuits stay up for 1ps or longer, and ports are fewer than servers")
    check_memory(f"rotor:{argument}", n, n * n)
    return _switched(f"rotor:{argument}", _apart(n), ports, links, given, only=(TURNS,), dwell_ps=dwell_ps)


def parse_pod(argument: str, **links: Unpack[EqualLinks]) -> Topology:
    """A slice of cubes of 4x4x4 chips, whose faces circuit switches join to a torus, or a twisted one (TPU v4)."""
    shape, given = _read("pod", argument, "AxBxC", ("per-port", "paid"), (*_VALUES[:2], "spares"))
    spares = given.pop("spares", "0")
    if any(extent % CUBE for extent in shape) or list(shape) != sorted(shape):
        raise WeftError(f"pod:{argument}: a slice is of cubes of 4x4x4, its extents ascend: such as 4x4x8")
    if not (spares.isascii() and spares.isdecimal() and len(spares) < 10):
        raise WeftError(f"pod:{argument}: spares={spares}: spares are a number of cubes up to 999,999,999")
    check_memory(f"pod:{argument}", math.prod(shape), 6 * math.prod(shape))
    twists = shape[1:] in ((shape[0], 2 * shape[0]), (2 * shape[0], 2 * shape[0]))
    return _switched(f"pod:{argument}", torus(shape, **links), 6, links, {"duplex": True} | given,
                     only=(TORUS, TWISTED) if twists else (TORUS,), spares=int(spares))


def first_circuits(optics: Optics) -> str:
    """The name of the circuits that are up at first."""
    return optics.circuits or (optics.only or (RINGS,))[0]


@lru_cache(maxsize=8)
def layouts(fabric: Topology) -> dict[str, Topology]:
    """The static circuits that suit the ports of a fabric, by name; only those that it names, if it names some."""
    optics, n = _of(fabric)
    if optics.circuits or n == 1:
        return {first_circuits(optics): fabric}
    names = [*optics.only] or [RINGS]
    if n - 1 <= optics.ports and not optics.only:
        names.append(FULL)
    elif optics.ports > 1 and not (optics.duplex or optics.only):
        names.append(KAUTZ)
    names += [] if optics.only else [format_extents(shape) for shape in _tori(n, optics.ports)]
    return {name: replace(_built(name, fabric, links_of(fabric)), name=f"{fabric.name},circuits={name}")
            for name in names}


def _of(fabric: Topology) -> tuple[Optics, int]:
    """The ports of a fabric, and how many servers a circuit may lead to, itself included."""
    assert fabric.optics is not None
    return fabric.optics, fabric.n_npus // fabric.optics.rails


def _tori(n: int, ports: int) -> list[tuple[int, ...]]:
    """Tori of n servers on all ports: the ring, and of those of least diameter that of fewest and most dimensions."""
    def split(left: int, most: int) -> list[tuple[int, ...]]:
        return [()] if left == 1 else [
            (extent, *rest) for extent in range(min(left, most), 1, -1) if left % extent == 0
            for rest in split(left // extent, extent)
        ]
    fit = [shape for shape in split(n, n) if _taken(shape) <= ports and ports % _taken(shape) == 0]
    across = [sum(extent // 2 for extent in shape) for shape in fit]
    least = [shape for shape, hops in zip(fit, across, strict=True) if hops == min(across)]
    return list(dict.fromkeys([*fit[:1], *least[:1], *least[-1:]]))


def _taken(shape: tuple[int, ...]) -> int:
    """Ports that a torus takes of each server."""
    return sum(min(extent - 1, 2) for extent in shape)


def _built(name: str, base: Topology, links: EqualLinks) -> Topology:
    """Circuits by name, each pair with as many as the ports allow, on every rail."""
    optics, n = _of(base)
    ports, duplex = optics.ports, optics.duplex
    if optics.only:
        choice(name, optics.only, "circuits")
        if name == TURNS:
            return _laid(base, fully_connected(n, **links))
        return _laid(base, (torus if name == TORUS else twisted_torus)(base.shape, **links))
    if n == 1:
        return _laid(base, torus((1,), **links))
    if name == RINGS:
        even = duplex and n > 2
        if ports < 1 + even:
            raise WeftError(f"{ports} duplex port joins {n} servers in pairs only: at least 2, or simplex ports")
        wanted = ports - ports % 2 if even else ports
        jumps = select_permutations(n, wanted, totient_perms(n), duplex=even, dedupe=even)
        some = jumps if optics.single else islice(cycle(jumps), wanted // (1 + even))
        return _laid(base, circulant(n, tuple(some), duplex=even, **links))
    if name == KAUTZ:
        if duplex or ports < 2:
            raise WeftError(f"circuits {name!r} lead one way, and take at least 2 simplex ports of a server")
        pairs = [(v, -(ports * v + turn) % n) for v in range(n) for turn in range(1, ports + 1)]
        apart = (pair for pair in pairs if pair[0] != pair[1])
        kept = tuple(dict.fromkeys(apart) if optics.single else apart)
        return _laid(base, optical(n, ports, kept, False, **links))
    if name != FULL and not name[:1].isdigit():
        choice(name, (RINGS, KAUTZ, FULL, "a torus such as 4x4"), "circuits")
    shape = (2,) * (n == 2) if name == FULL else parse_extents(name, f"circuits {name!r}")
    taken = n - 1 if name == FULL else _taken(shape)
    if name != FULL and math.prod(shape) != n:
        raise WeftError(f"circuits {name!r} join {counted(math.prod(shape), 'server')}, not {n}")
    if taken > ports:
        raise WeftError(f"circuits {name!r} take {taken} of the {counted(ports, 'port')} of a server")
    found = fully_connected(n, **links) if name == FULL else torus(shape, **links)
    times = 1 if optics.single else ports // taken
    return _laid(base, found.with_links(bandwidth_Bps=found.bandwidth_Bps * times))


def _laid(base: Topology, one: Topology) -> Topology:
    """Circuits in the place of those of a fabric, in each rail where they are those of one; its other links stay."""
    if base.n_nodes == one.n_nodes:
        return replace(one, optics=base.optics)
    stay, times = packet_links(base), base.n_npus // one.n_npus
    rail = np.arange(times, dtype=np.int32)

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(base, name)[stay], np.repeat(getattr(one, name), times)])

    src, dst = (np.concatenate([getattr(base, end)[stay], (getattr(one, end)[:, None] * times + rail).ravel()])
                for end in ("src", "dst"))
    tier = np.repeat(np.array([0, 1], np.int16), [int(np.count_nonzero(stay)), one.n_links * times])
    return replace(base, src=src, dst=dst, bandwidth_Bps=column("bandwidth_Bps"), latency_ps=column("latency_ps"),
                   dimension=tier, router=ShortestPathRouter())


def between(fabric: Topology, pairs: Sequence[Pair], name: str = "optical") -> Topology:
    """The fabric with other circuits: those between some pairs of NPUs.

    WeftError: a pair that is none, or more circuits at an NPU than it has ports.
    """
    (optics, _), times = _of(fabric), (fabric.latency_ps.tobytes(), fabric.hop_latency_ps.tobytes())
    key = wiring_of(fabric), optics._replace(rate_Bps=0.0), times, tuple(pairs), name
    if key not in _BETWEEN:
        one = optical(fabric.n_npus, optics.ports, pairs, optics.duplex, **links_of(fabric))
        while len(_BETWEEN) >= MOST_KEPT:
            del _BETWEEN[next(iter(_BETWEEN))]
        _BETWEEN[key] = replace(_laid(fabric, one), name=name)
    found, stay = _BETWEEN[key], packet_links(_BETWEEN[key])
    rates = np.round(found.bandwidth_Bps / _of(found)[0].rate_Bps) * optics.rate_Bps
    rates[stay] = fabric.bandwidth_Bps[packet_links(fabric)]
    return found if np.array_equal(rates, found.bandwidth_Bps) else found.at_rates(
        rates, found.latency_ps, found.hop_latency_ps, optics)


def stride_rings(fabric: Topology) -> list[Topology]:
    """Rings of servers 1, 2, 4, ... apart, in both directions: states on which several steps run well."""
    optics, n = _of(fabric)
    if optics.ports < 2 or n < 2 or optics.only:
        return []
    times = 1 if optics.single else optics.ports // 2
    return [
        _laid(fabric, circulant(n, (1 << t,) * times, connected=False, **links_of(fabric)))
        for t in range((n - 1).bit_length()) if n % (2 << t) == 0 or t == 0
    ]


class States(NamedTuple):
    """All circuits of n servers beside which there is room for no other; (n_states, n, n) from row to column."""

    circuits: npt.NDArray[np.int8]
    hops: npt.NDArray[np.int8]  # of a shortest route; n where there is none
    onward: npt.NDArray[np.int8]  # where the first shortest route goes next

    def fabric(self, fabric: Topology, state: int) -> Topology:
        """A fabric with the circuits of a state."""
        times = np.triu(self.circuits[state]) if _of(fabric)[0].duplex else self.circuits[state]
        return between(fabric, [(a, b) for a, b in np.argwhere(times).tolist() for _ in range(times[a, b])])


def all_states(fabric: Topology) -> States | None:
    """All circuits of a few servers; None where there are more than `MOST_STATES`."""
    optics, n = _of(fabric)
    if optics.single or optics.only or not 2 <= n <= MOST_SERVERS or n < fabric.n_nodes:
        return None
    matchings = sum((-1) ** k * math.perm(n, n - k) for k in range(n + 1))  # in which nobody is its own destination
    some = _n_cables((optics.ports,) * n) if optics.duplex else math.comb(matchings + optics.ports - 1, optics.ports)
    return _states(n, optics.ports, optics.duplex) if some <= MOST_STATES else None


def _rows(spare: tuple[int, ...], idle: bool) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], bool]]:
    """How many cables lead from a server to each later one, the ports that these have left, and the next `idle`.

    `spare`: ports of each server; `idle`: whether one of them may have ports left over.
    """
    for row in product(*(range(min(spare[0], one) + 1) for one in spare[1:])):
        left = spare[0] - sum(row)
        if left == 0 or (left > 0 and idle):
            yield row, tuple(one - taken for one, taken in zip(spare[1:], row, strict=True)), idle and not left


def _cables(spare: tuple[int, ...], idle: bool = True) -> Iterator[tuple[int, ...]]:
    """All rows one after the other, in each way that leaves no room."""
    if len(spare) == 1:
        yield from [()] * (idle or not spare[0])
    else:
        yield from ((*row, *rest) for row, left, more in _rows(spare, idle) for rest in _cables(left, more))


@lru_cache(maxsize=4096)
def _n_cables(spare: tuple[int, ...], idle: bool = True) -> int:
    """How many `_cables` has."""
    if len(spare) == 1:
        return int(idle or not spare[0])
    return sum(_n_cables(tuple(sorted(left)), more) for _, left, more in _rows(spare, idle))


@lru_cache(maxsize=4)
def _states(n: int, ports: int, duplex: bool) -> States:
    self = np.eye(n, dtype=np.int8)
    if duplex:
        some = np.array([*_cables((ports,) * n)], np.int8)
        circuits = np.zeros((len(some), n, n), np.int8)
        circuits[:, *np.triu_indices(n, 1)] = some
        circuits += circuits.swapaxes(1, 2)
    else:
        full = np.array([self[[*one]] for one in permutations(range(n)) if all(a != b for a, b in enumerate(one))])
        taken = np.array([*combinations_with_replacement(range(len(full)), ports)])
        circuits = np.unique(full[taken].sum(axis=1, dtype=np.int8), axis=0)
    up, reached = circuits > 0, np.broadcast_to(self, circuits.shape)
    hops = np.where(self, 0, n).astype(np.int8) + np.zeros_like(circuits)
    for hop in range(1, n):
        reached = (reached + reached @ up > 0).astype(np.int8)
        hops = np.where((reached > 0) & (hops == n), hop, hops).astype(np.int8)
    nearer = up[..., None] & (hops[:, None] == hops[:, :, None] - 1)  # from, next, to
    return States(circuits, hops, np.where(self, np.arange(n), nearer.argmax(axis=2)).astype(np.int8))


def joining(fabric: Topology, pairs: Collection[Pair]) -> Topology | None:
    """Circuits from each source to each destination of some pairs, as many as the ports of a fabric allow.

    On rails, to each destination from its own rail, which the switch of the box leads to. Beside a packet switch, as
    many pairs as there are ports for, the nearest first. Else None where a server has more of them than ports.
    """
    optics, n = _of(fabric)
    of_servers = frozenset(pair for pair in pairs if max(pair) < fabric.n_npus)  # to and from switches there are links
    joined = _joined(optics._replace(rate_Bps=0.0), n, n < fabric.n_nodes and optics.rails == 1, of_servers)
    return None if joined is None else between(fabric, *joined)


@lru_cache(maxsize=MOST_KEPT)
def _joined(optics: Optics, n: int, wide: bool, pairs: frozenset[Pair]) -> tuple[tuple[Pair, ...], str] | None:
    """The circuits of `joining`, and their name."""
    if optics.only:
        return None
    rails = optics.rails
    asked = {(a // rails * rails + b % rails, b) for a, b in pairs if a // rails != b // rails}
    wanted = sorted({(min(pair), max(pair)) for pair in asked} if optics.duplex else asked)
    if wide:
        wanted.sort(key=lambda pair: (pair[1] - pair[0]) % n)
    used: Counter[tuple[str, int]] = Counter()
    chosen = list[Pair]()
    for pair in wanted:
        ends = [("any" if optics.duplex else side, end) for side, end in zip(("out", "in"), pair, strict=True)]
        if wide and any(used[end] == optics.ports for end in ends):
            continue
        used.update(ends)
        chosen.append(pair)
    most = max(used.values(), default=1)
    if most > optics.ports:
        return None
    times = 1 if optics.single else optics.ports // most
    return tuple(pair for pair in chosen for _ in range(times)), f"circuits for {len(chosen)} pairs"


def links_of(fabric: Topology) -> EqualLinks:
    """What the circuits of a fabric are like."""
    optics, latency = fabric.optics, fabric.latency_ps[~packet_links(fabric)].max(initial=0)
    assert optics is not None
    return {"bandwidth": bytes_per_s(optics.rate_Bps), "latency": f"{latency}ps",
            "hop_latency": f"{fabric.hop_latency_ps.max()}ps"}
