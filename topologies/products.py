"""Products of one-dimensional blocks: ring, torus, mesh, hypercube, fully connected, HyperX, switch, and any mixture.

Each builder names a product and its blocks; `topologies.core.product` builds and routes all of them alike.
"""

import re
from collections.abc import Callable, Sequence
from typing import Unpack

from topologies.checks import WeftError, checked
from topologies.core.blocks import Block, FullyConnected, Line, Ring, Switched
from topologies.core.extents import check_extents, format_extents, parse_extent
from topologies.core.links import Links
from topologies.core.product import build_product
from topologies.core.topology import Topology

BLOCKS: dict[str, Callable[[int], Block]] = {"RI": Ring, "FC": FullyConnected, "SW": Switched, "LI": Line}
"""Block names in a spec."""

MOST_DIMENSIONS = 30
"""Of a hypercube: nodes are numbered with int32."""

_BLOCK = re.compile(r"^([A-Z]+)\(([^()]*)\)$")


@checked
def ring(n: int, **links: Unpack[Links]) -> Topology:
    """`n` NPUs in a ring; two NPUs share one cable, a single NPU has none.

    Parameters
    ----------
    n : int
        Number of NPUs.
    bandwidth, latency : quantity
        Per direction of every cable.
    hop_latency : quantity
        Added on every arrival at an NPU, which contains a router.

    Raises
    ------
    WeftError
        Fewer than one NPU, a bad quantity, or more links than fit in memory.
    """
    return _alike("ring", Ring, n, links)


@checked
def torus(shape: int | Sequence[int], **links: Unpack[Links]) -> Topology:
    """A torus of any number of dimensions: `torus((8, 8))` has 64 NPUs and 256 links.

    Along an extent of 1 there are no links; of 2 one cable (two links); of 3 and more a ring.

    Parameters
    ----------
    shape : int or sequence of int
        Extents; dimension 0 varies fastest in the rank.
    bandwidth, latency : quantity or one per dimension
        Per direction of every cable of a dimension.
    hop_latency : quantity
        Added on every arrival at an NPU, which contains a router.

    Raises
    ------
    WeftError
        An extent below 1, a bad quantity, or more links than fit in memory.
    """
    return _alike("torus", Ring, shape, links)


@checked
def mesh(shape: int | Sequence[int], **links: Unpack[Links]) -> Topology:
    """A mesh of any number of dimensions: `mesh((3, 3))` has 9 NPUs and 24 links.

    Parameters and errors as for `torus`.
    """
    return _alike("mesh", Line, shape, links)


@checked
def hypercube(dimensions: int, **links: Unpack[Links]) -> Topology:
    """A hypercube: `hypercube(4)` has 16 NPUs, each cabled to the NPUs whose rank differs in one bit.

    Dimension 0 is the lowest bit of the rank; other parameters and errors as for `torus`.
    """
    (count,) = check_extents(dimensions, "hypercube")
    if count > MOST_DIMENSIONS:
        raise WeftError(f"hypercube:{count} has more NPUs than can be numbered: at most {MOST_DIMENSIONS} dimensions")
    return build_product(f"hypercube:{count}", [Ring(2)] * count, links)


@checked
def fully_connected(n: int, **links: Unpack[Links]) -> Topology:
    """`n` NPUs, each connected to every other by its own cable.

    Parameters and errors as for `ring`.
    """
    return _alike("fc", FullyConnected, n, links)


@checked
def hyperx(shape: int | Sequence[int], **links: Unpack[Links]) -> Topology:
    """A HyperX with one NPU per router: `hyperx((4, 4))` has 16 NPUs of degree 6, also called a flattened butterfly.

    Parameters and errors as for `torus`.

    References
    ----------
    .. [1] J. H. Ahn et al., "HyperX: topology, routing, and packaging of efficient large-scale networks", SC 2009.
    """
    return _alike("hyperx", FullyConnected, shape, links)


@checked
def switch(n: int, **links: Unpack[Links]) -> Topology:
    """`n` NPUs, each with one cable to the same switch; a single NPU has neither cable nor switch.

    The hop latency is added at the switch; NPUs are plain endpoints and add none. Parameters and errors as for `ring`.
    """
    return _alike("switch", Switched, n, links)


@checked
def multidim(spec: str | Sequence[Block], **links: Unpack[Links]) -> Topology:
    """The product of blocks: "RI(4)_FC(8)_SW(32)" is a ring of 4, by 8 fully connected, by a switch of 32.

    Parameters
    ----------
    spec : str or sequence of Block
        Blocks joined by "_", dimension 0 first.
    bandwidth, latency : quantity or one per dimension
        Per direction of every cable of a dimension.
    hop_latency : quantity
        Added on every arrival at a switch, and at an NPU if any dimension connects NPUs directly, because
        each NPU then contains a router. In a network of switches only, NPUs are plain endpoints and add none.

    Raises
    ------
    WeftError
        An unknown block, an extent below 1, or more links than fit in memory.
    """
    blocks = _parse_blocks(spec) if isinstance(spec, str) else tuple(spec)
    check_extents([block.extent for block in blocks], "multidim")
    return build_product("_".join(map(str, blocks)), blocks, links)


def _alike(family: str, block: Callable[[int], Block], shape: int | Sequence[int], links: Links) -> Topology:
    """The product of blocks of one kind."""
    extents = check_extents(shape, family)
    return build_product(f"{family}:{format_extents(extents)}", [block(extent) for extent in extents], links)


def _parse_blocks(spec: str) -> tuple[Block, ...]:
    blocks = []
    for part in spec.split("_"):
        match = _BLOCK.match(part)
        if match is None or match[1] not in BLOCKS:
            kinds = ", ".join(f"{kind}(n)" for kind in BLOCKS)
            raise WeftError(f"multidim {spec!r}: {part!r} is not a block; join blocks with _, such as {kinds}")
        blocks.append(BLOCKS[match[1]](parse_extent(match[2], f"multidim {spec!r}: block {part}")))
    return tuple(blocks)
