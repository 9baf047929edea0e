"""Process groups of a SimAI workload, from the sizes on its first line."""

from dataclasses import replace

from topologies import Topology
from workloads.formats.simai import EVERYONE, EXPERTS, STAGES, TENSOR
from workloads.parallelism import DATA, EXPERT, EXPERT_DATA, Parallelism
from workloads.parallelism import TENSOR as TENSOR_GROUP
from workloads.workload import Groups, Phase, Workload

NAMED = {
    "forward": TENSOR_GROUP, "input_grad": TENSOR_GROUP, "weight_grad": DATA, "ep": EXPERT, "dp_ep": EXPERT_DATA,
}
"""Groups of a text workload by what they are."""


def header_groups(workload: Workload, topology: Topology) -> tuple[Workload, Groups] | None:
    """The workload with groups by their parallelism, and the groups; None of a file that does not say their sizes.

    WeftError: sizes that do not fit the fabric.
    """
    sizes = dict(workload.header)
    if TENSOR not in sizes:
        return None
    tensor, experts, stages = (sizes.get(key, 1) for key in (TENSOR, EXPERTS, STAGES))
    n_npus = sizes.get(EVERYONE, topology.n_npus)
    how = Parallelism(tp=tensor, dp=max(n_npus // (tensor * stages), 1), pp=stages, ep=experts)
    groups = dict(how.groups(topology.shape))
    groups.setdefault(EXPERT, (1,) * len(topology.shape))
    groups.setdefault(EXPERT_DATA, groups[DATA])

    def of(phase: Phase) -> Phase:
        return replace(phase, calls=tuple(replace(call, group=NAMED[call.group]) for call in phase.calls))

    layers = tuple(
        replace(one, forward=of(one.forward), input_grad=of(one.input_grad), weight_grad=of(one.weight_grad))
        for one in workload.layers
    )
    return replace(workload, layers=layers), groups
