"""Speed and scale, measured: `python -m benchmarks` prints docs/performance_tables.md; asv takes the classes."""
