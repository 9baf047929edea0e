"""What the reader of text workloads takes, and what it says about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives.hierarchical import DEFAULT_PIPELINE_CHUNKS
from collectives.registry import build
from sim import simulate
from sim.study.jobs import build_workload
from sim.study.keys import TrainingKeys, WorkloadKeys
from tests.places import SHARED
from topologies import WeftError, from_spec
from topologies.text.schema import InputNote
from workloads import Call, read_text_workload
from workloads.training import Training, training_job

ROW = "Q1 -1 9375000 NONE 0 9375000 ALLREDUCE 805306368 9375000 allgather 452984832 10"
LIBRA_FILES = sorted((SHARED / "libra" / "workload").glob("*.txt"))


def write(folder: Path, *lines: str) -> Path:
    path = folder / "work.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_row_of_libra(tmp_path: Path) -> None:
    """Twelve columns; types in any case; a NONE is no collective."""
    (layer,) = read_text_workload(write(tmp_path, ROW)).layers
    assert (layer.name, layer.update_ns, layer.forward.compute_ns) == ("Q1", 10.0, 9375000.0)
    assert layer.forward.calls == ()
    assert layer.input_grad.calls == (Call("all-reduce", 805306368.0, "input_grad"),)
    assert layer.weight_grad.calls == (Call("all-gather", 452984832.0, "weight_grad"),)


def test_a_broadcast_costs_nothing_as_in_simai(tmp_path: Path) -> None:
    with pytest.warns(InputNote, match="passed over, as SimAI does: BROADCAST"):
        (layer,) = read_text_workload(write(tmp_path, ROW.replace("NONE 0", "BROADCAST 64"))).layers
    assert layer.forward.calls == ()


def test_the_header_of_astra_sim(tmp_path: Path) -> None:
    """Two lines on top: a keyword, with whatever follows it, and the number of layers."""
    path = write(tmp_path, "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1", "2", ROW, ROW)
    found = read_text_workload(path)
    assert (found.policy, len(found.layers)) == ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", 2)


def test_a_layer_may_be_called_like_a_keyword(tmp_path: Path) -> None:
    """A first row of twelve columns is a layer, whatever its name."""
    found = read_text_workload(write(tmp_path, ROW.replace("Q1", "DATA"), ROW))
    assert (found.policy, len(found.layers)) == ("", 2)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "is empty"),
        (("Q1 -1 0 NONE 0",), "line 1: has 5 columns; 12 are expected"),
        ((ROW, "", ROW.replace("ALLREDUCE", "ALLREDUCE_EP")), "line 3: input gradient collective 'ALLREDUCE_EP'"),
        ((ROW.replace("805306368", "-1"),), "line 1: input gradient bytes '-1' is not a number"),
        ((ROW.replace("9375000 NONE", "nan NONE"),), "line 1: forward time 'nan' is not a number"),
        (("DATA", "3", ROW), "line 2: says 3 layers; 1 follow"),
        (("DATA", ROW), "line 2: the number of layers is expected after DATA"),
        (("HYBRID_CUSTOMIZED", "1", ROW + " DATUM"), "line 3: parallelism 'DATUM' is unknown: choose one of DATA"),
        (("HYBRID_CUSTOMIZED", "1", ROW), "line 3: has 12 columns; 13 are expected"),
        (("HYBRID_TRANSFORMER checkpoints: 1 0", "1", ROW), "line 1: checkpoints are of HYBRID_TRANSFORMER_FWD_IN"),
        *((("HYBRID_TRANSFORMER_FWD_IN_BCKWD " + words, "4", *[ROW] * 4), said) for words, said in (
            ("checkpoints: 1 1 checkpoint_initiates: 1 4", "layer 4 of 4 layers"),
            ("checkpoints: 1 1 checkpoint_initiates: 1 1", "layer 1 initiates a pass from a checkpoint before it"),
            ("checkpoints: 1 2 checkpoint_initiates: 1 1", "layer 1 initiates a pass from a checkpoint before it"),
            ("checkpoints: 1 0 checkpoint_initiates: 2 3 2", "layer 3 initiates a pass from a checkpoint before it"),
            ("checkpoints: 2 0 checkpoint_initiates: 1 2", "one of 2 checkpoints is 'checkpoint_initiates:'"),
        )),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(WeftError, match=r"work\.txt") as wrong:
        read_text_workload(write(tmp_path, *lines))
    assert message in str(wrong.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=r"nothing\.txt cannot be read"):
        read_text_workload(tmp_path / "nothing.txt")


def test_the_published_files() -> None:
    """The files of the 2024 release, where they are at hand: layers, and bytes of the gradients."""
    facts = {
        "DLRM": (20, 114823168.0), "GPT_3": (18, 452984832.0), "MSFT_1T": (18, 226492416.0),
        "ResNet_50": (54, 51005824.0), "Turing_NLG": (18, 869449728.0),
    }
    for path in LIBRA_FILES:
        found = read_text_workload(path)
        gradients = sum(call.size_bytes for layer in found.layers for call in layer.weight_grad.calls)
        assert (len(found.layers), gradients) == facts[path.stem]


def steps_of(layers: list[dict[str, int]], kept: list[int], again: list[int]) -> list[tuple[str, int]]:
    """Passes over layers in their order, as the loop of ASTRA-sim 1.0 goes: the machine of four states, written out."""
    state, at, done, begun = "forward", 0, list[tuple[str, int]](), False
    while at >= 0:
        if state == "input gradient" and at in again and not begun:
            begun, state = True, "forward again"
            while at not in kept:
                at -= 1
            continue
        done.append((state, at))
        if state == "forward":
            at += 1
            if at == len(layers):
                state, at = "input gradient", at - 1
        elif state == "forward again":
            at += 1
            if at in again:
                state = "input gradient"
        elif state == "input gradient":
            state, begun = "weight gradient", False
        else:
            state, at = "input gradient", at - 1
    return done


@pytest.mark.parametrize(("n", "kept", "again"), [
    (21, [2, 11], [19, 10]), (2, [0], [1]), (7, [0, 1, 4], [3, 6]), (5, [0, 2], [4]), (3, [1], [2]), (13, [5], [12]),
])
def test_checkpoints_are_computed_again_as_the_loop_of_astra_sim_goes(
    n: int, kept: list[int], again: list[int], tmp_path: Path
) -> None:
    """Where nothing overlaps, an iteration is the sum of the steps of the loop."""
    layers = [{"forward": 3 + k * k, "input gradient": 1000 + 7 * k, "weight gradient": 50000 + 11 * k}
              for k in range(n)]
    rows = [f"l{k} -1 {one['forward']} ALLREDUCE {4096 + 512 * k} {one['input gradient']} NONE 0 "
            f"{one['weight gradient']} NONE 0 1" for k, one in enumerate(layers)]
    words = (f"checkpoints: {len(kept)} {' '.join(map(str, kept))} "
             f"checkpoint_initiates: {len(again)} {' '.join(map(str, again))}")
    found = read_text_workload(write(tmp_path, f"HYBRID_TRANSFORMER_FWD_IN_BCKWD {words}", str(n), *rows))
    topology, groups = from_spec("ring:4"), dict.fromkeys(("forward", "input_grad", "weight_grad"), (4,))
    job = training_job(topology, found, groups, Training(loop="no-overlap"))
    reduced = {k: simulate(build("hierarchical", "all-reduce", topology, 4096 + 512 * k, None,
                                 pipeline_chunks=DEFAULT_PIPELINE_CHUNKS)).time_ps for k in range(n)}
    steps = steps_of(layers, kept, again)
    wanted = sum(1000 * layers[k][one.removesuffix(" again")] + (reduced[k] if one.startswith("forward") else 0) + 1
                 for one, k in steps)  # an operation of a job ends 1 ps later, one of no time 2 ps
    wanted += 2 * 2 * sum(one == "forward again" for one, _ in steps)  # both of no time: forward, and for the weights
    assert simulate(job).time_ps == wanted


def test_stages_of_a_pipeline_begin_where_nothing_is_computed_again(tmp_path: Path) -> None:
    words = "HYBRID_TRANSFORMER_FWD_IN_BCKWD checkpoints: 1 1 checkpoint_initiates: 1 3"
    found = read_text_workload(write(tmp_path, words, "5", *[ROW] * 5))
    assert [one.name for one in found.layers] == ["Q1"] * 4 + ["Q1 again"] * 2 + ["Q1"]
    assert found.cuts == (1, 6) and found.repeated(2).cuts == (1, 6, 7, 8, 13)


def test_layers_with_a_parallelism_of_their_own(tmp_path: Path) -> None:
    """Each has the groups of a file of that word; what runs among one NPU is no call."""
    words = ("HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "DATA", "MODEL")
    row = ROW.replace("NONE 0", "ALLTOALL 77")
    path = write(tmp_path, "HYBRID_CUSTOMIZED", "4", *(f"{row} {word}" for word in words))
    with pytest.warns(InputNote, match="the gradient of layer Q1 by its input is not reduced"):
        found, groups = build_workload(WorkloadKeys(name=str(path)), TrainingKeys(), from_spec("SW(4)_SW(2)"))
    assert groups == {"all": (4, 2), "first": (4, 1), "others": (1, 2)}
    assert [[[call.group for call in part.calls] for part in layer.phases] for layer in found.layers] == [
        [["first"], [], ["others"]], [["others"], ["others"], ["first"]], [[], [], ["all"]], [["all"], ["all"], []]]


@pytest.mark.parametrize(("policy", "left_out"), [
    ("DATA", "is not computed"), ("MODEL", "is not reduced"), ("DISTRIBUTED_INFERENCE", "forward passes alone")])
def test_what_the_loop_of_a_keyword_leaves_out(policy: str, left_out: str, tmp_path: Path) -> None:
    with pytest.warns(InputNote, match=left_out):
        first, second = read_text_workload(write(tmp_path, policy, "2", ROW, ROW)).layers
    assert first.input_grad.calls == () and bool(second.input_grad.calls) == (policy != "DISTRIBUTED_INFERENCE")
    assert bool(first.input_grad.compute_ns) == (policy == "MODEL")


def test_small_collectives_of_a_forward_pass_in_simai(tmp_path: Path) -> None:
    keys = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 all_gpus: 4"
    row = ROW.replace("NONE 0", "ALLREDUCE 77").replace("805306368", "88")
    with pytest.warns(InputNote, match="at least 4096 bytes"):
        (layer,) = read_text_workload(write(tmp_path, keys, "1", row)).layers
    assert [part.calls[0].size_bytes for part in layer.phases[:2]] == [4096.0, 88.0]
