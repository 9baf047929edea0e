"""Topology files: the formats, how each is recognized, and what the caller may add."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from topologies.checks import WeftError
from topologies.core.topology import Topology
from topologies.lazy import later
from topologies.text.input_text import read_input
from topologies.units import Quantities, Quantity


class Given(NamedTuple):
    """What the caller specifies in addition to the file; None if not given."""

    bandwidth: Quantities | None = None
    latency: Quantities | None = None
    hop_latency: Quantity | None = None
    boxes: int | None = None
    nvlink: str | None = None
    nic_bandwidth: Quantity | None = None


@dataclass(frozen=True)
class FileFormat:
    """A file format."""

    name: str
    suffixes: tuple[str, ...]
    recognizes: Callable[[str], bool]  # whether the text of a file with one of the suffixes has this format
    parse: Callable[..., Topology]  # (text, file name, **what is given)
    accepts: tuple[str, ...] = ()  # fields of `Given` that the format leaves unspecified; the others are rejected
    several: bool = False  # whether it has several bandwidths


def _anything(text: str) -> bool:
    return True


def _of(name: str) -> Callable[..., Any]:
    """A function of a format, which is loaded when a file is read."""
    return later(f"topologies.formats.{name}")


_LINKS = ("bandwidth", "latency", "hop_latency")

FORMATS: tuple[FileFormat, ...] = (
    FileFormat("GraphML", (".graphml",), _anything, _of("exchange:parse_topology"), _LINKS),
    FileFormat("InfraGraph", (".yaml", ".yml", ".json"), _of("infragraph:looks_like_infragraph"),
               _of("infragraph:parse_infragraph"), _LINKS),
    FileFormat("ASTRA-sim network", (".yaml", ".yml", ".json"), _of("astra_network:looks_like_astra_network"),
               lambda text, name: _of("astra_network:parse_astra_network")(text, name).topology(name)),
    FileFormat("rocm-smi --showtopo", (".txt", ".json"), _of("rocm_smi:looks_like_rocm_smi"),
               _of("rocm_smi:parse_rocm_smi"), _LINKS, several=True),
    FileFormat("node-link JSON", (".json",), _anything, _of("exchange:parse_topology"), _LINKS),
    FileFormat("SimGrid platform XML", (".xml",), _of("simgrid:looks_like_simgrid"), _of("simgrid:parse_simgrid")),
    FileFormat("NCCL topology XML", (".xml",), _anything, _of("nccl_xml:parse_nccl_xml"),
               (*_LINKS, "boxes", "nvlink", "nic_bandwidth")),
    FileFormat("htsim topology", (".topo", ".txt"), _of("htsim_topo:looks_like_htsim"), _of("htsim_topo:parse_htsim")),
    FileFormat("ns-3 topology text", (".txt",), _of("ns3_text:looks_like_ns3"), _of("ns3_text:parse_ns3")),
    FileFormat("nvidia-smi topo -m", (".txt",), _of("nvidia_smi:looks_like_nvidia_smi"),
               _of("nvidia_smi:parse_nvidia_smi"), (*_LINKS, "nvlink"), several=True),
)
"""The registry: a file is read by the first format with its suffix that recognizes the text."""

SUFFIXES: tuple[str, ...] = tuple(dict.fromkeys(suffix for one in FORMATS for suffix in one.suffixes))
"""File suffixes that are read as a topology."""


def _format_of(text: str, name: str) -> FileFormat:
    """The format of a text.

    WeftError: it is none that is read.
    """
    candidates = [one for one in FORMATS if name.endswith(one.suffixes)]
    sure = [one for one in candidates or FORMATS if one.recognizes is not _anything and one.recognizes(text)]
    if sure:
        return sure[0]
    if taken := [one for one in candidates if one.recognizes is _anything]:
        return taken[-1]
    expected = " or ".join(one.name for one in candidates or FORMATS)
    raise WeftError(f"topology file {name} has an unknown format: expected {expected}")


def is_topology_file(spec: str) -> bool:
    """Whether a spec names a file: by its suffix, or because there is one."""
    return spec.endswith(SUFFIXES) or ("\0" not in spec and os.path.isfile(spec))


_FLAGS = {
    "bandwidth": "bandwidth", "latency": "latency", "hop_latency": "hop_latency", "boxes": "number of boxes",
    "nvlink": "NVLink generation", "nic_bandwidth": "NIC bandwidth",
}
_OF_SOME_FILES = ("boxes", "nvlink", "nic_bandwidth")


def read_topology_file(path: str | Path, given: Given = Given()) -> Topology:
    """The network described by a file of any known format.

    `path`: the suffix and the text determine the format; of other suffixes, the text alone.
    `given`: what the file leaves unspecified.
    WeftError: a file that cannot be read or has an unknown format, or a quantity that the file itself specifies.
    """
    name = str(path)
    text = read_input(path, "topology file")
    chosen = _format_of(text, name)
    named = {field: value for field, value in given._asdict().items() if value is not None}
    for field, value in named.items():
        if field not in chosen.accepts:
            why = "does not take" if field in _OF_SOME_FILES else "specifies its own"
            raise WeftError(
                f"topology file {name!r} ({chosen.name}) {why} {_FLAGS[field]}: omit {_FLAGS[field]} {value!r}"
            )
        if not isinstance(value, (str, int, float)) and not (chosen.several and field == "bandwidth"):
            raise WeftError(f"only one {field} applies to this file: give a single value, not {value!r}")
    return chosen.parse(text, name, **named)
