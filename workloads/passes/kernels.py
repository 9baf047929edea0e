"""Measured matrix products: a table of kernels instead of one constant of a device.

A table has columns m, n, k and a time; rates of shapes between its rows are interpolated, and beyond them stay.

References
----------
.. [1] ai-dynamo/aiconfigurator, `gemm_perf` (CSV and Parquet): m, n, k, gemm_dtype, latency in ms.
.. [2] microsoft/vidur, `mlp.csv`: times of the products of a layer, by tokens and tensor parallelism.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from topologies.checks import WeftError
from topologies.text.brief import one_line
from topologies.text.input_text import read_input, stamp_of

TIMES = {"latency": 1e-3, "latency_ms": 1e-3, "time_ms": 1e-3, "latency_us": 1e-6, "time_us": 1e-6, "time_s": 1.0}
"""Columns of times, and their units in seconds; the first is that of [1]."""

DTYPES = {"half": ("bfloat16", "float16", "bf16", "fp16", "half"), "fp8": ("fp8", "float8", "float8_e4m3fn")}
"""Words for a precision."""

NEAREST = 8
"""Rows that a shape between them is interpolated from, by the inverse square of their distance in powers of two."""

VIDUR: dict[str, Callable[[Mapping[str, float]], tuple[float, float]]] = {
    "attn_pre_proj": lambda r: (r["n_embd"] / r["n_head"] * (r["n_head"] + 2 * r["n_kv_head"]), r["n_embd"]),
    "attn_post_proj": lambda r: (r["n_embd"], r["n_embd"]),
    "mlp_up_proj": lambda r: ((1 + r["use_gated_mlp"]) * r["n_expanded_embd"], r["n_embd"]),
    "mlp_down_proj": lambda r: (r["n_embd"], r["n_expanded_embd"]),
}
"""Columns and rows of the whole matrix of each product; the last of a pair are split over tensor ranks."""


@one_line
@dataclass(frozen=True, eq=False)
class Kernels:
    """Rates of measured products."""

    name: str
    # shapes, rates: by precision: log2 of m, n, k, shape (rows, 3); log2 of FLOP/s
    shapes: Mapping[str, np.ndarray]
    rates: Mapping[str, np.ndarray]

    def product_s(self, m: float, n: float, k: float, precision: str) -> float:
        """Seconds of a product of m x k and k x n; WeftError: the table has none of that precision."""
        if precision not in self.shapes:
            raise WeftError(f"kernels {self.name} have no products in {precision}: they have "
                            f"{', '.join(self.shapes)}")
        shapes, rates = self.shapes[precision], self.rates[precision]
        at = np.clip(np.log2([m, n, k]), shapes.min(axis=0), shapes.max(axis=0))
        far = ((shapes - at) ** 2).sum(axis=1)
        near = np.argsort(far, kind="stable")[:NEAREST]
        weight = 1 / (far[near] + 1e-9)
        return 2 * m * n * k / float(2 ** (weight @ rates[near] / weight.sum()))


def kernels(path: str) -> Kernels:
    """Read a table.

    WeftError: it cannot be read, lacks a column, or has no product.
    """
    return _read(path, stamp_of(path))


@lru_cache(maxsize=8)
def _read(path: str, stamp: tuple[int | bytes, ...]) -> Kernels:
    """A table; again if it has changed."""
    rows = _parquet(path) if path.endswith(".parquet") else _csv(path)
    names = set(rows[0]) if rows else set()
    vidur = [name for name in VIDUR if f"time_stats.{name}.median" in names]
    points = []
    for number, row in enumerate(rows, 1):
        try:
            points += _points(row, names, vidur)
        except KeyError as missing:
            raise WeftError(f"kernels {path}: there is no column {missing}") from None
        except (TypeError, ValueError) as wrong:
            raise WeftError(f"kernels {path}: row {number}: {wrong}") from None
    found: dict[str, list[tuple[float, ...]]] = {}
    for precision, *numbers in points:
        if 0 in numbers[:3]:  # a launch alone, as aiconfigurator has some
            continue
        if not all(math.isfinite(one) and one > 0 for one in numbers):
            raise WeftError(f"kernels {path}: m, n, k and time are {numbers}: give positive numbers")
        found.setdefault(precision, []).append((*map(math.log2, numbers[:3]), numbers[3]))
    if not found:
        raise WeftError(f"kernels {path} have no product in half precision or fp8: expected are columns m, n, k, "
                        f"dtype or gemm_dtype, and one of {', '.join(TIMES)}; or those of Vidur's mlp.csv")
    return Kernels(path, *_fastest(found))


def _points(row: Mapping[str, Any], names: set[str], vidur: Sequence[str]) -> list[tuple[Any, ...]]:
    """Precision, m, n, k and seconds of the products of a row."""
    if vidur:
        read = {name: float(row[name]) for name in names if not name.startswith("time_stats") and row[name] not in
                ("True", "False", True, False)}
        read["use_gated_mlp"] = str(row.get("use_gated_mlp")) == "True"
        tp, found = read["num_tensor_parallel_workers"], list[tuple[Any, ...]]()
        for name in vidur:
            n, k = VIDUR[name](read)
            n, k = (n, k / tp) if name.endswith(("post_proj", "down_proj")) else (n / tp, k)
            found.append(("half", read["num_tokens"], n, k, float(row[f"time_stats.{name}.median"]) / 1e3))
        return found
    time = next((name for name in TIMES if name in names), None)
    if time is None or not {"m", "n", "k"} <= names:
        return []
    dtype = str(row.get("gemm_dtype", row.get("dtype", "half")))
    return [(precision, float(row["m"]), float(row["n"]), float(row["k"]), float(row[time]) * TIMES[time])
            for precision, known in DTYPES.items() if dtype in known]


def _fastest(found: Mapping[str, list[tuple[float, ...]]]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Of each shape the fastest kernel, as a library chooses it."""
    shapes, rates = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for precision, rows in found.items():
        best: dict[tuple[float, ...], float] = {}
        for *shape, time in rows:
            best[tuple(shape)] = min(time, best.get(tuple(shape), math.inf))
        shapes[precision] = np.array(list(best))
        rates[precision] = shapes[precision].sum(axis=1) + 1 - np.log2(list(best.values()))
    return shapes, rates


def _csv(path: str) -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(read_input(path, "kernels").splitlines()))
    except csv.Error as wrong:
        raise WeftError(f"kernels {path} are not CSV: {wrong}") from None


def _parquet(path: str) -> list[dict[str, Any]]:
    if find_spec("pyarrow") is None:
        raise WeftError(f"kernels {path}: Parquet needs pyarrow: pip install 'weft[data]', or give .csv")
    from pyarrow import ArrowException, parquet  # an extra

    try:
        return list(parquet.read_table(path).to_pylist())
    except (OSError, ArrowException) as wrong:
        raise WeftError(f"kernels {path} cannot be read: {wrong}") from None
