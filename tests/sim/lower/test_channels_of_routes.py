"""Channels of routes, by a walk over nodes that is written to be read."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from collectives import build
from sim.lower.credits import BUBBLES, DATELINES, check_rings, route_channels
from sim.lower.job import lower
from sim.program.model import make_model
from topologies import Topology, WeftError, from_spec
from topologies.core.paths import Paths


def walked(topology: Topology, links: list[int], channels: str) -> list[int]:
    """Of one route; links beyond those of the topology are NICs."""
    found: list[int] = []
    before, channel = None, 0
    for link in links:
        if link >= topology.n_links:
            found.append(0)
            before = None
            continue
        dimension, node = int(topology.dimension[link]), topology.coords[topology.src[link]]
        if dimension != before:
            channel = 0
        elif node[dimension] == 0:
            channel = 1 - channel
        found.append(int(dimension != before) if channels == BUBBLES else channel)
        before = dimension
    return found


@pytest.mark.parametrize("spec", ["ring:7", "ring:2", "torus:4x5", "torus:3x2x4", "mesh:3x4", "hypercube:3"])
@pytest.mark.parametrize("channels", [DATELINES, BUBBLES])
def test_channels_are_those_of_a_walk(spec: str, channels: str) -> None:
    topology = from_spec(spec)
    check_rings(topology, channels)
    pairs = np.array(list(itertools.permutations(range(topology.n_npus), 2)))
    paths = topology.paths(pairs[:, 0], pairs[:, 1], "first", 0)
    routes = [part.tolist() for part in np.split(paths.links, paths.ptr[1:-1])]
    routes = [[topology.n_links + 1, *route] if number % 3 == 0 else route for number, route in enumerate(routes)]
    routes.append([])
    ptr = np.cumsum([0, *map(len, routes)])
    links = np.array(list(itertools.chain(*routes)))
    found = route_channels(topology, Paths(ptr, links, np.arange(len(routes))), channels)
    assert found.tolist() == [one for route in routes for one in walked(topology, route, channels)]


def test_a_route_changes_channel_at_coordinate_0_and_begins_anew_in_each_dimension() -> None:
    topology = from_spec("torus:8x8")
    links = {(int(a), int(b)): link for link, (a, b) in enumerate(zip(topology.src, topology.dst, strict=True))}
    for nodes, expected in (([6, 7, 0, 1, 9], [0, 0, 1, 0]), ([0, 1, 2], [0, 0]), ([2, 1, 0], [0, 0]),
                            ([1, 0, 7, 6], [0, 1, 1]), ([48, 56, 0, 8], [0, 0, 1]), ([7, 0, 56, 48], [0, 0, 0])):
        route = np.array([links[hop] for hop in itertools.pairwise(nodes)])
        paths = Paths(np.array([0, route.size]), route, np.zeros(1, np.int64))
        assert route_channels(topology, paths, DATELINES).tolist() == expected


@pytest.mark.parametrize("spec", ["switch:4", "leaf-spine:1x1x1", "fc:4", "hyperx:4x4", "circulant:16x1x5",
                                  "twisted-torus:4x4x8", "multidim:RI(4)_SW(2)", "dragonfly:9x4"])
def test_other_fabrics_have_no_rings(spec: str) -> None:
    topology = from_spec(spec)
    for channels in (DATELINES, BUBBLES):
        with pytest.raises(WeftError, match=f"{channels} are of rings: on .* is no step along a dimension; give"):
            check_rings(topology, channels)
    check_rings(topology, "")


def test_a_link_is_a_step_along_its_own_dimension() -> None:
    topology = from_spec("torus:3x3")
    with pytest.raises(WeftError, match="the link npu0->npu1 is no step along a dimension"):
        check_rings(replace(topology, dimension=1 - topology.dimension), DATELINES)


@pytest.mark.parametrize("options", [{}, {"tie": "split"}, {"nic": "shared"}])
def test_the_program_has_the_channels_of_its_routes(options: dict[str, str]) -> None:
    """Also where a transfer has two routes, and where they begin at NICs."""
    topology = from_spec("torus:4x8")
    schedule = build("direct", "all-to-all", topology, "4KiB")
    lowered = lower(schedule, make_model(vcs=2, **options), "off")
    program = lowered.program
    links = np.where(lowered.server_link < 0, topology.n_links, lowered.server_link)[program.route_server]
    channel = program.hop_channel[program.route_hop]
    for route in range(program.route_ptr.size - 1):
        hops = slice(program.route_ptr[route], program.route_ptr[route + 1])
        assert channel[hops].tolist() == walked(topology, links[hops].tolist(), DATELINES)
    assert set(channel.tolist()) == {0, 1}
