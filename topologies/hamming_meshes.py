"""HammingMesh: boards of NPUs in a mesh, whose edges connect to one switch per row and column."""

from collections.abc import Sequence

from topologies.checks import WeftError, checked
from topologies.core.blocks import Switched
from topologies.core.extents import check_extents, format_extents
from topologies.core.links import DEFAULT_BANDWIDTH, Links
from topologies.core.product import build_product
from topologies.core.topology import Topology
from topologies.units import Quantities, Quantity

DEFAULT_CABLE_LATENCY = "153ns"
DEFAULT_ROUTER_LATENCY = "100ns"
DEFAULT_TRACE_LATENCY = "0ns"


@checked
def hamming_mesh(
    board: int | Sequence[int] = (2, 2), boards: int | Sequence[int] = (16, 16), *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH, latency: Quantities = DEFAULT_CABLE_LATENCY,
    hop_latency: Quantity = DEFAULT_ROUTER_LATENCY, trace_latency: Quantities = DEFAULT_TRACE_LATENCY,
    switch_latency: Quantity | None = None,
) -> Topology:
    """A HammingMesh: `hamming_mesh((2, 2), (16, 16))` is Hx2Mesh: 16x16 boards of 2x2, or 32x32 NPUs.

    NPUs have coordinates (x, y) over the whole grid, and `shape` counts NPUs. Row switch y has
    coordinates (-1, y) and a cable to the westernmost and the easternmost NPU of every board in that row; an NPU
    that is both (a board of extent 1) has one cable. Columns likewise. A dimension with one board has no switches.

    Routes are dimension-ordered. Within a board they stay on it; otherwise they leave and enter at the nearer
    edge, and in the middle of an odd board at the lower edge first. Between the two edges of a board of 3 or more, the
    switch is the second of two ways (docs/background/model.md, ties).

    Parameters
    ----------
    board : int or sequence of int
        NPUs per board along each dimension.
    boards : int or sequence of int
        Number of boards along each dimension.
    bandwidth : quantity or one per dimension
        Per direction of every link of a dimension, on the board or to a switch.
    latency : quantity or one per dimension
        Of the cables between edges and switches.
    hop_latency : quantity
        Added on every arrival at a switch, and at an NPU (which contains a router) unless boards hold one NPU.
    trace_latency : quantity or one per dimension
        Of the links on the boards.
    switch_latency : quantity, optional
        Added on arrival at a switch instead of the hop latency.

    Raises
    ------
    WeftError
        An extent below 1, different numbers of dimensions, a bad quantity, or more links than fit in memory.

    Notes
    -----
    The default latencies are sums that figures of the Swing paper (NSDI 2024) give: 100 ns for a hop on a board, and
    506 ns from the edge of a board through a switch to another. How these split into wires and routers is not
    published; here all routers have 100 ns, as in the authors' simulator, and traces take no time.

    References
    ----------
    .. [1] T. Hoefler et al., "HammingMesh: a network topology for large-scale deep learning", SC 2022.
    """
    outer, inner = check_extents(boards, "hamming_mesh boards"), check_extents(board, "hamming_mesh board")
    if len(outer) != len(inner):
        raise WeftError(
            f"hamming_mesh has boards {format_extents(outer)} of {format_extents(inner)} NPUs: "
            "give both the same number of dimensions"
        )
    blocks = [Switched(count * size, size) for count, size in zip(outer, inner, strict=True)]
    links = Links(bandwidth=bandwidth, latency=latency, hop_latency=hop_latency)
    return build_product(_name(outer, inner), blocks, links, trace_latency=trace_latency, switch_latency=switch_latency)


def _name(boards: tuple[int, ...], board: tuple[int, ...]) -> str:
    size = str(board[0]) if set(board) == {board[0]} else format_extents(board)
    return f"hx{size}mesh:{format_extents(boards)}"
