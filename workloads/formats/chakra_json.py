"""Chakra traces in JSON: those of Chakra's feeder ("workload_graph"), of its jsonizer, and of STAGE ("nodes").

The three name the same things differently; keys that are none of a node's own fields are its attributes. And the
process groups of PyTorch, which its converter writes as JSON into a node of the traces that are no JSON.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from topologies.checks import WeftError, told
from topologies.text.input_text import read_input
from workloads.formats.chakra import MOST_BYTES, MOST_NODES, Trace, ordered
from workloads.formats.chakra_attributes import Attribute, Scalar
from workloads.formats.chakra_schema import COLLECTIVES, NODE_KINDS, Node, TensorInfo

FIELDS = {
    "id": ("Id", "id"), "name": ("Name", "name"), "kind": ("NodeType", "type", "node_type"),
    "control": ("ctrlDeps", "ctrl_deps"), "data": ("data_deps", "dataDeps"), "start": ("startTimeMicros",),
    "duration": ("runtime", "durationMicros"), "inputs": ("inputs",), "outputs": ("outputs",), "attr": ("attr",),
}
"""Fields of a node, by the keys of the three."""

TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
         "COMM_RECV_NODE", "COMM_COLL_NODE")
"""By number, as the jsonizer writes them; STAGE writes them in small letters, and `coll_comm_node`."""

Groups = Mapping[str, tuple[int, ...]]
"""NPUs of communicator groups, by name."""

_OWN = {key for keys in FIELDS.values() for key in keys}

_WHOLE = re.compile(r"-?\d{1,20}")


def read_json_trace(path: str | Path) -> Trace:
    """The trace of one rank.

    WeftError: names the file and the node: no JSON of the three, a value of another type, and as
        `workloads.formats.chakra.read_trace`.
    """
    where = f"trace {path}"
    try:
        objects = list(_objects(read_input(path, "trace", MOST_BYTES)))
    except (ValueError, RecursionError) as error:
        raise WeftError(f"{where} is not JSON: {error}") from None
    first = objects[0] if objects else None
    if not all(isinstance(one, dict) for one in objects) or not isinstance(first, dict):
        raise WeftError(f"{where}: objects of keys and values are expected")
    graph = next((first[key] for key in ("workload_graph", "nodes") if key in first), objects[1:])
    if graph == objects[1:] and not set(first) <= {"version", "attr"}:
        raise WeftError(f"{where}: begins with neither workload_graph, nodes nor the metadata of Chakra's jsonizer")
    if not isinstance(graph, list) or not all(isinstance(one, dict) for one in graph) or len(graph) > MOST_NODES:
        raise WeftError(f"{where}: a list of at most {MOST_NODES:,} nodes is expected")
    # ctrlDeps of the feeder's JSON are read by none of its versions
    of_feeder = "workload_graph" in first
    nodes = [_node(one, of_feeder, f"{where}: node {number} of the file") for number, one in enumerate(graph)]
    return ordered(str(first.get("version", "")), (), nodes, where)


def groups_of(trace: Trace, n_npus: int) -> Groups:
    """Communicator groups that a trace brings along: those of a node of PyTorch's process groups, by name."""
    found: dict[str, tuple[int, ...]] = {}
    for node in trace.nodes:
        if node.kind == "metadata" and node.inputs is not None and '"pg_name"' in node.inputs.values:
            text = node.inputs.values
            for one in _json_list(text[text.find("[{") : text.rfind("}]") + 2]):
                ranks = one.get("ranks") or range(n_npus)  # none: all
                if all(isinstance(rank, int) and 0 <= rank < n_npus for rank in ranks):
                    found[str(one.get("pg_name"))] = tuple(ranks)
    return found


def _json_list(text: str) -> list[dict[str, Any]]:
    """The objects of a JSON list; none of what is no list, which only matters if its groups are asked for."""
    try:
        found = json.loads(text.replace('\\"', '"'))
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _objects(text: str) -> Iterable[Any]:
    """One value after the other, as the jsonizer writes them."""
    decoder, at = json.JSONDecoder(parse_constant=_infinite), 0
    while (at := _past_space(text, at)) < len(text):
        found, at = decoder.raw_decode(text, at)
        yield found


def _infinite(word: str) -> Any:
    raise ValueError(f"{word} is not a finite number")


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _node(one: Mapping[str, Any], of_feeder: bool, where: str) -> Node:
    found = {name: next((one[key] for key in keys if key in one), None) for name, keys in FIELDS.items()}
    if "id" not in one and "Id" not in one and len(one) < 2:
        raise WeftError(f"{where}: is no node of a trace")
    attributes = [_attribute(key, value, where) for key, value in one.items() if key not in _OWN]
    attributes += [_of_message(each, where) for each in found["attr"] or ()]
    return Node(
        _whole(found["id"] or 0, f"{where}: id"), str(found["name"] or ""), _kind(found["kind"] or 0, where),
        () if of_feeder else _waits(found["control"], where), _waits(found["data"], where),
        _whole(found["start"] or 0, f"{where}: start"), _whole(found["duration"] or 0, f"{where}: duration"),
        _info(found["inputs"]), _info(found["outputs"]), tuple(attributes),
    )


def _whole(value: Any, what: str) -> int:
    """An integer from zero on, also as text: JSON of Protocol Buffers has those of 64 bits so."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise WeftError(f"{what} is {told(value)}: an integer of 64 bits is expected")
    return value


def _kind(value: Any, where: str) -> str:
    word = str(value).upper().replace("COLL_COMM", "COMM_COLL")
    number = TYPES.index(word) if word in TYPES else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(NODE_KINDS):
        raise WeftError(f"{where}: has the unknown type {told(value)}")
    return NODE_KINDS[number]


def _waits(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value or [], list):
        raise WeftError(f"{where}: dependencies are {told(value)}: a list of nodes is expected")
    return tuple(_whole(one, f"{where}: a dependency") for one in value or ())


def _info(value: Any) -> TensorInfo | None:
    """Inputs or outputs; STAGE's are lists of its own."""
    return TensorInfo(*(str(value.get(key, "")) for key in TensorInfo._fields)) if isinstance(value, dict) else None


def _attribute(name: str, value: Any, where: str) -> Attribute:
    if name == "comm_type" and isinstance(value, str) and (kind := value.lower().replace("_", "-")) in COLLECTIVES:
        value = COLLECTIVES.index(kind)
    typed = {bool: "bool", int: "int64", float: "double", str: "string"}.get(type(value))
    if isinstance(value, list) and value and all(isinstance(one, bool) for one in value):
        return Attribute(name, tuple(value), "bool")
    return Attribute(name, value, typed) if typed else Attribute(name, (), "")


def _of_message(one: Any, where: str) -> Attribute:
    """An attribute as the JSON of Protocol Buffers has it: {"name": "comm_size", "int64Val": "65536"}."""
    if not isinstance(one, dict) or not isinstance(one.get("name"), str):
        raise WeftError(f"{where}: {told(one)} is no attribute")
    for key, value in one.items():
        if key.endswith("Val"):
            kind = key.removesuffix("Val")
            if kind not in ("string", "bool", "bytes", "double", "float"):
                value = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
            return Attribute(one["name"], value, kind)
        if key.endswith("List"):
            values: tuple[Scalar, ...] = tuple(value.get("values", ())) if isinstance(value, dict) else ()
            return Attribute(one["name"], values, key.removesuffix("List"))
    return Attribute(one["name"], (), "")
