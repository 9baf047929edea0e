"""The meaning of a point, independent of its spelling, and the key that results are stored under."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from sim.study.keys import EXPERIMENT, TopologyKeys
from sim.study.points import Task, topology_of
from sim.study.spec import Spec
from sim.version import RESULTS_VERSION
from topologies import Topology

KEY_LETTERS = 32
"""Of the hexadecimal SHA-256: 128 bits."""

_RESOLVED = {
    "topology": tuple(key.name for key in fields(TopologyKeys)),
    "collective": ("name", "algorithms", "element_bytes", "options", "root"),
    "model": (
        "preset", "forwarding", "deliver", "chunk", "chunks", "header", "packet_header", "endpoint_latency", "tie",
        "discipline", "engine", "symmetry", "seed", "faults",
    ),
    "sweep": ("begin", "end", "factor", "step"),
}
"""Keys of a spec identified by their resolved value: links, fields of the model, options of the algorithm, size."""


def point_key(task: Task) -> str:
    """The key of a point: equal for equal results, whatever the spelling of sizes, rates and defaults."""
    text = json.dumps(meaning(task), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LETTERS]


def meaning(task: Task) -> dict[str, Any]:
    """All that a point's row depends on, as plain data, without limits and checks."""
    spec = task.spec
    plan = spec.build_faults()
    return {
        "results": RESULTS_VERSION,
        "fabric": fabric_digest(topology_of(spec)),
        "collective": spec.kind.name,
        "algorithm": task.algorithm,
        "size_bytes": task.size_bytes,
        "options": spec.options_of(task.algorithm),
        "model": _model(spec),
        "engine": spec.engine,
        "symmetry": spec.symmetry,
        "why": task.why,
        "other": _other_keys(spec),
    } | ({} if plan is None else {"faults": plan.to_dict()})


def point_spec(task: Task) -> Spec:
    """The spec of one point alone, to run it again."""
    sizes = {"begin": task.size_bytes, "end": None, "factor": None, "step": None}
    alone: dict[str, dict[str, Any]] = {"collective": {"algorithms": (task.algorithm,)}, "sweep": sizes}
    return task.spec.self_contained().updated(alone)


def fabric_digest(topology: Topology) -> str:
    """A digest of nodes, links, their rates and latencies, and the router."""
    if topology not in _digests:
        digest = hashlib.sha256(
            repr((topology.name, topology.shape, type(topology.router).__name__, topology.node_names)).encode()
        )
        for array in (
            topology.kind, topology.src, topology.dst, topology.bandwidth_Bps, topology.latency_ps,
            topology.hop_latency_ps, topology.dimension, topology.coords,
        ):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        _digests[topology] = digest.hexdigest()[:KEY_LETTERS]
    return _digests[topology]


_digests: WeakKeyDictionary[Topology, str] = WeakKeyDictionary()


@lru_cache(maxsize=64)
def _model(spec: Spec) -> dict[str, Any]:
    return asdict(spec.build_model())


def _other_keys(spec: Spec) -> dict[str, dict[str, Any]]:
    """Keys taken as spelled: the form, and any key that a spec may get later."""
    others = {
        section: {name: value for name, value in keys.items() if name not in _RESOLVED.get(section, ())}
        for section, keys in spec.to_dict(EXPERIMENT).items()
    }
    return {section: keys for section, keys in others.items() if keys}
