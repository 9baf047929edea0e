"""The meaning of a point, independent of its spelling, and the key that results are stored under.

The keys of a sweep are found once, as it is read and the fabric of the point is at hand: whoever only looks points up
builds no fabric again. Files, and what is not weft's own, count by a digest of everything in a fabric, a schedule and
an algorithm that decides a result: a field is digested unless it is named with the reason, so a new one cannot be
forgotten.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from collectives import COLLECTIVES, Collective, Pattern, Schedule, in_network
from collectives.core.pairs import SKEWS
from collectives.core.routes import paths_of
from collectives.formats.names import SUFFIX, called
from collectives.registry import ALGORITHMS, BUILT_IN, Algorithm
from sim.program.contract import I64
from sim.program.model import Model
from sim.program.model_options import OPTIONS, Mismatch
from sim.study.designs import files_of_design, is_open
from sim.study.file import Axes, Place, Sweep
from sim.study.jobs import files_of
from sim.study.keys import AUTO, SECTIONS, SWEPT, USUAL, ModelKeys, TopologyKeys, keys_of
from sim.study.points import Task, forms_of, schedule_of, topology_of
from sim.study.spec import Spec
from sim.study.workload_keys import designs, works
from sim.version import RESULTS_VERSION
from topologies import TOPOLOGIES, Router, Topology, WeftError
from topologies.core.rateless import IDENTIFYING, of_times, wiring_of
from topologies.flows.tightest_cut import remembered
from topologies.lazy import later
from topologies.registry import OWN_FAMILIES
from topologies.text.input_text import read_input_bytes, stamp_of
from workloads.formats.chakra import MOST_BYTES
from workloads.job import Job
from workloads.models import JOB_FILES

_RESOLVED = {
    "topology": tuple(key.name for key in fields(TopologyKeys)),
    "collective": ("name", "algorithms", "element_bytes", "options", "root", "pairs"),
    "model": ("preset", *OPTIONS, "engine", "symmetry", "faults"),
    "sweep": ("begin", "end", "factor", "step"),
}
"""Keys of a spec identified by their resolved value: links, fields of the model, options of the algorithm, size."""

_OTHERS = tuple(
    (section, tuple(key.name for key in fields(kind) if key.name not in _RESOLVED.get(section, ())))
    for section, kind in SWEPT.items()
)
"""The keys of a spec that are taken as spelled."""


beside_fabric = attrgetter(*(section for section in SECTIONS if section != "topology"))
"""All sections of a spec but that of the fabric."""


def point_key(task: Task) -> str:
    """The key of a point: equal for equal results, whatever the spelling of sizes, rates and defaults."""
    spec, chosen = task.spec, ALGORITHMS.get(task.algorithm)
    topology = topology_of(spec)
    apart = works(spec) or isinstance(spec.model.faults, str) or spec.collective.pairs is not None
    if apart or chosen is None or id(chosen) not in BUILT_IN or not is_own(topology.router):
        text = _text(meaning(task))
    else:
        before, after = _around_fabric(_Beside(task))
        text = before + fabric_digest(topology, spec.fabric_file) + after
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)


class _Beside:
    """A point, equal to all that differ in their fabric alone."""

    def __init__(self, task: Task) -> None:
        self.task, self.known = task, (beside_fabric(task.spec), task[1:])

    def __hash__(self) -> int:
        return hash(self.known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Beside) and self.known == other.known


@lru_cache(maxsize=4096)
def _around_fabric(point: _Beside) -> tuple[str, str]:
    """The text of a key before and after the digest of the fabric."""
    digest = fabric_digest(topology_of(point.task.spec), point.task.spec.fabric_file)
    before, _, after = _text(meaning(point.task)).rpartition(digest)
    return before, after


def meaning(task: Task) -> dict[str, Any]:
    """All that a point's row depends on, as plain data, without limits and checks."""
    spec = task.spec
    plan = spec.build_faults()
    pairs = {key: _content(path, stamp_of(path)) for key, path in _pairs(spec).items()}
    if works(spec):
        return _of_work(task)
    return {
        "results": RESULTS_VERSION,
        "fabric": fabric_digest(topology_of(spec), spec.fabric_file),
        "collective": spec.kind.name,
        "algorithm": _algorithm(task),
        "size_bytes": task.size_bytes,
        "options": spec.options_of(task.algorithm) | pairs,
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


def _of_work(task: Task) -> dict[str, Any]:
    """All that a plan or a workload depends on; a machine by its name and profile: a library takes it by these."""
    spec, faults = task.spec, task.spec.build_faults()
    return {
        "results": RESULTS_VERSION, "fabric": fabric_digest(topology_of(spec), spec.fabric_file),
        "machine": spec.topology.machine, "algorithms": _searched(spec), "model": _model(spec),
        "engine": spec.engine, "symmetry": spec.symmetry, "other": _other_keys(spec), "spread": task.spread,
        **({"for": (spec.collective.name, spec.collective.form, spec.sweep.begin)} if designs(spec) else {}),
        "files": [_content(name, stamp_of(name)) for name in _files(spec)], **({"why": True} if task.why else {}),
        **({} if faults is None else {"faults": faults.to_dict()}),
    }


def _searched(spec: Spec) -> tuple[str, ...] | None:
    """The algorithms; all of a collective where its designs name none."""
    return spec.algorithms if designs(spec) and is_open(spec) else spec.collective.algorithms


@lru_cache(maxsize=4096)
def _content(name: str, stamp: tuple[int | bytes, ...]) -> str:
    """A digest of a file; made again if it has changed."""
    return hashlib.sha256(read_input_bytes(name, "input", MOST_BYTES)).hexdigest()


def _files(spec: Spec) -> list[str]:
    """Profile of a machine, config.json of a model, its kernels, files of a workload, and sizes of pairs."""
    some = (spec.fabric_file if spec.topology.machine else "", spec.iteration.model or "")
    kernels = [spec.iteration.kernels] if spec.iteration.kernels else []
    own = [name for name in some if name.endswith((".json", *JOB_FILES))]
    return [*own, *kernels, *files_of_design(spec), *files_of(spec.workload), *_pairs(spec).values()]


def _pairs(spec: Spec) -> dict[str, str]:
    """The option that names a file, and the file: sizes of pairs that are not drawn."""
    pairs = spec.collective.pairs
    return {} if pairs is None or pairs.partition(":")[0] in SKEWS else {"pairs": pairs}


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
    names = (task.spec.fabric_file, schedule, plan, *_files(task.spec))
    return [stamp_of(name) for name in names if name and isinstance(name, str)]


def is_wefts_own(task: Task) -> bool:
    """Whether a point reads no file, and its family and algorithm are weft's own: its key is the same each time."""
    family = TOPOLOGIES.get((task.spec.topology.spec or "").strip().partition(":")[0])
    return family in OWN_FAMILIES and id(ALGORITHMS.get(task.algorithm)) in BUILT_IN and not stamps_of(task)


def point_spec(task: Task) -> Spec:
    """The spec of one point alone, to run it again."""
    if works(task.spec):
        return task.spec.self_contained()
    sizes = {"begin": task.size_bytes, "end": None, "factor": None, "step": None}
    alone: dict[str, dict[str, Any]] = {"collective": {"algorithms": (task.algorithm,)}, "sweep": sizes}
    return task.spec.self_contained().updated(alone)


def _algorithm(task: Task) -> Any:
    """An algorithm as a part of keys: a file by its content, one that is not weft's own by all that it emits.

    By that, too, where the router is not weft's own: routes decide as much as transfers.
    """
    name, spec, topology = task.algorithm, task.spec, topology_of(task.spec)
    is_file = name.endswith(SUFFIX)
    digest = later("collectives.formats.files:file_digest")  # the readers: of files alone
    said = {"file": digest(name), "called": called(name)} if is_file else {"name": name}
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
    others = {section: {name: getattr(keys, name) for name in names} for section, names in _OTHERS
              if (keys := getattr(spec, section)) != getattr(Spec, section)}
    usual = {} if str(spec.iteration.model).endswith(JOB_FILES) else USUAL  # of which a job file may say otherwise
    given = {section: {name: value for name, value in keys.items() if value != keys_of(section)[name].default
                       and not (section == "iteration" and name in usual and value == usual[name])}
             for section, keys in others.items()}
    return {section: keys for section, keys in given.items() if keys}


@dataclass(frozen=True, eq=False)
class Keyed:
    """A sweep whose points can be looked up in a store; files that they name count as they were when it was read."""

    sweep: Sweep
    keys: tuple[str, ...]  # of its points
    fabrics: tuple[str, ...]  # names of their fabrics

    @cached_property
    def distinct(self) -> dict[str, Task]:
        """Its points by key."""
        return dict(zip(self.keys, self.sweep.points, strict=True))


def keyed(axes: Axes, points: Iterable[tuple[Task, Place]]) -> Keyed:
    """A sweep of points that may still be read, one after the other."""
    tasks, places, keys, fabrics = list[Task](), list[Place](), list[str](), list[str]()
    for task, place in points:
        tasks.append(task)
        places.append(place)
        keys.append(point_key(task))
        fabrics.append(topology_of(task.spec).name)
    return Keyed(Sweep(axes, tuple(tasks), tuple(places)), tuple(keys), tuple(fabrics))


def keyed_sweep(sweep: Sweep) -> Keyed:
    """A sweep that has been read."""
    return keyed(sweep.axes, zip(sweep.points, sweep.places, strict=True))


DIGEST_LETTERS = 32
"""Of the hexadecimal SHA-256: 128 bits."""

SOURCES_AT_ONCE = 4096
"""Sources whose transfers are in memory together while a digest of them is made."""

TOPOLOGY_ELSEWHERE = {
    "name": "digested without the name of a file that it was read from",
    "router": "by value if it is weft's own; of any other, the routes that the transfers take",
    "link_ptr": "follows from src",
    "optics": "what circuits may become, not what is up; of a schedule that switches them, in its circuits",
}
PATTERN_ELSEWHERE = {
    "topology": "as a fabric, and in the routes of the transfers",
    "kind": "by its name; of one that is not weft's own, by what it asks of every block",
    "emit": "the transfers of every source",
    "blocks_of": "for the proof: no time depends on it",
    "groups": "those computed on demand are read one by one",
    "circuits": "as the changes of a job, where there are any",
    "is_part": "decides which bounds hold: no time depends on it",
    "_owed": "its words, the proof",
}
ALGORITHM_ELSEWHERE = {
    "is_long": "whether it runs unnamed, which is the point of a sweep or is not",
    "name": "in the key of the point",
    "help": "for people",
    "limits": "for people",
    "functions": "by the schedules that they return",
    "forms": "by the schedules of each",
    "options": "for people; the functions take them",
    "built_from_rates": "decides what may be built once, not what is built",
}

_Feed = Callable[[Any], None]


def schedule_digest(schedule: Schedule, model: Model, file: str = "") -> str:
    """A digest of a schedule: transfers, the routes that they take, the fabric, and what says how it is run.

    `file`: the topology file, whose name does not count.
    """
    digest, pattern = hashlib.sha256(), schedule.pattern
    _feed((fabric_digest(pattern.topology, file), schedule.size_bytes, schedule.element_bytes), digest.update)
    _feed_fields(pattern, PATTERN_ELSEWHERE, digest.update)
    _feed((_said_of(pattern.kind, pattern), pattern.proof), digest.update)
    _feed([tuple(group) for group in pattern.groups], digest.update)
    if pattern.circuits is not None:
        _feed([tuple(one.work) for one in Job.of(schedule).operations[1:]], digest.update)
    n_sources = pattern.n_sources or pattern.p
    for first in range(0, n_sources, SOURCES_AT_ONCE):
        transfers = pattern.emit(np.arange(first, min(first + SOURCES_AT_ONCE, n_sources)))
        _feed(tuple(transfers), digest.update)
        if not is_own(pattern.topology.router):
            _feed(tuple(paths_of(transfers, pattern.topology, model.tie, model.seed)), digest.update)
    return digest.hexdigest()[:DIGEST_LETTERS]


def fabric_digest(topology: Topology, file: str = "") -> str:
    """A digest of a fabric; of a router that is not weft's own only its type, for what it does is in its routes.

    `file`: where the fabric was read from: its name does not count.
    """
    if topology not in _digests:
        shared = _fed_by_wiring(wiring_of(topology), file) | _fed_by_times(topology)
        digest = hashlib.sha256()
        for name in ("", *_DIGESTED):
            digest.update(shared[name] if name in shared else _fed((name, getattr(topology, name))))
        _digests[topology] = digest.hexdigest()[:DIGEST_LETTERS]
    return _digests[topology]


@remembered
def _fed_by_wiring(wiring: Topology, file: str) -> dict[str, bytes]:
    """What a digest is fed of the fields that topologies of one wiring share, and, under "", before all fields."""
    name = wiring.name
    for named in (file, Path(file).name, Path(file).stem) if file else ():
        name = name.replace(named, "")
    router = wiring.router if is_own(wiring.router) else type(wiring.router).__name__
    head = _fed((name, router)) + _fed([None] * len(_DIGESTED)).removesuffix(_fed(None) * len(_DIGESTED))
    return {"": head} | {name: _fed((name, getattr(wiring, name))) for name in IDENTIFYING}


@of_times
def _fed_by_times(latency_ps: I64, hop_latency_ps: I64) -> dict[str, bytes]:
    return {"latency_ps": _fed(("latency_ps", latency_ps)), "hop_latency_ps": _fed(("hop_latency_ps", hop_latency_ps))}


_DIGESTED = tuple(one.name for one in fields(Topology) if one.name not in TOPOLOGY_ELSEWHERE)

_digests: WeakKeyDictionary[Topology, str] = WeakKeyDictionary()


def algorithm_digest(algorithm: Algorithm) -> str:
    """A digest of how the schedules of an algorithm are run; they themselves are digested one by one."""
    digest = hashlib.sha256()
    _feed_fields(algorithm, ALGORITHM_ELSEWHERE, digest.update)
    return digest.hexdigest()[:DIGEST_LETTERS]


def is_own(router: Router) -> bool:
    """Whether a router is one of weft's own, whose changes `sim.version.RESULTS_VERSION` tells."""
    return type(router).__module__.partition(".")[0] == "topologies"


def _said_of(kind: Collective, pattern: Pattern) -> Sequence[Any]:
    """What identifies a collective."""
    if COLLECTIVES.get(kind.name) is kind:
        return (kind.name,)
    p, n_blocks, root = pattern.p, pattern.n_blocks, pattern.root
    ends = [(tuple(kind.sources(block, p, root)), tuple(kind.wanted_by(block, p, root))) for block in range(n_blocks)]
    per_rank = kind.blocks_per_rank(n_blocks, p) if kind.weights is None else kind.weights
    return kind.name, per_rank, kind.bus_factor(p), kind.rooted, kind.group_size, ends


def _fed(value: Any) -> bytes:
    """What `_feed` feeds."""
    parts: list[Any] = []
    _feed(value, parts.append)
    return b"".join(parts)


def _feed_fields(value: Any, elsewhere: dict[str, str], feed: _Feed) -> None:
    _feed([(one.name, getattr(value, one.name)) for one in fields(value) if one.name not in elsewhere], feed)


def _feed(value: Any, feed: _Feed) -> None:
    """Feed a value and its type to a digest, whatever is nested in it.

    TypeError: it, or something in it, is not known by its value.
    """
    feed(type(value).__name__.encode())
    if isinstance(value, np.ndarray):
        feed(repr((value.dtype.str, value.shape)).encode())
        feed(np.ascontiguousarray(value).data)
    elif isinstance(value, (tuple, list)):
        feed(f"{len(value)}(".encode())
        for one in value:
            _feed(one, feed)
    elif is_dataclass(value):
        _feed_fields(value, {}, feed)
    elif value is None or isinstance(value, (str, int, float, Fraction, np.generic)):
        feed(f"{value!r};".encode())
    else:
        raise TypeError(f"{value!r} is not known by its value")
