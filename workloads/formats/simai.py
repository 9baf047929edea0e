"""What SimAI writes into a text workload beyond ASTRA-sim 1.0: sizes of its groups on the first line, and suffixes.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0
    checkpoint_initiates: 0 pp_comm: 0

(one line). A collective of a bare type runs in the group of its phase: tensor parallel in the forward pass and in the
gradient by the input, data parallel in the gradient by the weights. `ALLTOALL_EP` runs among experts and
`ALLREDUCE_DP_EP` among the copies of an expert.
"""

from __future__ import annotations

from topologies import WeftError

KEYS = (
    "model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus", "checkpoints", "checkpoint_initiates", "pp_comm",
    "DLRM_LAST_BOTTOM_LAYER",
)
"""Of the first line; `ga` is told and changes nothing, the layers being taken as they stand."""

ONLY = {"pp": 1, "vpp": 1, "checkpoints": 0, "checkpoint_initiates": 0, "pp_comm": 0}
"""Values without which a file asks for pipelines or recomputation, which it does not describe by its layers alone."""

EXPERT_GROUPS = {"_DP_EP": "dp_ep", "_EP": "ep"}
"""Suffixes of a collective, and the groups that they name."""

Header = tuple[tuple[str, int], ...]


def parse_header(words: list[str], where: str) -> Header:
    """The keys after the parallelism keyword, "ep: 1" or "pp_comm 0" each, in their order.

    WeftError: names the key: unknown, given twice, without an integer, or one that asks for what is not simulated.
    """
    if len(words) == 1 and words[0].isascii() and words[0].isdecimal():
        words = [KEYS[-1], words[0]]  # the last bottom layer of a DLRM, as Chakra's converter wants it
    found: dict[str, int] = {}
    pairs = iter(words)
    for word in pairs:
        key, value = word.removesuffix(":"), next(pairs, "")
        if key not in KEYS:
            raise WeftError(f"{where}: unknown key {key!r}; accepted are {', '.join(KEYS)}")
        if key in found:
            raise WeftError(f"{where}: key {key!r} is given twice")
        if not (value.isascii() and value.isdecimal() and len(value) < 10):
            raise WeftError(f"{where}: {key} is {value!r}: an integer is expected")
        found[key] = int(value)
        if found[key] != ONLY.get(key, found[key]):
            raise WeftError(f"{where}: {key} is {value}: only {ONLY[key]} is read")
    _check_sizes(found, where)
    return tuple(found.items())


def split_suffix(word: str, group: str, header: Header) -> tuple[str, str]:
    """The type of a collective and its group: ("ALLTOALL", "ep") of "ALLTOALL_EP"."""
    if "ep" in dict(header):
        for suffix, named in EXPERT_GROUPS.items():
            if word.endswith(suffix):
                return word.removesuffix(suffix), named
    return word, group


def _check_sizes(found: dict[str, int], where: str) -> None:
    for key in ("model_parallel_NPU_group", "ep", "all_gpus", "ga"):
        if found.get(key, 1) < 1:
            raise WeftError(f"{where}: {key} is {found[key]}: at least 1 is expected")
    tensor, experts, everyone = (found.get(key) for key in ("model_parallel_NPU_group", "ep", "all_gpus"))
    if everyone and tensor and (everyone % tensor or everyone // tensor % (experts or 1)):
        raise WeftError(
            f"{where}: all_gpus is {everyone}, which groups of {tensor} and experts of {experts or 1} do not divide"
        )
