"""What the reader of text workloads takes, and what it says about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import SHARED
from topologies import WeftError
from topologies.text.schema import InputNote
from workloads import Call, read_text_workload

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
        (("HYBRID_CUSTOMIZED", "1", ROW + " DATA"), "HYBRID_CUSTOMIZED"),
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
