"""TopoOpt: the circuits that suit a training job, derived from its computation and traffic.

Imports jobs, parallelism and the packages below `workloads`.
"""

from workloads.topoopt.carriage import ONE_RING, PACKETS, PER_FLOW, ROUNDS, Carriage, Iteration, Rings, Transport
from workloads.topoopt.measured import MEASURED, bert16, vgg16
from workloads.topoopt.models import MODELS, Operator, OperatorModel, model
from workloads.topoopt.strategy import Load, Placement, Strategy, data_parallel, iteration_of
from workloads.topoopt.topology_finder import Demand, Fabric, find_topology

__all__ = [
    "MEASURED", "MODELS", "ONE_RING", "PACKETS", "PER_FLOW", "ROUNDS", "Carriage", "Demand", "Fabric", "Iteration",
    "Load", "Operator", "OperatorModel", "Placement", "Rings", "Strategy", "Transport", "bert16", "data_parallel",
    "find_topology", "iteration_of", "model", "vgg16",
]
