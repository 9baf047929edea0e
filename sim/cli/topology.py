"""`weft topology`: what a fabric is; without an argument, which families there are."""

import argparse
from typing import Any

import numpy as np

from sim import plots
from sim.cli.asked import spec_of
from sim.cli.output import say, write_json, write_whole
from sim.study.tables import aligned, time_text
from topologies import TOPOLOGIES, Topology, bisection_Bps, egress_Bps, write_topology
from topologies.flows.tightest_cut import links_from
from topologies.formats.files import FORMATS
from topologies.stages import count, staged
from topologies.units import counted, format_rate

EXACT_DIAMETER_NPUS = 4096
"""NPUs up to which distances are computed from every NPU: 0.3 s at 4,096 of a torus."""

SAMPLED_NPUS = 16


def run(arguments: argparse.Namespace) -> None:
    """Describe one fabric, or list families."""
    spec = spec_of(arguments)
    if spec.fabric is None and not any((arguments.plot, arguments.output)):
        say(arguments, *families())
        every = [{"name": one.name, "example": one.example, "help": one.help} for one in TOPOLOGIES.values()]
        write_json(arguments, spec, every, families=every)
        return
    topology = spec.build_topology()
    if arguments.plot:
        plots.check_drawable(topology)
    facts = describe(topology)
    say(arguments, *lines(facts))
    write_json(arguments, spec, [facts], **facts)
    if arguments.plot:
        write_whole(arguments.plot, lambda path: plots.draw_topology(topology, path))
    if arguments.output:
        write_whole(arguments.output, lambda path: write_topology(topology, path))


def families() -> list[str]:
    """One line per family, and how to name a product or a file."""
    rows = [["family", "example", "what it is"]]
    rows += [[family.name, family.example, family.help] for family in TOPOLOGIES.values()]
    files = ", ".join(f"{one.name} ({' '.join(one.suffixes)})" for one in FORMATS)
    return [aligned(rows, left=3), f"# or a file: {files}"]


@staged("topology")
def describe(topology: Topology) -> dict[str, Any]:
    """Facts about a fabric, in SI units."""
    egress = egress_Bps(topology)
    diameter, exact = diameter_hops(topology)
    return {
        "topology": topology.name, "npus": topology.n_npus, "switches": topology.n_nodes - topology.n_npus,
        "links": topology.n_links, "shape": list(topology.shape), "diameter_hops": diameter, "diameter_exact": exact,
        "bisection_Bps": bisection_Bps(topology) if topology.n_npus > 1 else None,
        "npu_egress_Bps": [float(egress.min()), float(egress.max())],
        "dimensions": [_dimension(topology, dimension) for dimension in sorted(set(topology.dimension.tolist()))],
    }


def _dimension(topology: Topology, dimension: int) -> dict[str, Any]:
    here = topology.dimension == dimension
    out_of_npus = here & (topology.src < topology.n_npus)
    rates, times = topology.bandwidth_Bps[here], topology.latency_ps[here]
    hops = topology.hop_latency_ps[topology.dst[here]]
    return {
        "dimension": dimension,
        "links": int(np.count_nonzero(here)),
        "link_bandwidth_Bps": [float(rates.min()), float(rates.max())],
        "link_latency_s": [float(times.min()) / 1e12, float(times.max()) / 1e12],
        "hop_latency_s": [float(hops.min()) / 1e12, float(hops.max()) / 1e12],
        "egress_per_npu_Bps": float(topology.bandwidth_Bps[out_of_npus].sum() / topology.n_npus),
    }


def diameter_hops(topology: Topology) -> tuple[int | None, bool]:
    """Links on the longest of the shortest paths between NPUs, and whether all NPUs were sources.

    None if some NPU cannot reach another.
    """
    n_npus, scratch = topology.n_npus, np.empty((2, topology.n_nodes), np.int32)
    exact = n_npus <= EXACT_DIAMETER_NPUS
    sources = np.arange(n_npus) if exact else np.linspace(0, n_npus - 1, SAMPLED_NPUS).astype(np.int64)
    longest = 0
    for done, source in enumerate(sources.tolist()):
        if (most := links_from(topology, source, scratch)[1]) < 0:
            return None, exact
        longest = max(longest, most)
        count("NPUs from which the farthest one is found", done + 1, sources.size)
    return longest, exact


def lines(facts: dict[str, Any]) -> list[str]:
    """The facts as readable lines."""
    hops = facts["diameter_hops"]
    diameter = "none: some NPUs cannot reach others" if hops is None else counted(hops, "link")
    sampled = "" if facts["diameter_exact"] else f" or more (seen from {SAMPLED_NPUS} NPUs)"
    bisection = "-" if facts["bisection_Bps"] is None else format_rate(facts["bisection_Bps"])
    head = [
        f"# {facts['topology']}",
        f"NPUs       {facts['npus']}  (shape {'x'.join(map(str, facts['shape']))})",
        f"switches   {facts['switches']}",
        f"links      {facts['links']}  (one for each direction of a cable)",
        f"diameter   {diameter}{sampled}",
        f"bisection  {bisection}  (one way, tightest halfway cut of a dimension)",
        f"NPU egress {_range(facts['npu_egress_Bps'], format_rate)}",
    ]
    table = [["dimension", "links", "bandwidth of each", "latency", "hop latency", "egress of an NPU"]]
    for one in facts["dimensions"]:
        table.append([
            "none" if one["dimension"] < 0 else str(one["dimension"]), str(one["links"]),
            _range(one["link_bandwidth_Bps"], format_rate), _range(one["link_latency_s"], time_text),
            _range(one["hop_latency_s"], time_text), format_rate(one["egress_per_npu_Bps"]),
        ])
    return [*head, aligned(table)] if facts["dimensions"] else head


def _range(pair: list[float], text: Any) -> str:
    low, high = text(pair[0]), text(pair[1])
    return str(low) if low == high else f"{low} to {high}"
