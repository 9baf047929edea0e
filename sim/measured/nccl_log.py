"""The log of NCCL (NCCL_DEBUG=INFO) among the lines of a table: its lines become comments, rows that it cut are joined.

nccl-tests prints a row in three pieces, before and after each of its two measurements, whose calls NCCL logs: a line of
the log stands behind a piece, and the next piece begins a line. Where the log begins in such a line is known by its
host, which begins lines elsewhere.
"""

import re
from collections.abc import Sequence

from sim.measured.nccl_text import column_count
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
