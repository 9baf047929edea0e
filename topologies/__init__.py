"""What the network is: nodes, links, routes and their times."""

from topologies.custom import from_links
from topologies.cuts import bisection_Bps, egress_Bps, ingress_Bps, max_flow_Bps
from topologies.errors import WeftError
from topologies.exchange import from_networkx, read_topology, to_networkx, write_topology
from topologies.fully_connected import fully_connected
from topologies.hamming_mesh import hamming_mesh
from topologies.load import link_loads, load_time_s
from topologies.mesh import mesh
from topologies.multidim import multidim
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
    "egress_Bps",
    "from_links",
    "from_networkx",
    "from_spec",
    "fully_connected",
    "hamming_mesh",
    "ingress_Bps",
    "link_loads",
    "load_time_s",
    "max_flow_Bps",
    "mesh",
    "multidim",
    "read_topology",
    "ring",
    "switch",
    "to_networkx",
    "torus",
    "write_topology",
]
