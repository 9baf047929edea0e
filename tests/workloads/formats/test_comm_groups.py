"""ASTRA-sim's communicator groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives.core.process_groups import ProcessGroup, process_group
from topologies import WeftError
from workloads.formats.comm_groups import of_rank, read_comm_groups, read_extents, read_sets
from workloads.workload import Groups


def test_groups(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text('{"1": [0, 2], "12": [3, 1], "tp": [0, 1]}', encoding="utf-8")
    assert read_comm_groups(path, 4) == {"1": (0, 2), "12": (3, 1), "tp": (0, 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"0": [0]}', "group '0' has 1 NPU: it means all 4"),
        ('{"1": [0], "1": [1]}', "key '1' is given twice"),
        ('{"1": [0], "01": [1]}', "group 1 is given twice"),
        ('{"1": []}', "group 1: a list of NPUs"),
        ('{"1": 3}', "group 1: a list of NPUs"),
        ('{"1": [4]}', "group 1: NPU is 4: give an integer from 0 to 3"),
        ('{"1": [true]}', "NPU is True"),
        ('{"1": [1, 1]}', "group 1 names an NPU twice"),
        ("[]", "an object of keys and values"),
        ("{", "is not JSON"),
        ('{"1": [NaN]}', "NaN is not a finite number"),
        ("[" * 200_000, "nested too deeply"),
        ("", "is empty"),
        ('{"1": [' + "9" * 5000 + "]}", "groups.json"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "groups.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WeftError, match=r"groups\.json") as wrong:
        read_comm_groups(path, 4)
    assert message in str(wrong.value)


def test_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_bytes(b'{"1": [0]}\xff')
    with pytest.raises(WeftError, match="not UTF-8 text"):
        read_comm_groups(path, 4)


ROWS, COLUMNS = ((0, 1, 2), (3, 4, 5)), ((0, 3), (1, 4), (2, 5))
EXTENTS = "Forward: [3, -1]\nInputGrad: [3, -1]\nWeightGrad: [-1, 2]\n"
LISTS = (
    '{"forward": [[0, 1, 2], [3, 4, 5]], "InputGrad": [[5, 3, 4], [0, 1, 2]], "weight_grad": [[0, 3], [1, 4], [2, 5]]}'
)


def test_one_file_serves_traces_and_layers(tmp_path: Path) -> None:
    """By NPUs or by extents, for the groups of ranks or for those of dimensions."""
    lists, extents, own = (tmp_path / name for name in ("groups.json", "groups.yml", "own.yml"))
    lists.write_text(LISTS, encoding="utf-8")
    extents.write_text(EXTENTS, encoding="utf-8")
    own.write_text("tp: [3, -1]\ndp: [-1, 2]\n", encoding="utf-8")
    assert read_sets(own, (3, 2)) == {"tp": ROWS, "dp": COLUMNS}
    assert read_sets(lists, (3, 2))["weight_grad"] == COLUMNS
    assert of_rank({"tp": ROWS, "one": ((4, 2),)}, 3) == {"tp": (3, 4, 5), "one": (4, 2)}

    def place(groups: Groups) -> dict[str, ProcessGroup]:
        return {name: process_group((3, 2), extents) for name, extents in groups.items()}

    assert read_extents(lists, (3, 2), place) == read_extents(extents, (3, 2), place)
    for wrong, message in (
        ("[[0, 1, 2]]", r"groups\.json: group forward: \(0, 1, 2\) do not tile \(3, 2\)"),
        ("[[0, 1, 3], [2, 4, 5]]", r"groups\.json: group forward: \(0, 1, 3\) are no equal part of each dimension"),
    ):
        lists.write_text(f'{{"forward": {wrong}}}', encoding="utf-8")
        with pytest.raises(WeftError, match=message):
            read_extents(lists, (3, 2), place)
    lists.write_text('{"forward": [[0, 1], [2, 3]]}', encoding="utf-8")
    with pytest.raises(WeftError, match="group forward: a list of NPUs is expected"):
        read_comm_groups(lists, 6)
