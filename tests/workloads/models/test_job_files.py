"""Job files of torchtitan and arguments of Megatron-LM: the model and the plan they launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.study.plans import asked
from sim.study.spec import Spec
from topologies import WeftError
from topologies.text.schema import Absent
from workloads.models.job_files import MEGATRON_ABSENT, TITAN_ABSENT, read_job
from workloads.models.language import language_model
from workloads.passes.memory import memory_of
from workloads.passes.plan import Plan

TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
tensor_parallel_degree = 2
"""
MEGATRON = """#!/bin/bash
TP=2   # tensor
export PP="2"
ARGS=(
    --num-layers 24  # --num-layers 99
    --hidden-size 4096
    --num-attention-heads 32
    --seq-length 2048 --max-position-embeddings 4096
)
torchrun pretrain_gpt.py ${ARGS[@]} --micro-batch-size 1 --global-batch-size ${GBS:-64} \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size=${PP} --merge-file merges.txt --bf16 \\
    --sequence-parallel
"""


def plan(folder: Path, text: str, suffix: str, **keys: Any) -> Plan:
    """Of the file on two nodes, with further keys."""
    path = folder / f"job{suffix}"
    path.write_text(text, encoding="utf-8")
    spec = {"topology": {"machine": "dgx-h100:2"}, "library": {"name": "nccl"},
            "iteration": {"model": str(path), **keys}}
    return asked(Spec.from_dict(spec)).plan


def test_a_job_of_torchtitan(tmp_path: Path) -> None:
    one = plan(tmp_path, TITAN, ".toml")
    assert (one.model.name, one.tp, one.dp, one.zero, one.replicas, one.sequence) == ("llama-3-8b", 2, 8, 3, 1, 8192)
    assert (one.micro_batch, one.microbatches, one.global_batch, one.recompute) == (2, 1, 16, "layers")
    assert (one.stack.name, one.precision) == ("torchtitan", "half")
    more = TITAN + ('data_parallel_replicate_degree = 2\npipeline_parallel_degree = 2\n'
                    'pipeline_parallel_schedule = "Interleaved1F1B"\n[activation_checkpoint]\nmode = "full"\n')
    two = plan(tmp_path, more.replace('"8B"', '"8B"\nconverters = ["float8"]'), ".toml")
    assert (two.pp, two.vp, two.replicas, two.zero, two.micro_batch, two.microbatches) == (2, 2, 2, 2, 1, 2)
    assert (two.schedule, two.recompute, two.precision) == ("interleaved", "full", "fp8")
    assert plan(tmp_path, TITAN + "data_parallel_shard_degree = 1\n", ".toml").zero == 0
    assert plan(tmp_path, TITAN.replace("llama3", "llama").replace("8B", "7B"), ".toml").model.name == "llama-2-7b"


def test_arguments_of_megatron(tmp_path: Path) -> None:
    one = plan(tmp_path, MEGATRON, ".sh")
    told = plan(tmp_path, "HEADS=${HEADS:-32}\n" + MEGATRON.replace("-heads 32", "-heads ${HEADS}"), ".sh")
    assert told.model.heads == 32
    assert (one.model.layers, one.model.hidden, one.model.feed_forward, one.model.sequence) == (24, 4096, 16384, 4096)
    assert one.model.vocabulary == 50432 and one.model.tied and one.model.positions and one.model.biases
    assert (one.tp, one.pp, one.dp, one.zero, one.global_batch, one.sequence) == (2, 2, 4, 0, 64, 2048)
    assert one.sequence_parallel and not one.data_overlap and one.stack.name == "megatron"
    for words, zero in (("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", 3),
                        ("--use-megatron-fsdp", 3), ("--use-torch-fsdp2", 3), ("--use-distributed-optimizer", 1)):
        alone = MEGATRON.replace("--bf16", f"--bf16 {words}").replace('PP="2"', 'PP="1"')
        assert plan(tmp_path, alone, ".sh").zero == zero
    test = 'if [[ "$TP" == "2" ]]; then\nA="--fp8-format hybrid"\nelse\nA="--swiglu"\nfi\n'
    tested = MEGATRON.replace("ARGS=(", f"{test}ARGS=(")
    assert plan(tmp_path, tested, ".sh").precision == "fp8" and not plan(tmp_path, tested, ".sh").model.gated
    once = MEGATRON.replace("ARGS=(", 'if [ -z "$X" ]; then echo "no X"; fi\nARGS=(')
    assert plan(tmp_path, once, ".sh").model == plan(tmp_path, MEGATRON, ".sh").model
    modern = MEGATRON.replace("--sequence-parallel", (
        "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope "
        "--group-query-attention --num-query-groups 8 --use-distributed-optimizer --overlap-grad-reduce "
        "--num-layers-per-virtual-pipeline-stage 6 --recompute-activations --num-experts 8 --moe-router-topk 2 "
        "--expert-model-parallel-size 4 --tokenizer-type Llama3Tokenizer --fp8-format hybrid"))
    two = plan(tmp_path, modern, ".txt")
    assert two.model.gated and not (two.model.tied or two.model.positions or two.model.biases)
    assert (two.model.feed_forward, two.model.kv_heads, two.model.experts, two.model.vocabulary) == (
        10880, 8, 8, 128256)
    assert (two.zero, two.vp, two.ep, two.recompute, two.precision) == (1, 2, 4, "selective", "fp8")
    assert two.data_overlap and not two.sequence_parallel and two.schedule == "interleaved"


def test_flags_are_over_files_even_where_they_are_usual(tmp_path: Path) -> None:
    one = plan(tmp_path, MEGATRON, ".sh", pp=1, tp=4, zero="fsdp", sequence_parallel=False)
    assert (one.pp, one.tp, one.zero, one.sequence_parallel) == (1, 4, 3, False)


@pytest.mark.parametrize("row", TITAN_ABSENT, ids=lambda row: row.name)
def test_absent_of_torchtitan_equals_explicit(row: Absent, tmp_path: Path) -> None:
    plain = "[job]\n" if row.where == "model" else "[model]\nname = 'llama3'\nflavor = '8B'\n"
    number = (row.value.lstrip("-").isdecimal() or row.value == "false") and row.name != "selective_ac_option"
    value = row.value if number else f"'{row.value}'"
    explicit = plan(tmp_path, f"{plain}[{row.where}]\n{row.name} = {value}\n", ".toml")
    assert explicit == plan(tmp_path, plain, ".toml")


FILLED = {
    "expert-tensor-parallel-size": "2", "ffn-hidden-size": "4096", "kv-channels": "128", "num-query-groups": "8",
    "moe-ffn-hidden-size": "4096", "window-attn-skip-freq": "[1,1,1,1]", "global-batch-size": "16",
}
"""Values of what is filled in, in the arguments below: of 16 NPUs 2 are tensor ranks, of micro-batches of 2."""


@pytest.mark.parametrize("row", MEGATRON_ABSENT, ids=lambda row: row.name)
@pytest.mark.parametrize("more", ["", "--multi-latent-attention", "--use-megatron-fsdp", "--group-query-attention",
                                  "--use-precision-aware-optimizer", "--window-size 127,0"])
def test_absent_of_megatron_equals_explicit(row: Absent, more: str, tmp_path: Path) -> None:
    tp = "" if row.name == "tensor-model-parallel-size" else "--tensor-model-parallel-size 2 "
    plain = ("--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 512 --micro-batch-size 2 "
             f"--vocab-size 1000 --num-experts 4 --bf16 {tp}{more}")
    explicit = f"{plain} --{row.name} {FILLED.get(row.name, row.value)}"
    assert plan(tmp_path, plain, ".args") == plan(tmp_path, explicit, ".args")


def test_the_width_of_a_gate_is_that_of_swiglu_alone(tmp_path: Path) -> None:
    """--quick-geglu, of GPT-OSS, is a gate too, and takes four times the hidden size."""
    shape = "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 512 --micro-batch-size 2 --bf16 "
    found = [plan(tmp_path, f"{shape} --vocab-size 1000 {gate}", ".args").model for gate in (
        "", "--swiglu", "--quick-geglu")]
    assert [(one.gated, one.feed_forward) for one in found] == [(False, 4096), (True, 2688), (True, 4096)]


def test_groups_of_experts_are_nodes(tmp_path: Path) -> None:
    shape = ("--num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 512 --micro-batch-size 2 --bf16 "
             "--vocab-size 1000 --num-experts 16 ")
    found = [plan(tmp_path, f"{shape} --moe-router-num-groups 8 --moe-router-group-topk {few}", ".args").model
             for few in (4, 8)]
    assert [one.nodes_per_token for one in found] == [4, 0]


def test_arguments_of_a_test_are_those_of_a_script(tmp_path: Path) -> None:
    """A mapping with "true" for what has no value, and a default behind a variable."""
    words = {"num-layers": "4", "hidden-size": "1024", "num-attention-heads": "8", "seq-length": "512",
             "micro-batch-size": "3", "tokenizer-type": "TikTokenizer", "bf16": "", "swiglu": "",
             "tensor-model-parallel-size": "2"}
    script = plan(tmp_path, " ".join(f"--{name} {value}" for name, value in words.items()), ".args")
    lines = "\n".join(f"  --{name}: {value or 'true'}" for name, value in words.items()).replace(": 512", ": ${S:-512}")
    lines = f"  --seq-length: 9\n{lines}\n  --data-path: [a, b]\n"
    found = plan(tmp_path, f"TEST_TYPE: regular\nMODEL_ARGS:\n{lines}", ".yaml")
    assert replace(found, model=replace(found.model, source=script.model.source)) == script


@pytest.mark.parametrize(("named", "tokens"), [
    ("--tokenizer-model meta-llama/Meta-Llama-3-8B/", 128256), ("--tokenizer-model /x/Llama-2-7b-hf", 32000),
    ("--tokenizer-type TikTokenizer", 131072), ("--padded-vocab-size 777", 777), ("--vocab-size 1000", 1024),
    ("--tokenizer-model ${P}/utils/nemotron_2_256k.model", 256000)])
def test_tokens_of_a_tokenizer(named: str, tokens: int, tmp_path: Path) -> None:
    path = tmp_path / "job.args"
    path.write_text("--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 512 --micro-batch-size 1 "
                    f"--bf16 {named}")
    assert read_job(str(path)).model.vocabulary == tokens


@pytest.mark.parametrize(("text", "suffix", "why"), [
    (TITAN.replace("8B", "9B"), ".toml", "model 'llama3' of flavor '9B' is not known"),
    (TITAN.replace("llama3", "flux").replace("8B", "flux-dev"), ".toml", "'flux' of flavor 'flux-dev'"),
    (TITAN.replace("= 2", "= 'two'"), ".toml", "local_batch_size of .training. is 'two': an integer"),
    (TITAN + "pipeline_parallel_degree = 2\npipeline_parallel_schedule = 'x'\n", ".toml", "schedule 'x' is not known"),
    ("[model\n", ".toml", "job file"),
    (TITAN.replace("seq_len", "SEQ_LEN"), ".toml", "'SEQ_LEN' is unknown: did you mean seq_len"),
    (TITAN.replace("[training]", "[trainin]"), ".toml", "'trainin' is unknown: did you mean training"),
    (TITAN.replace("[training]", "[training]\ndtype = 'float16'"), ".toml", "dtype of .training. is 'float16': only"),
    (TITAN + "[optimizer]\nname = 'Muon'\n", ".toml", "name of .optimizer. is 'Muon': only AdamW and Adam are"),
    (MEGATRON + " --use-precision-aware-optimizer --exp-avg-dtype int4", ".sh", "--exp-avg-dtype 'int4' is not known"),
    (MEGATRON.replace(" --bf16", ""), ".sh", "neither --bf16 nor --fp16"),
    (MEGATRON.replace("--num-layers 24", "--num-layers 24 --tensor-modle-parallel-size 4"), ".sh", "mean --tensor"),
    (MEGATRON.replace("--num-layers 24", "--num-layers 24 --mtp-num-layers x"), ".sh", "--mtp-num-layers is 'x'"),
    (MEGATRON.replace("ARGS=(", "if [ -n \"$A\" ]; then\nB=\"--swiglu\"\nfi\nARGS=("), ".sh", "--swiglu stands behind"),
    (MEGATRON.replace("--bf16", "--bf16 --use-megatron-fsdp --data-parallel-sharding-strategy x"), ".sh", "'x' is not"),
    (MEGATRON.replace("--num-layers 24", ""), ".sh", "--num-layers is not there"),
    (MEGATRON.replace("TP=2 ", "TP=$1 "), ".sh", "--tensor-model-parallel-size is '.TP'"),
    (MEGATRON.replace("--merge-file", "--x"), ".sh", "--vocab-size is not there"),
    (MEGATRON + " --make-vocab-size-divisible-by 0", ".sh", "by is '0': .* as a plain integer from 1"),
    (MEGATRON + " --cp-comm-type a2a+p2p", ".sh", "--cp-comm-type a2a.p2p is not modelled: p2p, all_gather, a2a are"),
    (MEGATRON + " --overlap-moe-expert-parallel-comm", ".sh", "--overlap-moe-expert-parallel-comm is not modelled"),
    ("MODEL_ARGS:\n  --num-layers: [1, 2]\n", ".yaml", "line 2: --num-layers: expected a single value"),
    ("MODE: rl\nMODEL_ARGS:\n  --num-layers: 2\n", ".yaml", "line 1: MODE: 'rl' is no training"),
    ("ARGS:\n  --num-layers: 2\n", ".yaml", "key 'MODEL_ARGS' is missing"),
    *((MEGATRON + f" --num-experts 4 --moe-layer-freq {word}", ".sh", "of the 24 layers, is expected") for word in (
        "0", "x", "[1]*23", "[2]*24", "'([1]*24'", "[1]+2", "[[1]]*24", "[1]*9999999*9999999")),
    (MEGATRON.replace("layers 24", "layers 999999999"), ".sh", "--num-layers is 999999999"),
    (MEGATRON + " --window-size 128", ".sh", "--window-size '128': two numbers"),
    (MEGATRON + " --window-size 128,0 --window-attn-skip-freq [1]*3", ".sh", "0 and 1 for each of the 24 layers"),
])
def test_what_is_wrong_is_one_line(text: str, suffix: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / f"job{suffix}"
    path.write_text(text)
    with pytest.raises(WeftError, match=why) as wrong:
        read_job(str(path))
    assert "\n" not in str(wrong.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(TITAN)
    assert main(["train", "--machine", "dgx-h100:2", "--library", "nccl", "--model", str(path)]) == 0
    assert "llama-3-8b, 8.03 G parameters, on dgx-h100:2, 16 NPUs: tp=2 dp=8, 1f1b, ZeRO 3" in capsys.readouterr().out


def test_states_in_half_precision(tmp_path: Path) -> None:
    """Weights, gradients and moments in bfloat16 are 2 bytes each: 8 a parameter, and 12 + 4 + 2 in fp32."""
    shards = 8
    half = TITAN.replace("[training]", "[training]\ndtype = 'bfloat16'")
    one, other = plan(tmp_path, half, ".toml"), plan(tmp_path, TITAN, ".toml")
    parameters = memory_of(other)["optimizer"] / 12 * shards
    assert memory_of(one)["optimizer"] == pytest.approx(parameters * (2 + 2 + 2) / shards)
    unit = memory_of(one)["weights"] / 4  # two blocks gathered
    assert memory_of(one)["gradients"] == pytest.approx(2 * parameters / shards + 2 * unit)
    assert memory_of(other)["gradients"] == pytest.approx(4 * parameters / shards + 4 * unit)
    ddp = half + "data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = -1\n"
    whole = memory_of(plan(tmp_path, ddp, ".toml", global_batch=16))
    assert sum(whole[key] for key in ("weights", "gradients", "optimizer")) == pytest.approx(8 * parameters)
    assert (other.update_bytes, one.update_bytes) == (34, 34 - 12 - 4)
    reduced = TITAN.replace("[training]", "[training]\nmixed_precision_reduce = 'bfloat16'")
    assert plan(tmp_path, reduced, ".toml").gradient_bytes == 2


def test_states_of_megatron(tmp_path: Path) -> None:
    aware = " --use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-dtype fp8 --exp-avg-sq-dtype bf16"
    for more, states, gradients in (("", 12, 4), (" --grad-reduce-in-bf16", 12, 2), (aware, 2 + 1 + 2, 4),
                                    (aware + " --main-grads-dtype bf16", 5, 2)):
        one = plan(tmp_path, MEGATRON.rstrip() + more, ".sh")
        assert (one.optimizer_bytes, one.gradient_bytes) == (states, gradients)
    assert plan(tmp_path, MEGATRON, ".sh", optimizer_bytes=6, gradient_bytes=2).optimizer_bytes == 6


def test_every_second_layer_is_computed_again(tmp_path: Path) -> None:
    for option, name in (("'op'", "selective"), ("'2'", "layers"), ("1", "full")):
        more = f"[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = {option}\n"
        assert plan(tmp_path, TITAN + more, ".toml").recompute == name


@pytest.mark.parametrize(("words", "mixtures"), [
    ("", [1] * 24), ("--moe-layer-freq 3", [1, 0, 0] * 8), ("--moe-layer-freq [0]*3+[1]*21", [0] * 3 + [1] * 21),
    ("--moe-layer-freq '([0]*3 + [1]*21)'", [0] * 3 + [1] * 21), ('--moe-layer-freq "([1]*2+[0])*8"', [1, 1, 0] * 8),
])
def test_layers_of_megatron_that_are_mixtures(words: str, mixtures: list[int], tmp_path: Path) -> None:
    model = plan(tmp_path, MEGATRON.rstrip() + f" --num-experts 4 {words} --swiglu", ".sh").model
    assert [model.is_mixture(layer) for layer in range(24)] == mixtures and model.gated


def test_context_parallelism_of_megatron(tmp_path: Path) -> None:
    for words, context in (("", "ring"), (" --cp-comm-type a2a", "ulysses"), (" --cp-comm-type all_gather", "gather")):
        assert plan(tmp_path, MEGATRON.rstrip() + words, ".sh").context == context


def test_further_tokens_of_megatron(tmp_path: Path) -> None:
    """Each has a layer like the last one, a product of its own and the head again."""
    words = " --num-experts 4 --moe-layer-freq [0]*3+[1]*21 --window-size 9,0 --window-attn-skip-freq [1]*23+[0]"
    plain, more = (plan(tmp_path, MEGATRON.rstrip() + words + mtp, ".sh").model for mtp in ("", " --mtp-num-layers 2"))
    assert (more.layers, more.ahead) == (26, 2)
    assert [more.is_ahead(layer) for layer in (23, 24, 25)] == [False, True, True]
    for layer in range(26):
        like = min(layer, 23)
        assert (more.is_mixture(layer), more.window(layer)) == (plain.is_mixture(like), plain.window(like))
    h = plain.hidden
    assert more.parameters - plain.parameters == 2 * (plain.layer_parameters(23) + 2 * h * h)
    once = plain.layer_flops(23, 64) + 4 * h * h + 2 * h * plain.vocabulary
    assert more.token_flops(64) - plain.token_flops(64) == 3 * 2 * once


@pytest.mark.parametrize(("words", "windows"), [
    ("--window-size 127,0", [128] * 24), ("--window-size (127,0) --window-attn-skip-freq 2", [128, 0] * 12),
    ('--window-size "(511, 0)" --window-attn-skip-freq ([1]*5+[0])*4', ([512] * 5 + [0]) * 4),
    ("--window-size -1,0", [0] * 24), ("--window-size 9,-1 --window-attn-skip-freq 1", [0] * 24),
])
def test_windows_of_megatron(words: str, windows: list[int], tmp_path: Path) -> None:
    """As many tokens before as the argument says, and the token itself."""
    model = plan(tmp_path, MEGATRON.rstrip() + f" {words} --swiglu", ".sh").model
    assert [model.window(layer) for layer in range(24)] == windows and model.gated


@pytest.mark.parametrize(("more", "etp"), [("", 2), (" --expert-tensor-parallel-size 1", 1)])
def test_experts_are_divided_as_megatron_does(tmp_path: Path, more: str, etp: int) -> None:
    """Absent is the degree of tensor parallelism."""
    found = plan(tmp_path, MEGATRON.rstrip() + " --num-experts 4 --expert-model-parallel-size 2" + more, ".sh")
    assert (found.tp, found.etp, found.groups["ep"]) == (2, etp, (2, etp))
    assert found.groups["edp"] == (8 // 2 // etp, 2 * etp)
    assert plan(tmp_path, MEGATRON, ".sh").etp == 1


@pytest.mark.parametrize(("name", "flavor", "more", "etp"), [
    ("llama4", "17bx128e", "", 2), ("llama4", "17bx16e", "expert_parallel_degree = 8\n", 1),
    ("llama4", "debugmodel", "expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 2\n", 2),
    ("gpt_oss", "20b", "", 2), ("gpt_oss", "120B", "expert_parallel_degree = 8\n", 1), ("llama3", "8B", "", 1),
])
def test_experts_and_windows_of_torchtitan(name: str, flavor: str, more: str, etp: int, tmp_path: Path) -> None:
    """Without expert parallelism, tensor ranks divide the experts."""
    found = plan(tmp_path, TITAN.replace("llama3", name).replace("8B", flavor) + more, ".toml")
    assert found.etp == etp and bool(found.model.windows) == (name != "llama3")


@pytest.mark.parametrize(("name", "billions"), [("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)])
def test_active_parameters_are_those_that_are_published(name: str, billions: float) -> None:
    """Of a token, with the head and without the embedding: arXiv 2508.10925, table 1."""
    model = language_model(name)
    used = sum(one.flops for layer in range(model.layers) for one in model.matrices(layer)) / 2
    assert (used + model.vocabulary * model.hidden) / 1e9 == pytest.approx(billions, rel=0.01)
