"""Process groups of text workloads that say them: of SimAI by sizes, of others by their first word."""

import math
from dataclasses import replace

from workloads.formats.simai import EVERYONE, EXPERTS, STAGES, TENSOR
from workloads.formats.text_workload import BY_POLICY, OWN
from workloads.parallelism import DATA, EXPERT, EXPERT_DATA, Parallelism
from workloads.parallelism import TENSOR as TENSOR_GROUP
from workloads.workload import Groups, Phase, Workload

NAMED = {"forward": TENSOR_GROUP, "input_grad": TENSOR_GROUP, "weight_grad": DATA, "ep": EXPERT, "dp_ep": EXPERT_DATA}
"""Groups of a text workload by what they are."""


def own_groups(workload: Workload, shape: tuple[int, ...]) -> tuple[Workload, Groups] | None:
    """The workload with the groups that its file says, and these; None of a file that says none.

    WeftError: sizes that do not fit the fabric.
    """
    sizes = dict(workload.header)
    if TENSOR not in sizes:
        known = workload.policy in (*BY_POLICY, OWN)
        return (workload, policy_groups(workload.policy, shape)) if known else None
    tensor, experts, stages = (sizes.get(key, 1) for key in (TENSOR, EXPERTS, STAGES))
    n_npus = sizes.get(EVERYONE, math.prod(shape))
    how = Parallelism(tp=tensor, dp=max(n_npus // (tensor * stages), 1), pp=stages, ep=experts)
    groups = dict(how.groups(shape))
    groups.setdefault(EXPERT, (1,) * len(shape))
    groups.setdefault(EXPERT_DATA, groups[DATA])

    def of(phase: Phase) -> Phase:
        return replace(phase, calls=tuple(replace(call, group=NAMED[call.group]) for call in phase.calls))

    layers = tuple(
        replace(one, forward=of(one.forward), input_grad=of(one.input_grad), weight_grad=of(one.weight_grad))
        for one in workload.layers
    )
    return replace(workload, layers=layers), groups


def policy_groups(policy: str, shape: tuple[int, ...]) -> Groups:
    """The groups that the first word of a file means."""
    taken = {"": (), "all": range(len(shape)), "first": range(1), "others": range(1, len(shape))}
    sizes = {word: tuple(size if dim in dims else 1 for dim, size in enumerate(shape)) for word, dims in taken.items()}
    if policy == OWN:
        return {word: extents for word, extents in sizes.items() if word}
    passes, gradients = BY_POLICY[policy]
    return {"forward": sizes[passes], "input_grad": sizes[passes], "weight_grad": sizes[gradients]}
