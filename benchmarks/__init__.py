"""Speed and scale, measured: `python -m benchmarks` prints the tables of docs/performance.md; asv takes the classes."""
