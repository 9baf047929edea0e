"""Dumps of PyTorch's flight recorder of NCCL in JSON, one a rank, as Chakra traces.

A dump has the collectives and messages of a rank and when its host called each, not what the GPU computed between them.
So each runs when the host has called it, at the recorded distance from the call before, and behind the one before it in
its process group. The pickles that the recorder writes by itself are not read: whoever reads one may run any program.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from topologies.checks import WeftError, told
from topologies.text.input_text import read_input_bytes
from topologies.text.plain_data import read_json_object
from workloads.formats.chakra import MOST_NODES, Trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_schema import COLLECTIVES, Node, TensorInfo

ENDINGS = (".json", "")

KINDS = {
    "all_reduce": "all-reduce", "allreduce": "all-reduce", "reduce": "reduce", "all_gather": "all-gather",
    "allgather": "all-gather", "gather": "gather", "scatter": "scatter", "broadcast": "broadcast",
    "all_to_all": "all-to-all", "alltoall": "all-to-all", "all_to_allv": "all-to-all", "alltoallv": "all-to-all",
    "reduce_scatter": "reduce-scatter", "barrier": "barrier",
}
"""Collectives by the word that names of operations begin with, such as "_reduce_scatter_base"."""

BYTES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}
"""Of an element; 1 of all others."""

WORDS = (*KINDS, "send", "recv")

_NAME = re.compile(r"\w+:_?(?P<word>[a-z_]+?)(?:_base|_oop|_into_tensor|_tensor|_coalesced|_barrier)*"
                   r"(?: (?P<own>\d+)(?P<way>->|<-)(?P<peer>\d+))?", re.IGNORECASE)


def kind_of(name: str) -> str | None:
    """The collective that PyTorch calls so, such as "_reduce_scatter_base"."""
    found = _NAME.fullmatch(f"nccl:{name}")
    return KINDS.get(found["word"].lower().rstrip("_")) if found else None


class Dump(NamedTuple):
    """What a rank recorded."""

    groups: dict[str, tuple[int, ...]]
    entries: Sequence[Mapping[str, Any]]
    where: str


def ending_of(prefix: str | Path) -> str | None:
    """What follows the rank in the names of dumps "<prefix>0", "<prefix>1", ...; None where there are none."""
    for ending in ENDINGS:
        path = Path(f"{prefix}0{ending}")
        if path.is_file():
            with path.open("rb") as stream:
                head = stream.read(2**20)
            if b"pg_config" in head or b"profiling_name" in head:
                return ending
    return None


def read_dumps(prefix: str | Path, n_npus: int) -> tuple[list[Trace], list[str]]:
    """The dumps of all ranks as traces, and notes.

    WeftError: names the file and the entry: a dump that cannot be read, or an operation that is not known.
    """
    ending = ending_of(prefix) or ""
    dumps = [read_dump(f"{prefix}{rank}{ending}", n_npus) for rank in range(n_npus)]
    guessed = _guess_groups(dumps)
    turns = [[(_group(one), dump.groups.get(_group(one), ()), _turn(one)) for one in dump.entries
              if not one.get("is_p2p")] for dump in dumps]
    whole = complete(turns)
    traces, dropped = [], 0
    for dump in dumps:
        kept = [one for one in dump.entries if one.get("is_p2p")
                or (_group(one), dump.groups.get(_group(one), ()), _turn(one)) in whole]
        dropped += len(dump.entries) - len(kept)
        traces.append(_trace(dump._replace(entries=kept)))
    notes = ["of a flight recorder: computations are as far as the host's calls tell of them"]
    more = [f"{dropped:,} collectives are left out that not all ranks of their group still had recorded"]
    return traces, [*notes, *guessed, *(more if dropped else [])]


def _guess_groups(dumps: Sequence[Dump]) -> list[str]:
    """Give groups whose ranks no dump tells, as those of Gloo, the ranks that recorded them; notes."""
    found: dict[str, list[int]] = {}
    for rank, dump in enumerate(dumps):
        for name in dict.fromkeys(map(_group, dump.entries)):
            if name not in dump.groups:
                found.setdefault(name, []).append(rank)
    for dump in dumps:
        dump.groups.update({name: tuple(ranks) for name, ranks in found.items() if name not in dump.groups})
    some = ", ".join([told(name) for name, ranks in found.items() if len(ranks) < len(dumps)][:3])
    return [f"no dump tells the ranks of group {some}: those that recorded it"] if some else []


Key = tuple[str, tuple[int, ...], int]
"""A collective: the name of its group, the ranks, and its turn."""


def complete(of_ranks: Iterable[Iterable[Key]]) -> set[Key]:
    """The collectives that all ranks of their group have; those of a group of unknown ranks are on all ranks.

    WeftError: a group that has some, and none of them on all ranks.
    """
    ranks = [*map(set, of_ranks)]
    found = Counter(key for keys in ranks for key in keys)
    whole = {key for key, count in found.items() if count == (len(key[1]) or len(ranks))}
    for name, members in {key[:2] for key in found} - {key[:2] for key in whole}:
        counts = {rank: sum(key[:2] == (name, members) for key in ranks[rank]) for rank in members or range(len(ranks))}
        least = min(counts, key=lambda rank: counts[rank])
        raise WeftError(f"group {told(name)}: no collective is on all of its {len(counts)} ranks: rank {least} "
                        f"recorded {counts[least]}, others up to {max(counts.values())}")
    return whole


def read_dump(path: str | Path, n_npus: int) -> Dump:
    """The dump of one rank; WeftError: as `read_dumps`."""
    where = f"flight recorder {path}"
    if Path(path).is_file() and read_input_bytes(path, "flight recorder")[:1] == b"\x80":
        raise WeftError(f"{where} is a pickle, which may run any program: write JSON, as by _dump_nccl_trace_json()")
    found = read_json_object(path, "flight recorder")
    entries = found.get("entries")
    if not isinstance(entries, list) or len(entries) > MOST_NODES or not all(isinstance(one, dict) for one in entries):
        raise WeftError(f"{where}: a list of entries is expected")
    groups = {}
    config = found.get("pg_config")
    for name, one in config.items() if isinstance(config, dict) else ():
        ranks = [int(rank) for rank in re.findall(r"\d{1,9}", str(one.get("ranks") if isinstance(one, dict) else ""))]
        if any(rank >= n_npus for rank in ranks):
            raise WeftError(f"{where}: process group {told(name)} has rank {max(ranks)} of {n_npus} NPUs")
        groups[str(name)] = tuple(dict.fromkeys(ranks)) or tuple(range(n_npus))
    return Dump(groups, entries, where)


def _group(one: Mapping[str, Any]) -> str:
    """Name of the process group."""
    named = one.get("process_group")
    return str(named[0]) if isinstance(named, (list, tuple)) and named else str(one.get("pg_id", 0))


def _turn(one: Mapping[str, Any]) -> int:
    return _whole(one, "collective_seq_id")


def _whole(one: Mapping[str, Any], key: str) -> int:
    value = one.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise WeftError(f"flight recorder: {key} of an entry is {told(value)}: an integer is expected")
    return value


def _trace(dump: Dump) -> Trace:
    """A call of the host and an operation for each entry, behind the call and the operation of its group before."""
    groups = json.dumps([{"pg_name": name, "ranks": ranks} for name, ranks in dump.groups.items()])
    nodes = [Node(0, "process groups", "metadata", inputs=TensorInfo(groups))]
    calls = [_whole(one, "time_created_ns") for one in dump.entries]
    gaps = [0, *(max(after - before, 0) // 1000 for before, after in pairwise(calls))][:len(calls)]
    last: dict[str, int] = {}
    for number, (one, gap) in enumerate(zip(dump.entries, gaps, strict=True)):
        call, at, group = 2 * number + 1, 2 * number + 2, _group(one)
        name = str(one.get("profiling_name", ""))
        nodes.append(Node(call, f"call of {name}", "compute", data_after=(call - 2,) if number else (),
                          duration_us=gap, attributes=(Attribute("is_cpu_op", True, "bool"),)))
        kind, attributes = _operation(one, name, dump.groups.get(group, ()), f"{dump.where}: entry {number}")
        behind = [last[group]] if group in last and kind == "collective" else []
        nodes.append(Node(at, name, kind, data_after=(call, *behind), attributes=attributes))
        if kind == "collective":
            last[group] = at
    return Trace("", (), tuple(nodes))


def _operation(
    one: Mapping[str, Any], name: str, ranks: Sequence[int], where: str
) -> tuple[str, tuple[Attribute, ...]]:
    """Kind and attributes of a node."""
    found = _NAME.fullmatch(name)
    word = found["word"].lower().rstrip("_") if found else ""
    if found is None or word not in WORDS:
        raise WeftError(f"{where}: operation {told(name)} is not known")
    size = _bytes(one, "output_sizes" if word in ("recv", "scatter") else "input_sizes", where)
    if word == "scatter":  # all but the root record what they get, and no input
        size *= len(ranks)
    if word in ("send", "recv"):
        peer = int(found["peer"] or -1)
        if not 0 <= peer < (len(ranks) or 2**31):
            raise WeftError(f"{where}: operation {told(name)} names no peer of its group")
        return message_node(word == "send", ranks[peer] if ranks else peer, size)
    return collective_node(KINDS[word], size, _group(one))


def message_node(sends: bool, peer: int, size: int) -> tuple[str, tuple[Attribute, ...]]:
    """Kind and attributes of one end of a message."""
    ends = Attribute("comm_size", size, "int64"), Attribute("comm_dst" if sends else "comm_src", peer, "int32")
    return "send" if sends else "receive", ends


def collective_node(kind: str, size: int, group: str) -> tuple[str, tuple[Attribute, ...]]:
    """Kind and attributes of a collective."""
    number = Attribute("comm_type", COLLECTIVES.index(kind), "int64")
    return "collective", (number, Attribute("comm_size", size, "int64"), Attribute("pg_name", group, "string"))


def _bytes(one: Mapping[str, Any], key: str, where: str) -> int:
    """Of all tensors on one side of an operation."""
    shapes, types = one.get(key) or [], one.get(key.replace("sizes", "dtypes")) or []
    good = isinstance(shapes, (list, tuple)) and isinstance(types, (list, tuple)) and all(
        isinstance(shape, (list, tuple)) and all(type(n) is int and 0 <= n < 2**40 for n in shape) for shape in shapes)
    if not good:
        raise WeftError(f"{where}: {key} is {told(shapes)}: a list of shapes is expected")
    width = [BYTES.get(str(kind), 1) for kind in types] or [1]
    return sum(prod(shape) * width[min(at, len(width) - 1)] for at, shape in enumerate(shapes))
