"""Results as the JSON of nccl-tests (`-J`, version 3), so that its readers read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sim.measured.nccl_text import NCCL_TESTS
from sim.study.tables import nccl_fields
from sim.version import __version__

VERSION = 3

_PROGRAM = {collective: program for program, collective in NCCL_TESTS.items()}


def nccl_json(
    rows: Iterable[Mapping[str, Any]], n_ranks: int, element_bytes: int = 4, root: int = 0
) -> str:
    """Rows of results as one document of nccl-tests.

    `rows`: the algorithm of each is its `experiment_name`.
    `root`: of rooted collectives.
    Out-of-place and in-place hold the same result, `nwrong` is 0 because schedules are checked for correctness
        when built, and times of day are empty: a simulation has none. Booleans are quoted and roots padded, as
        nccl-tests writes them.
    """
    rows = list(rows)
    results = [_result(row, n_ranks, element_bytes, root) for row in rows]
    sizes = [row["size_bytes"] for row in rows]
    busbw = [row["busbw_GBps"] for row in rows]
    topology = rows[0]["topology"] if rows else ""
    document = {
        "version": VERSION,
        "start_time": "",
        "args": [*(f"{_PROGRAM[row['collective']]}_perf" for row in rows[:1]), "simulated by weft"],
        "env": [],
        "nccl_version": 0,
        "config": {
            "nthreads": 1, "ngpus": n_ranks, "minimum_bytes": min(sizes, default=0),
            "maximum_bytes": max(sizes, default=0), "warmup_iters": 0, "iterations": 1, "aggregated_iterations": 1,
            "validation": 1, "graph": 0, "blocking_collectives": "false", "parallel_init": "false",
        },
        "devices": [_device(rank, str(topology)) for rank in range(n_ranks)],
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": sum(busbw) / max(len(busbw), 1), "okay": "unchecked"},
        "errors": [],
        "end_time": "",
    }
    return json.dumps(document, indent=1) + "\n"


def _device(rank: int, topology: str) -> dict[str, Any]:
    return {
        "rank": rank, "group": 0, "pid": 0, "hostname": "weft", "device": rank, "device_hex": "",
        "device_info": f"simulated by weft {__version__} on {topology}",
    }


def _result(row: Mapping[str, Any], n_ranks: int, element_bytes: int, root: int) -> dict[str, Any]:
    fields = nccl_fields(row, n_ranks, element_bytes, root)
    body = {"time": row["time_s"] * 1e6, "alg_bw": row["algbw_GBps"], "bus_bw": row["busbw_GBps"], "nwrong": 0}
    return {
        "size": row["size_bytes"], "count": fields.n_elements, "type": fields.type, "redop": fields.redop,
        "root": f"{fields.root:>6}", "out_of_place": body, "in_place": body, "actual_iterations": 1,
        "experiment_name": row["algorithm"],
    }
