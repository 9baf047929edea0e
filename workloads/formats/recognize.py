"""What a workload file is, by its name and its first lines, so that one of another kind is named and not misread."""

import re
from pathlib import Path

from collectives.formats.ocs_plan import FORMAT
from topologies import WeftError
from topologies.text.input_text import is_special
from topologies.text.kinds import HEAD, WORKLOAD, refuse_other
from workloads.formats.chakra_nodes import ending_of
from workloads.formats.flexflow import ENDING, HEADER
from workloads.formats.flight_recorder import ending_of as dumps_of
from workloads.formats.htsim_cm import HEADER as FLOWS
from workloads.formats.kineto import files_of as profiles_of

CHAKRA, FLIGHT, GOAL, LAYERS = "Chakra traces", "dumps of the flight recorder", "a GOAL file", "layers"
KINETO = "Kineto profiles"
GRAPH, MATRIX, PLAN = "a task graph of FlexFlow", "a connection matrix", "a plan of circuits"

_COMMENT = r"(?:\s|//[^\n]*\n|/\*.*?\*/)*"

READ = ((re.compile(_COMMENT + r"num_ranks\b", re.DOTALL), GOAL), (re.compile(HEADER), GRAPH),
        (re.compile(FLOWS), MATRIX),
        (re.compile(rf'\s*\{{.*"{FORMAT}"', re.DOTALL), PLAN))

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
    refuse_other(head, name, WORKLOAD)
    for pattern, kind in READ:
        if pattern.match(head):
            return kind
    return LAYERS if not name.endswith(".goal") else GOAL
