"""Plans of circuits that public simulators pass on (`panel-ocs-plan`, version 6), as a job.

A plane is a port of every server. In each round it has the circuits of a matching, which carry stripes of flows; it
changes when they are delivered, or those of all planes where the round is synchronized. Equal matchings in a row stay.
Flows begin when their circuits are up: what they wait for besides is in the workload, not in the plan.
"""

from pathlib import Path
from typing import Any

from collectives.core.schedule import MOST_BYTES
from collectives.formats.ocs_plan import FORMAT, VERSION, Pair
from topologies import Topology, WeftError, optical
from topologies.checks import MOST_COUNT, integer, number, told, truth
from topologies.core.epochs import circuit_epochs
from topologies.optics import links_of
from topologies.text.plain_data import read_json_object
from workloads.job import Job

Table = dict[str, Any]
Place = tuple[int, int, str]


def open_ocs_plan(path: str | Path, topology: Topology) -> Job:
    """The flows and changes of circuits of a plan.

    `topology`: circuits such as "ocs:16x4", a port for each plane, and the delay of the plan.
    WeftError: names the file and what it cannot be: another version, a matching that is none, a stripe that no circuit
        carries, flows on other networks, or another fabric.
    """
    return _Plan(str(path), read_json_object(path, "plan of circuits"), topology).job()


class _Plan:
    def __init__(self, name: str, data: Table, topology: Topology) -> None:
        self.name, self.data, self.topology = f"plan of circuits {name}", data, topology
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            raise WeftError(f"{self.name} is {told(data.get('format'))}, version {told(data.get('version'))}: version "
                            f"{VERSION} of {FORMAT!r} is read")
        self.n, self.planes = (self._count(data, key, 1) for key in ("endpoints", "planes"))
        optics = topology.optics
        delay_ns = number(data.get("reconfiguration_ns"), f"{self.name}: reconfiguration_ns", 0)
        size = topology.n_npus, 0 if optics is None else optics.ports
        if optics is None or optics.only or optics.rails > 1 or size != (self.n, self.planes):
            raise WeftError(f"{self.name} is of circuits between {self.n} servers on {self.planes} planes: "
                            f"--topology ocs:{self.n}x{self.planes},delay={delay_ns:g}ns, not {topology.name}")
        if optics.delay_ps != round(1000 * delay_ns):
            raise WeftError(f"{self.name} has a delay of {delay_ns:g}ns, {topology.name} {optics.delay_ps / 1e3:g}ns")
        self.delay_ps, self.duplex = optics.delay_ps, optics.duplex
        self.paid = self._flag(data, "initial_reconfiguration")

    def job(self) -> Job:
        """Circuits of a plane and a round are links of their own, and so are those of other planes beside them."""
        fabrics, of_slot, changes = self._fabrics()
        epochs = circuit_epochs(fabrics or [self.topology], name=self.topology.name)
        job, carried, last = Job(epochs.topology), self._carried(), dict[int, int]()
        before: list[int] = []  # sends of the rounds before
        for at, one in enumerate(self._rows(self.data, "rounds")):
            for plane, old, new in changes[at]:
                waits = [*([last[plane]] if plane in last else []), *(before if self._flag(one, "synchronize") else [])]
                down, up = ([] if epoch is None else epochs.links[epoch].tolist() for epoch in (old, new))
                last[plane] = job.reconfigure(f"plane {plane}, round {at}", f"{self.delay_ps}ps", down, up,
                                              controller=f"plane {plane}", after=waits)
            for flow in carried.pop(at, []):
                src, dst = (self._count(flow, key, 0, self.n - 1) for key in ("source", "destination"))
                where = [of_slot[at, self._count(stripe, "plane", 0)] for stripe in flow["stripes"]]
                via = [epochs.route(epoch, [src], [dst])[0] for epoch in where]
                if any(len(links) != 1 for links in via):
                    raise WeftError(f"{self.name}: flow {flow['flow_uid']!r}: no circuit leads from {src} to {dst}")
                size = [self._count(stripe, "bytes", 1, MOST_BYTES) for stripe in flow["stripes"]]
                before.append(job.send(f"flow {flow['flow_uid']}", size, [src] * len(size), [dst] * len(size), via=via))
        if carried:
            raise WeftError(f"{self.name}: round {min(carried)} of a flow is not there")
        return job

    def _fabrics(self) -> tuple[list[Topology], dict[tuple[int, int], int], list[list[tuple[int, int | None, int]]]]:
        """Circuits of one plane, by number; which each plane has in each round; and the changes, round by round."""
        fabrics, of_slot, changes = list[Topology](), dict[tuple[int, int], int](), []
        now: dict[int, tuple[list[Pair], int]] = {}
        for at, one in enumerate(self._rows(self.data, "rounds")):
            changes.append(list[tuple[int, int | None, int]]())
            for some in self._rows(one, "configurations"):
                plane = self._count(some, "plane", 0, self.planes - 1)
                if (at, plane) in of_slot:
                    raise WeftError(f"{self.name}: round {at} has plane {plane} twice")
                pairs = some.get("matching", [])
                if not isinstance(pairs, list):
                    raise WeftError(f"{self.name}: the matching of plane {plane}, round {at}, is {told(pairs)}: a list")
                matching = sorted(map(self._pair, pairs))
                if self.duplex and (alone := [pair for pair in matching if pair[::-1] not in matching]):
                    src, dst = alone[0]
                    raise WeftError(f"{self.name}: plane {plane}, round {at}, has a circuit from {src} to {dst} and "
                                    f"none back: those of {self.topology.name} lead both ways")
                old = now.get(plane)
                if old is None or old[0] != matching or self._flag(some, "force_reconfiguration"):
                    name = f"plane {plane}, round {at}"
                    try:
                        fabrics.append(optical(self.n, 1, matching, False, **links_of(self.topology), name=name))
                    except WeftError as wrong:
                        raise WeftError(f"{self.name}: {name}: {wrong}") from None
                    now[plane] = matching, len(fabrics) - 1
                    if old is not None or self.paid:
                        changes[at].append((plane, None if old is None else old[1], len(fabrics) - 1))
                of_slot[at, plane] = now[plane][1]
        return fabrics, of_slot, changes

    def _carried(self) -> dict[int, list[Table]]:
        """The flows of each round."""
        circuits: dict[Place, Table] = {}
        for at, row in enumerate(self._rows(self.data, "rounds")):
            self._agree(row, {"index": at}, f"round {at}")
            for some in self._rows(row, "configurations"):
                for one in self._rows(some, "circuits"):
                    place = self._place(at, some | one)
                    if circuits.setdefault(place, one) is not one:
                        twice = f"stripe {place[2]!r} crosses plane {place[1]} of round {at} twice"
                        raise WeftError(f"{self.name}: {twice}")
                    self._agree(one, {"plane": some["plane"]}, f"the circuit of stripe {place[2]!r}")
        found: dict[int, list[Table]] = {}
        names: set[object] = set()
        for flow in self._rows(self.data, "assignments"):
            name = flow.get("flow_uid")
            where = f"{self.name}: flow {name!r}"
            if name is None:
                raise WeftError(f"{self.name}: a flow of assignments has no flow_uid")
            if str(name) in names:
                raise WeftError(f"{where} is there twice")
            names.add(str(name))
            if not str(flow.get("route")).startswith("OCS"):
                raise WeftError(f"{where} goes by {flow.get('route')}: a fabric of circuits has no other network")
            at = self._count(flow, "round", 0)
            for one in self._rows(flow, "stripes"):
                place = self._place(at, one)
                if place not in circuits:
                    raise WeftError(f"{where}: no circuit of round {at} carries its stripe {place[2]!r}")
                self._agree(circuits.pop(place), flow | one, f"the circuit of stripe {place[2]!r}")
            if sum(one["bytes"] for one in flow["stripes"]) != flow.get("logical_bytes"):
                raise WeftError(f"{where}: its stripes are not its {flow.get('logical_bytes')} bytes")
            found.setdefault(at, []).append(flow)
        if circuits:
            raise WeftError(f"{self.name}: no flow has stripe {min(circuits)[2]!r}")
        return found

    def _place(self, at: int, one: Table) -> Place:
        """Round, plane and name of a stripe."""
        self._count(one, "bytes", 1, MOST_BYTES)
        return at, self._count(one, "plane", 0), str(one.get("stripe_uid"))

    def _agree(self, one: Table, other: Table, what: str) -> None:
        """Reject what says something else than another part of the plan."""
        for key in ("index", "plane", "flow_uid", "source", "destination", "bytes"):
            if key in one and key in other and one[key] != other[key]:
                raise WeftError(f"{self.name}: {what} has {key} {told(one[key])}; it is {told(other[key])} elsewhere")

    def _pair(self, ends: object) -> Pair:
        if not isinstance(ends, list) or len(ends) != 2:
            raise WeftError(f"{self.name}: {told(ends)} of a matching is no pair of servers")
        src, dst = (integer(end, f"{self.name}: server of a matching", 0, self.n - 1) for end in ends)
        return src, dst

    def _count(self, table: Table, key: str, least: int, most: int = MOST_COUNT) -> int:
        return integer(table.get(key), f"{self.name}: {key}", least, most)

    def _flag(self, table: Table, key: str) -> bool:
        return truth(table.get(key, False), f"{self.name}: {key}")

    def _rows(self, table: Table, key: str) -> list[Table]:
        rows = table.get(key)
        if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
            raise WeftError(f"{self.name}: {key} is no list of objects")
        return rows
