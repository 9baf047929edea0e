"""The outer loop: bandwidths, and discrete knobs, tuned against the simulated time.

Imports `sim.analytic`, `sim.why`, `sim.lower` and `sim.engine`; never `sim.study`: one design is one run of it.
"""

from sim.optimizer.cuts import Optimum, optimize
from sim.optimizer.objective import Evaluation, Objective, Part, Simulated
from sim.optimizer.retime import Retimed, links_per_npu, retimed, with_bandwidths, with_base_rates

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
