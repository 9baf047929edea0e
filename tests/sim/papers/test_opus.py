"""Opus's simulation from its configuration, beside the compatibility run of ASTRA-sim and what its runs printed."""

from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sim.astra.collective import Phase, PhaseSpec
from sim.astra.endpoint import Endpoint
from sim.astra.network import Clock, Link, Message, MessageNetwork
from sim.astra.system_file import read_system
from sim.papers.opus import (
    DP,
    EP,
    LATENCY_NS,
    PP,
    SCALES,
    Controller,
    Scale,
    all_to_all_ns,
    cycles,
    iteration_ns,
    loads,
    ring_ns,
)
from topologies.formats.astra_network import read_astra_network

SYSTEM = """{"endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
"scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
"reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["direct"],
"collective-optimization": "localBWAware", "local-mem-bw": 3350}"""


class Held(MessageNetwork):
    """Links of Opus: busy for two latencies after a message."""

    def _start(self, link: Link, message: Message) -> None:
        link.busy = True
        serial = message.key[4] / link.bandwidth
        self.clock.at(self.clock.now + int(link.latency + serial), self._arrive, message)
        self.clock.at(self.clock.now + int(serial) + 2 * LATENCY_NS, self._free, link)


def endpoints(path: Path, gpus: int, GBps: float, network: type[MessageNetwork] = Held) -> list[Endpoint]:
    """GPUs with a link for every two."""
    (path / "system.json").write_text(SYSTEM)
    rows = f"npus_count: [ {gpus} ]\nbandwidth: [ {GBps} ]\nlatency: [ {LATENCY_NS} ]\n"
    (path / "network.yml").write_text(f"topology: [ FullyConnected ]\n{rows}")
    clock = Clock(10**8)
    links = network(read_astra_network(path / "network.yml"), "aware", clock)
    return [Endpoint(gpu, read_system(path / "system.json", 1), links, clock, {}) for gpu in range(gpus)]


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize(("members", "parts", "GBps"), [(2, 1, 100), (3, 77, 12.5), (7, 100_000, 50), (32, 9999, 900)])
def test_rings(tmp_path: Path, kind: str, members: int, parts: int, GBps: float) -> None:
    size, ends = parts * members * 4, list[int]()
    some = endpoints(tmp_path, members + 1, GBps)
    for one in some[:-1]:
        one.collective(kind, size, None, (7, tuple(range(members))), 0, lambda: ends.append(some[0].clock.now))
    some[0].clock.run()
    free_ns = some[0].clock.now
    ours = ring_ns(kind, size, members, GBps * 2**30 / 1e9)
    assert ours == (max(*ends, free_ns - 10) if kind == "reduce-scatter" else max(ends))


def routed(scale: Scale, ep: int, dense: bool) -> dict[tuple[int, int], list[int]]:
    """The first found of the routes with fewest hops between boxes, then inside: by distance, then by GPU."""
    boxes, far = max(1, ep // scale.each), 10_000
    near: dict[int, dict[int, int]] = {
        gpu: dict.fromkeys(range(gpu // scale.each * scale.each, (gpu // scale.each + 1) * scale.each), 1)
        for gpu in range(boxes * scale.each)}
    for rail, ring in enumerate(cycles(boxes, scale.each)):
        for a, b in pairwise((*ring, ring[0])):
            for one, other in ((a, b), (b, a)):
                near[one * scale.each + rail].setdefault(other * scale.each + rail, far)
    if dense:
        near = {one: dict.fromkeys(near, 1) for one in near}
    found = {}
    for src in near:
        distance, before, heap = {src: 0}, dict[int, int](), [(0, src)]
        while heap:
            at, gpu = heappop(heap)
            for other in sorted(near[gpu]) if at == distance[gpu] else ():
                if at + near[gpu][other] < distance.get(other, 10**9):
                    distance[other], before[other] = at + near[gpu][other], gpu
                    heappush(heap, (distance[other], other))
        for dst in near:
            path = [dst]
            while path[0] != src:
                path.insert(0, before[path[0]])
            found[src, dst] = path
    return found


@pytest.mark.parametrize(("scale", "ep"), [
    (Scale(24, 3, 2, 900.0, 100.0), 3), (Scale(24, 3, 2, 900.0, 100.0), 6), (Scale(24, 3, 2, 900.0, 100.0), 12),
    (Scale(30, 5, 2, 55.5, 7.25), 15), (Scale(40, 2, 4, 30.0, 3.0), 10),
])
@pytest.mark.parametrize("dense", [False, True])
def test_all_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: Scale, ep: int, dense: bool) -> None:
    """The direct algorithm of the compatibility run, with the sizes of pairs, over routes found one by one."""
    routes, payload = routed(scale, ep, dense), 64 * 4096 // (scale.gpus // scale.stages) * 7168 * 2
    sizes = loads(scale, np.arange(ep), payload)
    whole = -(-int(max(sizes.sum(0).max(), sizes.sum(1).max())) // (ep - 1)) * ep

    class Routed(Held):
        def _links(self, src: int, dst: int) -> list[Link]:
            pairs = [*pairwise(routes[src, dst])]
            rates = [scale.box if a // scale.each == b // scale.each else scale.rail for a, b in pairs]
            return [self.links.setdefault((0, a, b), Link(rate, LATENCY_NS))
                    for (a, b), rate in zip(pairs, rates, strict=True)]

    class Uneven(Phase):
        def __init__(self, host: Endpoint, spec: PhaseSpec, *more) -> None:
            super().__init__(host, spec, *more)
            self.part = spec.size

        def _send(self) -> None:
            if self._prepared and self.sends_left and self.credit:
                _, dst, src = self._prepared.popleft()
                self.sends_left, self.credit = self.sends_left - 1, self.credit - 1
                out, back = (max(1, -(-int(sizes[a, b]) * self.part // whole))
                             for a, b in ((self.host.npu, dst), (src, self.host.npu)))
                self.host.network.send(("collective", self.tag, self.host.npu, dst, out))
                self.host.network.receive(("collective", self.tag, src, self.host.npu, back), self._receive)

    monkeypatch.setattr("sim.astra.endpoint.Phase", Uneven)
    ends, some = list[int](), endpoints(tmp_path, len({a for a, _ in routes}) + 1, 1, Routed)
    for one in some[:ep]:
        one.collective("all-to-all", whole, None, (7, tuple(range(ep))), 0, lambda: ends.append(some[0].clock.now))
    some[0].clock.run()
    assert all_to_all_ns(scale, ep, False, dense) == max(ends) and len(ends) == ep


@pytest.mark.parametrize(("gpus", "ep", "run_ms", "off_percent"), [
    ("512", 1, 21532.576, 1e-5), ("512", 2, 10841.672, 1e-4), ("512", 32, 817.581, 0.002), ("512", 64, 546.169, 0.05),
    ("512", 128, 632.983, 0.5), ("256", 1, 76942.654, 1e-5), ("256", 16, 4947.42, 0.06), ("256", 64, 2022.034, 2.4),
])
def test_iterations(gpus: str, ep: int, run_ms: float, off_percent: float) -> None:
    ours_ms = iteration_ns(SCALES[gpus], ep, False, 500_000, dense=False) / 1e6
    assert abs(ours_ms / run_ms - 1) * 100 <= off_percent


def test_what_groups_over_four_boxes_lose() -> None:
    """67.4 ms of 30 delays are 40 all-to-alls that wait for rails, not for switches."""
    scale = SCALES["512"]
    rails_ns, pairs_ns = (all_to_all_ns(scale, 128, False, dense) for dense in (False, True))
    assert 40 * (rails_ns - pairs_ns) / 1e6 == pytest.approx(67.4, abs=0.2)
    assert iteration_ns(scale, 128, False, 0, dense=True) / 1e6 == pytest.approx(550.567, abs=0.002)


def test_a_request_is_held_and_granted_with_others() -> None:
    control = Controller(3, 500_000)
    assert control.ask(0, DP) and not control.ask(0, EP) and not control.ask(1, PP, 2)
    control.now = 10_000_000
    control.flying = 1
    assert not control.ask(0, EP)
    control.flying = 0
    assert control.ask(0, EP) and control.state == [EP, PP, PP] and control.ask(1, PP, 2)
    assert not control.change([DP, DP, DP])  # a change is under way
    control.now = control.until
    assert control.change([DP, DP, DP]) and control.state == [DP, DP, DP]
