"""What SimAI writes into a text workload beyond ASTRA-sim 1.0: sizes of its groups on the first line, and suffixes.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0
    checkpoint_initiates: 0 pp_comm: 0

(one line). A collective of a bare type runs in the group of its phase: tensor parallel in the forward pass and in the
gradient by the input, data parallel in the gradient by the weights. `ALLTOALL_EP` runs among experts and
`ALLREDUCE_DP_EP` among the copies of an expert. The size of an all-gather is that of the whole array, as nccl-tests
counts it (`genAllGatherFlowModels`: chunks of size / ranks), not of a shard as in ASTRA-sim 1.0. The layers are those
of one pipeline stage in all `ga` microbatches; `notes_of` tells what SimAI's report adds for the pipeline.
"""

import re
from collections.abc import Iterable, Mapping

from topologies import WeftError

KEYS = (
    "model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus", "checkpoints", "checkpoint_initiates", "pp_comm",
    "mode", "expert_parallel_npu_group", "DLRM_LAST_BOTTOM_LAYER",
)
"""Of the first line. `ga`, `vpp` and `pp_comm` change no time of layers, nor do the two before the last, of AICB."""

OF_ASTRA_SIM = ("model_parallel_NPU_group", "checkpoints", "checkpoint_initiates", "DLRM_LAST_BOTTOM_LAYER")
"""Those that ASTRA-sim 1.0 has as well."""

BY_AICB = re.compile(
    r"micro_test|layernorm|(moe_)?grad_norm\d*|grad_(gather|param\w*)|embedding_grads|Llama_layer\d+")
"""Names of layers by which files of AICB are known whose first line is one of ASTRA-sim 1.0."""

MICRO = "MICRO"

LISTS = ("checkpoints", "checkpoint_initiates")
"""Keys with a number of layers, and then the layers: those whose inputs are kept, and those whose gradients need what
was not kept (`workloads.formats.text_workload`)."""

TENSOR, EXPERTS, STAGES, EVERYONE = "model_parallel_NPU_group", "ep", "pp", "all_gpus"
"""Sizes of groups; NPUs that none of the others accounts for are data-parallel."""

EXPERT_GROUPS = {"_DP_EP": "dp_ep", "_EP": "ep"}
"""Suffixes of a collective, and the groups that they name."""

Header = tuple[tuple[str, int], ...]


def parse_header(words: list[str], where: str) -> tuple[Header, tuple[list[int], list[int]]]:
    """The keys after the parallelism keyword, "ep: 1" or "pp_comm 0" each, in their order, and the two lists of layers.

    WeftError: names the key: unknown, given twice, or without an integer.
    """
    if len(words) == 1 and words[0].isascii() and words[0].isdecimal():
        words = [KEYS[-1], words[0]]  # the last bottom layer of a DLRM, as Chakra's converter wants it
    found: dict[str, int] = {}
    kept: list[int] = []
    again: list[int] = []
    pairs = iter(words)
    for word in pairs:
        key = word.removesuffix(":")
        if key not in KEYS:
            raise WeftError(f"{where}: unknown key {key!r}; accepted are {', '.join(KEYS)}")
        if key in found:
            raise WeftError(f"{where}: key {key!r} is given twice")
        found[key] = _integer(next(pairs, ""), key, where)
        if key in LISTS:
            numbers = [_integer(next(pairs, ""), f"one of {found[key]} {key}", where) for _ in range(found[key])]
            (kept, again)[LISTS.index(key)].extend(numbers)
    _check_sizes(found, where)
    if max(len(kept), len(again)) > 1 and any(key not in OF_ASTRA_SIM for key in found):
        raise WeftError(f"{where}: SimAI takes the first of several checkpoints for all of them: give one")
    return tuple(found.items()), (kept, again)


def _integer(value: str, key: str, where: str) -> int:
    whole = value.removesuffix(".0")  # a size that AICB has divided
    if not (whole.isascii() and whole.isdecimal() and len(whole) < 16):
        raise WeftError(f"{where}: {key} is {value!r}: an integer is expected")
    return int(whole)


def split_suffix(word: str, group: str, header: Header) -> tuple[str, str]:
    """The type of a collective and its group: ("ALLTOALL", "ep") of "ALLTOALL_EP"."""
    if "ep" in dict(header):
        for suffix, named in EXPERT_GROUPS.items():
            if word.endswith(suffix):
                return word.removesuffix(suffix), named
    return word, group


def is_simai(header: Header, names: Iterable[str]) -> bool:
    """Whether SimAI reads a file, by a key that ASTRA-sim 1.0 does not know or by the names of its layers."""
    return any(key not in OF_ASTRA_SIM for key, _ in header) or any(map(BY_AICB.fullmatch, names))


def group_sizes(header: Header, policy: str, n_npus: int | None) -> Mapping[str, int]:
    """NPUs of each group, by the name that calls have; empty where neither the file nor `n_npus` says."""
    found = dict(header)
    everyone = found.get(EVERYONE, n_npus)
    if everyone is None or (TENSOR not in found and policy != MICRO):
        return {}
    tensor, experts = found.get(TENSOR, 1), found.get(EXPERTS, 1)
    data = max(everyone // (tensor * found.get(STAGES, 1)), 1)
    return {"forward": tensor, "input_grad": tensor, "weight_grad": data, "ep": experts,
            "dp_ep": max(data // experts, 1)}


def notes_of(header: Header, policy: str) -> list[str]:
    """What a pipeline adds to the time of the layers, if there is one, and what is run of micro-benchmarks."""
    stages, shared = dict(header).get(STAGES, 1), dict(header).get("ga", 1) * dict(header).get("vpp", 1)
    notes = [
        "MICRO: ASTRA-sim and SimAI run the first line alone; here all are run, and --bucket off keeps them apart"
    ] if policy == MICRO else []
    return notes if stages == 1 else [
        *notes, f"the time is that of one of {stages} pipeline stages, as in SimAI's engine; its report adds the "
        f"bubble, (pp - 1) / (ga x vpp) = {stages - 1}/{shared} of it, and the messages between stages"
    ]


def _check_sizes(found: dict[str, int], where: str) -> None:
    for key in (TENSOR, EXPERTS, STAGES, EVERYONE, "ga", "vpp"):
        if found.get(key, 1) < 1:
            raise WeftError(f"{where}: {key} is {found[key]}: at least 1 is expected")
    tensor, experts, stages = (found.get(key, 1) for key in (TENSOR, EXPERTS, STAGES))
    everyone = found.get(EVERYONE)
    if everyone and (everyone % (tensor * stages) or everyone // (tensor * stages) % experts):
        raise WeftError(
            f"{where}: all_gpus is {everyone}, which groups of {tensor}, experts of {experts} and {stages} stages do "
            "not divide"
        )
