"""Topology families by the name a spec begins with: the one place to register a new family."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from topologies.boxes import (
    A100_BANDWIDTH,
    DGX1_BANDWIDTH,
    H100_BANDWIDTH,
    MI250_BANDWIDTH,
    dgx1,
    dgx_a100,
    dgx_h100,
    mi250,
)
from topologies.checks import WeftError, checked, nearest
from topologies.circulants import circulant
from topologies.core.extents import parse_extents
from topologies.core.links import DEFAULT_BANDWIDTH, DEFAULT_HOP_LATENCY, DEFAULT_LATENCY
from topologies.core.topology import Topology
from topologies.dragonflies import dragonfly
from topologies.formats.files import SUFFIXES, Given, is_topology_file, read_topology_file
from topologies.hamming_meshes import DEFAULT_CABLE_LATENCY, DEFAULT_ROUTER_LATENCY, hamming_mesh
from topologies.optics import EXAMPLES, parse_hybrid, parse_ocs, parse_patch_panel, parse_pod, parse_rails, parse_rotor
from topologies.products import fully_connected, hypercube, hyperx, mesh, multidim, ring, switch, torus
from topologies.random_graphs import random_regular
from topologies.text.brief import Registry, one_line
from topologies.tiers import fat_tree, leaf_spine
from topologies.twisted_tori import twisted_torus
from topologies.units import Quantities, Quantity

_HAMMING_MESH = re.compile(r"^hx([0-9]+(?:x[0-9]+)*)mesh$")
_BARE_PRODUCT = re.compile(r"^[A-Z]+\([^)]*\)(_[A-Z]+\([^)]*\))*$")


@checked
@one_line
@dataclass(frozen=True)
class Family:
    """A topology family that a spec can name.

    Attributes
    ----------
    name : str
        The part of the spec before the colon.
    build : function of (argument, bandwidth=, latency=, hop_latency=)
        Builds the network from the text after the colon.
    help : str
        One line for the command line.
    example : str
        A spec of typical size.
    samples : tuple of str
        Small specs, including degenerate ones, that every parametrized test covers.
    bandwidth : quantity or one per tier
        Default bandwidth: that of the machine, if the family models one.
    latency, hop_latency : quantity
        Defaults as well.
    one_kind : bool
        Whether all cables are alike, so that bandwidth and latency are one each.
    latencies : tuple of str
        Further latencies that `build` takes, of classes of links or nodes.
    """

    name: str
    build: Callable[..., Topology]
    help: str
    example: str
    samples: tuple[str, ...]
    bandwidth: Quantities = DEFAULT_BANDWIDTH
    latency: Quantities = DEFAULT_LATENCY
    hop_latency: Quantities = DEFAULT_HOP_LATENCY
    one_kind: bool = False
    latencies: tuple[str, ...] = ()


def _of_shape(name: str, build: Callable[..., Topology], argument: str, **links: Any) -> Topology:
    """A family whose argument is its shape, "8x8"."""
    return build(parse_extents(argument, f"{name}:{argument}"), **links)


def _of_numbers(
    name: str, build: Callable[..., Topology], counts: range, form: str, argument: str, **links: Any
) -> Topology:
    """A family whose argument is some numbers, in a form such as PORTSxHOSTS."""
    numbers = parse_extents(argument, f"{name}:{argument}")
    if len(numbers) not in counts:
        raise WeftError(f"{name}:{argument} has {len(numbers)} extents: {form}")
    return build(*numbers, **links)


def _circulant(numbers: tuple[int, ...], **links: Any) -> Topology:
    return circulant(numbers[0], numbers[1:], **links)


def _of_boards(board: str, argument: str, **links: Any) -> Topology:
    """A HammingMesh of boards of one shape: "2" for 2x2, or "2x3"."""
    what = f"hx{board}mesh:{argument}"
    boards, size = parse_extents(argument, what), parse_extents(board, what)
    return hamming_mesh(size * len(boards) if len(size) == 1 else size, boards, **links)


def _shaped(name: str, build: Callable[..., Topology]) -> partial[Topology]:
    return partial(_of_shape, name, build)  # partial functions can be pickled


def _numbered(name: str, build: Callable[..., Topology], least: int, most: int, form: str) -> partial[Topology]:
    return partial(_of_numbers, name, build, range(least, most + 1), f"write {form}")


def _counted(name: str, build: Callable[..., Topology]) -> partial[Topology]:
    return partial(_of_numbers, name, build, range(1, 2), f"{name} takes one number of NPUs")


_OF_HAMMING_MESH = ("trace_latency", "switch_latency")

_FAMILIES = (
    Family(
        "torus", _shaped("torus", torus), "a ring in every dimension", "torus:8x8",
        ("torus:1", "torus:2", "torus:3", "torus:4", "torus:1x1", "torus:1x4", "torus:2x2", "torus:2x3", "torus:4x4",
         "torus:3x5", "torus:4x2x3", "torus:2x2x2"),
    ),
    Family("ring", _counted("ring", ring), "a torus of one dimension", "ring:16", ("ring:1", "ring:2", "ring:5")),
    Family(
        "mesh", _shaped("mesh", mesh), "a torus without wrap-around links", "mesh:4x4",
        ("mesh:1", "mesh:2", "mesh:3x3", "mesh:2x4"),
    ),
    Family(
        "fc", _counted("fc", fully_connected), "every NPU connected to every other", "fc:8", ("fc:1", "fc:2", "fc:4"),
    ),
    Family(
        "switch", _counted("switch", switch), "NPUs around one switch", "switch:64",
        ("switch:1", "switch:2", "switch:4"),
    ),
    Family(
        "fat-tree", _numbered("fat-tree", fat_tree, 1, 2, "PORTS or PORTSxHOSTS"),
        "three tiers of k-port switches; k x hosts for other than k/2 hosts per edge switch",
        "fat-tree:8", ("fat-tree:2", "fat-tree:4", "fat-tree:4x3", "fat-tree:2x4"),
    ),
    Family(
        "leaf-spine", _numbered("leaf-spine", leaf_spine, 3, 3, "HOSTSxLEAVESxSPINES (hosts per leaf)"),
        "hosts per leaf x leaves x spines; two tiers of switches", "leaf-spine:16x8x4",
        ("leaf-spine:1x1x1", "leaf-spine:4x1x2", "leaf-spine:2x3x2", "leaf-spine:4x2x1"),
    ),
    Family(
        "hx2mesh", partial(_of_boards, "2"), "HammingMesh: boards of 2x2 NPUs, switches along rows and columns",
        "hx2mesh:16x16", ("hx2mesh:1x1", "hx2mesh:1x3", "hx2mesh:2x2", "hx2mesh:3x2"),
        latency=DEFAULT_CABLE_LATENCY, hop_latency=DEFAULT_ROUTER_LATENCY, latencies=_OF_HAMMING_MESH,
    ),
    Family(
        "hx4mesh", partial(_of_boards, "4"), "HammingMesh: boards of 4x4 NPUs, switches along rows and columns",
        "hx4mesh:8x8", ("hx4mesh:2x1",),
        latency=DEFAULT_CABLE_LATENCY, hop_latency=DEFAULT_ROUTER_LATENCY, latencies=_OF_HAMMING_MESH,
    ),
    Family(
        "hypercube", _counted("hypercube", hypercube), "two NPUs along every dimension", "hypercube:4",
        ("hypercube:1", "hypercube:2", "hypercube:3"),
    ),
    Family(
        "hyperx", _shaped("hyperx", hyperx), "every NPU connected to all others in its line, in every dimension",
        "hyperx:4x4", ("hyperx:1", "hyperx:3", "hyperx:3x3", "hyperx:2x4"),
    ),
    Family(
        "dragonfly", _numbered("dragonfly", dragonfly, 2, 3, "GROUPSxROUTERS or GROUPSxROUTERSxHOSTS"),
        "fully connected groups of routers, a cable between each two groups", "dragonfly:9x4",
        ("dragonfly:1x1", "dragonfly:3x2", "dragonfly:5x2", "dragonfly:3x2x2"),
    ),
    Family(
        "random-regular", _numbered("random-regular", random_regular, 2, 3, "NPUSxDEGREE or NPUSxDEGREExSEED"),
        "random cables, the same number at every NPU", "random-regular:16x4",
        ("random-regular:2x1", "random-regular:5x2", "random-regular:8x3x2"), one_kind=True,
    ),
    Family(
        "circulant", _shaped("circulant", _circulant),
        "duplex circuits to the NPUs at given jumps around a circle: the rings of TopoOpt", "circulant:16x1x5",
        ("circulant:1", "circulant:2x1", "circulant:5x1x2", "circulant:6x2x3", "circulant:12x1x5"), one_kind=True,
    ),
    Family(
        "twisted-torus", _shaped("twisted-torus", twisted_torus),
        "a torus whose wrap-around links in the short dimensions shift the long ones",
        "twisted-torus:4x4x8", ("twisted-torus:2x2x4", "twisted-torus:2x4x4"), one_kind=True,
    ),
    Family(
        "ocs", parse_ocs, "servers with optical ports behind circuit switches: SERVERSxPORTS, and options",
        EXAMPLES["ocs"], ("ocs:1x1", "ocs:4x1", "ocs:5x2,duplex", "ocs:8x2,circuits=kautz", "ocs:6x3,per-port"),
        hop_latency=0, one_kind=True,
    ),
    Family(
        "patch-panel", parse_patch_panel, "the same behind a patch panel, whose robot takes minutes",
        EXAMPLES["patch-panel"], ("patch-panel:4x2,look-ahead",), hop_latency=0, one_kind=True,
    ),
    Family(
        "hybrid", parse_hybrid, "servers on a packet switch, and with optical ports beside it: SERVERSxPORTS, options",
        EXAMPLES["hybrid"], ("hybrid:1x1", "hybrid:4x2,duplex", "hybrid:5x2,per-port"), hop_latency=0,
    ),
    Family(
        "rails", parse_rails, "boxes of GPUs; a circuit switch for the GPUs of equal place: BOXESxGPUS, options",
        EXAMPLES["rails"], ("rails:1x2", "rails:3x1", "rails:2x2", "rails:3x2x2,duplex"), H100_BANDWIDTH,
        hop_latency=0,
    ),
    Family(
        "rotor", parse_rotor, "servers whose circuits take turns whatever is asked for: SERVERSxPORTS, dwell, delay",
        EXAMPLES["rotor"], ("rotor:1x1", "rotor:2x1", "rotor:5x2"), hop_latency=0, one_kind=True,
    ),
    Family(
        "pod", parse_pod, "a slice of cubes of 4x4x4 chips, whose faces circuits join to a torus, or a twisted one",
        EXAMPLES["pod"], ("pod:4x4x4",), one_kind=True,
    ),
    Family(
        "dgx-a100", _counted("dgx-a100", dgx_a100), "boxes of 8 GPUs around an NVSwitch, two InfiniBand switches",
        "dgx-a100:2", ("dgx-a100:1", "dgx-a100:2"), A100_BANDWIDTH,
    ),
    Family(
        "dgx-h100", _counted("dgx-h100", dgx_h100), "boxes of 8 GPUs around an NVSwitch, one rail per GPU index",
        "dgx-h100:2", ("dgx-h100:1", "dgx-h100:2"), H100_BANDWIDTH,
    ),
    Family(
        "dgx1", _counted("dgx1", dgx1), "boxes of 8 V100s whose NVLinks form a cube mesh", "dgx1:1",
        ("dgx1:1", "dgx1:2"), DGX1_BANDWIDTH,
    ),
    Family(
        "mi250", _counted("mi250", mi250), "boxes of 16 GCDs connected by xGMI links, one InfiniBand switch", "mi250:2",
        ("mi250:1", "mi250:2"), MI250_BANDWIDTH,
    ),
    Family(
        "multidim", multidim, "a product of rings RI, fully connected FC, switches SW and lines LI",
        "multidim:RI(4)_FC(8)_SW(32)",
        ("multidim:RI(4)_SW(2)", "multidim:SW(2)_RI(3)", "multidim:RI(1)_SW(3)", "multidim:SW(2)_SW(3)",
         "multidim:FC(3)_LI(2)_SW(1)", "multidim:RI(2)_FC(2)_SW(2)"),
    ),
)

OWN_FAMILIES = frozenset(_FAMILIES)
"""Weft's own, whose fabrics are the same each time."""

TOPOLOGIES = Registry("families of fabrics", {family.name: family for family in _FAMILIES})
"""The registry: a family added here appears on the command line, in the tests and in the tables."""


@checked
def from_spec(
    spec: str, bandwidth: Quantities | None = None, latency: Quantities | None = None,
    hop_latency: Quantity | None = None, *, trace_latency: Quantities | None = None,
    switch_latency: Quantity | None = None, boxes: int | None = None, nvlink: str | None = None,
    nic_bandwidth: Quantity | None = None,
) -> Topology:
    """Build the network named by a spec.

    Parameters
    ----------
    spec : str
        A family and its extents ("torus:8x8", "hx2mesh:16x16"), a product ("RI(4)_FC(8)_SW(32)"), or a file
        (`topologies.formats.files`).
    bandwidth, latency : quantity or one per dimension, optional
        Per direction of every cable. For a file, only what it does not specify itself.
    hop_latency : quantity, optional
        Added on every arrival at a switch or router.
    trace_latency : quantity or one per dimension, optional
        Of the links on the boards of a HammingMesh, whose cables have the other latency.
    switch_latency : quantity, optional
        Added on arrival at a switch of a HammingMesh, instead of the hop latency.
    boxes : int, optional
        Copies of the box described by an NCCL topology file.
    nvlink : str, optional
        NVLink generation for a table of `nvidia-smi topo -m`, or for an NCCL topology without GPUs, then also "none".
    nic_bandwidth : quantity, optional
        Of each NIC of an NCCL topology that says nothing of its NICs.

    Raises
    ------
    WeftError
        An unknown family, bad extents or quantities, more links than fit in memory, or a quantity that the file
        specifies itself.
    """
    spec = spec.strip()
    of_class = {"trace_latency": trace_latency, "switch_latency": switch_latency}
    classes = {what: value for what, value in of_class.items() if value is not None}
    if is_topology_file(spec):
        _refuse_latencies(spec, classes, ())
        return read_topology_file(spec, Given(bandwidth, latency, hop_latency, boxes, nvlink, nic_bandwidth))
    for what, value in (("boxes", boxes), ("nvlink", nvlink), ("nic bandwidth", nic_bandwidth)):
        if value is not None:
            raise WeftError(f"topology {spec!r} is not a file: omit {what} {value!r}")
    name, _, argument = spec.partition(":")
    if _BARE_PRODUCT.match(spec):
        name, argument = "multidim", spec
    family = TOPOLOGIES.get(name)
    if board := _HAMMING_MESH.match(name):
        family = family or replace(TOPOLOGIES["hx2mesh"], build=partial(_of_boards, board[1]), example=f"{name}:4x4")
    if family is None and os.path.isdir(spec):
        raise WeftError(f"topology {spec!r} is a folder: name a file {', '.join(SUFFIXES)}, or a fabric as torus:8x8")
    if family is None:
        raise WeftError(f"topology {spec!r} is unknown: choose one of {_accepted()}{nearest(name, TOPOLOGIES)}")
    if not argument:
        raise WeftError(f"topology {spec!r} has no size: write {family.example}")
    _refuse_latencies(spec, classes, family.latencies)
    bandwidth = family.bandwidth if bandwidth is None else bandwidth
    latency = family.latency if latency is None else latency
    for what, given in (("bandwidth", bandwidth), ("latency", latency)):
        if family.one_kind and not isinstance(given, (str, int, float)):
            raise WeftError(f"{spec} has one kind of cable: give one {what}, not {given!r}")
    hop = family.hop_latency if hop_latency is None else hop_latency
    return family.build(argument, bandwidth=bandwidth, latency=latency, hop_latency=hop, **classes)


def _refuse_latencies(spec: str, given: dict[str, Any], taken: tuple[str, ...]) -> None:
    for name, value in given.items():
        if name not in taken:
            what = name.replace("_", " ")
            raise WeftError(f"topology {spec!r} is no HammingMesh: omit {what} {value!r}")


def _accepted() -> str:
    return ", ".join(family.example for family in TOPOLOGIES.values()) + f", or a file {', '.join(SUFFIXES)}"
