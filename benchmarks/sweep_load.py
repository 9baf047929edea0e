"""`python -m benchmarks.sweep_load`: a sweep of 10,000 points on two workers; none is lost, and none computed twice."""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from pathlib import Path
from time import perf_counter

from sim.study.file import Sweep, make_sweep
from sim.study.sweep import run_sweep

SIZES = 50


def sweep_of(n_sizes: int = SIZES) -> Sweep:
    """200 combinations of fabrics, links, chunks and algorithms, at so many sizes."""
    return make_sweep(
        {
            "topology": {
                "spec": ["ring:4", "torus:4x4", "fc:8", "switch:8"],
                "link_bandwidth": ["25Gb/s", "50Gb/s", "100Gb/s", "200Gb/s", "400Gb/s"],
            },
            "collective": {"algorithms": ["ring", "direct"]},
            "model": {"chunks": [1, 2, 3, 4, 8]},
            "sweep": {"begin": 1024, "end": 1024 * n_sizes, "step": 1024},
        }
    )


def main() -> None:
    """Run the sweep into a new store, and count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep_load", description=main.__doc__)
    parser.add_argument("--sizes", type=int, default=SIZES, help="points are 200 times as many")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    points = sweep_of(given.sizes).points
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "load.db"
        begun = perf_counter()
        tally = run_sweep(points, store, workers=given.workers)
        seconds = perf_counter() - begun
        with sqlite3.connect(store) as database:
            counts = "SELECT count(*), count(DISTINCT key), count(row), sum(wall_s) FROM point"
            rows, keys, ran, wall_s = database.execute(counts).fetchone()
    print(f"{len(points):,} points on {given.workers} workers in {seconds:.1f} s, {wall_s:.1f} s of them simulating")
    print(f"computed {tally.computed:,}, failed {len(tally.failed):,}")
    print(f"stored {rows:,} rows, {keys:,} different keys, {ran:,} with results")
    if not len(points) == tally.computed == rows == keys == ran:
        raise SystemExit("points were lost or doubled")


if __name__ == "__main__":
    main()
