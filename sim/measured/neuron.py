"""Tables of nccom-test, of AWS Neuron: those of nccl-tests with columns and units of its own.

Its GB/s are 2^30 bytes a second where the time is called time(us), and 10^9 where it is called time:avg(us), as the
tables of its guide tell (of Neuron 2.29); the command above the table names what no column does.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.measured.nccl_text import NCCL_TESTS, nccl_text
from sim.measured.points import Measurements
from topologies.checks import WeftError

SHORT = {"allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter"}
TIME = "time:avg(us)"

_HEAD = re.compile(r"\s*size\(B\)\s+count\(elems\)\s")
_COMMAND = re.compile(r"\bnccom-test\s+(\S.*)")
_WORKERS = re.compile(r"(?:^|\s)(?:-r|--nworkers)[ =](\d{1,7})\b")
_NODES = re.compile(r"(?:^|\s)(?:-N|--nnodes)[ =](\d{1,7})\b")
_GROUPS = re.compile(r"--(?:data-parallel-dimension|custom-replica-group)")


def is_nccom(lines: Sequence[str]) -> bool:
    """Whether the head of a table of nccom-test is there."""
    return any(_HEAD.match(line) for line in lines)


def nccom_text(lines: Sequence[str], name: str, placement: str, asked: str | None, n_ranks: int | None) -> Measurements:
    """The rows of a table; WeftError: as `nccl_text`, another operation, or groups that ran at once."""
    said = next((found[1] for found in map(_COMMAND.search, lines) if found), "")
    if _GROUPS.search(said):
        raise WeftError(f"{name} is of groups that ran at once: none had the network for itself, so run one alone")
    test = next((SHORT.get(word, word) for word in said.split() if SHORT.get(word, word) in NCCL_TESTS), None)
    if said and test is None:
        raise WeftError(f"{name}: nccom-test {said[:80]} is of no collective that is known: {', '.join(NCCL_TESTS)}")
    kind, ranks, nodes = NCCL_TESTS.get(test or ""), _WORKERS.search(said), _NODES.search(said)
    plain = [_head(line) if _HEAD.match(line) else "" if _COMMAND.search(line) else line for line in lines]
    n = int(ranks[1]) if ranks else None
    found = nccl_text(plain, name, placement, kind or asked, n or n_ranks)
    return replace(found, collective=kind, n_ranks=n, hosts=int(nodes[1]) if nodes else None)


def _head(line: str) -> str:
    """A head as nccl-tests would write it: one time, the average or else the first."""
    words = (line if "time:" in line else line.replace("GB/s", "GiB/s")).split()
    time = TIME if TIME in words else next((word for word in words if word.startswith("time:")), "")
    return " ".join("time(us)" if word == time else word.replace("time:", "").replace("(us)", "")
                    if word.startswith("time:") else word for word in words)


def lines_of_json(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table that --report-to-json-file wrote, as text."""
    heads = list(results[0])
    return [" ".join(heads), *(" ".join(str(row.get(key)) for key in heads) for row in results)]
