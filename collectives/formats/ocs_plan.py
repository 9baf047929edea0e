"""Plans of circuits that public simulators pass on (`panel-ocs-plan`, version 6), written.

A plan has, in each round, a matching on each plane, which is a port of every server, and the stripes that cross it; and
of each flow its stripes. Where circuits are duplex, a plane has both ways of each, on one port of both ends. A transfer
is a flow. Dependencies between flows are not part of it: a round waits for the end of the one before.
"""

import json
from functools import partial

import numpy as np
import numpy.typing as npt

from collectives.core.schedule import Schedule
from topologies import Topology, WeftError
from topologies.process import heard
from topologies.stages import count

FORMAT, VERSION = "panel-ocs-plan", 6

Pair = tuple[int, int]


def to_ocs_plan(schedule: Schedule) -> str:
    """The circuits and flows of a schedule, whose circuits are switched or stay.

    WeftError: not on circuits that are switched together, transfers over several circuits, or duplex circuits that no
        matchings were found for: there are none where each of an odd number of servers uses all its ports.
    """
    fabric, t = schedule.topology, schedule.pattern.transfers()
    optics, epochs = fabric.optics, schedule.pattern.circuits
    if optics is None or optics.per_port or optics.only or fabric.n_nodes > fabric.n_npus:
        why = ("the fabric has none" if optics is None else "a plan has planes, whose ports change together, and "
               "per-port ones change one by one" if optics.per_port else
               "a plan joins any two servers, and has nothing beside circuits")
        raise WeftError(f"no plan of circuits of {schedule.topology.name}: {why}; one of ocs:16x4 can be written")
    fabrics, numbers = ((fabric,), (np.arange(fabric.n_links),)) if epochs is None else (epochs.fabrics, epochs.links)
    round_of = {link: at for at, links in enumerate(numbers) for link in links.tolist()}
    paths = fabric.paths(t.src, t.dst) if t.via_ptr is None else None
    ptr, links = (t.via_ptr, t.via_links) if paths is None else (paths.ptr, paths.links)
    assert ptr is not None and links is not None
    planes = []
    for at, one in enumerate(fabrics):
        count("circuits in matchings", at, len(fabrics))
        planes.append((_both_ways if optics.duplex else _planes)(one, optics.ports, optics.rate_Bps))
    crossing: dict[tuple[int, int], list[dict[str, object]]] = {}
    flows = []
    for row in np.flatnonzero((t.src != t.dst) & (t.blocks > 0)).tolist():
        src, dst, size = int(t.src[row]), int(t.dst[row]), int(t.blocks[row]) * schedule.block_bytes
        if ptr[row + 1] - ptr[row] != 1:
            raise WeftError(f"a plan of circuits of {schedule.name}: the transfer from {src} to {dst} takes "
                            f"{ptr[row + 1] - ptr[row]} circuits, a flow of a plan one: choose another algorithm")
        at = round_of[int(links[ptr[row]])]
        on = [plane for plane, matching in enumerate(planes[at]) if (src, dst) in matching]
        stripes = []
        for place, plane in enumerate(on):
            if part := size // len(on) + (place < size % len(on)):
                uid = f"{row}.{plane}"
                stripes.append({"stripe_uid": uid, "plane": plane, "bytes": part})
                crossing.setdefault((at, plane), []).append(
                    {"source": src, "destination": dst, "bytes": part, "flow_uid": f"{row}", "stripe_uid": uid})
        flows.append({
            "flow_uid": f"{row}", "source": src, "destination": dst, "tag": row, "stream": 0, "logical_bytes": size,
            "round": at, "route": "OCS", "stripes": stripes,
        })
    rounds = [{
        "index": at, "synchronize": True, "configurations": [
            {"plane": plane, "stream": 0, "matching": sorted(matching), "circuits": crossing.get((at, plane), [])}
            for plane, matching in enumerate(some)],
    } for at, some in enumerate(planes)]
    return json.dumps({
        "format": FORMAT, "version": VERSION, "endpoints": fabric.n_npus, "planes": optics.ports,
        "reconfiguration_ns": optics.delay_ps / 1e3, "initial_reconfiguration": optics.paid, "rounds": rounds,
        "assignments": flows,
    }, indent=1) + "\n"


def _planes(fabric: Topology, ports: int, rate_Bps: float) -> list[set[Pair]]:
    """The circuits of a fabric as one matching for each port."""
    from scipy.optimize import linear_sum_assignment  # half a second, of plans that are written alone

    n = fabric.n_npus
    left: npt.NDArray[np.int64] = np.zeros((n, n), np.int64)
    left[fabric.src, fabric.dst] = np.rint(fabric.bandwidth_Bps / rate_Bps)
    idle: npt.NDArray[np.int64] = np.zeros((n, n), np.int64)  # fills up the ports of all servers
    sends, receives = ports - left.sum(axis=1), ports - left.sum(axis=0)
    while sends.any():
        ends = int(np.argmax(sends)), int(np.argmax(receives))
        part = min(sends[ends[0]], receives[ends[1]])
        idle[ends] += part
        sends[ends[0]] -= part
        receives[ends[1]] -= part
    found = []
    for _ in range(ports):  # what is alike at all servers has a perfect matching
        src, dst = heard(partial(linear_sum_assignment, (left + idle > 0).astype(np.int64), maximize=True))
        real = left[src, dst] > 0
        found.append(set(zip(src[real].tolist(), dst[real].tolist(), strict=True)))
        left[src[real], dst[real]] -= 1
        idle[src[~real], dst[~real]] -= 1
    return found


def _both_ways(fabric: Topology, ports: int, rate_Bps: float) -> list[set[Pair]]:
    """Duplex circuits as one matching for each port, which takes both ends of a circuit.

    Each takes as many servers as it can of those that have a circuit for every port that is left.
    """
    import rustworkx as rx  # heavy: loaded where it is used

    left = np.zeros((fabric.n_npus, fabric.n_npus), np.int64)
    left[fabric.src, fabric.dst] = np.rint(fabric.bandwidth_Bps / rate_Bps)
    found = []
    for port in range(ports, 0, -1):
        full, graph = left.sum(axis=1) == port, rx.PyGraph()
        graph.add_nodes_from(range(fabric.n_npus))
        worth = 1 + fabric.n_npus * (full[:, None].astype(int) + full)
        graph.add_edges_from([(a, b, int(worth[a, b])) for a, b in np.argwhere(np.triu(left)).tolist()])
        pairs = rx.max_weight_matching(graph, weight_fn=int)
        found.append({ends for a, b in pairs for ends in ((a, b), (b, a))})
        for ends in found[-1]:
            left[ends] -= 1
    if left.any():
        raise WeftError(f"a plan of circuits of {fabric.name}: a port of every server is a plane, and no matchings of "
                        f"{ports} planes were found that have all duplex circuits")
    return found
