"""What a workload file is, by its name and its first lines, so that one of another kind is named and not misread."""

import re
from pathlib import Path

from collectives.formats.ocs_plan import FORMAT
from topologies import WeftError
from topologies.text.input_text import is_special
from workloads.formats.chakra_nodes import ending_of
from workloads.formats.flexflow import ENDING, HEADER
from workloads.formats.flight_recorder import ending_of as dumps_of
from workloads.formats.htsim_cm import HEADER as FLOWS
from workloads.formats.kineto import files_of as profiles_of

CHAKRA, FLIGHT, GOAL, LAYERS = "Chakra traces", "dumps of the flight recorder", "a GOAL file", "layers"
KINETO = "Kineto profiles"
GRAPH, MATRIX, PLAN = "a task graph of FlexFlow", "a connection matrix", "a plan of circuits"

HEAD = 4096
"""Bytes that are looked at."""

_COMMENT = r"(?:\s|//[^\n]*\n|/\*.*?\*/)*"

READ = ((re.compile(_COMMENT + r"num_ranks\b", re.DOTALL), GOAL), (re.compile(HEADER), GRAPH),
        (re.compile(FLOWS), MATRIX),
        (re.compile(rf'\s*\{{.*"{FORMAT}"', re.DOTALL), PLAN))

_LINKED = "Chakra's trace_link and converter make traces of it, which are read"

OTHERS = (
    (r'\s*[\[{].*"(traceEvents|distributedInfo)"', "the Kineto profile of one rank: give the folder of those of "
     "all, or what their names begin with"),
    (r'\s*\{.*"schema".*"(pid|nodes)"', f"a host trace of PyTorch: {_LINKED}"),
    (r'\s*\{.*"(entries|pg_config)"', "the dump of one rank of PyTorch's NCCL flight recorder: give what comes "
     "before the number of the rank"),
    (r'\s*\{.*"(architectures|hidden_size|num_hidden_layers)"', "the config.json of a model: --model"),
    (r'\s*\{.*"(scheduling-policy|preferred-dataset-splits)"', "a system file of ASTRA-sim: --system of weft astra"),
    (r'\s*\{.*"memory-type"', "a remote memory file of ASTRA-sim: --remote-memory"),
    (r'\s*\{\s*"\d+"\s*:\s*\[', "a file of communicator groups: --comm-group"),
    (r"(.*\n)?\s*(topology|Topology)\s*:", "a network file: --topology"),
    (r"\s*<(system|graphs)\b", "a topology or graph XML of NCCL: --topology"),
    (r"\s*<algo\b", "an MSCCL program: --algorithm"),
    (r"\s*\{.*\"threadblocks\"", "an execution plan of MSCCL++: --algorithm"),
    (r"\s*\d+ +\d+ +\d+( +\d+ +\d+ +\S+)?\s*\n\s*\d+", "a topology of ns-3"),
    (r".*--num-layers\b", "a script or arguments of Megatron-LM: --model FILE.sh"),
    (r".*# *(nThread|nccl-tests|out-of-place)|.*# *size +count +type", "a table of measured times: weft judge FILE"),
    (r"\s*(<\?xml[^>]*\?>\s*)?(<!DOCTYPE platform|<platform)", "a platform of SimGrid: --topology"),
    (r"\s*(\x1b\[4m)?\s*GPU0\b", "a table of nvidia-smi: --topology FILE --link-bandwidth NVLINK,PCIE"),
    (r"\s*\[(topology|collective|sweep|workload)\]", "a spec of weft: --spec FILE, or weft sweep FILE"),
    (r'\s*\{\s*"logical-dims"', "the logical dimensions of ASTRA-sim's ns-3"),
    (r"SQLite format 3", "a database, as Nsight Systems exports it"),
    (r"\x80[\x02-\x05]", "a pickle, which may run any program; of PyTorch's flight recorder JSON is read, as by "
     "_dump_nccl_trace_json()"),
    (r"\s*\[model\]|.*\n\[(job|training|parallelism)\]", "a job file of torchtitan: --model FILE.toml"),
)
"""Patterns of the first bytes of files that are known and not read as workloads, and what they are."""


def files_named(name: str) -> list[str]:
    """A file; or, of the name that traces of all ranks begin with, all of them."""
    path = Path(name)
    if profiles := profiles_of(name):
        return [str(one) for one in profiles]
    if path.is_file() or not path.parent.is_dir():
        return [name]
    of_rank = re.compile(re.escape(path.name) + r"\.?\d+(\.et|\.et\.gz|\.json|\.eg)?")
    return sorted(str(one) for one in path.parent.iterdir() if of_rank.fullmatch(one.name))


def format_of(name: str) -> str:
    """`CHAKRA`, `FLIGHT`, `KINETO`, `GRAPH`, `MATRIX`, `PLAN`, `GOAL` or `LAYERS`, of a file or the prefix of traces.

    WeftError: a file that is recognized and not a workload, or one of several traces.
    """
    if ending_of(name):
        return CHAKRA
    if profiles_of(name):  # before dumps, whose words are in profiles too
        return KINETO
    if dumps_of(name) is not None:
        return FLIGHT
    if name.endswith(ENDING):
        return GRAPH
    path = Path(name)
    if path.is_dir():
        first = next((f", {one.with_name(one.name[:-5])}" for one in sorted(path.glob("*.0.et"))), "")
        raise WeftError(f"workload {name} is a folder: give what the names of all ranks' traces begin with{first}")
    if not path.is_file() or is_special(name):
        return LAYERS if not name.endswith(".goal") else GOAL
    if (trace := re.fullmatch(r"(.+)\.\d+\.(et|et\.gz|json|eg)", name)) is not None:
        raise WeftError(f"workload {name} is the trace of one rank: give what comes before .<rank>.et, {trace[1]}")
    with path.open("rb") as stream:
        head = stream.read(HEAD).decode("latin-1").removeprefix("\xef\xbb\xbf")
    for pattern, kind in READ:
        if pattern.match(head):
            return kind
    for words, what in OTHERS:
        if re.match(words, head, re.DOTALL):
            raise WeftError(f"workload {name} is {what}")
    return LAYERS if not name.endswith(".goal") else GOAL
