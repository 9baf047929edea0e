"""The outer loop: bandwidths, and discrete knobs, tuned against the simulated time."""

from sim.optimize.cuts import Optimum, optimize
from sim.optimize.objective import Evaluation, Objective, Part, Simulated
from sim.optimize.retime import Retimed, links_per_npu, retimed, with_bandwidths, with_base_rates

__all__ = [
    "Evaluation",
    "Objective",
    "Optimum",
    "Part",
    "Retimed",
    "Simulated",
    "links_per_npu",
    "optimize",
    "retimed",
    "with_bandwidths",
    "with_base_rates",
]
