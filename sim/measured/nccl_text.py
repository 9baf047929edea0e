"""Text of nccl-tests and rccl-tests: a table under the header of its run; and plain tables of sizes and times or rates.

Columns are found by their names, so that a table of `size time`, of `size busbw`, or with commas reads as well.
Results of our own are written as its JSON (`-J`, version 3), so that its readers read them.
"""

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from collectives.core.collective import COLLECTIVES
from collectives.core.collective import collective as named
from sim.library.tuner import SENDRECV
from sim.measured.points import PLACEMENTS, Measurements, measured, scale
from sim.study.tables import nccl_fields
from sim.version import weft_version
from topologies.checks import WeftError
from topologies.grouped import grouped
from topologies.units import parse_size

NCCL_TESTS = {
    "all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter", "all_gather": "all-gather",
    "alltoall": "all-to-all", "broadcast": "broadcast", "reduce": "reduce", "sendrecv": SENDRECV,
}
"""Programs of nccl-tests, without their "_perf"."""

SETTLES = 0.3
"""Over the ranks: how far busbw over algbw may be off that of a collective; (n-1)/n is 1/n from 1."""

DIFFERS, ROUNDED = 0.02, 0.006
"""Share, and GB/s, by which a column may differ from what the others say."""

_COLUMNS = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "error", "timestamp")
_COLUMN = re.compile(
    r"([^\s,;|()\[\]]+?)(?:\s*[(\[]\s*([^)\]]*?)\s*[)\]]|_([num]?s|bytes|[KMGT]i?B|[KMGT]?i?b(?:its?)?(?:/s|ps)))?"
    r"(?=[\s,;|]|$)", re.IGNORECASE
)
"""A word of a header, and its unit, behind it in brackets or by an underscore."""

_UNDER = re.compile(r"#?\s*\(\w[^()]*\)(?:\s+\([^()]*\))*\s*")
"""The line below a header with the units of its columns."""
_COMMA = re.compile(r"\d,\d")
_TIMED = ("time", "algbw", "busbw")
_MEASURED = ("size", *_TIMED)
_NONE = ("n/a", "nan", "-", "")
_SIZE = re.compile(r"\d+(?:\.\d+)?(?:[KMGT]i?)?B?")
_VERSION = re.compile(r"(?:nccl-library=|NCCL version |RCCL version )(\d+)(?:\.(\d+))?")
_DRIVEN = re.compile(r"^#?\s*nThread\s+(\d+)\s+nGpus\s+(\d+)")
_RANK = re.compile(
    r"^(?:#\s+|\s*(?=Rank.*\bPid\b))Rank\s+([0-9]+)(?:\s+Group\s+([0-9]+))?\s(?:.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s+(.*\S))?"
)
_OUT_OF_BOUNDS = re.compile(r"^#?\s*Out of bounds values\s*:\s*(\d+)\s+FAILED")
_ENDS = ("Out of bounds", "Avg bus bandwidth", "Collective test concluded")
_FAILED = re.compile(r"Test (?:NCCL |CUDA |HIP )?failure\b.*|(?:unhandled|internal|remote process|network) .*error")
_NAME = re.compile(r"\b([a-z_]+?)_perf\b")


class Row(NamedTuple):
    """A line of the table: its number, bytes, and its words by column; in place where there are two of a name."""

    line: int
    size: int
    words: Mapping[str, str]
    inside: Mapping[str, str]


@dataclass
class _Text:
    """What was read so far."""

    name: str
    columns: tuple[str, ...] = ()
    scales: list[float] = field(default_factory=list)  # of the columns
    rows: list[Row] = field(default_factory=list)
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    collective: str | None = None
    command: str | None = None  # the last program named before the rows
    version: str = ""
    driven: int | None = None
    wrong: int = 0
    failed: str = ""
    cut_off: bool = False  # the last row
    notes: list[str] = field(default_factory=list)


def column_count(line: str) -> int:
    """How many columns of a table a line names; 0 if it is no header."""
    columns = tuple(name for name, _ in _columns(line))
    return len(columns) if columns[:1] == ("size",) and {*_TIMED, "count"} & set(columns[1:]) else 0


def is_row(line: str) -> bool:
    """Whether a line may be one of a table's."""
    words = _words(line)
    return len(words) > 1 and _SIZE.fullmatch(words[0]) is not None and isinstance(_number(words[1]), float)


def is_end(line: str) -> bool:
    """Whether a line ends a table."""
    return line.removeprefix("#").lstrip().startswith(_ENDS)


def is_rank(line: str) -> bool:
    """Whether a line lists a rank, or the GPUs of a process."""
    return (_RANK.match(line) or _DRIVEN.match(line)) is not None


def nccl_text(lines: Sequence[str], name: str, placement: str, asked: str | None, n_ranks: int | None) -> Measurements:
    """The table of a file; `asked`, `n_ranks`: collective and ranks where the file names none."""
    found = _read(lines, name)
    if not found.columns:
        if found.failed:
            raise WeftError(f"{name} has no table: the run failed ({found.failed})")
        if "".join(lines).lstrip().startswith("["):
            raise WeftError(f"{name} has no known format: it begins with '[', but JSON must be an object, and whole")
        raise WeftError(f"{name} has no known format: text or JSON of nccl-tests, text of OSU, IMB or HCCL, weft's "
                        "JSON, or a table with a header such as 'size time' (B, us) or 'size busbw' (B, GB/s) are read")
    if not found.rows:
        why = f": the run failed ({found.failed})" if found.failed else ""
        raise WeftError(f"{name} (nccl-tests text) has no measured time{why}")
    if len({*found.groups.values()}) > 1:
        alone, note = one_group([(found.groups[rank], host) for rank, (host, _) in found.ranks.items()], name)
        found.notes.append(note)
        found.ranks = dict(enumerate(one for rank, one in found.ranks.items() if found.groups[rank] == alone))
    ranks = max(found.ranks) + 1 if found.ranks else None
    collective = found.collective or (None if asked else _unnamed(found, ranks or n_ranks or 0))
    kind, n = collective or asked, ranks or n_ranks or 0
    rows = [(row.line, row.size, _time_us(row.words, row, name, kind, n)) for row in found.rows]
    other = [(row.size, _time_us(row.inside, row, name, kind, n)) for row in found.rows if row.inside is not row.words]
    each = [row.words for row in found.rows]
    if placement == PLACEMENTS[1] and other:
        each = [row.inside for row in found.rows]
        rows, other = ([(line, size, time) for (line, _, _), (size, time) in zip(rows, other, strict=True)],
                       [(size, time) for _, size, time in rows])
    points = measured(
        name, "nccl-tests text", [(f"line {line}", size, time) for line, size, time in rows], collective, ranks, other
    )
    if not points.points and any(isinstance(time, float) and time > 0 for _, time in other):
        raise WeftError(f"{name} has no time {placement}: --placement {PLACEMENTS[placement == PLACEMENTS[0]]}")
    hosts = {host for host, _ in found.ranks.values() if host}
    wrong = max(found.wrong, sum(int(words.get("#wrong", "")) for row in found.rows for words in _both(row)
                                 if words.get("#wrong", "").isdecimal()))
    return replace(
        points, hosts=len(hosts) or None, device=next((gpu for _, gpu in found.ranks.values() if gpu), ""),
        version=found.version, gpus_per_process=found.driven, left_out=points.left_out + found.cut_off,
        wrong=wrong, notes=(*found.notes, *_contradictions(found, kind, n), *_by_rate(rows, each)),
    )


def one_group(listed: Sequence[tuple[int, str]], name: str) -> tuple[int, str]:
    """Of several groups that ran at once (NCCL_TESTS_SPLIT) the first, if each has its own nodes, and a note.

    `listed`: group and node of each rank.
    WeftError: groups that share nodes, or of unequal size: none of them ran by itself.
    """
    hosts = grouped(listed)
    nodes = Counter(host for own in hosts.values() for host in {*own})
    if "" in nodes or max(nodes.values()) > 1 or len({len(own) for own in hosts.values()}) > 1:
        raise WeftError(f"{name} is of {len(hosts)} groups that ran at once (NCCL_TESTS_SPLIT) and share nodes, or "
                        "differ in size: none had the network for itself, so run one alone")
    first = next(iter(hosts))
    return first, (f"{len(hosts)} groups of {len(hosts[first])} ranks ran at once, each on nodes of its own: taken as "
                   "one such group")


def _both(row: Row) -> tuple[Mapping[str, str], ...]:
    return (row.words,) if row.inside is row.words else (row.words, row.inside)


def _read(lines: Sequence[str], name: str) -> _Text:
    found, ended = _Text(name), False
    last = max((number for number, line in enumerate(lines, start=1) if line.strip()), default=0)
    for number, line in enumerate(lines, start=1):
        where = f"{name}, line {number}"
        words = _words(line)
        found.version = found.version or _version_of(line)
        if not found.failed and (failed := _FAILED.search(line)):
            found.failed = failed[0][:80]
        if column_count(line):
            named_with_units = _columns(line)
            found.columns = tuple(name for name, _ in named_with_units)
            if not set(_TIMED) & set(found.columns):
                raise WeftError(f"{where} has no column time, algbw or busbw")
            # among them "cputime", which is no time of the collective: each has a word in every row
            over = dict.fromkeys(one for one in found.columns if one not in _COLUMNS and not one.startswith("i_"))
            found.scales = [scale(name, unit, where) if unit and name in _MEASURED else 1.0
                            for name, unit in named_with_units]
            if over and (said := f"columns that are passed over: {', '.join(over)}") not in found.notes:
                found.notes.append(said)
        elif found.columns and not found.rows and _UNDER.fullmatch(line):
            _under(found, line, where)
        elif line.startswith("#") or is_rank(line) or is_end(line):
            ended = ended or is_end(line)
            _comment(found, line, where)
        elif words and _SIZE.fullmatch(words[0]) and not ended and (found.columns or is_row(line)):
            if not found.columns:
                raise WeftError(f"{where}: numbers before the header '# size count type ...'")
            if len(words) < len(found.columns) and not _is_in_place_alone(found.columns, words, line):
                once = len(found.columns) - _repeated(found.columns)
                if len(words) == once < len(found.columns) and "type" not in found.columns:  # mscclpp-test: one of two
                    found.rows.append(_row(replace(found, columns=found.columns[:once]), words, number))
                    continue
                if number != last:
                    raise WeftError(f"{where}: {len(words)} of {len(found.columns)} columns: is the file cut off?")
                found.notes.append(f"the last row ({words[0]} B) is cut off, and left out")
                found.cut_off = True
                continue
            if len(words) > len(found.columns) and _COMMA.search(line):
                raise WeftError(f"{where}: {len(words)} words under {len(found.columns)} columns: "
                                "numbers have no commas")
            found.rows.append(_row(found, words, number))
        elif not found.rows and (test := _NAME.search(line)):
            found.command = NCCL_TESTS.get(test[1], found.command)
    return found


def _words(line: str) -> list[str]:
    return [word for word in re.split(r"[\s,;|]+", line.removeprefix("#")) if word]


def _columns(line: str) -> list[tuple[str, str]]:
    """The columns that a header names, and the unit of each, if it has one."""
    found = [(one[1].lower(), one[2] or one[3] or "") for one in _COLUMN.finditer(line.removeprefix("#"))]
    found = [("size", name) if name == "bytes" else (name, unit) for name, unit in found]
    return [("time" if name == "avg_time" else name, unit) for name, unit in found]


def _under(found: _Text, line: str, where: str) -> None:
    """Units of the columns in their order; what nccl-tests always writes changes nothing."""
    units = [unit.strip() for unit in re.findall(r"\(([^()]*)\)", line) if unit.strip() != "elements"]
    places = [at for at, name in enumerate(found.columns) if name in _MEASURED]
    if len(units) == len(places):
        for at, unit in zip(places, units, strict=True):
            found.scales[at] = scale(found.columns[at], unit, where)
    elif not {*units} <= {"B", "us", "GB/s"}:
        raise WeftError(f"{where}: {len(units)} units ({', '.join(units)}) below {len(places)} columns that have one")


def _comment(found: _Text, line: str, where: str) -> None:
    if each := _DRIVEN.match(line):
        found.driven = int(each[1]) * int(each[2])
    elif failed := _OUT_OF_BOUNDS.match(line):
        found.wrong = max(found.wrong, int(failed[1]))
    elif rank := _RANK.match(line):
        if int(rank[1]) in found.ranks:
            raise WeftError(f"{where}: rank {rank[1]} is there twice: every process ran alone, as nccl-tests does "
                            "if it is built without MPI=1")
        found.ranks[int(rank[1])] = rank[3] or "", rank[4] or ""
        found.groups[int(rank[1])] = int(rank[2] or 0)
    elif "starting" in line and (test := _NAME.search(line)):
        found.collective = collective_of(test[1], where)


def _is_in_place_alone(columns: Sequence[str], words: Sequence[str], line: str) -> bool:
    """Whether a row has blanks where its time out of place would stand, as a replay of a trace does."""
    return len(words) == len(columns) - _repeated(columns) and re.search(r"\S\s{30,}\S", line) is not None


def _repeated(columns: Sequence[str]) -> int:
    return len(columns) - len(set(columns))


def _row(found: _Text, words: Sequence[str], line: int) -> Row:
    columns, size = found.columns, round(parse_size(words[0]) * found.scales[0])
    if len(words) < len(columns):  # in place alone
        once = list(dict.fromkeys(columns))
        of_once = [found.scales[columns.index(name)] for name in once]
        inside = dict(zip(once, map(_scaled, words, of_once), strict=True))
        there = {name: word for name, word in inside.items() if name not in _TIMED}
        return Row(line, size, there, inside)
    words = [*map(_scaled, words, found.scales), *words[len(columns):]]
    first = dict(zip(reversed(columns), reversed(words[:len(columns)]), strict=True))
    last = dict(zip(columns, words, strict=False))
    return Row(line, size, first, last if len(first) < len(columns) else first)


def _scaled(word: str, by: float) -> str:
    number = 1.0 if by == 1 else _number(word)
    return word if by == 1 or isinstance(number, str) else str(number * by)


def _time_us(words: Mapping[str, str], row: Row, name: str, kind: str | None, n: int) -> float | str:
    """Time of a row: as it says, or from a rate where it says none; not a number where there is neither."""
    time, algbw, busbw = (_number(words.get(column, "")) for column in _TIMED)
    if isinstance(time, str) or time != -math.inf:
        return time
    if isinstance(algbw, str) or isinstance(busbw, str):
        return words["algbw" if isinstance(algbw, str) else "busbw"]
    if algbw > 0:
        return row.size / algbw / 1e3
    if busbw > 0 and "algbw" not in words:
        if kind is None or (n < 2 and kind != SENDRECV):
            needs = (["the collective with --collective"] if kind is None else []) + (
                ["the ranks with nodes, as in --machine dgx-h100:2"] if n < 2 else [])
            raise WeftError(f"{name} gives busbw alone: name {', and '.join(needs)}")
        return row.size / busbw / 1e3 * _bus_factor(kind, n)
    return math.nan


def _number(word: str) -> float | str:
    """A number; -inf for none; the word itself if it is neither."""
    if word.lower() in _NONE:
        return -math.inf
    try:
        return float(word)
    except ValueError:
        return word


def _bus_factor(kind: str, n: int) -> float:
    return named(kind).bus_factor(n) if kind in COLLECTIVES else 1.0


def _rates(found: _Text) -> list[tuple[float, float]]:
    """algbw and busbw of the rows whose digits tell something."""
    pairs = [(_number(row.words.get("algbw", "")), _number(row.words.get("busbw", ""))) for row in found.rows]
    return [(alg, bus) for alg, bus in pairs if isinstance(alg, float) and isinstance(bus, float)
            and 1 < alg < math.inf and bus > 0]


def _unnamed(found: _Text, n_ranks: int) -> str | None:
    """The collective of a table without "# Collective test starting:", as older versions print it: from the name of
    the file, from busbw over algbw and the operation, where they leave one, or from the command; None if not."""
    if tests := [test for test in NCCL_TESTS if f"{test}_perf" in Path(found.name).name]:
        return NCCL_TESTS[max(tests, key=len)]
    rates = _rates(found)
    if n_ranks < 3 or "redop" not in found.columns or not rates:
        return found.command
    alg, bus = max(rates)
    reduces = found.rows[-1].words["redop"] != "none"
    fit = [kind for kind in NCCL_TESTS.values() if kind != SENDRECV and ("reduce" in kind) == reduces
           and abs(bus / alg - _bus_factor(kind, n_ranks)) < SETTLES / n_ranks]
    return fit[0] if len(fit) == 1 else found.command


def _contradictions(found: _Text, kind: str | None, n: int) -> list[str]:
    """What parts of the file say of each other, where they disagree."""
    notes = [f"the run failed behind its last row ({found.failed})"] if found.failed.startswith("Test") else []
    gpus = list(dict.fromkeys(gpu for _, gpu in found.ranks.values() if gpu))
    if len(gpus) > 1:
        notes.append(f"ranks have different GPUs ({', '.join(gpus)}): judged as if all were the first")
    if found.ranks and len(found.ranks) <= max(found.ranks):
        notes.append(f"the header lists {len(found.ranks)} of {max(found.ranks) + 1} ranks")
    off = 0
    for row in found.rows:
        time, algbw = _number(row.words.get("time", "")), _number(row.words.get("algbw", ""))
        if isinstance(time, float) and isinstance(algbw, float) and 0 < time < math.inf and algbw > 0:
            off += abs(row.size / time / 1e3 - algbw) > DIFFERS * algbw + ROUNDED
    if off:
        notes.append(f"algbw is not size over time in {off} of {len(found.rows)} rows: times count")
    if kind is not None and n > 1 and (rates := _rates(found)):
        ratio, factor = statistics.median(bus / alg for alg, bus in rates), _bus_factor(kind, n)
        if abs(ratio / factor - 1) > DIFFERS:
            notes.append(f"busbw over algbw is {ratio:.3g}, and {factor:.3g} for {kind} on {n} ranks: is it another "
                         "collective, or another number of ranks?")
    return notes


def _by_rate(rows: Sequence[tuple[int, int, float | str]], each: Sequence[Mapping[str, str]]) -> list[str]:
    """That rows with no time have that of their rate; `each`: their words."""
    few = [str(line) for (line, _, time), words in zip(rows, each, strict=True)
           if _number(words.get("time", "0")) == -math.inf and isinstance(time, float) and time > 0]
    more = f" and {len(few) - 3} more" if len(few) > 3 else ""
    return [f"no time in line {', '.join(few[:3])}{more}: that of the rate beside it is taken"] if few else []


def collective_of(test: str, where: str) -> str:
    """The collective that a program of nccl-tests measures."""
    if test not in NCCL_TESTS:
        raise WeftError(f"{where}: the test {test}_perf measures no known collective: {', '.join(NCCL_TESTS)}")
    return NCCL_TESTS[test]


def collective_of_args(args: Any, name: str) -> str | None:
    """The same from the words of a command; None if it is none of nccl-tests."""
    test = _NAME.search(str(args[0])) if isinstance(args, list) and args else None
    return collective_of(test[1], f"{name}, args") if test else None


def _version_of(line: str) -> str:
    """ "2.27" of "NCCL version 2.27.3+cuda12.8" or "nccl-library=22703"; "" if there is none."""
    found = _VERSION.search(line)
    if not found:
        return ""
    return version_of_code(int(found[1])) if found[2] is None else f"{found[1]}.{found[2]}"


def version_of_code(code: int) -> str:
    """A version as NCCL has it since 2.9: 10000 major + 100 minor + patch."""
    return f"{code // 10000}.{code // 100 % 100}" if code >= 20000 else ""


VERSION = 3

_PROGRAM = {collective: program for program, collective in NCCL_TESTS.items()}


def nccl_json(rows: Iterable[Mapping[str, Any]], n_ranks: int, element_bytes: int = 4, root: int = 0) -> str:
    """Rows of results as one document of nccl-tests.

    `rows`: the algorithm of each is its `experiment_name`.
    `root`: of rooted collectives.
    Out-of-place and in-place hold the same result, `nwrong` is 0 because schedules are checked for correctness
        when built, and times of day are empty: a simulation has none. Booleans are quoted and roots padded, as
        nccl-tests writes them.
    """
    rows = list(rows)
    results = [_result(row, n_ranks, element_bytes, root) for row in rows]
    sizes = [row["size_bytes"] for row in rows]
    busbw = [row["busbw_GBps"] for row in rows]
    topology = rows[0]["topology"] if rows else ""
    document = {
        "version": VERSION,
        "start_time": "",
        "args": [*(f"{_PROGRAM[row['collective']]}_perf" for row in rows[:1]), "simulated by weft"],
        "env": [],
        "nccl_version": 0,
        "config": {
            "nthreads": 1, "ngpus": n_ranks, "minimum_bytes": min(sizes, default=0),
            "maximum_bytes": max(sizes, default=0), "warmup_iters": 0, "iterations": 1, "aggregated_iterations": 1,
            "validation": 1, "graph": 0, "blocking_collectives": "false", "parallel_init": "false",
        },
        "devices": [_device(rank, str(topology)) for rank in range(n_ranks)],
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": sum(busbw) / max(len(busbw), 1), "okay": "unchecked"},
        "errors": [],
        "end_time": "",
    }
    return json.dumps(document, indent=1) + "\n"


def _device(rank: int, topology: str) -> dict[str, Any]:
    return {
        "rank": rank, "group": 0, "pid": 0, "hostname": "weft", "device": rank, "device_hex": "",
        "device_info": f"simulated by weft {weft_version()} on {topology}",
    }


def _result(row: Mapping[str, Any], n_ranks: int, element_bytes: int, root: int) -> dict[str, Any]:
    fields = nccl_fields(row, n_ranks, element_bytes, root)
    body = {"time": row["time_s"] * 1e6, "alg_bw": row["algbw_GBps"], "bus_bw": row["busbw_GBps"], "nwrong": 0}
    return {
        "size": row["size_bytes"], "count": fields.n_elements, "type": fields.type, "redop": fields.redop,
        "root": f"{fields.root:>6}", "out_of_place": body, "in_place": body, "actual_iterations": 1,
        "experiment_name": row["algorithm"],
    }
