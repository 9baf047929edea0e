"""`weft bench-codec`: how fast the homomorphic codec runs on one core of this machine."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from sim.cli.output import check_outputs, write_text
from topologies import WeftError
from topologies.units import parse_size

if TYPE_CHECKING:
    from workloads.compression.rates import Measured

NAME = "bench-codec"
HELP = "measure the lossless homomorphic codec on this machine: encode, scan and peel"
EXAMPLES = ("weft bench-codec", "weft bench-codec --size 64MiB --densities 0.01,0.1 --cells 1.23 --json -")

LAYOUTS = {"rotated": 1024, "element": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags."""
    parser.add_argument("--size", default="16MiB", help="bytes of the dense array of 32-bit words (16MiB)")
    parser.add_argument("--densities", default="0.01,0.0773,0.3366", help="shares of non-zeros in the union")
    parser.add_argument("--cells", type=float, default=1.23, help="sketch cells for each non-zero (1.23)")
    parser.add_argument("--layouts", default="rotated,element", help="rotated: 1,024 lanes, turned; element: one")
    parser.add_argument("--repeats", type=int, default=5, help="the best of this many is shown (5)")
    parser.add_argument("--json", metavar="FILE", help='write the rows as JSON; "-" for stdout')


def run(arguments: argparse.Namespace) -> int:
    """Measure and print one row a layout and density."""
    from workloads.compression.rates import measure

    check_outputs(arguments)
    n_elements = max(1, parse_size(arguments.size, "size") // 4)
    rows = []
    for layout in arguments.layouts.split(","):
        if layout not in LAYOUTS:
            raise WeftError(f"layout {layout!r} is unknown: choose one of {', '.join(LAYOUTS)}")
        for density in _densities(arguments.densities):
            one = measure(n_elements, density, arguments.cells, LAYOUTS[layout], repeats=arguments.repeats)
            rows.append({"layout": layout, **one._asdict()})
            if arguments.json != "-":
                print(_line(layout, one) if len(rows) > 1 else f"{_HEAD}\n{_line(layout, one)}")
    if arguments.json:
        write_text(arguments.json, json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


_HEAD = (
    "layout    density  items     index GB/s  sketch GB/s  encode GB/s  scan GB/s  peel ns/item  rounds  complete  "
    "add GB/s  encode/add"
)


def _line(layout: str, one: Measured) -> str:
    gigabytes = [rate / 1e9 for rate in (one.index_Bps, one.sketch_Bps, one.encode_Bps, one.scan_Bps)]
    return (
        f"{layout:<8}  {one.density:<7.4g}  {one.n_items:<8}  {gigabytes[0]:<10.3g}  {gigabytes[1]:<11.3g}  "
        f"{gigabytes[2]:<11.3g}  {gigabytes[3]:<9.3g}  {one.peel_s_per_item * 1e9:<12.4g}  {one.rounds:<6}  "
        f"{'yes' if one.complete else 'no':<8}  {one.add_Bps / 1e9:<8.3g}  {one.encode_Bps / one.add_Bps:.3f}"
    )


def _densities(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise WeftError(f"densities {text!r}: give numbers between 0 and 1, such as 0.01,0.1") from None
