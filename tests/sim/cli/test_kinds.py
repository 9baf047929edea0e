"""A file in the place of another is named for what it is, in every command; hints name flags that exist."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sim.cli import EXIT_BAD_INPUT, main, parsers
from sim.cli.flags import GONE, with_places
from tests.astra_inputs import SYSTEM, compute_node, network_text, write_ranks
from tests.places import ROOT
from tests.reader_table import readers
from topologies.text.kinds import HEAD, MACHINE, MEASURED, MODEL, NETWORK, SCHEDULE, SPECS, TOPOLOGY, WORKLOAD, kinds

OTHERS = {
    "graph.xml": '<graphs version="1">\n<graph id="0"/></graphs>\n',
    "lstopo.xml": '<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0"/>\n',
    "topology.conf": "# of Slurm\nSwitchName=s0 Nodes=n[0-3]\n",
    "job.out": "srun: job 123 queued and waiting for resources\nhello\n",
    "nccl.log": "n0:1:1 [0] NCCL INFO Bootstrap : Using eth0\n",
    "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}',
    "host.json": '{"schema": "1.1.1-chakra.0.0.4", "pid": 3, "nodes": []}',
    "ns3.conf": "ENABLE_QCN 1\nTOPOLOGY_FILE x.txt\n",
    "status.txt": "+-----+\n| NVIDIA-SMI 535.54.03 |\n",
    "tuner.csv": "allreduce,0,65536,tree,simple,2,1,-1,-1,-1\n",
    "page.html": "<!DOCTYPE html><html></html>\n",
    "base.sqlite": "SQLite format 3\0\0",
    "dump.pkl": "\x80\x04\x95",
    "text.gz": "\x1f\x8b\x08\0",
    "picture.png": "\x89PNG\r\n\x1a\n\0",
}
"""Files that are known and that nothing reads."""

FABRIC = "--topology ring:4"
FLAGS: dict[str, tuple[str, ...]] = {
    "topology --topology FILE": (TOPOLOGY,),
    "topology --machine FILE": (MACHINE,),
    "schedule --topology ring:2 -b 1K --algorithm FILE": (SCHEDULE,),
    f"bound {FABRIC} --collective all-to-all --pairs FILE": ("pairs",),
    f"compare {FABRIC} --algorithms ring -b 1K --faults FILE": ("fault plan",),
    f"trace {FABRIC} --workload FILE": (WORKLOAD,),
    f"train {FABRIC} --job FILE": (WORKLOAD,),
    f"compare {FABRIC} --algorithms ring --workload FILE": (WORKLOAD,),
    f"share {FABRIC} --tenant job=FILE": (WORKLOAD,),
    "optimize --network SW(4) --budget 1GB/s --workload FILE": (WORKLOAD,),
    f"train {FABRIC} --workload job --system FILE": ("system file",),
    f"train {FABRIC} --workload job --remote-memory FILE": ("remote memory file",),
    f"train {FABRIC} --workload job --comm-group FILE": ("communicator groups",),
    "compare --spec FILE": SPECS,
    "share --spec FILE": SPECS,
    "sweep FILE": SPECS,
    "judge FILE --machine dgx-h100:1": (MEASURED,),
    "calibrate FILE --machine dgx-h100:1": (MEASURED,),
    f"validate {FABRIC} --algorithms ring --measured FILE": (MEASURED,),
    f"train {FABRIC} --device h100 --global-batch 4 --model FILE": (MODEL, "job file"),
    f"train {FABRIC} --device h100 --global-batch 4 --model llama-3-8b --tp 4 --kernels FILE": ("kernels",),
    "optimize --workload gpt-3 --budget 1GB/s --network FILE": (TOPOLOGY, NETWORK),
    "paper training --data FILE": ("runs",),
    "plot FILE --plot never.png": ("result",),
    "astra --workload job --system system.json --network FILE": (NETWORK,),
    "astra --system system.json --network net.yml --workload FILE": ("trace",),
    "astra --workload job --system FILE --network net.yml": ("system file",),
}
"""Calls with a file, and what its reader calls files that it reads."""


@cache
def known(text: str) -> tuple[int, ...]:
    """Which kinds a file may be of."""
    return tuple(at for at, kind in enumerate(kinds()) if re.search(kind.pattern, text[:HEAD], re.DOTALL))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of every reader, and others."""
    folder, own = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("own")
    for name, reader in readers(own).items():
        (folder / f"{re.sub('[^A-Za-z0-9]', '_', name)}{reader.suffix}").write_bytes(reader.good)
    for name, text in OTHERS.items():
        (folder / name).write_bytes(text.encode("latin-1"))
    return folder


@pytest.mark.table
@pytest.mark.parametrize("words", FLAGS)
def test_a_file_is_named_for_what_it_is(
    words: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_ranks(tmp_path, [[compute_node(1, 0)]] * 4, "job")
    for name, text in {"system.json": json.dumps(SYSTEM), "net.yml": network_text(("Ring", 4))}.items():
        Path(name).write_text(text, encoding="utf-8")
    for file in sorted(files.iterdir()):
        fits = [kinds()[at] for at in known(file.read_bytes().decode("latin-1").removeprefix("\xef\xbb\xbf"))]
        if not fits or {one for kind in fits for one in kind.read_as} & set(FLAGS[words]):
            continue
        link = Path(file.name)
        link.symlink_to(file)
        assert main(shlex.split(words.replace("FILE", str(link)))) == EXIT_BAD_INPUT, file.name
        said = capsys.readouterr()
        told = [line for line in said.err.splitlines() if not line.startswith("# note")]
        assert said.out == "" and len(told) == 1
        assert f"{link} is {fits[0].what}" in told[0] or f"and {link} is " in told[0], (file.name, told)


def test_every_file_that_is_read_or_named_is_of_a_kind(tmp_path: Path) -> None:
    """But those that begin with nothing of their own: pairs, binary task graphs."""
    unknown = [name for name, reader in readers(tmp_path).items() if not known(reader.good.decode("latin-1"))]
    assert unknown == ["pairs", "task graph"]
    assert all(known(text) for text in OTHERS.values())


FOREIGN = {
    "--bf16", "--fp16", "--num-layers", "--data-parallel-sharding-strategy", "--moe-shared-expert-intermediate-size",
    "--recompute-method", "--recompute-modules", "--tokenizer-model", "--vocab-size", "--window-size", "--cp-comm-type",
    "--nnodes", "--nworkers",  # of nccom-test; those above of Megatron-LM
    "--showtopo", "--version", "--switch0", *GONE,  # rocm-smi; of weft; npu0--switch0 is a cable
}
"""Words with two dashes that are of other tools, or no flags."""


def _texts() -> Iterator[tuple[str, str]]:
    """Text of the packages that people may see: all but docstrings."""
    for room in ("sim", "collectives", "topologies", "workloads"):
        for path in (ROOT / room).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                    yield path.name, node.value
    for kind in kinds():
        yield "kinds.toml", kind.what


def test_hints_name_flags_that_exist() -> None:
    flags = {flag for parser in parsers().values() for flag in parser._option_string_actions} | FOREIGN
    found = {(name, flag) for name, text in _texts()
             for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", text)}
    assert len(found) > 200
    assert sorted((name, flag) for name, flag in found if flag not in flags) == []


def test_a_command_says_where_a_flag_is_that_it_has_not() -> None:
    for name, parser in parsers().items():
        for message in ("give --peak TFLOPS", "give it as --topology", "omit --algorithm", "see --showtopo"):
            said = with_places(message, name)
            flag = re.findall("--[a-z]+", message)[0]
            assert (said != message) == (flag not in parser._option_string_actions and flag != "--showtopo")
    assert with_places("give --peak 3", "share") == "give --peak 3 (here --peak is peak=VALUE in --tenant)"
    assert with_places("give --peak 3", "sweep") == "give --peak 3 (here --peak is peak of [workload])"
    assert with_places("give --network F", "train").endswith("(--network is of weft optimize, astra)")
    assert with_places("--system of weft astra", "judge") == "--system of weft astra"
