"""Writes the files of `examples/`, and runs every command of the helps and the README: `make examples`.

The list of commands with their exit codes is docs/reference/examples.md. Measured tables are simulated here: no machine
was measured.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sim.cli import COMMANDS, main
from sim.cli.flags import examples_of
from sim.study.tables import nccl_table
from workloads import Trace, write_trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_schema import COLLECTIVES as CHAKRA
from workloads.formats.chakra_schema import Node

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "reference" / "examples.md"
NOT_RUN = {
    "weft sweep examples/scaling.toml --dask tcp://head:8786 --export scaling.parquet": "not run: needs a Dask cluster",
    "weft paper swing": "not run: takes minutes, `--quick` is run",
}
"""Commands that are not run, and why."""


class Example(NamedTuple):
    """A line of a help or of the README, and the commands of weft in it, without what a shell does around them."""

    source: str
    line: str

    @property
    def calls(self) -> list[list[str]]:
        """Words after `weft`, command by command."""
        parts = re.split(r"<\(|\)\s" if "<(weft" in self.line else r"&&|\s>\s", self.line)
        lists = [shlex.split(part.strip(), comments=True) for part in parts if part.strip().startswith("weft ")]
        return [words[1:] for words in lists]

    @property
    def why_not(self) -> str:
        """Why the line is not run; "" if it is."""
        return NOT_RUN.get(self.line, "")


def every() -> list[Example]:
    """All examples: of the helps in their order, then those of the README that no help has."""
    found = [Example(f"weft {name} --help", line) for name in COMMANDS for line in examples_of(name)]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (weft .*)$", readme, re.MULTILINE)
    return found + [Example("README.md", line) for line in lines if line not in {one.line for one in found}]


def run(example: Example) -> tuple[int, str]:
    """The first exit code that is not 0, or 0, and what was printed; run in the current folder."""
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
        for words in example.calls:
            try:
                code = main(words)
            except SystemExit as left:
                code = int(left.code or 0)
            if code:
                return code, heard.getvalue()
    return 0, heard.getvalue()


def lay_out(folder: Path) -> None:
    """Put what the examples of a checkout find there into a folder: `examples/` and `out/`."""
    (folder / "out").mkdir()
    (folder / "examples").symlink_to(EXAMPLES)


def page(codes: Sequence[str]) -> str:
    """The list of all commands, with an exit code or a reason for each."""
    text = [
        "<!-- written by `make examples`; change the code instead -->\n", "# Examples and their exit codes\n",
        "Every command in the helps and in the README, run in a folder with `examples/` and `out/` of a checkout.\n"
        "The files in `examples/` are small and made by weft itself: the measured tables are simulated.\n",
        "| command | from | exit code |", "|---|---|---|",
    ]
    for one, code in zip(every(), codes, strict=True):
        shown = one.line.replace("|", "\\|")
        text.append(f"| `{shown}` | {one.source} | {code} |")
    return "\n".join(text) + "\n"


def write_page() -> None:
    """Run every example, each in a new folder; the page has what they ended with."""
    codes = []
    for one in every():
        if one.why_not:
            codes.append(one.why_not)
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            lay_out(Path(folder))
            code, said = run(one)
        codes.append(str(code))
        print(code, one.line, flush=True)
        if code:
            print(said)
    PAGE.write_text(page(codes), encoding="utf-8")


# --- the files

TESTS = {"all-reduce": "all_reduce", "all-gather": "all_gather"}
LAYERS = """\
embedding -1 4000 NONE 0 4000 NONE 0 4000 ALLREDUCE 16777216 10
attention_1 -1 20000 ALLREDUCE 4194304 20000 ALLREDUCE 4194304 20000 ALLREDUCE 8388608 10
mlp_1 -1 40000 ALLREDUCE 4194304 40000 ALLREDUCE 4194304 40000 ALLREDUCE 16777216 10
attention_2 -1 20000 ALLREDUCE 4194304 20000 ALLREDUCE 4194304 20000 ALLREDUCE 8388608 10
mlp_2 -1 40000 ALLREDUCE 4194304 40000 ALLREDUCE 4194304 40000 ALLREDUCE 16777216 10
"""
TEXTS = {
    "layers.txt": LAYERS,
    "groups_4d.yml": "Forward: [ 4, 4, -1, -1 ]\nInputGrad: [ 4, 4, -1, -1 ]\nWeightGrad: [ -1, 2, 4, 32 ]\n",
    "3d_network.yml": "Topology: [ Ring, FullyConnected, Switch ]\nNpusCount: [ 16, 8, 32 ]\n"
                      "CostDimension: [ InterPackage, InterNode, InterPod ]\n",
    "4d_network.yml": "Topology: [ Ring, FullyConnected, Ring, Switch ]\nNpusCount: [ 4, 8, 4, 32 ]\n"
                      "CostDimension: [ InterChiplet, InterPackage, InterNode, InterPod ]\n",
    "4d_cost.yml": "InterChiplet:\n  Link: 2.0\nInterPackage:\n  Link: 4.0\n  Switch: 13.0\nInterNode:\n  Link: 4.0\n"
                   "  Switch: 13.0\nInterPod:\n  Link: 7.8\n  Switch: 18.0\n  Nic: 31.6\n",
    "scaling.toml": '[topology]\nspec = ["torus:4x4", "torus:8x8"]\n[collective]\nalgorithms = ["swing", "ring"]\n'
                    '[model]\nchunks = [1, 16]\n[sweep]\nbegin = "1K"\nend = "1M"\nfactor = 4\n',
    "chunks.toml": '[topology]\nspec = "torus:8x8"\n[collective]\nalgorithms = ["bucket"]\n[model]\n'
                   'chunks = [1, 4, 16, 64]\n[sweep]\nbegin = "64K"\nend = "16M"\nfactor = 16\n',
    "faults.toml": '# A cable is out for a while, a worker is late, and every link loses one chunk in ten thousand.\n'
                   'timeout = "20us"\nreroute = "10us"\nseed = 1\n\n[[link-down]]\nlink = "npu0--npu1"\nat = "5us"\n\n'
                   '[[repair]]\nlink = "npu0--npu1"\nat = "60us"\n\n[[straggler]]\nnpu = "npu5"\ndelay = "3us"\n\n'
                   '[[loss]]\nlink = "*"\nprobability = 0.0001\n',
    "tenants.toml": '[topology]\nspec = "torus:4x4"\n\n[[tenant]]\nname = "left"\ncollective = "all-reduce"\n'
                    'algorithm = "hierarchical"\nsize = "1MiB"\ngroup = "4,2"\nnpus = "0-7"\n\n[[tenant]]\n'
                    'name = "shuffle"\ncollective = "all-to-all"\nalgorithm = "direct"\nsize = "64KiB"\n'
                    'start = "10us"\npriority = 1\n',
    "astra/system.json": json.dumps({
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 4, "all-gather-implementation": ["ring"],
        "all-reduce-implementation": ["direct"], "local-mem-bw": 1600,
    }, indent=2) + "\n",
    "astra/ring_16.yml": "topology: [ Ring ]\nnpus_count: [ 16 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n",
    "astra/groups.json": json.dumps({"1": list(range(8)), "2": list(range(8, 16))}) + "\n",
}
"""Files that are written by hand, by name."""


def nccl_text(kind: str, gpu: str, nodes: int, rows: Sequence[dict[str, Any]]) -> str:
    """A table of nccl-tests with its header; eight GPUs a node."""
    ranks = [
        f"#  Rank {rank:>2} Group  0 Pid   {100 + rank} on node{rank // 8} device  {rank % 8} [0x0{rank % 8}] {gpu}"
        for rank in range(8 * nodes)
    ]
    head = [f"# Collective test starting: {TESTS[kind]}_perf", "# Using devices", *ranks]
    return "\n".join([*head, nccl_table(rows, 8 * nodes)]) + "\n"


def osu_text(rows: Sequence[dict[str, Any]]) -> str:
    """A table of the OSU micro-benchmarks."""
    lines = [f"{row['size_bytes']:<10} {row['time_s'] * 1e6:>20.2f}" for row in rows]
    return "\n".join(["# OSU MPI Allreduce Latency Test v7.4", "# Size       Avg Latency(us)", *lines]) + "\n"


def trace(group: str | None) -> bytes:
    """A Chakra trace of one all-gather of 1 MiB."""
    attributes = [Attribute("is_cpu_op", False, "bool"), Attribute("comm_type", CHAKRA.index("all-gather"), "int64"),
                  Attribute("comm_size", 2**20, "int64")]
    if group:
        attributes.append(Attribute("pg_name", group, "string"))
    node = Node(0, "gather", "collective", attributes=tuple(attributes))
    return write_trace(Trace("0.0.4", (), (node,)))


def rows_of(command: str, file: Path) -> list[dict[str, Any]]:
    """The rows of a comparison, whose document stays in a file."""
    if code := main([*command.split(), "--quiet", "--json", str(file)]):
        raise RuntimeError(f"{command}: {code}")
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def write_files(folder: Path) -> None:
    """Everything in a folder such as `examples/`, but for the programs."""
    for name in ("astra", "results"):
        (folder / name).mkdir(exist_ok=True)
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    for npu in range(16):
        (folder / f"astra/gather.{npu}.et").write_bytes(trace(None))
        (folder / f"astra/grouped.{npu}.et").write_bytes(trace(str(1 + npu // 8)))
    for side in (4, 8, 16):
        rows_of(f"compare --topology torus:{side}x{side} --algorithms swing,ring,bucket -b 64K -e 64M -f 32 "
                "--chunks 16 --spread 0", folder / f"results/torus-{side}x{side}.json")
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch, "rows.json")
        h100 = "compare --library nccl --machine dgx-h100:{} --collective {} -b 1K -e 1G -f 8"
        for kind in TESTS:
            text = nccl_text(kind, "NVIDIA H100 80GB HBM3", 1, rows_of(h100.format(1, kind), at))
            (folder / f"{TESTS[kind]}.txt").write_text(text, encoding="utf-8")
        two = nccl_text("all-reduce", "NVIDIA H100 80GB HBM3", 2, rows_of(h100.format(2, "all-reduce"), at))
        (folder / "nccl.txt").write_text(two, encoding="utf-8")
        for version, name in (("2.18", "p4de"), ("2.21", "p4de_before")):
            rows_of(f"compare --library nccl:{version} --machine p4de:2 -b 1K -e 1G -f 8 --nccl-json "
                    f"{folder}/{name}.json", at)
        rows_of("compare --topology dgx-a100:1 --algorithm nccl-rings -b 1K -e 256M -f 4 --chunks 16 "
                f"--nccl-json {folder}/measured.json", at)
        osu = rows_of("compare --topology switch:16 --link-bandwidth 200Gb/s --algorithm ring -b 1K -e 64M -f 4 "
                      "--chunks 1", at)
        (folder / "osu.txt").write_text(osu_text(osu), encoding="utf-8")
    for line in (f"schedule --topology switch:32 --collective broadcast --algorithm tree --form binomial -b 1M "
                 f"--goal {folder}/broadcast_32.goal",
                 "schedule --topology dgx-a100:2 --collective all-gather --algorithm pipelined -b 1M "
                 f"--option k=1 --msccl {folder}/all_gather.xml"):
        if code := main(line.split()):
            raise RuntimeError(f"{line}: {code}")


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        write_files(EXAMPLES)
    write_page()
