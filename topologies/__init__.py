"""What the network is: nodes, links, routes and their times."""

from topologies.boxes import dgx1, dgx_a100, dgx_h100, mi250
from topologies.custom import from_links
from topologies.cuts import bisection_Bps, egress_Bps, ingress_Bps, max_flow_Bps
from topologies.dragonfly import dragonfly
from topologies.errors import WeftError
from topologies.exchange import from_networkx, read_topology, to_networkx, write_topology
from topologies.fat_tree import fat_tree
from topologies.fully_connected import fully_connected
from topologies.hamming_mesh import hamming_mesh
from topologies.hypercube import hypercube
from topologies.hyperx import hyperx
from topologies.leaf_spine import leaf_spine
from topologies.load import link_loads, load_time_s
from topologies.mesh import mesh
from topologies.multidim import multidim
from topologies.random_regular import random_regular
from topologies.registry import TOPOLOGIES, Family, from_spec
from topologies.ring import ring
from topologies.routing import TIES, Paths, Router, ShortestPathRouter
from topologies.switch import switch
from topologies.topology import NPU, OCS, SWITCH, Topology
from topologies.torus import torus

__all__ = [
    "NPU",
    "OCS",
    "SWITCH",
    "TIES",
    "TOPOLOGIES",
    "Family",
    "Paths",
    "Router",
    "ShortestPathRouter",
    "Topology",
    "WeftError",
    "bisection_Bps",
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
    "random_regular",
    "read_topology",
    "ring",
    "switch",
    "to_networkx",
    "torus",
    "write_topology",
]
