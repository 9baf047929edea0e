"""How fast the homomorphic codec is on one core, and whether it keeps its gates: `python -m benchmarks.codec`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from workloads.compression import FORMS
from workloads.compression.rates import Measured, measure

N_ELEMENTS = 2**22
DENSITIES = (0.01, 0.0773, 0.3366, 0.5695)
"""Of the union of eight workers of 1, 5 and 10 %, and one that is sparse."""

LEAST_ENCODE_BPS, MOST_PEEL_S = 1e9, 250e-9
"""The gates: of encoding in the layout that is ours, and of peeling in every layout that decodes."""

HEAD = ("layout", "union", "cells", "encode GB/s", "count GB/s", "peel ns a non-zero", "decodes", "gates")


def measured(times: int) -> Iterator[tuple[str, Measured]]:
    """Every layout at every density: 16 MiB of 32-bit integers, 1.23 cells an item."""
    for layout in FORMS:
        for density in DENSITIES:
            yield layout, measure(N_ELEMENTS, density, 1.23, layout, repeats=times)


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


def main() -> int:
    """Print the table; 1 where a gate is missed."""
    missed = 0
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for layout, one in measured(15):
        missed += not keeps(layout, one)
        print("| " + " | ".join(row(layout, one)) + " |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
