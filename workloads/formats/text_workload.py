"""Reader of the text workload of ASTRA-sim 1.0, LIBRA and SimAI: one layer a line, twelve columns.

    name dep fwd_time fwd_comm fwd_bytes ig_time ig_comm ig_bytes wg_time wg_comm wg_bytes update_time

Times are nanoseconds. ASTRA-sim 1.0 puts two lines on top, a parallelism keyword and the number of layers; LIBRA's
files have none, and SimAI's say more on the first (`workloads.formats.simai`).
"""

from collections.abc import Mapping
from pathlib import Path

from topologies.checks import Count, WeftError, checked
from topologies.text.input_text import read_input
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
        Collectives in the groups "forward", "input_grad" and "weight_grad", in SimAI's files also "ep" and "dp_ep".

    Raises
    ------
    WeftError
        Names the file, line and column.
    """
    path = Path(path)
    lines = read_input(path, "workload").splitlines()
    rows = [(number, line.split()) for number, line in enumerate(lines, start=1) if line.strip()]
    policy, header, rows = _header(path, rows)
    if any(word.upper().startswith("BROADCAST") for _, words in rows for word in words[3::3]):
        tell_over(f"workload {path}", ["BROADCAST"], "SimAI")
    simai = is_simai(header, (words[0] for _, words in rows))
    parts = group_sizes(header, policy, n_npus) if simai else {}
    layers = tuple(_layer(path, number, words, header, parts) for number, words in rows)
    if simai and not parts and any(call.kind == "all-gather" for one in layers for part in one.phases
                                   for call in part.calls):
        note(f"workload {path}: all-gathers are whole arrays in SimAI, of groups whose sizes the file does not say")
    return Workload(path.stem, layers, policy, header)


def _header(path: Path, rows: list[tuple[int, list[str]]]) -> tuple[str, Header, list[tuple[int, list[str]]]]:
    """The parallelism keyword, what is said after it, and the rows of the layers."""
    number, words = rows[0]
    following = rows[1][1] if len(rows) > 1 else []
    if words[0] not in POLICIES or (len(words) == len(COLUMNS) and len(following) != 1):
        return "", (), rows
    where = f"workload {path}: line"
    if words[0] == "HYBRID_CUSTOMIZED":
        raise WeftError(f"{where} {number}: policy HYBRID_CUSTOMIZED, whose layers name their own, is not read")
    if len(following) != 1 or not following[0].isdecimal():
        raise WeftError(f"{where} {number + 1}: the number of layers is expected after {words[0]}")
    if int(following[0]) != len(rows) - 2:
        raise WeftError(f"{where} {rows[1][0]}: says {following[0]} layers; {len(rows) - 2} follow")
    return words[0], parse_header(words[1:], f"{where} {number}"), rows[2:]


def _layer(path: Path, number: int, words: list[str], header: Header, parts: Mapping[str, int]) -> Layer:
    where = f"workload {path}: line {number}"
    if len(words) != len(COLUMNS):
        raise WeftError(f"{where}: has {len(words)} columns; {len(COLUMNS)} are expected ({', '.join(COLUMNS)})")
    forward, input_grad, weight_grad = (
        _phase(where, words, 2 + 3 * k, group, header, parts) for k, group in enumerate(PHASES)
    )
    return Layer(words[0], forward, input_grad, weight_grad, _number(where, words, 11))


def _phase(where: str, words: list[str], at: int, group: str, header: Header, parts: Mapping[str, int]) -> Phase:
    compute_ns, size = _number(where, words, at), _number(where, words, at + 2)
    kind, group = split_suffix(words[at + 1].upper(), group, header)
    if kind not in KINDS:
        raise WeftError(f"{where}: {COLUMNS[at + 1]} {words[at + 1]!r} is unknown: choose one of {', '.join(KINDS)}")
    if KINDS[kind] == "all-gather":
        size /= parts.get(group, 1)
    return Phase(compute_ns, (Call(KINDS[kind], size, group),) if KINDS[kind] and size else ())


def _number(where: str, words: list[str], at: int) -> float:
    try:
        value = float(words[at])
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise WeftError(f"{where}: {COLUMNS[at]} {words[at]!r} is not a number of zero or more")
    return value
