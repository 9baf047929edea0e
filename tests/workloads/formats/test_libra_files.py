"""LIBRA's network, communicator and cost files: what is read, and which line and key is named when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies import WeftError
from workloads import NetworkFile, Prices, read_communicator, read_network, read_prices

NETWORK = "Topology: [ Ring, FullyConnected, Switch ]\nNpusCount: [ 16, 8, 32 ]\nCostDimension: [ A, B, C ]\n"
GROUPS = "Forward: [16, -1, -1]\nInputGrad: [16, -1, -1]\nWeightGrad: [-1, 8, 32]\n"
EXTENTS = (16, 8, 32)


def write(folder: Path, text: str) -> Path:
    path = folder / "file.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_network(tmp_path: Path) -> None:
    found = read_network(write(tmp_path, NETWORK))
    assert found == NetworkFile(("RI", "FC", "SW"), EXTENTS, ("A", "B", "C"))
    assert found.spec == "RI(16)_FC(8)_SW(32)"


def test_communicator(tmp_path: Path) -> None:
    """-1 leaves a dimension out, which is a group of one there."""
    found = read_communicator(write(tmp_path, GROUPS), EXTENTS)
    assert found == {"forward": (16, 1, 1), "input_grad": (16, 1, 1), "weight_grad": (1, 8, 32)}


@pytest.mark.parametrize("size", ["0", "-2", "3"])
def test_a_size_that_is_none_is_named(size: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=f"{size} NPUs of dimension 1, which has 16: give a divisor of 16, or -1"):
        read_communicator(write(tmp_path, GROUPS.replace("16", size, 1)), EXTENTS)


def test_prices(tmp_path: Path) -> None:
    found = read_prices(write(tmp_path, "Pod:\n  Link: 7.8\n  Switch: 18\n  Nic: 31.6\nTile:\n  Link: 2.0\n"))
    assert found == {"Pod": Prices(7.8, 18.0, 31.6), "Tile": Prices(2.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("[1, 2", "not YAML"),
        ("- Ring\n", "a mapping of keys"),
        (NETWORK + "Bandwidth: [1, 2, 3]\n", "line 4: unknown key 'Bandwidth'"),
        (NETWORK + "Topology: [Ring]\n", "line 4: key 'Topology' is given twice"),
        ("Topology: [Ring]\nNpusCount: [4]\n", "key 'CostDimension' is missing"),
        (NETWORK.replace("Ring", "ring"), "line 1: Topology: block 'ring' is unknown"),
        (NETWORK.replace("16", "1"), "line 2: NpusCount is 1: give an integer from 2"),
        (NETWORK.replace("16", "4.5"), "line 2: NpusCount is 4.5: give an integer"),
        (NETWORK.replace("16, ", ""), "line 2: NpusCount: has 2 entries; Topology has 3"),
        (NETWORK.replace("[ A, B, C ]", "A"), "line 3: CostDimension: expected a list"),
        (NETWORK.replace("A,", "7,"), "line 3: CostDimension: 7 is not a name"),
    ],
)
def test_a_wrong_network_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WeftError, match=r"network .*file\.yml") as wrong:
        read_network(write(tmp_path, text))
    assert message in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GROUPS.replace("8, 32", "8, 32, 2"), "line 3: WeightGrad: has 4 entries; the network has 3 dimensions"),
        (GROUPS.replace("8, 32", "3, 32"), "line 3: WeightGrad: 3 NPUs of dimension 2, which has 8"),
        (GROUPS.replace("8, 32", "16, 32"), "line 3: WeightGrad: 16 NPUs of dimension 2, which has 8"),
        (GROUPS.replace("8, 32", "0, 32"), "line 3: WeightGrad: 0 NPUs"),
        (GROUPS.replace("InputGrad", "Backward"), "line 2: unknown key 'Backward'"),
    ],
)
def test_groups_that_do_not_fit_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WeftError, match=r"communicator .*file\.yml") as wrong:
        read_communicator(write(tmp_path, text), EXTENTS)
    assert message in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Pod:\n  Switch: 1.0\n", "line 1: Pod: key 'Link' is missing"),
        ("Pod:\n  Link: 0\n", "line 2: Link is 0: give a number above 0"),
        ("Pod:\n  Link: cheap\n", "line 2: Link is 'cheap': give a number above 0"),
        ("Pod:\n  Link: 1\n  Cable: 2\n", "line 3: unknown key 'Cable'"),
    ],
)
def test_a_wrong_price_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WeftError, match=r"cost .*file\.yml") as wrong:
        read_prices(write(tmp_path, text))
    assert message in str(wrong.value)
