"""The log of NCCL (NCCL_DEBUG=INFO) among the lines of a table: its lines become comments, rows that it cut are joined.

nccl-tests prints a row in three pieces, before and after each of its two measurements, whose calls NCCL logs: a line of
the log stands behind a piece, and the next piece begins a line. Where the log begins in such a line is known by its
host, which begins lines elsewhere.

Tables of nccom-test, of AWS Neuron: those of nccl-tests with columns and units of its own.

Its GB/s are 2^30 bytes a second where the time is called time(us), and 10^9 where it is called time:avg(us), as the
tables of its guide tell (of Neuron 2.29); the command above the table names what no column does.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.measured.nccl_text import NCCL_TESTS, column_count, nccl_text
from sim.measured.points import Measurements
from topologies.checks import WeftError
from topologies.units import counted

_TAG = r"\[[^][]*\](?:<std\w+>)?:?\s*"
_TAGGED = re.compile(rf"{_TAG}$")
_AFTER = r":\d+:\d+ (?:\[-?\d+\] )?(?:[\d.]+ )?(?:\S+:\d+ )?NCCL [A-Z]+\b"
_LOG = re.compile(rf"\s*(?:{_TAG})*([\w.-]+){_AFTER}")
_BEGINS = re.compile(r"\s*\d+\s+\d+\s+[a-z]")
_NUMBERS = re.compile(r"(?:\s*(?:[\d.]+(?:e[+-]\d+)?|N/A)(?=\s|$))+")


def past_log(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """As many lines without the log, and what to tell of it; a row that was cut stands where its last piece did."""
    hosts = {found[1] for found in map(_LOG.match, lines) if found}
    if not hosts:
        return list(lines), []
    log = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(hosts)))}){_AFTER}")
    out, passed, n = list[str](), 0, 0
    pieces, joined, lost = list[tuple[int, str]](), list[int](), list[int]()  # pieces of the row that is not whole yet
    for at, line in enumerate(lines, start=1):
        found = log.search(line)
        piece = line[:found.start()] if found else line
        for _ in range(3 if found else 0):
            piece = _TAGGED.sub("", piece)
        if found and not piece.strip():
            piece = _swallowed(line.split()[-n:], n)
        passed, n = passed + (found is not None), column_count(piece) or n
        begins = _BEGINS.match(piece) is not None
        if pieces and (begins or piece.startswith("#")):
            lost.append(pieces[0][0])
            pieces = []
        out.append(piece if piece or not found else f"# {line}")
        whole = " ".join([*(text for _, text in pieces), piece])
        # a row that is short with no log beside it was not cut by the log
        cut = pieces or found or not begins or (at < len(lines) and _LOG.match(lines[at]))
        if not n or not cut or not (begins or _NUMBERS.fullmatch(piece)) or (not pieces and len(piece.split()) >= n):
            continue
        out[-1] = ""
        pieces.append((at, piece))
        if len(whole.split()) == n and _BEGINS.match(whole):
            joined.append(at)
            out[-1], pieces = whole, []
        elif len(whole.split()) >= n or not _BEGINS.match(whole):
            lost.append(pieces[0][0])
            pieces = []
    lost += [number for number, _ in pieces[:1]]
    notes = [f"passed over: {counted(passed, 'line')} of NCCL's log"]
    if joined:
        notes.append(f"put together: {counted(len(joined), 'row')} that it cut, to line {joined[-1]}")
    if lost:
        notes.append(f"left out: {counted(len(lost), 'row')} that it cut, at line {', '.join(map(str, lost[:9]))}")
    return out, notes


def _swallowed(words: Sequence[str], n: int) -> str:
    """A row at the end of a line of the log, which another process had not ended."""
    row = " ".join(words)
    return row if n and len(words) == n and _BEGINS.match(row) and _NUMBERS.fullmatch(" ".join(words[5:])) else ""


SHORT = {"allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter"}
TIME = "time:avg(us)"

NCCOM_HEAD = re.compile(r"\s*size\(B\)\s+count\(elems\)\s")
_COMMAND = re.compile(r"\bnccom-test\s+(\S.*)")
_WORKERS = re.compile(r"(?:^|\s)(?:-r|--nworkers)[ =](\d{1,7})\b")
_NODES = re.compile(r"(?:^|\s)(?:-N|--nnodes)[ =](\d{1,7})\b")
_GROUPS = re.compile(r"--(?:data-parallel-dimension|custom-replica-group)")


def nccom_text(lines: Sequence[str], name: str, placement: str, asked: str | None, n_ranks: int | None) -> Measurements:
    """The rows of a table; WeftError: as `nccl_text`, another operation, or groups that ran at once."""
    said = next((found[1] for found in map(_COMMAND.search, lines) if found), "")
    if _GROUPS.search(said):
        raise WeftError(f"{name} is of groups that ran at once: none had the network for itself, so run one alone")
    test = next((SHORT.get(word, word) for word in said.split() if SHORT.get(word, word) in NCCL_TESTS), None)
    if said and test is None:
        raise WeftError(f"{name}: nccom-test {said[:80]} is of no collective that is known: {', '.join(NCCL_TESTS)}")
    kind, ranks, nodes = NCCL_TESTS.get(test or ""), _WORKERS.search(said), _NODES.search(said)
    plain = [_head(line) if NCCOM_HEAD.match(line) else "" if _COMMAND.search(line) else line for line in lines]
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
