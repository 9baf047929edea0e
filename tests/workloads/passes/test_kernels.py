"""Tables of measured products: formats, rates between rows and beyond, and what is refused."""

import csv
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from topologies import WeftError
from workloads.passes.kernels import kernels

KERNELS = "m,n,k,dtype,time_us\n16,4096,128,bf16,3.5\n300,64,64,fp16,4.25\n300,64,64,fp8,3\n"


def _write(path: Path, rows: list[dict[str, Any]]) -> str:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return str(path)


def _rows(*shapes: tuple[int, int, int], rate: float = 2e14, dtype: str = "bfloat16") -> list[dict[str, Any]]:
    return [{"m": m, "n": n, "k": k, "gemm_dtype": dtype, "latency": 2e3 * m * n * k / rate} for m, n, k in shapes]


def test_rows_are_what_they_say_and_the_fastest_kernel_counts(tmp_path: Path) -> None:
    random = Random(5)
    rows = [{"m": random.randrange(1, 9999), "n": random.randrange(1, 9999), "k": random.randrange(1, 9999),
             "dtype": "fp16", "time_us": random.uniform(1, 900)} for _ in range(60)]
    slower = [{**row, "time_us": 3 * row["time_us"]} for row in rows]
    found = kernels(_write(tmp_path / "own.csv", [*slower, *rows, {**rows[0], "m": 0}]))
    for row in rows:
        assert found.product_s(row["m"], row["n"], row["k"], "half") == pytest.approx(row["time_us"] / 1e6, rel=1e-3)


def test_between_rows_rates_are_between_and_beyond_them_they_stay(tmp_path: Path) -> None:
    low, high = _rows((64, 64, 64), rate=1e13), _rows((4096, 4096, 4096), rate=9e13)
    found = kernels(_write(tmp_path / "two.csv", [*low, *high]))
    def rate(n: int) -> float:
        return 2 * n**3 / found.product_s(n, n, n, "half")

    assert rate(512) == pytest.approx(math.sqrt(1e13 * 9e13), rel=1e-6)  # the middle in powers of two
    assert rate(3) == pytest.approx(rate(64)) and rate(99999) == pytest.approx(rate(4096))
    assert [rate(n) for n in (64, 128, 512, 2048, 4096)] == sorted(rate(n) for n in (64, 128, 512, 2048, 4096))


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = _rows((17, 333, 2048), (8192, 768, 4096)) + _rows((17, 333, 2048), rate=7e14, dtype="fp8")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    one, other = kernels(str(tmp_path / "t.parquet")), kernels(_write(tmp_path / "t.csv", rows))
    for precision in ("half", "fp8"):
        assert one.product_s(99, 400, 3000, precision) == other.product_s(99, 400, 3000, precision)


def test_parquet_without_its_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.passes.kernels.find_spec", lambda name: None)
    with pytest.raises(WeftError, match=r"Parquet needs pyarrow: pip install 'weft\[data\]', or give .csv"):
        kernels(str(tmp_path / "none.parquet"))


def test_products_of_vidur_are_those_of_its_layers(tmp_path: Path) -> None:
    """Llama 2 70B on 4 ranks: Q, K and V 8192 x 2560, projection 2048 x 8192, gate and up 8192 x 14336, down."""
    row: dict[str, Any] = {f"time_stats.{name}.median": 1.0 + number for number, name in enumerate(
        ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj"))}
    row |= {"n_head": 64, "n_kv_head": 8, "n_embd": 8192, "n_expanded_embd": 28672, "use_gated_mlp": True,
            "num_tokens": 4096, "num_tensor_parallel_workers": 4}
    found = kernels(_write(tmp_path / "mlp.csv", [row]))
    shapes = sorted((round(2**n), round(2**k)) for _, n, k in found.shapes["half"])
    assert shapes == [(2560, 8192), (8192, 2048), (8192, 7168), (14336, 8192)]
    assert found.product_s(4096, 14336, 8192, "half") == pytest.approx(3e-3, rel=1e-3)


@pytest.mark.parametrize(("rows", "why"), [
    ([{"m": 1, "n": 2}], "expected are columns m, n, k"), (_rows((4, 4, 4), dtype="int8"), "no product in half"),
    ([{**_rows((4, 4, 4))[0], "latency": -1}], "give positive numbers"),
    ([{**_rows((4, 4, 4))[0], "m": "four"}], "could not convert string to float: 'four'"),
])
def test_other_tables_are_refused(tmp_path: Path, rows: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(WeftError, match=why):
        kernels(_write(tmp_path / "bad.csv", rows))


def test_a_precision_that_was_not_measured_is_told(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="no products in fp8: they have half"):
        kernels(_write(tmp_path / "half.csv", _rows((8, 8, 8)))).product_s(8, 8, 8, "fp8")


@pytest.mark.parametrize(("text", "says"), [
    ("num_tokens,time_stats.mlp_up_proj.median\n8,0.5\n", "there is no column 'n"),
    ("m,n,k,dtype,time_us\n16,16,16,fp16,3\n16,16,x,fp16,3\n", "row 2: could not convert"),
    ("m,n,k,dtype,time_us\n16,16\n", "have no product"),
])
def test_what_is_wrong_is_one_line_with_its_place(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(text)
    with pytest.raises(WeftError, match=says):
        kernels(str(path))
