"""`weft bench-codec`: how fast the homomorphic codec runs on one core of this machine."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from sim.cli.output import check_outputs, write_text
from topologies import WeftError
from topologies.units import format_size, parse_size

if TYPE_CHECKING:
    from workloads.compression.rates import Measured

NAME = "bench-codec"
HELP = "measure the lossless homomorphic codec on this machine: encode, scan and peel"
EXAMPLES = ("weft bench-codec", "weft bench-codec --size 64MiB --densities 0.01,0.1 --cells 1.23 --json -")

WORD_BYTES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags."""
    parser.add_argument("--size", default="16MiB", help="bytes of the dense array of 32-bit words (16MiB)")
    parser.add_argument("--densities", default="0.01,0.0773,0.3366", help="shares of non-zeros in the union")
    parser.add_argument("--cells", type=float, default=1.23, help="sketch cells for each non-zero (1.23)")
    parser.add_argument("--layouts", default="spread,element", help=(
        "spread: blocks of 64 lanes, turned, from all over the array; element: each by itself; "
        "rotated: 1,024 neighbours, turned; published: not turned, which needs more cells (spread,element)"
    ))
    parser.add_argument("--repeats", type=int, default=5, help="the best of this many is shown (5)")
    parser.add_argument("--json", metavar="FILE", help='write the rows as JSON; "-" for stdout')


def run(arguments: argparse.Namespace) -> int:
    """Measure and print one row a layout and density."""
    from workloads.compression.layout import form_of
    from workloads.compression.rates import measure

    check_outputs(arguments)
    n_elements = _elements(arguments.size)
    layouts, densities = arguments.layouts.split(","), _densities(arguments.densities, n_elements)
    for layout in layouts:
        form_of(layout)
    rows = []
    for layout in layouts:
        for density in densities:
            one = measure(n_elements, density, arguments.cells, layout, repeats=arguments.repeats)
            rows.append({"layout": layout, **one._asdict()})
            if arguments.json != "-":
                print(_line(layout, one) if len(rows) > 1 else f"{_HEAD}\n{_line(layout, one)}")
    if arguments.json:
        write_text(arguments.json, json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


_HEAD = (
    "layout     density  cells   items     index GB/s  sketch GB/s  encode GB/s  scan GB/s  peel ns/item  rounds  "
    "complete  add GB/s  encode/add"
)


def _line(layout: str, one: Measured) -> str:
    index, sketch, encode, scan, add = (
        rate / 1e9 for rate in (one.index_Bps, one.sketch_Bps, one.encode_Bps, one.scan_Bps, one.add_Bps)
    )
    return (
        f"{layout:<9}  {one.density:<7.4g}  {one.cells_per_item:<6.4g}  {one.n_items:<8}  {index:<10.3g}  "
        f"{sketch:<11.3g}  {encode:<11.3g}  {scan:<9.3g}  {one.peel_s_per_item * 1e9:<12.4g}  {one.rounds:<6}  "
        f"{'yes' if one.complete else 'no':<8}  {add:<8.3g}  {encode / add:.3f}"
    )


def _elements(text: str) -> int:
    from workloads.compression.rates import MOST_ELEMENTS

    size = parse_size(text, "size")
    if size < WORD_BYTES or size % WORD_BYTES or size // WORD_BYTES > MOST_ELEMENTS:
        most = format_size(WORD_BYTES * MOST_ELEMENTS)
        raise WeftError(f"size {text}: give words of {WORD_BYTES} B, one to {most} in all")
    return size // WORD_BYTES


def _densities(text: str, n_elements: int) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise WeftError(f"densities {text!r}: give numbers between 0 and 1, such as 0.01,0.1") from None
    for density in found:
        if not 1 / n_elements <= density <= 1:
            raise WeftError(f"density {density:g} is out of range: {1 / n_elements:.3g}, one item, to 1")
    return found
