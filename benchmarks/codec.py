"""How fast the homomorphic codec is on one core, and whether it keeps its gates: `python -m benchmarks.codec`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from topologies.units import parse_size
from workloads.compression import FORMS
from workloads.compression.rates import Measured, measure

SIZE = "16MiB"
"""Of the dense array of 32-bit integers."""

CELLS = 1.23
"""Sketch cells per item."""

DENSITIES = (0.01, 0.0773, 0.3366, 0.5695)
"""Of the union of eight workers of 1, 5 and 10 %, and one that is sparse."""

LEAST_ENCODE_BPS, MOST_PEEL_S = 1e9, 250e-9
"""The gates: of encoding in the layout that is ours, and of peeling in every layout that decodes."""

NOTE = (
    "Decodes: every nonzero of the sum comes back. Gates: limits that a row has to keep, 1 GB/s or more of encoding in "
    "the default layout, and 250 ns or less of peeling per nonzero in all that decode."
)

HEAD = ("layout", "union", "cells", "encode GB/s", "count GB/s", "peel ns per nonzero", "decodes", "gates")


def measured(
    times: int,
    size: str = SIZE,
    densities: Sequence[float] = DENSITIES,
    cells: float = CELLS,
    layouts: Sequence[str] = tuple(FORMS),
) -> Iterator[tuple[str, Measured]]:
    """Every layout at every density; the best of `times` runs."""
    n_elements = parse_size(size, "size") // 4
    for layout in layouts:
        for density in densities:
            yield layout, measure(n_elements, density, cells, layout, repeats=times)


def keeps(layout: str, one: Measured) -> bool:
    """Whether a measurement is within the gates that apply to it."""
    encodes = layout != "spread" or one.encode_Bps >= LEAST_ENCODE_BPS
    return encodes and (not one.complete or one.peel_s_per_item <= MOST_PEEL_S)


def row(layout: str, one: Measured) -> Sequence[str]:
    """A row of the table."""
    rates = (f"{one.encode_Bps / 1e9:.2f}", f"{one.scan_Bps / 1e9:.2f}", f"{one.peel_s_per_item * 1e9:.0f}")
    gates = [name for name, applies in (("encode", layout == "spread"), ("peel", one.complete)) if applies]
    kept = f"{' and '.join(gates)} {'kept' if keeps(layout, one) else 'MISSED'}" if gates else "none apply"
    return layout, f"{one.density:.2%}", f"{one.cells_per_item:.3f}", *rates, "yes" if one.complete else "no", kept


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a gate is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codec", description=main.__doc__)
    parser.add_argument("--size", default=SIZE, help=f"bytes of the dense array of 32-bit words (default: {SIZE})")
    parser.add_argument("--densities", type=float, nargs="+", default=DENSITIES, help="nonzero shares of the union")
    parser.add_argument("--cells", type=float, default=CELLS, help=f"sketch cells per nonzero (default: {CELLS})")
    parser.add_argument("--layouts", nargs="+", choices=FORMS, default=tuple(FORMS), help="default: all")
    parser.add_argument("--repeats", type=int, default=15, help="the best of this many counts (default: 15)")
    flags, missed = parser.parse_args(words), 0
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for layout, one in measured(flags.repeats, flags.size, flags.densities, flags.cells, flags.layouts):
        missed += not keeps(layout, one)
        print("| " + " | ".join(row(layout, one)) + " |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
