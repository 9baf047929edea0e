"""Whatever is cut off, changed or repeated in a foreign file: it is read, or one clear line says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.formats.msccl_program import parse_msccl
from sim.measured.read import read_measurements
from tests.sim.measured.test_measurements import NCCL, OSU, document
from tests.sim.timeline.test_perfetto import ALL_GATHER_OF_TWO
from tests.topologies.formats.test_files import BOX, all_to_all, infra, table
from tests.workloads.formats.test_goal import GOOD
from topologies import WeftError, ring
from topologies.formats.infragraph import parse_infragraph
from topologies.formats.nccl_xml import parse_nccl_xml
from topologies.formats.nvidia_smi import parse_nvidia_smi
from topologies.text.input_text import read_input
from workloads.formats.goal import parse_goal

READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "NCCL topology XML": (BOX, lambda text, name: parse_nccl_xml(text, name, boxes=2)),
    "nvidia-smi": (table(all_to_all(4, 4)), lambda text, name: parse_nvidia_smi(text, name, nvlink="3")),
    "InfraGraph": (json.dumps(infra(), indent=1), parse_infragraph),
    "GOAL": (GOOD, lambda text, name: parse_goal(text, ring(2), name)),
    "MSCCL": (ALL_GATHER_OF_TWO, parse_msccl),
}
MEASURED = {"nccl-tests text": NCCL, "nccl-tests JSON": document(), "OSU": OSU}

damage = st.lists(
    st.tuples(
        st.integers(0, 10**6), st.integers(0, 40), st.sampled_from(["", "0", "-1", "x", '"', "<", "{", "9" * 30])
    ),
    min_size=1, max_size=3,
)


def damaged(text: str, wounds: list[tuple[int, int, str]]) -> str:
    """The text with some pieces cut out and others put in; a piece of 0 cuts off all that follows."""
    for at, length, new in wounds:
        place = at % (len(text) + 1)
        text = text[:place] + new + (text[place + length :] if length else "")
    return text


def read_or_refused(read: Callable[[], object]) -> None:
    said = ""
    try:
        read()
    except WeftError as wrong:
        said = str(wrong)
    assert "\n" not in said
    assert len(said) < 2000


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None)
@given(wounds=damage)
def test_damaged_files_are_read_or_refused(name: str, wounds: list[tuple[int, int, str]]) -> None:
    text, parse = READERS[name]
    read_or_refused(lambda: parse(damaged(text, wounds), "file"))


@pytest.mark.parametrize("name", MEASURED)
@settings(max_examples=40, deadline=None)
@given(wounds=damage)
def test_damaged_measurements_are_read_or_refused(
    name: str, wounds: list[tuple[int, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / "damaged"
    path.write_text(damaged(MEASURED[name], wounds), encoding="utf-8")
    read_or_refused(lambda: read_measurements(path, n_ranks=2))


def test_a_folder_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(b"a\0b")
    for path, why in ((tmp_path, "cannot be read: Is a directory"), (tmp_path / "zeros", "it contains zero bytes")):
        with pytest.raises(WeftError, match=why):
            read_input(path, "measurements")
