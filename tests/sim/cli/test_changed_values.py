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

_MSCCL = {
    r'nchannels="': "of a program whose blocks name their channels", r'[is]_chunks="': "buffers that no step uses",
    r'type="s" srcbuf="o" srcoff="\d" dstbuf="o" dstoff="|type="r" srcbuf="o" srcoff="': "of the other end",
    r'hasdep="': "nothing depends on it",
}
_NCCL = {
    r'"><cpu numaid="|<cpu numaid="|class="|sm="|gdr="|"><gpu dev="': "which GPU or NUMA node, and no rate of them",
    r' rank="|system version="': "a number of the file, in its order", r'target="(0000:f0:)?': "an NVSwitch",
    r'dev="|port="|latency="': "no rate",
}
_PCIE = r'link_(speed|width)="'

UNUSED: dict[str, dict[str, str]] = {
    "GraphML": {r"xml version='|www\.w3\.org/|xmlns/|ring:": "of XML, and the name"},
    "node-link JSON": {r"ring:": "the name"},
    "InfraGraph JSON": {r'"(nic|mem|port|leaf)".*"count": |port\[0:': "of devices without a cable"},
    "NCCL topology XML": {**_NCCL, _PCIE: "NVLink joins the GPUs", r'speed="': "of a NIC, of a node alone"},
    "NCCL topology of a VM": {**_NCCL, _PCIE: "NVLink joins the GPUs", r'speed="': "of a NIC, of a node alone"},
    "machine of NCCL": {**_NCCL, _PCIE: "NVLink joins the GPUs, and PCIe of NICs is faster than they are"},
    "SimGrid dragonfly": {r'version="|version=\'': "of the format", r' speed="|loopback_(bw|lat)="': "inside a host"},
    "rocm-smi": {r"GPU0 +|GPU\d( +(15|XGMI))+ +": "of a GPU to itself"},
    "rocm-smi JSON": {r'Hops between DRM devices \d and \d": "|Numa Node": "': "XGMI joins all of them"},
    "amd-smi JSON": {r'"gpu": (\d), "links": .*|"gpu": \d, "weight": |"SELF", "num_hops": ': "of a GPU to itself"},
    "nvidia-smi of cards": {r"SYS\t(0-)?|0-63\t": "affinities of the host's processes"},
    "nvidia-smi": {r"SYS\t(0-)?|0-63\t": "affinities of the host's processes"},
    "MSCCL XML": _MSCCL, "schedule in place of an algorithm": _MSCCL,
    "MSCCL++ plan": {r'num_threads_per_block": ': "of a kernel", r'scratch_chunks": ': "a buffer that no step uses"},
    "TE-CCL JSON": {r'\{"|"|Epoch_Duration": |1e-|Epochs_Required": |met by epoch ': "epochs give an order alone"},
    "ForestColl XML": {r' index="|height="': "of a tree, whose edges say it"},
    "task graph CSV": {
        r"(forward|backward),\d,(\d,[\d.]+,)?": "a computation has one place, and no bytes",
        r"message,\d,\d,|allreduce,(\d,){0,2}": "times of its own network",
        r"allreduce,0,0,0,(\d+,)?": "a group of one",
    },
    "plan of circuits": {r'"(stream|tag)": ': "passed over"},
    "Kineto profile": {
        r'schemaVersion": |"rank": |"pid": |External id": |"tid": ': "links events, or names who did it",
        r'(cudaLaunchKernel|comms)", "tid": 1, "ts": (\d, "dur": )?': "a launch is no later than its kernel",
        r'"dur": \d+, "args": \{"correlation": ': "a launch is no later than its kernel",
    },
    "nccl-tests text": {
        r"^#.*(\n#.*)*|# (.*\n)*.*Rank .*|\[(1,)?|(Out of bounds values|Avg bus bandwidth) +: ": "of the log",
        r"\n +0? *0? *|(float|sum) +-?|(\d+\.\d+ +)+": "a root, sizes in elements, rates of its own: times are read",
        r"\d+ +": "of a line of no bytes, or errors",
    },
    "nccl-tests JSON": {r'version": |"-g", "|"rank": ': "of the run: the caller says the ranks"},
    "rccl-tests JSON": {r'(numCycle|ranksPerNode|gpusPerRank)": ': "said by ranks and nodes"},
    "OSU text": {r"\d +[\d.]+ +([\d.]+ +){0,2}": "least, most and iterations, beside the average"},
    "IMB text": {r"\( ": "threads", r"\n +\d+ +(\d+ +([\d.]+ +){0,2})?": "repetitions, least and most"},
    "HCCL text": {r"(bytes|iters) is |\| +[\d.]+ +\| +": "of the command, or a rate of its own"},
    "JSON of weft": {r'"weft": "': "its version"}, "measured kernels": {}, "LIBRA communicator": {},
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
        "config.json of Hugging Face", "config.json of a mixture",
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


def test_every_reader_is_here(tmp_path: Path) -> None:
    assert set(readers(tmp_path)) == {*UNUSED, "Chakra", "Chakra, gzipped", "task graph"}  # the last is that of the CSV


def test_a_changed_byte_of_a_trace_is_never_passed_over_in_silence(tmp_path: Path) -> None:
    reader = readers(tmp_path)["Chakra"]
    path, silent = tmp_path / f"changed{reader.suffix}", []
    path.write_bytes(reader.good)
    plain = outcome(reader, path)
    for at, byte in enumerate(reader.good):
        path.write_bytes(reader.good[:at] + bytes([byte ^ 1]) + reader.good[at + 1:])
        if outcome(reader, path) == plain:
            silent.append(at)
    assert silent == []
