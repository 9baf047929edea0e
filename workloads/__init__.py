"""Why data moves: training workloads, their parallelism, and the readers of foreign files."""

from workloads.formats.libra_files import NetworkFile, Prices, read_communicator, read_network, read_prices
from workloads.formats.text_workload import read_text_workload
from workloads.workload import Call, Groups, Layer, Phase, Workload

__all__ = [
    "Call",
    "Groups",
    "Layer",
    "NetworkFile",
    "Phase",
    "Prices",
    "Workload",
    "read_communicator",
    "read_network",
    "read_prices",
    "read_text_workload",
]
