"""`weft train --model`: rates, memory, files, and what is refused."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main

NCCL = ["train", "--machine", "dgx-h100:8", "--library", "nccl", "--quiet"]
SMALL = [*NCCL, "--model", "llama-3-8b", "--tp", "2", "--pp", "4", "--global-batch", "64"]


def train(tmp_path: Path, words: list[str]) -> dict[str, Any]:
    file = tmp_path / "out.json"
    assert main([*words, "--json", str(file)]) == 0
    row, *_ = json.loads(file.read_text())["rows"]
    assert isinstance(row, dict)
    return row


def test_what_people_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, picture = tmp_path / "parts.csv", tmp_path / "passes.svg"
    row = train(tmp_path, [*SMALL, "--csv", str(table), "--plot", str(picture)])
    out = capsys.readouterr().out
    for word in ("tokens/s", "MFU", "HFU", "bubble", "activations", "tp all-gather", "waiting for other stages"):
        assert word in out
    assert row["tokens_per_s"] == pytest.approx(64 * 8192 / row["time_s"])
    assert row["tokens_per_s_per_npu"] == pytest.approx(row["tokens_per_s"] / 64)
    assert 0.2 < row["mfu"] < row["mfu_full_attention"] < 0.6 and row["hfu"] == row["mfu"]
    assert all(sum(one.values()) == pytest.approx(row["time_s"], abs=1e-11) for one in row["parts_s"])
    parts = list(csv.DictReader(table.read_text().splitlines()))
    assert {part["rank"] for part in parts} == {"0", "1", "2", "3"}
    assert picture.stat().st_size > 1000


def test_a_spec_takes_the_plan(tmp_path: Path) -> None:
    spec = tmp_path / "plan.toml"
    spec.write_text('[topology]\nmachine = "dgx-h100:8"\n[library]\nname = "nccl"\n[iteration]\nmodel = "llama-3-8b"\n'
                    "tp = 2\npp = 4\nglobal_batch = 64\n")
    assert train(tmp_path, ["train", "--spec", str(spec), "--quiet"]) == train(tmp_path, SMALL)


@pytest.mark.parametrize("more", [
    ["--schedule", "zb-h1"], ["--schedule", "zb-v"], ["--schedule", "gpipe"], ["--vp", "2"], ["--recompute", "full"],
    ["--zero", "0"], ["--overlap-tp"], ["--no-sequence-parallel"], ["--no-overlap"], ["--precision", "fp8"],
    ["--stack", "torchtitan", "--efficiency", "0.5"], ["--micro-batch", "2"], ["--sequence", "4096", "--cp", "2"],
])
def test_every_choice_runs(more: list[str], tmp_path: Path) -> None:
    row = train(tmp_path, [*SMALL, *more])
    assert 0 < row["time_s"] < 10


def test_a_constant_of_another_stack_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table and in the row; so is one that is given."""
    for more, told in (([], "that of meta"), (["--stack", "meta"], ""), (["--efficiency", "0.5"], "as given")):
        row = train(tmp_path, [*SMALL, *more])
        assert row["efficiency_of"] == told
        assert f"({row['stack']}{', ' * bool(told)}{told})" in capsys.readouterr().out


def test_every_command_says_the_constant_of_a_plan(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Inlined, as a timeline, and of a tenant."""
    tenant = f"model={tiny[3]} device=a100 stack=meta tp=4 global_batch=4"
    for words in (["train", *tiny, "--inline", "--stack", "meta"], ["trace", *tiny, "--stack", "meta"],
                  ["share", *tiny[:2], "--quiet", "--tenant", tenant, "--tenant", "all-reduce bucket 1KiB"]):
        assert main(words) == 0
        assert "a100, half precision at 0.781 of the peak (meta, that of megatron), flash2" in capsys.readouterr().out


def test_what_is_switched_off_is_off(tmp_path: Path) -> None:
    """By flag and by spec: what is not overlapped is exposed, and norms that are not split are kept whole."""
    whole, apart, bare = (train(tmp_path, [*SMALL, *more]) for more in (
        [], ["--no-overlap"], ["--no-sequence-parallel"]))
    assert apart["time_s"] > whole["time_s"]
    assert bare["memory_bytes"][0]["activations"] > whole["memory_bytes"][0]["activations"]
    spec = tmp_path / "off.toml"
    spec.write_text("[iteration]\noverlap = false\n")
    assert train(tmp_path, [*SMALL, "--spec", str(spec)])["time_s"] == apart["time_s"]


def test_runs_of_collectives_are_checked_and_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--model", "llama-3-8b", "--tp", "4", "--global-batch", "8", "--recompute", "full", "--quiet"]
    fabric = ["--topology", "ring:8", "--device", "h100"]
    assert main([*words, *fabric, "--check"]) == 0
    assert main([*words, *fabric, "--max-events", "10"]) != 0
    assert "stopped at the limit of 10 services" in capsys.readouterr().err
    assert main([*words, "--machine", "tpu-v5p:2x2x2", "--algorithm", "swing"]) == 2
    assert "tpu-v5p chooses by itself: omit --algorithms" in capsys.readouterr().err


def test_fabrics_and_algorithms(tmp_path: Path) -> None:
    """Without a library the engine times every group; slower links make a longer iteration, a fault too."""
    words = ["train", "--topology", "torus:4x4", "--model", "llama-3-8b", "--device", "h100", "--tp", "4",
             "--global-batch", "8", "--recompute", "full", "--quiet"]
    fast, slow = (train(tmp_path, [*words, "--link-bandwidth", rate]) for rate in ("800Gb/s", "100Gb/s"))
    assert fast["time_s"] < slow["time_s"]
    even, every = (train(tmp_path, [*words, *more])["time_s"] for more in (
        ["--engine", "reference", "--algorithm", "bucket"], ["--symmetry", "off", "--algorithm", "bucket"]))
    assert even == every
    plan = tmp_path / "faults.toml"
    plan.write_text('[[slow-link]]\nlink = "npu0--npu1"\nshare = 0.1\n')
    assert train(tmp_path, [*words, "--faults", str(plan)])["time_s"] > train(tmp_path, words)["time_s"]


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """A model of two layers on eight GPUs in two boxes."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1000,
        "intermediate_size": 512, "max_position_embeddings": 512,
    }))
    return ["--topology", "SW(4)_SW(2)", "--model", str(config), "--device", "a100", "--tp", "4", "--global-batch", "4",
            "--quiet"]


def test_an_inlined_iteration_takes_everything_that_a_run_takes(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone on its links it is the composed one; slow links, NICs, perturbations and timelines compose with it."""
    def inlined(*more: str) -> float:
        row = train(tmp_path, ["train", *tiny, "--inline", *more])
        return float(row["time_s"])

    composed = train(tmp_path, ["train", *tiny])
    alone = inlined()
    assert alone == pytest.approx(composed["time_s"], rel=1e-3)
    ends = train(tmp_path, ["train", *tiny, "--spread", "2"])
    assert "2 perturbed runs of each collective" in capsys.readouterr().out
    assert ends["spread_low_s"] <= ends["time_s"] == composed["time_s"] < ends["spread_high_s"] < 1.1 * ends["time_s"]
    faults, middle = tmp_path / "faults.toml", round(composed["time_s"] * 5e11)
    faults.write_text(f'[[slow-link]]\nlink = "dimension 0"\nshare = 0.01\nat = "{middle}ps"\n')
    struck = train(tmp_path, ["train", *tiny, "--faults", str(faults)])
    assert struck["time_s"] == composed["time_s"]  # no collective alone lasts until then
    assert inlined("--faults", str(faults)) > 1.2 * composed["time_s"]
    assert inlined("--nic", "shared", "--check") > 0
    capsys.readouterr()
    assert inlined("--spread", "2", "--why") == alone
    out = capsys.readouterr().out
    assert "in 2 perturbed runs" in out and "critical path: " in out
    for more in ([], ["--inline"]):
        assert main(["train", *tiny, *more, "--perfetto", str(tmp_path / "one.json")]) == 0
        slices = json.loads((tmp_path / "one.json").read_text())["traceEvents"]
        last = max(one["ts"] + one["dur"] for one in slices if one["ph"] == "X")
        assert last == pytest.approx(composed["time_s"] * 1e6, rel=1e-3)
    assert main(["train", *tiny, "--why"]) == 2
    assert "--why accounts for a run of the whole iteration: give --inline" in capsys.readouterr().err
    assert main(["trace", *tiny, "--perfetto", str(tmp_path / "one.json")]) == 0


def test_iterations_share_a_fabric(tiny: list[str], tmp_path: Path) -> None:
    """Two in boxes of their own do not meet; two on all NPUs do."""
    config, file = tiny[3], tmp_path / "shares.json"

    def slowdowns(*tenants: str) -> list[float]:
        words = [word for tenant in tenants for word in ("--tenant", f"model={config} device=a100 {tenant}")]
        assert main(["share", *tiny[:2], "--quiet", "--chunks", "1", *words, "--json", str(file)]) == 0
        return [row["slowdown"] for row in json.loads(file.read_text())["rows"]]

    assert slowdowns("tp=4 global-batch=4 npus=0-3", "tp=2 global-batch=4 npus=4-7") == [1, 1]
    assert min(slowdowns("tp=4 global-batch=8", "tp=4 global-batch=8")) > 1.5
    assert main(["share", *tiny[:2], "--quiet", "--tenant", f"model={config} inline=true"]) == 2


@pytest.mark.parametrize(("words", "why"), [
    (["--tp", "3"], "tp=3 x pp=1 x cp=1 do not divide the 64 NPUs"), ([], "needs --global-batch"),
    (["--global-batch", "64", "--micro-batch", "0"], "--micro-batch 0: at least 1"),
    (["--global-batch", "3"], "--global-batch 3 is no multiple of dp=64"),
    (["--global-batch", "64", "--samples", "3"], "--samples 3.0 is of the layers of --workload"),
    (["--global-batch", "64", "--loop", "dear"], "--loop dear is of the layers of --workload"),
    (["--global-batch", "64", "--device", "abacus"], "device 'abacus'"),
    (["--global-batch", "64", "--spread", "2"], "--library has its own: omit spread of [account]"),
    (["--global-batch", "64", "--tp", "2", "--inline"], "that a library or a torus of accelerators times alone"),
    (["--global-batch", "64", "--chunks", "4"], "--library has its own: omit chunks of [model]"),
    (["--global-batch", "64", "--faults", "none.toml"], "--library has its own: omit faults of [model]"),
    (["--global-batch", "64", "--link-bandwidth", "1Gb/s"], "--library has its own: omit link_bandwidth of [topology]"),
    (["--global-batch", "64", "--algorithm", "swing"], "--library chooses by itself: omit --algorithms"),
    (["--global-batch", "64", "--check"], "--check is for simulations: omit --library"),
    (["--global-batch", "64", "--efficiency", "0"], "--efficiency 0: a share of the peak"),
    (["--global-batch", "64", "--efficiency", "1.7"], "--efficiency 1.7: a share of the peak"),
    (["--global-batch", "64", "--device", "a100", "--attention", "flash3"], "flash3 is not known on a100"),
    (["--global-batch", "64", "--pp", "4", "--schedule", "interleaved"], "needs virtual stages"),
    (["--global-batch", "64", "--tp", "8", "--sequence", "9"], "tp=8 does not divide the 9 tokens"),
    (["--global-batch", "64", "--micro-batch", "1", "--zero", "0"], "would fit"),
])
def test_what_cannot_be_is_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = "llama-2-13b" if "--zero" in words else "llama-3-8b"
    assert main([*NCCL, "--model", model, *words]) == 2
    assert why in capsys.readouterr().err


def test_keys_of_a_plan_need_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["--tp", "2"], ["--library", "nccl"]):
        assert main(["train", "--machine", "dgx-h100:2", "--workload", "resnet-50", "--samples", "8", "--peak", "312",
                     "--efficiency", "0.5", *more]) == 2
        assert "give --model" in capsys.readouterr().err
    assert main(["train", "--topology", "ring:4", "--library", "nccl", "--model", "llama-3-8b", "--device", "h100",
                 "--global-batch", "4"]) == 2
    assert "--library nccl runs on a machine" in capsys.readouterr().err


@pytest.mark.compiled
@pytest.mark.parametrize(("words", "most_s"), [
    (["--machine", "dgx-a100:128", "--model", "gpt-3", "--tp", "8", "--pp", "16", "--global-batch", "1536"], 5),
    (["--machine", "dgx-a100:384", "--model", "gpt-1t", "--tp", "8", "--pp", "64", "--global-batch", "3072"], 10),
    (["--machine", "dgx-h100:2048", "--model", "llama-3-405b", "--tp", "8", "--pp", "16", "--vp", "8", "--global-batch",
      "2048", "--recompute", "full"], 10),
])
def test_large_plans_take_seconds(words: list[str], most_s: float, tmp_path: Path) -> None:
    """CPU of the call in this process."""

    begin = time.process_time()
    train(tmp_path, ["train", "--library", "nccl", "--quiet", *words])
    assert time.process_time() - begin < most_s
