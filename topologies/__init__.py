"""What the network is: nodes, links, routes and their times."""

from topologies.boxes import dgx1, dgx_a100, dgx_h100, mi250
from topologies.circulants import circulant
from topologies.core.custom import from_links
from topologies.core.paths import TIES, Paths
from topologies.core.reduction_units import with_reduction_units
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import NPU, OCS, REDUCER, SWITCH, Router, Topology
from topologies.dragonflies import dragonfly
from topologies.errors import WeftError
from topologies.flows.cuts import bisection_Bps, egress_Bps, ingress_Bps, max_flow_Bps
from topologies.flows.load import link_loads, load_time_s
from topologies.formats.exchange import from_networkx, read_topology, to_networkx, write_topology
from topologies.hamming_meshes import hamming_mesh
from topologies.optics import Circuits, CircuitSwitch, PatchPanel, hybrid, optical, rotor_matchings
from topologies.products import fully_connected, hypercube, hyperx, mesh, multidim, ring, switch, torus
from topologies.random_graphs import random_regular
from topologies.registry import TOPOLOGIES, Family, from_spec
from topologies.tiers import fat_tree, leaf_spine
from topologies.totient_rings import select_permutations, totient_perms
from topologies.twisted_tori import twisted_torus

__all__ = [
    "NPU",
    "OCS",
    "REDUCER",
    "SWITCH",
    "TIES",
    "TOPOLOGIES",
    "CircuitSwitch",
    "Circuits",
    "Family",
    "PatchPanel",
    "Paths",
    "Router",
    "ShortestPathRouter",
    "Topology",
    "WeftError",
    "bisection_Bps",
    "circulant",
    "dgx1",
    "dgx_a100",
    "dgx_h100",
    "dragonfly",
    "egress_Bps",
    "fat_tree",
    "from_links",
    "from_networkx",
    "from_spec",
    "fully_connected",
    "hamming_mesh",
    "hybrid",
    "hypercube",
    "hyperx",
    "ingress_Bps",
    "leaf_spine",
    "link_loads",
    "load_time_s",
    "max_flow_Bps",
    "mesh",
    "mi250",
    "multidim",
    "optical",
    "random_regular",
    "read_topology",
    "ring",
    "rotor_matchings",
    "select_permutations",
    "switch",
    "to_networkx",
    "torus",
    "totient_perms",
    "twisted_torus",
    "with_reduction_units",
    "write_topology",
]
