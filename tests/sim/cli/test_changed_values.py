"""One number of a reader's example changed: a line, something else that is read, or a number that no time needs."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import pytest

from tests.reader_table import Reader, readers
from topologies import WeftError

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")

UNUSED: dict[str, dict[str, str]] = {
    "SimAI topology": {r"^\d+ ": "GPUs of a server, which the links say"},
    "RCCL topology XML": {
        r'numaid="|class="|tclass="|<gpu dev="|sm="|arch="|gdr="': "no rate of xGMI depends on it",
        r'link_(speed|width)="': "PCIe carries nothing between GPUs of one box that xGMI joins",
    },
    "SimGrid fat-tree": {r'version="|version=\'': "of the format", r' speed="|loopback_(bw|lat)="': "inside a host"},
    "text workload": {
        r"layer -": "dependency, which ASTRA-sim does not read", r"NONE ": "the size of no collective",
        r"NONE 0 (10 ALLREDUCE )?": "a first layer's gradient by its input, which DATA does not run",
    },
    "connection matrix": {r"Triggers ": "a count for the tool's own tables", r"prio ": "passed over, with a note"},
    "arguments of Megatron-LM": {r"# --num-layers ": "in a comment"},
    **{name: {} for name in (
        "ns-3 topology", "htsim topology", "ASTRA-sim network", "pairs", "GOAL", "LIBRA network", "LIBRA cost",
        "communicator groups", "Chakra JSON", "flight recorder", "remote memory", "system file", "spec TOML",
        "spec JSON", "sweep", "fault plan", "machine", "measured machines", "training runs",
        "config.json of Hugging Face",
        "job file of torchtitan", "tenants", "result")},
}
"""What stands before numbers that change nothing, and why, by reader."""


def outcome(reader: Reader, path: Path) -> object:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            return pickle.dumps(reader.read(path)), [str(one.message) for one in told]
        except WeftError as wrong:
            return str(wrong)


@pytest.mark.parametrize("name", UNUSED)
def test_a_changed_number_is_never_passed_over_in_silence(name: str, tmp_path: Path) -> None:
    reader = readers(tmp_path)[name]
    text, path = reader.good.decode(), tmp_path / f"changed{reader.suffix}"
    path.write_text(text)
    plain, silent = outcome(reader, path), []
    for number in NUMBER.finditer(text):
        before = text[:number.start()]
        path.write_text(f"{before}{2 * int(float(number[0])) + 1}{text[number.end():]}")
        if outcome(reader, path) == plain and not any(re.search(f"({why})$", before) for why in UNUSED[name]):
            silent.append(before[-40:] + number[0])
    assert silent == []
