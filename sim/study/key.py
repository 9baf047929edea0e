"""The meaning of a point, independent of its spelling, and the key that results are stored under."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

from collectives import in_network
from collectives.formats.files import SUFFIX, called, file_digest
from collectives.registry import ALGORITHMS, BUILT_IN
from sim.program.model import Model
from sim.program.model_options import OPTIONS, Mismatch
from sim.study.content import DIGEST_LETTERS, algorithm_digest, fabric_digest, is_own, schedule_digest
from sim.study.keys import AUTO, EXPERIMENT, ModelKeys, TopologyKeys
from sim.study.points import Task, forms_of, schedule_of, topology_of
from sim.study.spec import Spec
from sim.version import RESULTS_VERSION
from topologies import Topology, WeftError
from topologies.text.input_text import stamp_of

_RESOLVED = {
    "topology": tuple(key.name for key in fields(TopologyKeys)),
    "collective": ("name", "algorithms", "element_bytes", "options", "root"),
    "model": ("preset", *OPTIONS, "engine", "symmetry", "faults"),
    "sweep": ("begin", "end", "factor", "step"),
}
"""Keys of a spec identified by their resolved value: links, fields of the model, options of the algorithm, size."""

_OTHERS = tuple(
    (section, tuple(key.name for key in fields(kind) if key.name not in _RESOLVED.get(section, ())))
    for section, kind in EXPERIMENT.items()
)
"""The keys of a spec that are taken as spelled."""


def point_key(task: Task) -> str:
    """The key of a point: equal for equal results, whatever the spelling of sizes, rates and defaults."""
    text = json.dumps(meaning(task), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


def meaning(task: Task) -> dict[str, Any]:
    """All that a point's row depends on, as plain data, without limits and checks."""
    spec = task.spec
    plan = spec.build_faults()
    return {
        "results": RESULTS_VERSION,
        "fabric": fabric_digest(topology_of(spec), spec.fabric_file),
        "collective": spec.kind.name,
        "algorithm": _algorithm(task),
        "size_bytes": task.size_bytes,
        "options": spec.options_of(task.algorithm),
        "model": _model(spec),
        "engine": spec.engine,
        "symmetry": spec.symmetry,
        "why": task.why,
        "other": _other_keys(spec),
        **({} if plan is None else {"faults": plan.to_dict()}),
        **({"spread": task.spread} if task.spread else {}),
        **({"chunks": AUTO} if spec.chooses else {}),
        # Unnamed, it is refused where switches are not known to reduce.
        **({"named": False} if task.algorithm == in_network.NAME and spec.collective.algorithms is None else {}),
    }


def _model(spec: Spec) -> dict[str, Any]:
    """The fields of the model; the keys as they are spelled, where there is none for them."""
    try:
        model: Model | ModelKeys = spec.build_model()
    except Mismatch:
        model = spec.model
    return {key.name: getattr(model, key.name) for key in fields(model)}


def stamps_of(task: Task) -> list[tuple[int | bytes, ...]]:
    """What differs once a file that a point reads has been changed."""
    plan, schedule = task.spec.model.faults, task.algorithm if task.algorithm.endswith(SUFFIX) else ""
    return [stamp_of(name) for name in (task.spec.fabric_file, schedule, plan) if name and isinstance(name, str)]


def point_spec(task: Task) -> Spec:
    """The spec of one point alone, to run it again."""
    sizes = {"begin": task.size_bytes, "end": None, "factor": None, "step": None}
    alone: dict[str, dict[str, Any]] = {"collective": {"algorithms": (task.algorithm,)}, "sweep": sizes}
    return task.spec.self_contained().updated(alone)


def _algorithm(task: Task) -> Any:
    """An algorithm as a part of keys: a file by its content, one that is not weft's own by all that it emits.

    By that, too, where the router is not weft's own: routes decide as much as transfers.
    """
    name, spec, topology = task.algorithm, task.spec, topology_of(task.spec)
    is_file = name.endswith(SUFFIX)
    said = {"file": file_digest(name), "called": called(name)} if is_file else {"name": name}
    chosen = ALGORITHMS.get(name)
    if is_own(topology.router) and (chosen is None or id(chosen) in BUILT_IN):
        return said if is_file else name
    run = {} if chosen is None else {"run": algorithm_digest(chosen)}
    forms, striped = forms_of(spec, topology, name)
    return said | run | {"emitted": {form: _emitted(task, topology, form) for form in (*forms, *striped)}}


def _emitted(task: Task, topology: Topology, form: str) -> str:
    """A digest of a schedule; the reason, if there is none."""
    try:
        schedule = schedule_of(task.spec, topology, task.algorithm, task.size_bytes, form)
        return schedule_digest(schedule, task.spec.build_model(), task.spec.fabric_file)
    except WeftError as wrong:
        return str(wrong)


def _other_keys(spec: Spec) -> dict[str, dict[str, Any]]:
    """What is given of the keys taken as spelled: the form, and any key that a spec may get later."""
    others = {section: {name: getattr(getattr(spec, section), name) for name in names} for section, names in _OTHERS}
    given = {section: {name: value for name, value in keys.items() if value is not None}
             for section, keys in others.items()}
    return {section: keys for section, keys in given.items() if keys}
