"""An experiment in one spec, with three spellings: a TOML file, flags of the command line, a frozen object.

The fields below are the one table of all keys. A key `link_bandwidth` of the section `[topology]` is the flag
`--link-bandwidth` and the attribute `spec.topology.link_bandwidth`. A key that is not given is None, and takes the
value of the preset, if one is named, or the default that its help states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from collectives import ELEMENT_BYTES, Schedule, algorithm, algorithms_for, build
from collectives.core.collective import Collective, collective
from sim.faults.plan import FaultPlan
from sim.program import check_choice
from sim.program.model import ENGINES, PRESETS, SYMMETRY, Model, make_model
from sim.program.options import parse_option
from topologies import SWITCH, Topology, WeftError, from_spec, with_reduction_units
from topologies.formats.files import SUFFIXES
from topologies.text.brief import one_line
from topologies.text.input_text import read_input
from topologies.text.plain_data import parse_json, read_toml
from topologies.units import Quantity, format_size, parse_size, parse_sweep_size

PRESET_LINKS: dict[str, dict[str, str]] = {
    "swing-paper": {"link_bandwidth": "400Gb/s", "link_latency": "100ns", "hop_latency": "300ns"}
}
"""Links that a preset of `sim.program.model` goes with."""

DEFAULT_SIZE = "32M"
"""The size of nccl-tests where none is given."""

DEFAULT_FACTOR = 2
MAX_SIZES = 10_000


def _text(help: str, metavar: str, flags: tuple[str, ...] = ()) -> Any:
    return field(default=None, metadata={"kind": "text", "help": help, "metavar": metavar, "flags": flags})


def _whole(help: str, metavar: str = "N", flags: tuple[str, ...] = ()) -> Any:
    return field(default=None, metadata={"kind": "whole", "help": help, "metavar": metavar, "flags": flags})


def _size(help: str, flags: tuple[str, ...]) -> Any:
    return field(default=None, metadata={"kind": "size", "help": help, "metavar": "SIZE", "flags": flags})


def _names(help: str, metavar: str, flags: tuple[str, ...]) -> Any:
    return field(default=None, metadata={"kind": "names", "help": help, "metavar": metavar, "flags": flags})


def _options(help: str, flags: tuple[str, ...]) -> Any:
    return field(default=None, metadata={"kind": "options", "help": help, "metavar": "NAME=VALUE", "flags": flags})


def _plan(help: str) -> Any:
    return field(default=None, metadata={"kind": "plan", "help": help, "metavar": "FILE", "flags": ()})


@one_line
@dataclass(frozen=True, kw_only=True)
class TopologyKeys:
    """Section `[topology]`: the fabric."""

    spec: str | None = _text("the fabric: torus:8x8, RI(4)_SW(8), ..., or a file (docs/guides/formats.md)", "SPEC|FILE",
                             ("--topology",))
    link_bandwidth: str | None = _text("of one direction of every cable, or one a dimension (400Gb/s)", "RATE[,RATE]")
    link_latency: str | None = _text("of every cable, or one a dimension (100ns)", "TIME[,TIME]")
    hop_latency: str | None = _text("of every switch or router passed (300ns)", "TIME")
    boxes: int | None = _whole("copies of the box of an NCCL topology file, joined by a switch for each NIC (1)")
    nvlink: str | None = _text("generation of NVLink, 1 to 5, for a table of nvidia-smi topo -m", "GEN")
    aggregation_rate: str | None = _text("at which switches, or routers where there are none, add up (any)", "RATE")
    aggregation_per: str | None = _text("what has that rate: switch or port (switch)", "WHAT")
    aggregation_latency: str | None = _text("of adding up (0s); give a rate as well", "TIME")


@one_line
@dataclass(frozen=True, kw_only=True)
class CollectiveKeys:
    """Section `[collective]`: what must move, and by which algorithms."""

    name: str | None = _text("all-reduce, reduce-scatter, all-gather, ... (all-reduce)", "NAME", ("--collective",))
    algorithms: tuple[str, ...] | None = _names("comma-separated (all that can run)", "NAME[,NAME]",
                                                ("--algorithms", "--algorithm"))
    form: str | None = _text("form of algorithms that have several (the better one at each size)", "NAME")
    options: tuple[str, ...] | None = _options("of the algorithms that take it (docs/reference/algorithms.md), such as "
                                               "trees=2; again for another", ("--option",))
    root: int | None = _whole("root of a broadcast or a reduce (0)", "RANK")
    element_bytes: int | None = _whole("blocks are padded to whole elements (4)", "BYTES")


@one_line
@dataclass(frozen=True, kw_only=True)
class ModelKeys:
    """Section `[model]`: what the simulation assumes; see `sim.program.model.Model`."""

    preset: str | None = _text("a published set-up to start from: " + ", ".join(PRESETS), "NAME")
    forwarding: str | None = _text("cut-through or store-and-forward (cut-through)", "MODE")
    deliver: str | None = _text("what counts as delivery of a chunk, tail or head (tail)", "END")
    chunk: str | None = _text("size of a chunk; or give --chunks", "SIZE")
    chunks: int | None = _whole("chunks a transfer (16)")
    header: str | None = _text("added to every transfer (0B)", "SIZE")
    packet_header: str | None = _text("added to every chunk (0B)", "SIZE")
    endpoint_latency: str | None = _text("time a transfer spends outside the links (0s)", "TIME")
    tie: str | None = _text("of equal routes: first, split, alternating or ecmp (first)", "RULE")
    discipline: str | None = _text("fifo, priority, smallest-first or lowest-chunk-first (fifo)", "NAME")
    engine: str | None = _text("chunk, reference or analytic (chunk)", "NAME")
    symmetry: str | None = _text("auto or off: simulate representatives, or all ranks (auto)", "auto|off")
    seed: int | None = _whole("of whatever is random (0)")
    faults: str | FaultPlan | None = _plan("a fault plan in TOML: what goes wrong, and when (docs/guides/faults.md)")


@one_line
@dataclass(frozen=True, kw_only=True)
class SweepKeys:
    """Section `[sweep]`: sizes, as nccl-tests writes and counts them."""

    begin: str | int | None = _size("first size, suffix K, M or G base 2 (32M); alone, the only one", ("-b", "--begin"))
    end: str | int | None = _size("last size", ("-e", "--end"))
    factor: int | None = _whole("from one size to the next (2)", "N", ("-f", "--factor"))
    step: str | int | None = _size("from one size to the next, instead of a factor", ("-i", "--step"))


@one_line
@dataclass(frozen=True, kw_only=True)
class Spec:
    """An experiment: a fabric, a collective by some algorithms, a model, some sizes.

    Attributes
    ----------
    topology : TopologyKeys
    collective : CollectiveKeys
    model : ModelKeys
    sweep : SweepKeys

    Examples
    --------
    >>> spec = Spec.from_dict({"topology": {"spec": "torus:4x4"}, "collective": {"algorithms": ["swing"]},
    ...                        "sweep": {"begin": "1K", "end": "4K"}})
    >>> [schedule.size_bytes for schedule in spec.schedules()]
    [1024, 2048, 4096]
    """

    topology: TopologyKeys = TopologyKeys()
    collective: CollectiveKeys = CollectiveKeys()
    model: ModelKeys = ModelKeys()
    sweep: SweepKeys = SweepKeys()

    def __post_init__(self) -> None:
        for section in SECTIONS:
            keys = getattr(self, section)
            for key in fields(keys):
                _check_type(section, key, getattr(keys, key.name))
        preset = self.model.preset
        if preset is not None and preset not in PRESETS:
            raise WeftError(f"preset {preset!r} is unknown: choose one of {', '.join(PRESETS)}")
        check_choice(self.engine, ENGINES, "engine")
        check_choice(self.symmetry, SYMMETRY, "symmetry")
        if self.collective.root is not None and not self.kind.rooted:
            raise WeftError(f"{self.kind.name} has no root: leave out root {self.collective.root}")
        form = self.collective.form
        forms = {one for name in self.algorithms for one in algorithm(name).forms_of(self.kind.name)}
        if form is not None and form not in forms:
            raise WeftError(
                f"form {form!r} belongs to none of {', '.join(self.algorithms)} {self.kind.name}: "
                f"their forms are {', '.join(sorted(forms)) or 'none'}"
            )
        accepted = dict.fromkeys(option for name in self.algorithms for option in algorithm(name).options)
        for option in self._chosen_options:
            if option not in accepted:
                raise WeftError(
                    f"option {option!r} belongs to none of {', '.join(self.algorithms)}: "
                    f"their options are {', '.join(accepted) or 'none'}"
                )

    # --- what it stands for

    def build_topology(self) -> Topology:
        """The fabric.

        Raises
        ------
        WeftError
            No spec is given, or it is not accepted.
        """
        keys = self.topology
        if keys.spec is None:
            raise WeftError("no topology is given: write --topology torus:8x8, or spec = \"torus:8x8\" in [topology]")
        links: dict[str, str | None] = {
            name: getattr(keys, name) for name in ("link_bandwidth", "link_latency", "hop_latency")
        }
        if self.model.preset and not keys.spec.endswith(SUFFIXES):
            given = {name: value for name, value in links.items() if value is not None}
            links |= PRESET_LINKS.get(self.model.preset, {}) | given
        topology = from_spec(
            keys.spec, links["link_bandwidth"], links["link_latency"], links["hop_latency"], boxes=keys.boxes,
            nvlink=keys.nvlink,
        )
        return self._with_aggregation(topology)

    def _with_aggregation(self, topology: Topology) -> Topology:
        """The fabric with units that add up at the given rate: behind switches, or routers where there are none."""
        keys = self.topology
        if keys.aggregation_rate is None:
            for name in ("aggregation_per", "aggregation_latency"):
                if getattr(keys, name) is not None:
                    raise WeftError(f"[topology] {name} needs an aggregation_rate as well")
            return topology
        nodes = None if np.any(topology.kind == SWITCH) else range(topology.n_npus)
        return with_reduction_units(
            topology, keys.aggregation_rate, per=keys.aggregation_per or "switch",
            latency=keys.aggregation_latency or 0, nodes=nodes,
        )

    def build_model(self) -> Model:
        """The model: that of the preset, changed by what is given."""
        keys = self.model
        base = PRESETS[keys.preset] if keys.preset else Model()
        headers = {"header_bytes": keys.header, "packet_header_bytes": keys.packet_header}
        return make_model(
            base, chunk=keys.chunk, chunks=keys.chunks, endpoint_latency=keys.endpoint_latency,
            forwarding=keys.forwarding, deliver=keys.deliver, tie=keys.tie, discipline=keys.discipline, seed=keys.seed,
            **{name: parse_size(text, name) for name, text in headers.items() if text is not None},
        )

    def build_faults(self) -> FaultPlan | None:
        """What goes wrong; None where nothing does.

        Raises
        ------
        WeftError
            The file cannot be read, or is not a plan.
        """
        plan = self.model.faults
        return FaultPlan.read(plan) if isinstance(plan, str) else plan

    @property
    def kind(self) -> Collective:
        """The collective; all-reduce unless given."""
        return collective(self.collective.name or "all-reduce")

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names of the algorithms, those that do the collective unless given."""
        named = self.collective.algorithms
        for name in named or ():
            algorithm(name)
        return algorithms_for(self.kind.name) if named is None else named

    @property
    def engine(self) -> str:
        return self.model.engine or "chunk"

    @property
    def symmetry(self) -> str:
        return self.model.symmetry or "auto"

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """The sizes of the sweep, ascending."""
        return sweep_sizes(self.sweep)

    def forms_of(self, name: str) -> tuple[str, ...]:
        """Forms of an algorithm to choose from: the one of the spec, or all; empty where there is no choice."""
        forms = algorithm(name).forms_of(self.kind.name)
        return (self.collective.form,) if forms and self.collective.form else forms

    def build_schedule(self, name: str, topology: Topology, size: Quantity, form: str | None = None) -> Schedule:
        """The schedule of one algorithm at one size; in the algorithm's default form unless one is given."""
        return build(name, self.kind.name, topology, size, form, **self.options_of(name))

    @property
    def element_bytes(self) -> int:
        """Bytes of an element, to whole ones of which blocks are padded."""
        return ELEMENT_BYTES if self.collective.element_bytes is None else self.collective.element_bytes

    def options_of(self, name: str) -> dict[str, object]:
        """Options of an algorithm for `collectives.build`: of those of the spec, the ones that it takes."""
        taken = algorithm(name).options
        options = {option: value for option, value in self._chosen_options.items() if option in taken}
        options["element_bytes"] = self.element_bytes
        if self.collective.root is not None:
            options["root"] = self.collective.root
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

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain data, without the keys that are not given; `from_dict` reads it back."""
        data: dict[str, dict[str, Any]] = {}
        for section in SECTIONS:
            keys = getattr(self, section)
            given = {key.name: getattr(keys, key.name) for key in fields(keys) if getattr(keys, key.name) is not None}
            data[section] = {name: _plain(value) for name, value in given.items()}
        return data

    def self_contained(self) -> Spec:
        """The same spec with its fault plan itself in place of the name of a file, which may change."""
        return self.updated({"model": {"faults": self.build_faults()}})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "spec") -> Spec:
        """A spec from sections of keys.

        Raises
        ------
        WeftError
            An unknown section or key (the message lists the accepted ones), or a value of the wrong type.
        """
        _check_keys(data, SECTIONS, where, "section")
        sections: dict[str, Any] = {}
        for section, keys in data.items():
            if not isinstance(keys, Mapping):
                raise WeftError(f"{where}: [{section}] is {keys!r}: give keys and values")
            _check_keys(keys, accepted_keys(section), f"{where}: [{section}]", "key")
            values = {name: tuple(value) if isinstance(value, list) else value for name, value in keys.items()}
            plan = values.get("faults")
            if section == "model" and isinstance(plan, Mapping):
                values["faults"] = FaultPlan.from_dict(plan, f"{where}: [model.faults]")
            sections[section] = SECTIONS[section](**values)
        return cls(**sections)

    @classmethod
    def read(cls, path: str | Path) -> Spec:
        """A spec from a TOML file, or from a result's JSON file, to run it again.

        Raises
        ------
        WeftError
            The file cannot be read, is neither, or has an unknown key.
        """
        return cls.from_dict(read_sections(Path(path)), f"spec file {path}")

    def updated(self, changes: Mapping[str, Mapping[str, Any]]) -> Spec:
        """The same spec with other values of some keys, by section; a chunk size replaces a number and vice versa."""
        sections: dict[str, Any] = {}
        for section, values in changes.items():
            keys = getattr(self, section)
            if section == "model" and "chunk" in values and "chunks" not in values:
                keys = replace(keys, chunks=None)
            if section == "model" and "chunks" in values and "chunk" not in values:
                keys = replace(keys, chunk=None)
            sections[section] = replace(keys, **values)
        return replace(self, **sections)


SECTIONS: dict[str, type[Any]] = {
    "topology": TopologyKeys, "collective": CollectiveKeys, "model": ModelKeys, "sweep": SweepKeys,
}
"""Sections of a spec, in their order."""


def accepted_keys(section: str) -> tuple[str, ...]:
    """Names of the keys of a section."""
    return tuple(key.name for key in fields(SECTIONS[section]))


def sweep_sizes(keys: SweepKeys) -> tuple[int, ...]:
    """Sizes from begin to end by a factor or a step; begin alone is one size.

    Raises
    ------
    WeftError
        A factor and a step, an end below the begin, or a sweep that does not advance.
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
    size = parse_sweep_size(value, flag)
    if size < 0:
        raise WeftError(f"{flag} {value!r} is negative")
    return size


def _geometric(begin: int, end: int, factor: int) -> tuple[int, ...]:
    if factor < 2:
        raise WeftError(f"-f {factor} does not advance: give a whole factor of at least 2")
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


def _plain(value: Any) -> Any:
    if isinstance(value, FaultPlan):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def _check_type(section: str, key: Field[Any], value: Any) -> None:
    if value is None:
        return
    kind = key.metadata["kind"]
    whole = isinstance(value, int) and not isinstance(value, bool)
    text = isinstance(value, str)
    names = isinstance(value, tuple) and bool(value) and all(isinstance(name, str) and name for name in value)
    accepted = {
        "text": text, "whole": whole, "size": text or whole, "names": names, "options": names,
        "plan": text or isinstance(value, FaultPlan),
    }
    if not accepted[kind]:
        wanted = {
            "text": "give text, with a unit where it is a quantity", "whole": "give a whole number",
            "size": "give a number of bytes, or text such as \"8M\"", "names": "give a list of names",
            "options": "give a list of texts such as \"trees=2\"",
            "plan": "give the name of a file, or a table [model.faults]",
        }[kind]
        raise WeftError(f"[{section}] {key.name} is {value!r}: {wanted}")


def read_sections(path: Path) -> Mapping[str, Any]:
    """The sections of a TOML file, or of a result's JSON."""
    if path.suffix == ".json":
        data = parse_json(read_input(path, "spec file"), f"spec file {path}")
    else:
        data = read_toml(path, "spec file")
    if not isinstance(data, Mapping):
        raise WeftError(f"spec file {path} is not a spec: it has the sections {', '.join(SECTIONS)}")
    return data["spec"] if isinstance(data.get("spec"), Mapping) else data
