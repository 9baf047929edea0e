"""What any router gives is checked where it is asked: a path for every pair, from its source to its destination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from topologies import TIES, TOPOLOGIES, Paths, Topology, WeftError, from_spec, ring
from topologies.core._walk import leads
from topologies.core.path_checks import broken_path


@dataclass(frozen=True, eq=False)
class Spoiled:
    """Gives what another router gives, after a change."""

    router: Any
    change: Callable[[Paths], Any]

    def paths(self, topology: Topology, src: Any, dst: Any, tie: str, seed: int) -> Any:
        return self.change(self.router.paths(topology, src, dst, tie, seed))


def without_route(paths: Paths, at: int) -> Paths:
    kept = np.arange(paths.pair.size) != at
    hop = np.repeat(kept, np.diff(paths.ptr))
    return Paths(np.concatenate(([0], np.cumsum(np.diff(paths.ptr)[kept]))), paths.links[hop], paths.pair[kept])


def with_link(paths: Paths, at: int, link: int) -> Paths:
    links = paths.links.copy()
    links[at % links.size] = link
    return paths._replace(links=links)


def longer(paths: Paths, links: list[int]) -> Paths:
    ptr = paths.ptr.copy()
    ptr[-1] += len(links)
    return paths._replace(ptr=ptr, links=np.append(paths.links, np.array(links, np.int32)))


def paths_of(*links: int) -> Callable[[Paths], Paths]:
    """These links for every pair."""
    return lambda paths: Paths(np.arange(paths.pair.size + 1) * len(links),
                               np.tile(np.array(links, np.int32), paths.pair.size), paths.pair)


SPOILED: dict[str, tuple[Callable[[Paths], Any], str]] = {
    "nothing": (lambda paths: None, "None"),
    "a tuple": (tuple, "give Paths"),
    "links in a list": (lambda paths: paths._replace(links=paths.links.tolist()), "links"),
    "links that are no integers": (lambda paths: paths._replace(links=paths.links.astype(float)), "links"),
    "no links": (paths_of(), "npu0 to npu1: they are none"),
    "one link for all": (paths_of(0), "npu1 to npu0: link 0 does not begin at npu1"),
    "one link again and again": (paths_of(0, 0), "npu0 to npu1: link 0 does not begin at npu1"),
    "links that do not meet": (paths_of(0, 5), "npu0 to npu1: link 5 does not begin at npu1"),
    "a link before the first": (lambda paths: with_link(paths, 0, -1), "npu0 to npu1: link -1 is not one of 0 to 11"),
    "a link after the last": (lambda paths: with_link(paths, -1, 12), "npu5 to npu4: link 12 is not one of 0 to 11"),
    "a route beyond its end": (lambda paths: longer(paths, [8]), "npu5 to npu4: they end at npu3"),
    "a route that goes on": (lambda paths: longer(paths, [0]), "npu5 to npu4: link 0 does not begin at npu4"),
    "a link that no route has": (lambda paths: paths._replace(links=np.append(paths.links, 0)), "ptr"),
    "ptr that falls": (lambda paths: paths._replace(ptr=paths.ptr[[0, 2, 1, *range(3, paths.ptr.size)]]), "ptr"),
    "a ptr too few": (lambda paths: paths._replace(ptr=paths.ptr[:-1]), "ptr"),
    "one route too few": (lambda paths: without_route(paths, 7), "0 routes from npu1 to npu3"),
    "no last route": (lambda paths: without_route(paths, 29), "0 routes from npu5 to npu4"),
    "a route twice": (lambda paths: paths._replace(pair=np.minimum(paths.pair, 28)), "2 routes from npu5 to npu3"),
    "another pair": (lambda paths: paths._replace(pair=paths.pair + 1), "pair 30: 30 pairs"),
    "another order": (lambda paths: paths._replace(pair=paths.pair[[1, 0, *range(2, 30)]]), "npu0 to npu1 after"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_no_path_for_every_pair_is_refused_with_the_pair(name: str) -> None:
    change, message = SPOILED[name]
    t = replace(ring(6), router=Spoiled(ring(6).router, change))
    src, dst = (ends.ravel() for ends in np.indices((6, 6)))
    with pytest.raises(WeftError, match="its router, gave ") as refused:
        t.paths(src[src != dst], dst[src != dst])
    assert message in str(refused.value)


def test_a_node_has_no_route_to_itself() -> None:
    loop = replace(ring(6), router=Spoiled(ring(6).router, lambda paths: longer(paths, [0, 2])))
    assert ring(6).paths([0], [0]).links.size == 0
    with pytest.raises(WeftError, match="npu0 to npu0: a node has no route to itself"):
        loop.paths([0], [0])


@pytest.mark.parametrize("tie", TIES)
def test_two_routes_are_for_a_pair_that_is_split_only(tie: str) -> None:
    twice = Spoiled(ring(6).router, lambda p: Paths(np.append(p.ptr, p.ptr[1:] + p.links.size), np.tile(p.links, 2),
                                                    np.repeat(p.pair, 2)))
    t = replace(ring(6), router=twice)
    if tie == "split":
        assert t.paths([0], [2], tie).pair.tolist() == [0, 0]
    else:
        with pytest.raises(WeftError, match=r"2 routes from npu0 to npu2: give one$"):
            t.paths([0], [2], tie)


@pytest.mark.table
@pytest.mark.parametrize("spec", [sample for family in TOPOLOGIES.values() for sample in family.samples])
def test_on_every_fabric_the_first_wrong_link_is_found(spec: str) -> None:
    """Of the routes to a node, one link is replaced by any other that is not parallel to it."""
    t = from_spec(spec)
    src, dst = np.arange(t.n_npus - 1), np.full(t.n_npus - 1, t.n_npus - 1)
    links = t.paths(src, dst).links
    for at in range(min(links.size, 12)):
        for link in range(-1, min(t.n_links, 12)):
            if link >= 0 and (t.src[link], t.dst[link]) == (t.src[links[at]], t.dst[links[at]]):
                continue
            spoiled = Spoiled(t.router, lambda paths, at=at, link=link: with_link(paths, at, link))
            with pytest.raises(WeftError, match=r"its router, gave the links \["):
                replace(t, router=spoiled).paths(src, dst)


def failing(fault: Exception) -> Any:
    def change(paths: Paths) -> Paths:
        raise fault

    return replace(ring(6), router=Spoiled(ring(6).router, change))


def test_a_router_that_fails_is_named_and_its_fault_kept() -> None:
    fault = KeyError("no such shelf")
    with pytest.raises(WeftError, match=r"^topology ring:6: Spoiled, its router, failed: KeyError: ") as refused:
        failing(fault).paths([0], [1])
    assert refused.value.__cause__ is fault


@pytest.mark.parametrize("fault", [WeftError("this router takes at most 4 NPUs"), MemoryError()], ids=["own", "memory"])
def test_what_a_router_says_itself_is_passed_on(fault: Exception) -> None:
    with pytest.raises(type(fault)) as refused:
        failing(fault).paths([0], [1])
    assert refused.value is fault


@pytest.mark.parametrize("spec", ["ring:1", "ring:2", "ring:5", "mesh:2x3", "fat-tree:4"])
def test_compiled_code_sees_what_is_no_path(spec: str) -> None:
    """`broken_path` is the oracle, with every link in the place of every link, and with other ends."""
    fabric = from_spec(spec)
    n = fabric.n_npus
    src, dst = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    paths = fabric.paths(src, dst)
    few = range(min(paths.links.size, 64))
    wrong = [with_link(paths, at, (int(paths.links[at]) + 1) % fabric.n_links) for at in few]
    for one, ends in [(paths, dst), (paths, np.roll(dst, 1)), *((other, dst) for other in wrong)]:
        found = leads(fabric.src, fabric.dst, one.ptr, one.links, src, ends)
        assert found == (broken_path(fabric, one.ptr, one.links, src, ends) is None)
