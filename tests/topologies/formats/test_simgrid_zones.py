"""Platforms of zones: the routes of SimGrid 3.32 (its `Host::route_to`), and what sharing costs."""

import re
from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import build
from sim import simulate
from tests.topologies.formats.test_other_simulators import cluster
from topologies import Topology
from topologies.checks import WeftError
from topologies.formats.simgrid import parse_simgrid
from topologies.text.schema import InputNote


def link(name: str, latency: str, more: str = "", rate: str = "1GBps") -> str:
    return f'<link id="{name}" bandwidth="{rate}" latency="{latency}" {more}/>'


def way(src: str, dst: str, *links: str, tag: str = "route", more: str = "") -> str:
    parts = (one.partition(":") for one in links)
    inner = "".join(f'<link_ctn id="{name}" direction="{to or "NONE"}"/>' for name, _, to in parts)
    return f'<{tag} src="{src}" dst="{dst}" {more}>{inner}</{tag}>'


def hosts(*names: str) -> str:
    return "".join(f'<host id="{name}" speed="1Gf"/>' for name in names)


def platform(inside: str, routing: str = "Full") -> str:
    return f'<platform version="4.1"><zone id="world" routing="{routing}">{inside}</zone></platform>'


ZONES = platform(
    '<zone id="ways" routing="Floyd"><router id="r0"/><router id="r1"/>' + hosts("f0", "f1")
    + link("a", "1us", 'sharing_policy="SPLITDUPLEX"') + link("b", "2us") + link("c", "4us") + link("d", "8us")
    + way("f0", "r0", "a:UP") + way("f1", "r0", "b") + way("r0", "r1", "c") + way("f1", "r1", "d", "b")
    + '</zone><zone id="outer" routing="Full"><zone id="rows" routing="Cluster">'
    '<cabinet id="x" prefix="h" suffix="" radical="1-2,5" speed="1Gf" bw="1GBps" lat="16us"/>' + hosts("lone")
    + link("lone_link", "32us", rate="500MBps") + '<host_link id="lone" up="lone_link" down="lone_link"/>'
    '<router id="door"/><backbone id="bone" bandwidth="3GBps" latency="64us"/></zone>'
    '<cluster id="k" prefix="k" suffix="" radical="0-2" speed="1Gf" bw="1GBps" lat="128us" limiter_link="1500MBps" '
    'sharing_policy="SHARED" bb_bw="2GBps" bb_lat="1ms" bb_sharing_policy="FATPIPE"/>' + link("e", "256us")
    + way("rows", "k", "e", tag="zoneRoute", more='gw_src="door" gw_dst="kk_router"')
    + '</zone><zone id="queue" routing="Dijkstra">' + hosts("q0", "q1", "q2", "q3")
    + link("g", "3us") + link("h", "5us") + link("i", "7us") + link("j", "11us")
    + way("q0", "q2", "g") + way("q2", "q3", "h") + way("q0", "q1", "i", more='symmetrical="NO"')
    + way("q1", "q0", "i", "h", more='symmetrical="NO"') + way("q1", "q3", "j")
    + "</zone>" + link("l", "13us", 'sharing_policy="FATPIPE"', "10GBps") + link("m", "17us") + link("n", "19us")
    + way("ways", "outer", "l", tag="zoneRoute", more='gw_src="r1" gw_dst="door"')
    + way("outer", "queue", "m", tag="zoneRoute", more='gw_src="kk_router" gw_dst="q3"')
    + way("queue", "rows", "n", tag="bypassZoneRoute", more='gw_src="q1" gw_dst="door"'), "Floyd")

LATENCY_US = {"a": 1, "b": 2, "c": 4, "d": 8, "h1": 16, "lone": 32, "bone": 64, "k0": 128, "kb": 1000, "e": 256, "g": 3,
              "h": 5, "i": 7, "j": 11, "l": 13, "m": 17, "n": 19, "k1": 128}

ROUTES = {
    ("f0", "f1"): "a b", ("f0", "h1"): "a c l bone h1", ("f0", "k0"): "a c l e kb k0", ("f0", "q1"): "a c l e m j",
    ("k0", "f1"): "k0 kb e l b d", ("k0", "k1"): "k0 kb k1", ("k0", "h1"): "k0 kb e bone h1",
    ("q0", "f1"): "g h m e l b d",
    ("q0", "h1"): "i n bone h1", ("h1", "q0"): "h1 bone e m h g", ("lone", "h1"): "lone bone h1", ("q1", "q2"): "j h",
    ("q0", "q3"): "g h", ("q1", "q0"): "i h",
}
"""What SimGrid 3.32 gives for that platform, limiters left out, whose latency is 0."""


def latencies(t: Topology, src: str, dst: str) -> list[float]:
    pair = [np.array([t.node_names.index(end)]) for end in (src, dst)]
    times = t.latency_ps[t.paths(*pair).links] / 1e6
    return sorted(times[times > 0].tolist())


@pytest.mark.parametrize(("ends", "links"), ROUTES.items(), ids=lambda one: "-".join(one) if type(one) is tuple else "")
def test_routes_are_those_of_simgrid(ends: tuple[str, str], links: str) -> None:
    assert latencies(parse_simgrid(ZONES, "z.xml"), *ends) == sorted(LATENCY_US[one] for one in links.split())


def test_every_pair_has_a_path() -> None:
    t = parse_simgrid(ZONES, "z.xml")
    assert t.node_names[:t.n_npus] == ("f0", "f1", "h1", "h2", "h5", "lone", "k0", "k1", "k2", "q0", "q1", "q2", "q3")
    src, dst = np.array(list(permutations(range(t.n_npus), 2))).T
    paths = t.paths(src, dst, "split")
    assert paths.pair.size == 13 * 12
    with pytest.raises(WeftError, match="is part of a link: no routes from or to it"):
        t.paths(np.array([0]), np.array([t.n_nodes - 1]))


@pytest.mark.parametrize("engine", ["chunk", "fluid"])
@pytest.mark.parametrize(("policy", "messages"), [("SHARED", 6), ("FATPIPE", 1)])
def test_what_sharing_costs(policy: str, messages: int, engine: str) -> None:
    """Three hosts send 1 MB to each other over one link: in turns, or all at once."""
    text = platform(hosts("x", "y", "z") + link("one", "5us", f'sharing_policy="{policy}"')
                    + "".join(way(*ends, "one") for ends in ("xy", "yz", "zx")))
    made = build("direct", "all-gather", parse_simgrid(text, "p.xml"), "3MB")
    wires = {"chunk": 10, "fluid": 20_000}[engine]  # ps
    assert simulate(made, engine=engine, check=True).time_ps == pytest.approx(messages * 10**9 + 5 * 10**6, abs=wires)


def test_directions_that_are_apart_cost_nothing() -> None:
    text = platform(hosts("x", "y") + link("one", "5us", 'sharing_policy="SPLITDUPLEX"') + way("x", "y", "one:DOWN"))
    t = parse_simgrid(text, "p.xml")
    assert (t.n_links, t.n_nodes) == (2, 2)
    assert simulate(build("direct", "all-gather", t, "2MB"), check=True).time_ps == 10**9 + 5 * 10**6


def test_distances_of_peers() -> None:
    """Vivaldi: the way in the plane and both heights, in ms: 5 + 1 + 2."""
    peers = "".join(f'<peer id="{name}" speed="1Gf" bw_in="1GBps" bw_out="2GBps" coordinates="{where}"/>'
                    for name, where in (("p", "0 0 1"), ("q", "3 4 -2")))
    t = parse_simgrid(platform(peers, "Vivaldi"), "p.xml")
    assert latencies(t, "p", "q") == [8000.0]
    with pytest.raises(WeftError, match="'p' lacks coordinates in the Vivaldi zone 'world'"):
        parse_simgrid(platform(peers.replace('coordinates="0 0 1"', ""), "Vivaldi"), "p.xml")


TWO = platform(hosts("x", "y") + '<router id="r"/>' + link("one", "5us") + way("x", "y", "one"))


@pytest.mark.parametrize(("old", "new", "message"), [
    ("</zone>", way("y", "x", "one", "one") + "</zone>", "another route from 'y' to 'x'; routes are symmetrical"),
    ('dst="y"', 'dst="w"', "<route> has dst='w': there is no such host, router or zone"),
    ('link_ctn id="one"', 'link_ctn id="two"', "names the link 'two': there is no such link"),
    ('<link_ctn id="one" direction="NONE"/>', "", "<route> has no links"),
    ("<router", '<host id="x"/><router', "there is a zone, host or router 'x' already"),
    ("<router", link("one", "1us") + "<router", "there is a link 'one' already"),
    ('latency="5us"', 'latency="5us" sharing_policy="WIFI"', "what a radio carries depends on who sends"),
    ('latency="5us"', 'latency="5us" sharing_policy="SPLITDUPLEX"', "names the link 'one' (UP, DOWN)"),
    ('routing="Full"', 'routing="Wifi"', "has routing='Wifi': read are Full, Floyd"),
    ('routing="Full"', 'routing="None"', "<route> is in no zone that has routes: Full, Floyd and Dijkstra have"),
    ("<router", '<zone id="in" routing="None">' + hosts("z") + "</zone><router", ""),
    (TWO[TWO.index("<host"):TWO.index("</zone>")], "", "has no hosts"),
    (way("x", "y", "one"), "", "has no route over a link with a rate"),
    ("<router", '<zone id="in" routing="None">' + hosts("z") + "</zone>" + way(
        "in", "in", "one", tag="zoneRoute", more='gw_src="z" gw_dst="y"') + "<router", "no host or router of 'in'"),
])
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    if message:
        with pytest.raises(WeftError, match=re.escape(message)):
            parse_simgrid(TWO.replace(old, new, 1), "p.xml")
    else:
        t = parse_simgrid(TWO.replace(old, new, 1), "p.xml")
        with pytest.raises(WeftError, match="no route from 'x' to 'in' in the zone 'world'"):
            latencies(t, "x", "z")


def test_a_fatpipe_that_several_pairs_fill_is_refused() -> None:
    text = ZONES.replace('bb_bw="2GBps"', 'bb_bw="500MBps"')
    with pytest.raises(WeftError, match="'k_backbone' is a FATPIPE, and the slowest that messages cross by way of 'k'"):
        parse_simgrid(text, "z.xml")


def test_a_shaped_cluster_beside_another_is_named() -> None:
    with pytest.raises(WeftError, match="has topology='TORUS', and another cluster is beside it"):
        parse_simgrid(cluster("TORUS", "2,2", 4).replace("</zone>", '<cluster id="b" prefix="m" suffix="" radical="0" '
                                                         'speed="1f" bw="1Bps" lat="0"/></zone>'), "p.xml")


def test_rates_that_change_are_told() -> None:
    text = TWO.replace('latency="5us"', 'latency="5us" bandwidth_file="a.bw"').replace(
        "<zone", '<trace id="a" periodicity="1.0">0.0 1.0\n 11.0 0.5</trace><zone')
    with pytest.warns(InputNote, match="passed over, as weft does: <trace> in <platform>, bandwidth_file of <link>"):
        parse_simgrid(text, "p.xml")


@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_a_table_of_shared_links_is_that_table(n: int, draw: Random) -> None:
    """Each route crosses its links and no other, whichever way, and a link is one, whoever crosses it."""
    names, powers = [f"l{at}" for at in range(7)], [2**at for at in range(7)]
    table = {(i, j): draw.sample(range(7), draw.randint(1, 4)) for i in range(n) for j in range(i)}
    text = platform(hosts(*(f"n{at}" for at in range(n))) + "".join(map(link, names, (f"{one}us" for one in powers)))
                    + "".join(way(f"n{i}", f"n{j}", *(names[at] for at in used)) for (i, j), used in table.items()))
    t = parse_simgrid(text, "t.xml")
    used_by: dict[int, set[int]] = {}
    for (i, j), used in table.items():
        for src, dst in ((i, j), (j, i)):
            links = t.paths(np.array([src]), np.array([dst])).links
            links = links[t.latency_ps[links] > 0]
            assert (t.latency_ps[links] / 1e6).tolist() == [powers[at] for at in (used if src == i else used[::-1])]
            for one in links.tolist():
                used_by.setdefault(int(t.latency_ps[one]), set()).add(one)
    assert all(len(one) == 1 for one in used_by.values())
