"""The input of a command, one spec with three spellings: a TOML file, flags of the command line, a frozen object.

`sim.study.keys` is the table of all keys. A key of `[topology] [collective] [model] [sweep]` that is not given is
None, and takes the value of the preset, if one is named, or the default that its help states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.core.collective import Collective, collective
from collectives.core.schedule import ELEMENT_BYTES, MOST_BYTES, Schedule
from collectives.formats.names import SUFFIX, called
from collectives.registry import algorithm, algorithms_for, build, spelled
from sim.faults.plan import FaultPlan
from sim.program.model import (
    ENGINES,
    MOST_SPREAD,
    PRESETS,
    SYMMETRY,
    WITHOUT_CHUNKS,
    Model,
    check_flows_have_no,
    make_model,
    model_of,
)
from sim.program.model_options import DEFAULT_CHUNKS, OPTIONS, parse_option
from sim.study.keys import AUTO, EXPERIMENT, KINDS, SECTIONS, TENANT, Sections, SweepKeys, flags_of, keys_of
from sim.study.paths import with_paths_from
from sim.version import weft_version
from topologies import SWITCH, Topology, WeftError, from_spec, with_reduction_units
from topologies.checks import checked, choice, integer, nearest, told
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY
from topologies.formats.files import is_topology_file
from topologies.lazy import later
from topologies.machines import PROFILES
from topologies.stages import staged
from topologies.text.brief import one_line
from topologies.text.input_text import read_input, stamp_of
from topologies.text.plain_data import parse_json, parse_toml
from topologies.units import Quantity, format_size, parse_bandwidth, parse_size, parse_time

if TYPE_CHECKING:
    from topologies.machines.profile import Machine

_OF_SWING = {"link_bandwidth": "400Gb/s", "link_latency": "100ns", "hop_latency": "300ns"}
_OF_SWING_HX = {"link_bandwidth": "400Gb/s", "link_latency": "153ns", "hop_latency": "100ns"}
PRESET_LINKS: dict[str, dict[str, str]] = {"swing-paper": _OF_SWING, "swing-sst": _OF_SWING, "swing-hx": _OF_SWING_HX}
"""Links that belong to a preset of `sim.program.model`."""

PRESET_FABRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "swing-paper": ("tori", ("torus", "ring")), "swing-sst": ("tori", ("torus", "ring", "hyperx")),
    "swing-hx": ("HammingMesh", ("hx",)),
}
"""What a preset was made for, and how the names of such fabrics begin."""

LINK_KEYS: dict[str, Callable[[str, str], float]] = {
    "link_bandwidth": parse_bandwidth, "link_latency": parse_time, "hop_latency": parse_time,
    "trace_latency": parse_time, "switch_latency": parse_time,
}
"""Keys of `[topology]` that say what links are, and what reads them."""

DEFAULT_SIZE = "32M"
"""The default size, that of nccl-tests."""

DEFAULT_FACTOR = 2
MAX_SIZES = 10_000

DOCUMENT = frozenset({"weft", "command", "spec", "rows"})
"""Keys of what `--json` writes, none of which is a section."""

STANDARD_INPUT = Path("-")


for _kind in SECTIONS.values():  # here, for `sim.study.keys` is loaded for every help, without numpy
    one_line(_kind)


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Spec(Sections):
    """The input of a command: a fabric, what runs on it, the model, and the command's own sections.

    Attributes
    ----------
    topology, collective, model, sweep
        An experiment: a fabric, a collective by some algorithms, a model, some sizes.
    account, library, workload, training, iteration, optimize, pool, circuits, astra, measured, calibrate, bound,
    schedule, plot, report, paper
        Further sections; see `sim.study.keys`.
    tenant : tuple of table
        Tables `[[tenant]]` of a shared fabric.

    Examples
    --------
    >>> spec = Spec.from_dict({"topology": {"spec": "torus:4x4"}, "collective": {"algorithms": ["swing"]},
    ...                        "sweep": {"begin": "1K", "end": "4K"}})
    >>> [schedule.size_bytes for schedule in spec.schedules()]
    [1024, 2048, 4096]
    """

    tenant: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    def __post_init__(self) -> None:
        for section in SECTIONS:
            keys = getattr(self, section)
            if keys is not getattr(Spec, section):  # the default, which is accepted
                for key in keys_of(section).values():
                    if (value := getattr(keys, key.name)) is not None or key.default is not None:
                        _check_value(section, key, value)
        if self.collective.algorithms is not None:
            names = tuple(map(spelled, self.collective.algorithms))
            object.__setattr__(self, "collective", replace(self.collective, algorithms=names))
        if self.model.preset is not None:
            choice(self.model.preset, PRESETS, "preset")
        choice(self.engine, ENGINES, "engine")
        choice(self.symmetry, SYMMETRY, "symmetry")
        if self.collective.root is not None and not self.kind.rooted:
            raise WeftError(f"{self.kind.name} has no root: leave out root {self.collective.root}")
        if self.collective.pairs is not None and self.kind.name != "all-to-all":
            raise WeftError(f"{self.kind.name} has one size for all: leave out pairs {self.collective.pairs!r}")
        for name, least in (("root", 0), ("element_bytes", 1)):
            if (given := getattr(self.collective, name)) is not None:
                integer(given, name, least)
        if self.account.spread is not None and not 0 <= self.account.spread <= MOST_SPREAD:
            raise WeftError(f"spread {self.account.spread} is not a number of perturbed runs from 0 to {MOST_SPREAD}")
        names, form = self.algorithms, self.collective.form
        if form is not None:
            forms = {one for name in names for one in algorithm(name).forms_of(self.kind.name)}
            if form not in forms:
                raise WeftError(
                    f"form {form!r} belongs to none of {', '.join(names)} {self.kind.name}: "
                    f"their forms are {', '.join(sorted(forms)) or 'none'}{nearest(form, forms)}"
                )
        for option in self._chosen_options:
            accepted = dict.fromkeys(option for name in names for option in algorithm(name).options)
            if option not in accepted:
                raise WeftError(
                    f"option {option!r} belongs to none of {', '.join(names)}: "
                    f"their options are {', '.join(accepted) or 'none'}{nearest(option, accepted)}"
                )

    # --- its meaning

    @staged("topology")
    def build_topology(self) -> Topology:
        """The fabric.

        WeftError: no spec is given, or it is not accepted.
        """
        keys = self.topology
        if keys.machine is not None:
            return self._with_aggregation(self._of_machine())
        if keys.spec is None:
            raise WeftError("no topology is given: write --topology torus:8x8, or spec = \"torus:8x8\" in [topology]")
        links: dict[str, str | None] = {name: getattr(keys, name) for name in LINK_KEYS}
        for name, read in LINK_KEYS.items():
            for part in () if links[name] is None else str(links[name]).split(","):
                read(part, name.replace("_", " "))  # here, for a fabric knows no links but its own
        if self.model.preset and not is_topology_file(keys.spec):
            given = {name: value for name, value in links.items() if value is not None}
            links |= PRESET_LINKS.get(self.model.preset, {}) | given
        topology = from_spec(
            keys.spec, links["link_bandwidth"], links["link_latency"], links["hop_latency"],
            trace_latency=links["trace_latency"], switch_latency=links["switch_latency"], boxes=keys.boxes,
            nvlink=keys.nvlink, nic_bandwidth=keys.nic_bandwidth,
        )
        return self._with_aggregation(topology)

    def _of_machine(self) -> Topology:
        keys = self.topology
        found, nodes = self.build_machine()
        return found.topology(
            nodes, bandwidth=keys.link_bandwidth,
            latency=DEFAULT_LATENCY if keys.link_latency is None else keys.link_latency,
            hop_latency=DEFAULT_HOP_LATENCY if keys.hop_latency is None else keys.hop_latency,
        )

    @property
    def fabric(self) -> str | None:
        """The topology, the machine, or the network whose bandwidths are asked for, as it was named."""
        if self.optimize.network is not None:
            return ",".join(self.optimize.network)
        return self.topology.spec if self.topology.machine is None else self.topology.machine

    @cached_property
    def fabric_file(self) -> str:
        """The file with the fabric or the machine; "" for a family and for a machine that weft knows."""
        machine = self.topology.machine
        if machine is None:
            name = self.topology.spec or ""
            return name if is_topology_file(name) else ""
        return next((name for name in (machine, machine.rpartition(":")[0]) if name.endswith(PROFILES)), "")

    def build_machine(self) -> tuple[Machine, int]:
        """The machine and its number of nodes: that of `machine`, or of a topology that is one, such as dgx-h100:4.

        WeftError: the topology is no machine, or both are given.
        """
        keys = self.topology
        for name in ("spec", "boxes", "nvlink", "nic_bandwidth", "trace_latency", "switch_latency"):
            if keys.machine is not None and getattr(keys, name) is not None:
                what = "a topology" if name == "spec" else name.replace("_", " ")
                raise WeftError(f"machine {keys.machine!r} cannot be combined with {what}: omit one")
        named = self.fabric
        if named is None:
            raise WeftError("no machine is given: write --machine dgx-h100:4, or a profile FILE.toml:4")
        found: tuple[Machine, int] = later("topologies.machines.profile:machine_and_nodes")(named)
        return found

    def _with_aggregation(self, topology: Topology) -> Topology:
        """The fabric with units that add up at the given rate: behind switches, or routers where there are none."""
        keys = self.topology
        if keys.aggregation_rate is None:
            for name in ("aggregation_per", "aggregation_latency"):
                if getattr(keys, name) is not None:
                    raise WeftError(f"[topology] {name} needs --aggregation-rate as well")
            return topology
        nodes = None if np.any(topology.kind == SWITCH) else range(topology.n_npus)
        return with_reduction_units(
            topology, keys.aggregation_rate, per=keys.aggregation_per or "switch",
            latency=keys.aggregation_latency or 0, nodes=nodes,
        )

    def build_model(self) -> Model:
        """The model: that of the preset, changed by what is given; where chunks are chosen, the first that is tried.

        Mismatch: of values that are not accepted together.
        """
        return self._model

    @cached_property
    def _model(self) -> Model:
        keys, account = self.model, self.account
        if self.engine == "fluid":
            for name, value in {"chunks": None if keys.chunks in (1, AUTO) else keys.chunks,
                                "why": account.why or None, "spread": account.spread or None}.items():
                check_flows_have_no(name, value)
        chunks = {"chunks": DEFAULT_CHUNKS} if keys.chunks == AUTO else {}
        given = {name: getattr(keys, name) for name in OPTIONS} | chunks
        found = make_model(PRESETS[keys.preset] if keys.preset else Model(), **given)
        return model_of(self.engine, found, keys.preset)

    @property
    def preset_notes(self) -> list[str]:
        """That the preset was made for another fabric, and which are for this one; nothing where it was made for it."""
        family, preset = (self.fabric or "").partition(":")[0], self.model.preset
        if preset not in PRESET_FABRICS or family.startswith(PRESET_FABRICS[preset][1]):
            return []
        made = [name for name, (_, begins) in PRESET_FABRICS.items() if family.startswith(begins)]
        better = f" ({', '.join(made)})" if made else ""
        return [f"preset {preset} is of {PRESET_FABRICS[preset][0]}: {family} has other links and endpoints{better}"]

    @property
    def chooses(self) -> bool:
        """Whether chunks, discipline and trees are chosen for each point; see `sim.study.choice`."""
        return self.model.chunks == AUTO and self.engine not in WITHOUT_CHUNKS

    def choosing(self) -> Spec:
        """The same spec with chunks chosen for each point, unless it or its preset says how transfers are cut."""
        keys = self.model
        given = any(one is not None for one in (keys.chunks, keys.chunk, keys.preset))
        return self if given or self.engine in WITHOUT_CHUNKS else replace(self, model=replace(keys, chunks=AUTO))

    def build_faults(self) -> FaultPlan | None:
        """The fault plan; None if there is none.

        WeftError: the file cannot be read, or is not a plan.
        """
        plan = self.model.faults
        return _read_plan(plan, stamp_of(plan)) if isinstance(plan, str) else plan

    @property
    def kind(self) -> Collective:
        """The collective; default: that of the first algorithm that is a file, or all-reduce."""
        files = [name for name in self.collective.algorithms or () if name.endswith(SUFFIX)]
        if self.collective.name is None and files:
            return collective(next(iter(algorithm(files[0]).functions)))
        return collective(self.collective.name or "all-reduce")

    @property
    def messages(self) -> bool:
        """Whether a library is asked for messages (sendrecv of nccl-tests), which are no collective."""
        return self.library.name is not None and self.collective.name in ("sendrecv", "send/recv")

    @cached_property
    def algorithms(self) -> tuple[str, ...]:
        """Names of the algorithms; default: all for the collective."""
        if self.messages:
            return ()
        named = self.collective.algorithms
        if named is None:
            return algorithms_for(self.kind.name, pairs=self.collective.pairs is not None)
        of_jobs = self.workload.name or self.workload.job or self.iteration.model
        for place, name in enumerate(named):
            for one in name.split("+") if of_jobs else (name,):  # each collective takes the first that has it
                algorithm(one)
            if name in named[:place]:
                raise WeftError(f"algorithm {told(name)} is given twice")
            if alike := [one for one in named[:place] if called(one) == called(name)]:
                raise WeftError(f"{alike[0]} and {name} have the same file name, by which results call them")
        return named

    @property
    def engine(self) -> str:
        """The engine that runs it."""
        return self.model.engine or "chunk"

    @property
    def symmetry(self) -> str:
        """What is made of symmetries."""
        return self.model.symmetry or "auto"

    @cached_property
    def sizes_bytes(self) -> tuple[int, ...]:
        """The sizes to run."""
        return sweep_sizes(self.sweep)

    def forms_of(self, name: str) -> tuple[str, ...]:
        """Forms of an algorithm to choose from: the one of the spec, or all; empty for no choice."""
        forms = algorithm(name).forms_of(self.kind.name)
        return (self.collective.form,) if forms and self.collective.form else forms

    def unasked(self, name: str, topology: Topology) -> str:
        """Why an algorithm does not run on a fabric that nobody named; empty if it does, or is named."""
        reduces = {"": True, "all": topology.says_it_reduces, "boxes": topology.boxes_reduce}
        if self.collective.algorithms is None and not reduces[algorithm(name).reducing]:
            return (f"{topology.name} does not say that its switches reduce; give --aggregation-rate, or name {name} "
                    "to run it all the same")
        if self.collective.algorithms is None and algorithm(name).is_long(topology):
            return f"{name} takes long to build on {topology.n_npus:,} NPUs; name it to run it all the same"
        return ""

    def build_schedule(
        self, name: str, topology: Topology, size: Quantity, form: str | None = None, **options: object
    ) -> Schedule:
        """The schedule of one algorithm at one size; in the algorithm's default form unless one is given."""
        if why := self.unasked(name, topology):
            raise WeftError(why)
        return build(name, self.kind.name, topology, size, form, **self.options_of(name) | options)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element; blocks are padded to a multiple of it."""
        return ELEMENT_BYTES if self.collective.element_bytes is None else self.collective.element_bytes

    def options_of(self, name: str) -> dict[str, object]:
        """Options of an algorithm for `collectives.build`: those of the spec that it takes."""
        taken = algorithm(name).options
        options = {option: value for option, value in self._chosen_options.items() if option in taken}
        options["element_bytes"] = self.element_bytes
        if self.collective.root is not None:
            options["root"] = self.collective.root
        if self.collective.pairs is not None:
            options["pairs"] = self.collective.pairs
        return options

    @cached_property
    def _chosen_options(self) -> dict[str, object]:
        chosen: dict[str, object] = {}
        for text in self.collective.options or ():
            name, value = parse_option(text)
            if name in chosen:
                raise WeftError(f"option {name!r} is given twice: {text!r}")
            chosen[name] = value
        return chosen

    def schedules(self) -> Iterator[Schedule]:
        """Every algorithm at every size, each in the form of the spec or the algorithm's default."""
        topology = self.build_topology()
        for name in self.algorithms:
            for size in self.sizes_bytes:
                forms = self.forms_of(name)
                yield self.build_schedule(name, topology, size, forms[0] if len(forms) == 1 else None)

    # --- its spellings

    def to_dict(self, sections: Iterable[str] = ()) -> dict[str, Any]:
        """Plain data that `from_dict` reads back.

        `sections`: written with every key that has a value, including defaults; other sections are left out. Default:
            those of an experiment, and keys that differ from their default.
        """
        chosen = tuple(sections) or tuple(
            name for name in SECTIONS if name in EXPERIMENT or getattr(self, name) != getattr(Spec, name)
        )
        data: dict[str, Any] = {}
        for section in chosen:
            if section == TENANT:
                continue
            keys = getattr(self, section)
            given = {name: getattr(keys, name) for name in keys_of(section)}
            data[section] = {name: _plain(value) for name, value in given.items() if value is not None}
        if self.tenant and (not sections or TENANT in chosen):
            data[TENANT] = [dict(table) for table in self.tenant]
        return data

    def self_contained(self) -> Spec:
        """The same spec with the fault plan itself instead of the name of a file, which may change."""
        return self.updated({"model": {"faults": self.build_faults()}}) if isinstance(self.model.faults, str) else self

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "spec") -> Spec:
        """A spec from sections of keys.

        WeftError: an unknown section or key (the message lists the accepted ones), or a value of the wrong type.
        """
        return cls().updated(changes_in(data, where))

    def at_links(self, links: Mapping[str, Any]) -> Spec:
        """The same spec at other links, by `LINK_KEYS`; what its other keys mean is not found out anew."""
        for name, value in links.items():
            _check_value("topology", keys_of("topology")[name], value)
        found: Spec = object.__new__(Spec)
        vars(found).update(vars(self) | {"topology": replace(self.topology, **links)})
        return found

    @classmethod
    def read(cls, path: str | Path) -> Spec:
        """A spec from a TOML file, or from a result's JSON file, to run it again.

        WeftError: the file cannot be read, is neither, or has an unknown key.
        """
        return cls.from_dict(read_sections(Path(path)), f"spec file {path}")

    def updated(self, changes: Mapping[str, Any]) -> Spec:
        """The same spec with other values of some keys, by section; a chunk size replaces a number and vice versa."""
        sections: dict[str, Any] = {}
        for section, values in changes.items():
            if section == TENANT:
                sections[section] = tuple(values)
                continue
            keys = getattr(self, section)
            if section == "model" and "chunk" in values and "chunks" not in values:
                keys = replace(keys, chunks=None)
            if section == "model" and "chunks" in values and "chunk" not in values:
                keys = replace(keys, chunk=None)
            sections[section] = replace(keys, **values)
        return replace(self, **sections)


@lru_cache(maxsize=64)
def _read_plan(path: str, stamp: tuple[int | bytes, ...]) -> FaultPlan:
    """The plan in a file; read again if the file has changed."""
    return FaultPlan.read(path)


def changes_in(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a file by section, as `Spec.updated` takes them.

    WeftError: an unknown section or key, or a section that is not a table.
    """
    _check_keys(data, (*SECTIONS, TENANT), where, "section")
    changes: dict[str, Any] = {}
    for section, keys in data.items():
        if section == TENANT:
            changes[section] = _tables(keys, where)
            continue
        if not isinstance(keys, Mapping):
            raise WeftError(f"{where}: [{section}] is {keys!r}: give keys and values")
        _check_keys(keys, keys_of(section), f"{where}: [{section}]", "key")
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in keys.items()}
        plan = values.get("faults")
        if section == "model" and isinstance(plan, Mapping):
            values["faults"] = FaultPlan.from_dict(plan, f"{where}: [model.faults]")
        changes[section] = values
    return changes


def _tables(tables: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(tables, Sequence) or not all(isinstance(table, Mapping) for table in tables):
        raise WeftError(f"{where}: tenant is {told(tables)}: write it as [[tenant]] with its keys below")
    return tuple(tables)


def sweep_sizes(keys: SweepKeys) -> tuple[int, ...]:
    """Sizes from begin to end by a factor or a step; begin alone is one size.

    WeftError: a factor and a step, an end below the begin, or a sweep that does not advance.
    """
    begin = _swept(DEFAULT_SIZE if keys.begin is None else keys.begin, "-b")
    if keys.end is None:
        if keys.factor is not None or keys.step is not None:
            raise WeftError("a sweep needs its last size: give -e, or leave out -f and -i")
        return (begin,)
    end = _swept(keys.end, "-e")
    if end < begin:
        raise WeftError(f"the sweep ends at {format_size(end)}, before it begins at {format_size(begin)}")
    if keys.step is not None and keys.factor is not None:
        raise WeftError("give a factor -f or a step -i from size to size, not both")
    if keys.step is None:
        return _geometric(begin, end, DEFAULT_FACTOR if keys.factor is None else keys.factor)
    step = _swept(keys.step, "-i")
    if step < 1:
        raise WeftError(f"-i {keys.step!r} does not advance: give a step above zero")
    if (end - begin) // step >= MAX_SIZES:
        raise WeftError(f"-i {keys.step!r} makes {(end - begin) // step + 1:,} sizes: at most {MAX_SIZES:,}")
    return tuple(range(begin, end + 1, step))


def _swept(value: Quantity, flag: str) -> int:
    size = parse_size(value, flag)
    if size > MOST_BYTES:
        raise WeftError(f"{flag} {told(value)} is out of range: at most 1 EiB (2^60 B)")
    return size


def _geometric(begin: int, end: int, factor: int) -> tuple[int, ...]:
    if factor < 2:
        raise WeftError(f"-f {factor} does not advance: give an integer factor of at least 2")
    if begin == 0 and end > 0:
        raise WeftError("-b 0 does not advance by a factor: begin above zero, or give a step -i")
    sizes = [begin]
    while begin and sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def _check_keys(data: Mapping[str, Any], accepted: Mapping[str, Any] | tuple[str, ...], where: str, what: str) -> None:
    for key in data:
        if key not in accepted:
            raise WeftError(f"{where} has the unknown {what} {key!r}: accepted are {', '.join(accepted)}")


def _check_headed(data: Mapping[str, Any], where: str) -> None:
    """Reject keys with values where sections are expected."""
    for key, value in data.items():
        tables = value if isinstance(value, list) else [value]
        if key not in (*SECTIONS, TENANT) and not all(isinstance(table, Mapping) for table in tables):
            heading = next((section for section in SECTIONS if key in keys_of(section)), next(iter(SECTIONS)))
            raise WeftError(f"{where}: {told(key)} is in no section: a heading such as [{heading}] is missing above it")


def _plain(value: Any) -> Any:
    if isinstance(value, FaultPlan):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def _check_value(section: str, key: Field[Any], value: Any) -> None:
    kind = KINDS[key.metadata["kind"]]
    if not kind.accepts(value):
        raise WeftError(f"[{section}] {key.name} is {told(_plain(value))}: {kind.wanted}")
    if key.metadata["choices"]:
        choice(value, key.metadata["choices"], f"[{section}] {key.name}")


def read_sections(
    path: Path, what: str = "spec file", command: str | None = None, commands: Iterable[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Mapping[str, Any]:
    """The sections of a TOML file, or of a result's JSON, with absolute paths: files are named relative to this one.

    `path`: "-" is standard input.
    `what`: begins every error message.
    `command`: that wrote a result; default: any of the `commands`.
    `note`: told if another weft wrote a result.
    WeftError: the file cannot be read, is neither, gives a key twice, or was written by another command.
    """
    name, text = f"{what} {path}", read_input("/dev/stdin" if path == STANDARD_INPUT else path, what)
    is_json = path.suffix == ".json" or (path == STANDARD_INPUT and text.lstrip().startswith("{"))
    data = parse_json(text, name) if is_json else parse_toml(text, name)
    if not isinstance(data, Mapping):
        raise WeftError(f"{name} is not a spec: it has the sections {', '.join(SECTIONS)}")
    if isinstance(data.get("spec"), Mapping) or not DOCUMENT.isdisjoint(data.keys() - {"spec"}):
        wrote, weft = data.get("command", command), data.get("weft")
        if command not in (None, wrote):
            wrote = choice(wrote, commands, f"{name}: command")
            raise WeftError(f"{name} was written by weft {wrote}: run weft {wrote} --spec {path}")
        if not isinstance(data.get("spec"), Mapping):
            given = f"its spec is {told(data['spec'])}" if "spec" in data else "it has no spec"
            raise WeftError(f"{name} is a result that cannot run again: {given}, and sections of keys are expected")
        if weft != weft_version():
            by = "does not say which weft wrote it" if weft is None else f"was written by weft {told(weft)}"
            note(f"{name} {by}: this is {weft_version()}, whose results may differ")
        data = data["spec"]
    _check_headed(data, name)
    data = {section: _by_names(section, keys, name) for section, keys in data.items()}
    return with_paths_from(path.parent if path.is_file() else Path(), data)  # a pipe has no folder of its own


def _by_names(section: str, keys: Any, where: str) -> Any:
    """A section whose keys may be called as their flags are: comm_group, size."""
    if section not in SECTIONS or not isinstance(keys, Mapping):
        return keys
    own = keys_of(section)
    names = {flag.lstrip("-").replace("-", "_"): str(name) for name, one in own.items() for flag in flags_of(one)}
    found: dict[str, Any] = {}
    for key, value in keys.items():
        name = str(key) if key in own else names.get(str(key), str(key))
        if name in found:
            raise WeftError(f"{where}: [{section}] gives {name!r} twice")
        found[name] = value
    return found
