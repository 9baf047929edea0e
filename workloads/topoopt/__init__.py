"""TopoOpt: the circuits that suit a training job, derived from its computation and traffic.

Imports jobs, parallelism and the packages below `workloads`.
"""

from workloads.topoopt.iteration import AllReduce, Flows, Iteration, Op
from workloads.topoopt.iteration_job import ONE_RING, PACKETS, Rings, Transport, add_iteration, iteration_job
from workloads.topoopt.measured import MEASURED, bert16, vgg16
from workloads.topoopt.models import MODELS, Operator, OperatorModel, model
from workloads.topoopt.strategy import ALL, Load, Placement, Strategy, data_parallel, iteration_of
from workloads.topoopt.topology_finder import Demand, Fabric, find_topology

__all__ = [
    "ALL", "MEASURED", "MODELS", "ONE_RING", "PACKETS", "AllReduce", "Demand", "Fabric", "Flows", "Iteration", "Load",
    "Op", "Operator", "OperatorModel", "Placement", "Rings", "Strategy", "Transport", "add_iteration",
    "bert16", "data_parallel", "find_topology", "iteration_job", "iteration_of", "model", "vgg16",
]
