"""ASTRA-sim's system files: delays, splits, scheduling, and the algorithm of each dimension.

JSON, or the lines "key: value" of ASTRA-sim 1.0, in which the algorithms of dimensions stand as "ring_direct".
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sim.astra.collective import KINDS
from topologies.checks import WeftError, choice, integer, nearest, number
from topologies.text.input_text import read_input
from topologies.text.plain_data import read_json_object
from topologies.text.schema import Absent

POLICIES = ("LIFO", "FIFO", "EXPLICIT")
OPTIMIZATIONS = ("baseline", "localBWAware")

_TABLES = tomllib.loads((Path(__file__).parent / "system_file.toml").read_text(encoding="utf-8"))
UNUSED, PASSED_OVER, REFUSED = (_TABLES[name] for name in ("unused", "passed_over", "refused"))
KEYS = (*_TABLES["read"], *(f"{kind}-implementation" for kind in KINDS),
        *(f"{kind}-implementation-custom" for kind in KINDS), *UNUSED, *PASSED_OVER)
ABSENT = tuple(Absent("system", *row) for row in _TABLES["absent"])
_DEFAULT = {row.name: row.value for row in ABSENT}

_ALGORITHM = re.compile(r"(ring|oneRing)|(direct|oneDirect)([0-9]{0,5})|(halvingDoubling|oneHalvingDoubling)")

_LINE = re.compile(r"\s*[A-Za-z][\w-]*\s*:\s*[^\s\"{}\[\],]{1,100}\s*")
_NUMBER = re.compile(r"\d{1,20}\.\d{0,20}")

MOST_QUEUES, MOST_SPLITS, MOST_DELAY_NS = 64, 100_000, 10**12


class Implementation(NamedTuple):
    """Algorithm of one dimension, or across all of them; the window of `direct`, 0 for none."""

    name: str
    window: int
    spans: bool = False  # oneRing, oneDirect, oneHalvingDoubling: one phase of all NPUs, and the last


@dataclass(frozen=True)
class System:
    """What a system file says, with ASTRA-sim's defaults."""

    policy: str  # "LIFO" (the collective begun last goes first), "FIFO" or "EXPLICIT"
    optimization: str  # "baseline", "localBWAware" or "" if not given: how an all-reduce uses several dimensions
    endpoint_delay_ns: int
    active_chunks: int
    splits: int
    memory_Bps: float  # memory bandwidth that reductions take; 0 if not given: reductions are then free
    peak_flops: float
    roofline: bool  # whether computations are timed by their operations and bytes
    replay: bool  # whether all nodes take the time of the trace
    algorithms: Mapping[str, tuple[Implementation, ...]]  # by kind of collective, one per dimension
    custom: Mapping[str, str]  # prefix of the traces of a custom collective, by kind
    queues: int  # queues per dimension, from the command line
    source: str
    passed_over: tuple[str, ...] = ()  # keys that ASTRA-sim does not read, or that change no time

    @property
    def baseline(self) -> bool:
        """Whether an all-reduce is a full one in every dimension."""
        return self.optimization == "baseline"

    def implementations(self, kind: str, dims: int) -> tuple[Implementation, ...]:
        """Algorithms of a collective, of dimension after dimension up to one that spans all.

        WeftError: the file has none, or not one for each dimension.
        """
        key = f"{kind}-implementation"
        found = self.algorithms.get(kind)
        if found is None:
            raise WeftError(f"system file {self.source}: key {key!r} is missing, and the workload has an {kind}")
        spans = next((at for at, one in enumerate(found) if one.spans), dims)
        if spans < min(len(found), dims):
            return found[:spans + 1]
        if len(found) != dims:
            raise WeftError(
                f"system file {self.source}: {key} has {len(found)} entries; the network has {dims} dimensions"
            )
        return found

    def in_group(self, kind: str, dims: int) -> Implementation:
        """The algorithm in a communicator group of fewer than all NPUs: the only one of the file, or else a ring."""
        found = self.implementations(kind, dims)
        return found[0] if len(self.algorithms[kind]) == 1 else Implementation("ring", 0)


def read_system(path: str | Path, dims: int, queues: int = 1) -> System:
    """Read a system file.

    `dims`: dimensions of the network.
    `queues`: queues per dimension (ASTRA-sim's `--num-queues-per-dim`).
    WeftError: names the file and the key: one that is almost a key that is read, or a value that is not simulated.
    """
    data, source = _read(path), str(path)
    where = f"system file {source}"
    for key in data:
        if key in REFUSED or (key not in KEYS and nearest(key, KEYS)):
            raise WeftError(f"{where}: key {key!r} is not simulated{nearest(key, KEYS)}; read are {', '.join(KEYS)}")
    for key, accepted in UNUSED.items():
        if key in data and data[key] not in accepted:
            raise WeftError(f"{where}: {key} is {data[key]!r}: only {' or '.join(map(str, accepted))} is simulated")
    if "preferred-dataset-splits" not in data:
        raise WeftError(f"{where}: key 'preferred-dataset-splits' is missing; ASTRA-sim crashes without it")
    if not 1 <= queues <= MOST_QUEUES:
        raise WeftError(f"{queues} queues per dimension: 1 to {MOST_QUEUES} are accepted")

    def whole(key: str, low: int, high: int) -> int:
        return integer(data.get(key, int(_DEFAULT.get(key, 0))), f"{where}: {key}", low, high)

    optimization = data.get("collective-optimization", "")
    if optimization or "collective-optimization" in data:
        choice(optimization, OPTIMIZATIONS, f"{where}: collective-optimization")
    if dims > 1 and not optimization:
        raise WeftError(f"{where}: key 'collective-optimization' is missing, and the network has {dims} dimensions")
    if queues > 1 and optimization != "baseline":
        raise WeftError(f"{where}: {queues} queues per dimension need collective-optimization baseline")
    roofline = bool(whole("roofline-enabled", 0, 1))
    rates = {
        key: number(data[key], f"{where}: {key}", 0, 1e9) if key in data else 0.0
        for key in ("local-mem-bw", "peak-perf")
    }
    for key, value in rates.items():
        if roofline and not value:
            raise WeftError(f"{where}: key {key!r} is missing, and roofline-enabled is 1")
    return System(
        policy=choice(data.get("scheduling-policy", _DEFAULT["scheduling-policy"]), POLICIES,
                      f"{where}: scheduling-policy"),
        optimization=optimization,
        endpoint_delay_ns=whole("endpoint-delay", 0, MOST_DELAY_NS),
        active_chunks=whole("active-chunks-per-dimension", 1, MOST_SPLITS),
        splits=whole("preferred-dataset-splits", 1, MOST_SPLITS),
        memory_Bps=rates["local-mem-bw"] * 1e9, peak_flops=rates["peak-perf"] * 1e12, roofline=roofline,
        replay=bool(whole("replay-only", 0, 1)),
        algorithms={kind: _algorithms(data, kind, where) for kind in KINDS if f"{kind}-implementation" in data},
        custom={kind: _custom(data, kind, where) for kind in KINDS if f"{kind}-implementation-custom" in data},
        queues=queues, source=source,
        passed_over=tuple(key for key in data if key not in KEYS or key in PASSED_OVER),
    )


def _read(path: str | Path) -> dict[str, Any]:
    """The keys of a file of either kind."""
    lines = read_input(path, "system file").splitlines()
    pairs = [line.partition(":") for line in lines if line.strip()]
    if not all(_LINE.fullmatch(line) for line in lines if line.strip()):
        return read_json_object(path, "system file")
    data: dict[str, Any] = {}
    for key, _, value in pairs:
        name, word = key.strip(), value.strip()
        if name in data:
            raise WeftError(f"system file {path}: key {name!r} is given twice")
        if name.endswith("-implementation"):
            data[name] = word.split("_")
        else:
            data[name] = int(word) if word.isdecimal() else float(word) if _NUMBER.fullmatch(word) else word
    return data


def _algorithms(data: Mapping[str, Any], kind: str, where: str) -> tuple[Implementation, ...]:
    key = f"{kind}-implementation"
    if not isinstance(data[key], list):
        raise WeftError(f"{where}: {key} is {data[key]!r}: a list with one algorithm for each dimension is expected")
    return tuple(_algorithm(name, f"{where}: {key}") for name in data[key])


def _custom(data: Mapping[str, Any], kind: str, where: str) -> str:
    key = f"{kind}-implementation-custom"
    value = data[key]
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], str):
        raise WeftError(f"{where}: {key} is {value!r}: a list of one prefix of traces is expected")
    return value[0]


def _algorithm(text: Any, where: str) -> Implementation:
    found = _ALGORITHM.fullmatch(str(text))
    if found is None:
        raise WeftError(
            f"{where}: {text!r} is not simulated: choose one of ring, direct, direct with a window such as direct4, "
            "halvingDoubling, or the same across all dimensions with 'one' before, as oneRing"
        )
    if found[3] and not int(found[3]):
        raise WeftError(f"{where}: {text!r} has a window of zero messages")
    name = "ring" if found[1] else "direct" if found[2] else "halvingDoubling"
    return Implementation(name, int(found[3] or 0), str(text).startswith("one"))
