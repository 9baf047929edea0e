"""Reader of the text workload of ASTRA-sim 1.0, LIBRA and SimAI: one layer a line, twelve columns.

    name dep fwd_time fwd_comm fwd_bytes ig_time ig_comm ig_bytes wg_time wg_comm wg_bytes update_time

Times are nanoseconds. ASTRA-sim 1.0 puts two lines on top, a parallelism keyword and the number of layers; LIBRA's
files have none, and SimAI's say more on the first (`workloads.formats.simai`). Layers of HYBRID_CUSTOMIZED end with a
keyword of their own.

`checkpoints: 2 0 3 checkpoint_initiates: 2 5 2` of HYBRID_TRANSFORMER_FWD_IN_BCKWD recomputes: before the gradient by
the input of layer 5, forward passes of layers 3 and 4 run again, from the last checkpoint to the layer before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from topologies.checks import Count, WeftError, checked
from topologies.text.input_text import read_input
from topologies.text.plain_data import parse_json
from topologies.text.schema import note, tell_over
from workloads.formats.simai import Header, group_sizes, is_simai, parse_header, split_suffix
from workloads.workload import PHASES, Call, Layer, Phase, Workload

COLUMNS = (
    "name", "dependency", "forward time", "forward collective", "forward bytes", "input gradient time",
    "input gradient collective", "input gradient bytes", "weight gradient time", "weight gradient collective",
    "weight gradient bytes", "update time",
)

KINDS = {
    "NONE": "",
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
    "BROADCAST": "",  # SimAI's astra-sim knows no such word, and takes it for NONE
}

POLICIES = (
    "DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED", "MICRO", "HYBRID_CUSTOMIZED",
    "DISTRIBUTED_INFERENCE",
)
"""Keywords that the first line of an ASTRA-sim 1.0 file begins with."""

OWN, RECOMPUTES, INFERENCE = POLICIES[9], POLICIES[5], POLICIES[10]

BY_POLICY = {
    "DATA": ("", "all"), "MICRO": ("", "all"), "MODEL": ("all", ""), INFERENCE: ("all", ""),
    "HYBRID_DATA_MODEL": ("first", "others"), "HYBRID_MODEL_DATA": ("others", "first"),
}
"""Dimensions of the groups of a file of ASTRA-sim 1.0 that gives none: of both passes over the layers, and of the
gradients of weights (`decode_involved_dimensions`)."""

NOT_OF_THE_FIRST = ("MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", OWN)
"""Loops of ASTRA-sim 1.0 that do not reduce the gradient by the input of the first layer (`index > 0`)."""

SMALLEST_BYTES = 4096
"""Of a collective of the forward pass in SimAI's iterate_hybrid_parallel_Transformer_fwd_in_bckwd."""


@checked
def read_text_workload(path: str | Path, n_npus: Count | None = None) -> Workload:
    """Read a text workload.

    Parameters
    ----------
    path : str or Path
        With or without the two header lines of ASTRA-sim 1.0.
    n_npus : int, optional
        Of the network, where a file of SimAI does not say how many there are: its all-gathers are whole arrays.

    Returns
    -------
    Workload
        Collectives in the groups "forward", "input_grad" and "weight_grad", in SimAI's files also "ep" and "dp_ep", in
        those of layers with keywords of their own "all", "first" and "others": dimensions of the network.

    Raises
    ------
    WeftError
        Names the file, line and column.
    """
    path = Path(path)
    text = read_input(path, "workload")
    if text.lstrip().startswith("{"):
        parse_json(text, f"workload {path}")
        raise WeftError(f"workload {path} is JSON, and none of what is read: a text workload is a table of columns")
    lines = text.splitlines()
    rows = [(number, line.split()) for number, line in enumerate(lines, start=1) if line.strip()]
    policy, header, (kept, again), rows = _header(path, rows)
    if any(word.upper().startswith("BROADCAST") for _, words in rows for word in words[3::3]):
        tell_over(f"workload {path}", ["BROADCAST"], "SimAI")
    simai = is_simai(header, (words[0] for _, words in rows))
    parts = group_sizes(header, policy, n_npus) if simai else {}
    layers = [_layer(path, number, words, policy, header, parts) for number, words in rows]
    layers = _as_run(path, policy, layers, simai)
    layers, cuts = _recomputing(f"workload {path}: line 1", layers, kept, again)
    if simai and not parts and any(call.kind == "all-gather" for one in layers for part in one.phases
                                   for call in part.calls):
        note(f"workload {path}: all-gathers are whole arrays in SimAI, of groups whose sizes the file does not say")
    return Workload(path.stem, tuple(layers), policy, header, cuts)


def _as_run(path: Path, policy: str, layers: list[Layer], simai: bool) -> list[Layer]:
    """The layers without what the loop of a keyword leaves out, which a note says."""
    run, (first, *rest) = layers, layers
    if policy == "DATA":
        run = [replace(first, input_grad=Phase()), *rest]
    elif policy in NOT_OF_THE_FIRST:
        run = [replace(first, input_grad=replace(first.input_grad, calls=())), *rest]
    elif policy == INFERENCE:
        run = [Layer(one.name, one.forward) for one in layers]
    elif policy == RECOMPUTES and simai:
        run = [replace(one, forward=replace(one.forward, calls=tuple(
            replace(call, size_bytes=max(call.size_bytes, SMALLEST_BYTES)) for call in one.forward.calls)))
            for one in layers]
    if run != layers:
        note(f"workload {path}: as the loop of {policy} does, " + (
            f"collectives of forward passes have at least {SMALLEST_BYTES} bytes" if policy == RECOMPUTES
            else "forward passes alone are run" if policy == INFERENCE
            else f"the gradient of layer {first.name} by its input is not "
            + ("computed" if policy == "DATA" else "reduced")))
    return run


def _recomputing(
    where: str, layers: list[Layer], kept: Sequence[int], again: Sequence[int]
) -> tuple[list[Layer], tuple[int, ...] | None]:
    """Layers with those that are computed again behind the one that needs them, as gradients by an input.

    The backward pass comes to them from last to first, so they stand there in reverse. With them come the layers that
    a pipeline stage may begin with.
    """
    if not (kept or again):
        return layers, None
    if wrong := [one for one in (*kept, *again) if one >= len(layers)]:
        raise WeftError(f"{where}: layer {wrong[0]} of {len(layers)} layers, which begin with 0, is not there")
    found: list[Layer] = []
    cuts: list[tuple[int, int]] = []  # places, and their layers
    last = -1
    for number, layer in enumerate(layers):
        begin = max((one for one in kept if one <= number), default=-1) if number in again else number
        if begin < 0 or begin <= last or (number in again and begin == number):
            raise WeftError(f"{where}: layer {number} initiates a pass from a checkpoint before it and behind the "
                            "initiating layer before it: there is none")
        if number in again:
            last = number
            cuts = [cut for cut in cuts if cut[1] <= begin]
        else:
            cuts.append((len(found), number))
        found.append(layer)
        found += [Layer(f"{one.name} again", input_grad=one.forward) for one in reversed(layers[begin:number])]
    return found, tuple(place for place, _ in cuts[1:])


def _header(
    path: Path, rows: list[tuple[int, list[str]]]
) -> tuple[str, Header, tuple[list[int], list[int]], list[tuple[int, list[str]]]]:
    """The parallelism keyword, what is said after it, checkpoints, and the rows of the layers."""
    number, words = rows[0]
    following = rows[1][1] if len(rows) > 1 else []
    if words[0] not in POLICIES or (len(words) == len(COLUMNS) and len(following) != 1):
        return "", (), ([], []), rows
    where = f"workload {path}: line"
    if len(following) != 1 or not following[0].isdecimal():
        raise WeftError(f"{where} {number + 1}: the number of layers is expected after {words[0]}")
    if int(following[0]) != len(rows) - 2:
        raise WeftError(f"{where} {rows[1][0]}: says {following[0]} layers; {len(rows) - 2} follow")
    header, lists = parse_header(words[1:], f"{where} {number}")
    if any(lists) and words[0] != RECOMPUTES:
        raise WeftError(f"{where} {number}: checkpoints are of {RECOMPUTES}, and not of {words[0]}")
    return words[0], header, lists, rows[2:]


def _layer(
    path: Path, number: int, words: list[str], policy: str, header: Header, parts: Mapping[str, int]
) -> Layer:
    where, columns = f"workload {path}: line {number}", COLUMNS + ("parallelism",) * (policy == OWN)
    if len(words) != len(columns):
        raise WeftError(f"{where}: has {len(words)} columns; {len(columns)} are expected ({', '.join(columns)})")
    groups = PHASES
    if policy == OWN:
        if words[12] not in BY_POLICY:
            raise WeftError(f"{where}: parallelism {words[12]!r} is unknown: choose one of {', '.join(BY_POLICY)}")
        passes, gradients = BY_POLICY[words[12]]
        groups = (passes, passes, gradients)
    forward, input_grad, weight_grad = (
        _phase(where, words, 2 + 3 * k, group, header, parts) for k, group in enumerate(groups)
    )
    return Layer(words[0], forward, input_grad, weight_grad, _number(where, words, 11))


def _phase(where: str, words: list[str], at: int, group: str, header: Header, parts: Mapping[str, int]) -> Phase:
    compute_ns, size = _number(where, words, at), _number(where, words, at + 2)
    kind, group = split_suffix(words[at + 1].upper(), group, header)
    if kind not in KINDS:
        raise WeftError(f"{where}: {COLUMNS[at + 1]} {words[at + 1]!r} is unknown: choose one of {', '.join(KINDS)}")
    if KINDS[kind] == "all-gather":
        size /= parts.get(group, 1)
    return Phase(compute_ns, (Call(KINDS[kind], size, group),) if KINDS[kind] and size and group else ())


def _number(where: str, words: list[str], at: int) -> float:
    try:
        value = float(words[at])
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise WeftError(f"{where}: {COLUMNS[at]} {words[at]!r} is not a number of zero or more")
    return value
