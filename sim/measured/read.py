"""Measured times: text and JSON of nccl-tests and rccl-tests, text of OSU, IMB and HCCL, and tables or JSON of our own.

Sizes are converted to those of nccl-tests, the whole array. A reader follows the header of the file, not the position
of columns; prefixes of `mpirun --tag-output`, `--timestamp-output` and `srun -l` are left out.
OSU and IMB report the bytes of one pair of ranks for all-gather and all-to-all, which is 1/p of the whole array;
hccl_test reports the whole array, and not which collective it was, which the command above it may say.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from collectives.core.collective import COLLECTIVES
from collectives.core.collective import collective as named
from sim.measured.nccl_log import NCCOM_HEAD, lines_of_json, nccom_text, past_log
from sim.measured.nccl_text import (
    NCCL_TESTS,
    collective_of_args,
    column_count,
    is_end,
    is_rank,
    is_row,
    nccl_text,
    one_group,
    version_of_code,
)
from sim.measured.points import PLACEMENTS, Measurements, measured, scale
from topologies.checks import WeftError, checked, choice
from topologies.text.input_text import STANDARD_INPUT, read_input
from topologies.text.kinds import MEASURED, refuse_other
from topologies.text.plain_data import parse_json

MOST_POINTS = 100_000
_STAMP = (
    r"(?:\w{3} \w{3} +\d+ [\d:]{8} \d{4}|[A-Z][a-z]{2} [ \d]\d [\d:]{8}(?: [\w.-]+ [\w.-]+\[\d+\]:)?"
    r"|(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
)
_PREFIX = re.compile(
    rf"^(?:\s*(?:{_STAMP}(?=[\s\[<])|\[[^]]*\](?:<std(?:out|err)>)?:?|<std(?:out|err)(?:>:| rank=\"\d+\">)"
    r"|std(?:out|err) [FP](?=\s)|>(?=\s)|(?:DEBUG|INFO|WARNING|ERROR)(?::[\w.]+)?:|\d+:"
    r"|(?:-\s+)?[\w.]+\s+-\s+(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+-(?=\s|$)"
    r"|[A-Za-z]\w*(?:-\w+)*-\d+\s+\|(?=\s)"
    r"|[\w.-]+ \d+:(?=\s)|\([\w.-]+(?: pid=\d+[^)]*)?\)(?=\s)"
    r"|[\w.,-]+(?:\[[\d,-]+\])?(?::\d+)?:(?=[\s\[<#]|$)))*(?:\s+(?=#))?"
)
"""Of `mpirun --tag-output` and `--timestamp-output`, `srun -l`, pods, containers and logging, of tools that put a time,
a rank or the name of a host; and what comments are indented by."""

_COLORED = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|</std(?:out|err)>\s*$")
"""What colors text on a terminal, and what ends a line of `mpirun --xml`."""

_JSON_KEYS = {
    "version", "start_time", "args", "env", "nccl_version", "config", "devices", "results", "out_of_bounds",
    "average_bus_bandwidth", "errors", "end_time", "timestamp",
}
_ROW_KEYS = {
    "size", "count", "type", "redop", "root", "out_of_place", "in_place", "actual_iterations", "experiment_name",
    "out_of_place_per_iter", "in_place_per_iter",
}
_TIME_KEYS = {"time", "cpu_time", "alg_bw", "bus_bw", "nwrong"}


@checked
def read_measurements(
    path: str | Path, *, collective: str | None = None, n_ranks: int | None = None, placement: str = PLACEMENTS[0],
    guess: int | None = None, unnamed: str | None = None,
) -> Measurements:
    """The measurements of a file of one table, whatever its format.

    Parameters
    ----------
    path : path
        "-" is standard input.
    collective : str, optional
        Must agree with that of the file, if it states one. Text of nccl-tests that states none has that of its name
        ("all_reduce_perf"), or the one that busbw over algbw leaves.
    n_ranks : int, optional
        Likewise; OSU files need it.
    placement : {"out-of-place", "in-place"}
        Which of the two measurements of nccl-tests to use.
    guess : int, optional
        Ranks where the file states none.
    unnamed : str, optional
        Collective where the file states none; `collective` is that, and must agree with one that does.

    Raises
    ------
    WeftError
        Names file, line or key, and what is wrong: no known format, an unknown key, a bad number, another collective
        or number of ranks, no point at all, several tables.
    """
    found = read_tables(path, collective=collective, n_ranks=n_ranks, placement=placement, guess=guess, unnamed=unnamed)
    if len(found) > 1:
        raise WeftError(f"{path} has {len(found)} tables: one is expected; split the file at their headers")
    return found[0]


def read_tables(
    path: str | Path, *, collective: str | None = None, n_ranks: int | None = None, placement: str = PLACEMENTS[0],
    guess: int | None = None, unnamed: str | None = None,
) -> tuple[Measurements, ...]:
    """The measurements of every table of a file, as a log of several runs has them; see `read_measurements`.

    `collective`: of several tables, that of those that state none.
    """
    name = str(path)
    choice(placement, PLACEMENTS, "placement")
    text = read_input(STANDARD_INPUT if name == "-" else path, "measurements")
    kind = None if collective is None else named(collective).name
    asked = kind or (None if unnamed is None else named(unnamed).name)
    try:
        return _tables(text, name, placement, kind, asked, n_ranks, guess)
    except WeftError:
        refuse_other(text, name, MEASURED)
        raise


def _tables(
    text: str, name: str, placement: str, kind: str | None, asked: str | None, n_ranks: int | None, guess: int | None
) -> tuple[Measurements, ...]:
    if '"inPlace"' in text[:2000]:
        tables = [_records(text, name, placement)]
    elif text.lstrip().startswith("{"):
        tables = [_json(text, name, placement, asked, n_ranks or guess)]
    else:
        lines = [_COLORED.sub("", line) for line in text.splitlines()]
        lines, of_log = past_log([_PREFIX.sub("", line).rstrip() for line in lines])
        each, empty = _split(lines)
        names = [name] if len(each) == 1 else [f"{name}, table {at}" for at in range(1, len(each) + 1)]
        tables = [_text(own, one, placement, asked, n_ranks, guess) for own, one in zip(each, names, strict=True)]
        left = [f"a table without rows (line {line}) is left out" for line in empty]
        tables[0] = replace(tables[0], notes=(*of_log, *left, *tables[0].notes))
    must = kind if len(tables) == 1 else None
    agreed = (_agreed(table, must, n_ranks, asked) for table in tables)
    return tuple(replace(table, n_ranks=table.n_ranks or guess) for table in agreed)


def _text(
    lines: Sequence[str], name: str, placement: str, asked: str | None, n_ranks: int | None, guess: int | None
) -> Measurements:
    ran = next((int(found[1]) for found in map(_LAUNCHED.search, lines) if found), None)
    osu, imb, hccl, nccom = (any(map(head.match, lines)) for head in (_OSU_TITLE, _IMB_HEAD, _HCCL_HEAD, NCCOM_HEAD))
    if osu:
        return replace(osu_text(lines, name, ran or n_ranks or guess), n_ranks=ran)
    if imb:
        return imb_text(lines, name)
    if hccl:
        return replace(hccl_text(lines, name, asked), n_ranks=ran)
    if nccom:
        return nccom_text(lines, name, placement, asked, n_ranks or guess)
    return nccl_text(lines, name, placement, asked, n_ranks or guess)


def _split(lines: Sequence[str]) -> tuple[list[list[str]], list[int]]:
    """The lines of every table that has rows, as long as the file: lines of others are empty. A table begins after what
    ends the one before it; one whose header lists no ranks has those of the one before. And lines of heads without
    rows."""
    heads = [at for at, line in enumerate(lines)
             if column_count(line) or any(head.match(line) for head in (_HCCL_HEAD, _OSU_TITLE, _IMB_HEAD))]
    ends = [at for at, line in enumerate(lines) if is_row(line) or is_end(line)]
    cuts = [0]
    for before, head in pairwise(heads):
        cuts.append(max((at for at in ends if before < at < head), default=before) + 1)
    found: list[list[str]] = []
    ranks: list[str] = []
    for begin, end in zip(cuts, [*cuts[1:], len(lines)], strict=True):
        own = list(lines[begin:end])
        listed = [line if is_rank(line) else "" for line in own]
        ranks = [*[""] * begin, *listed] if any(listed) else ranks
        if len(cuts) == 1 or any(map(is_row, own)):
            above = [""] * begin if any(listed) else [*ranks[:begin], *[""] * (begin - len(ranks))]
            found.append([*above, *own, *[""] * (len(lines) - end)])
    if not found:
        return [list(lines)], []
    bounds = zip(heads, [*heads[1:], len(lines)], strict=True) if len(found) < len(cuts) else ()
    return found, [begin + 1 for begin, end in bounds if not any(map(is_row, lines[begin:end]))]


def _agreed(found: Measurements, collective: str | None, n_ranks: int | None, unnamed: str | None) -> Measurements:
    for what, said, asked in (("collective", found.collective, collective), ("ranks", found.n_ranks, n_ranks)):
        if said is not None and asked is not None and said != asked:
            raise WeftError(f"{found.source} measured {what} {said}, but {asked} is requested")
    name = found.collective or unnamed
    if name is None:
        raise WeftError(f"{found.source} does not name its collective: give --collective")
    if not found.points:
        raise WeftError(f"{found.source} ({found.format}) has no measured time")
    if len(found.points) > MOST_POINTS:
        raise WeftError(f"{found.source} has {len(found.points):,} points; at most {MOST_POINTS:,}")
    points = tuple(sorted(found.points))
    return replace(found, points=points, collective=name, n_ranks=found.n_ranks or n_ranks)


def _json(text: str, name: str, placement: str, asked: str | None, n_ranks: int | None) -> Measurements:
    data = parse_json(text, name)
    if "weft" in data:
        return _own_json(data, name)
    over = dict.fromkeys(f"{key} of the document" for key in data if key not in _JSON_KEYS)
    results = data.get("results")
    if not isinstance(results, list):
        raise WeftError(f"{name} lacks the key 'results', a list")
    if results and all(isinstance(row, Mapping) and "size(B)" in row for row in results):
        return nccom_text(lines_of_json(results), name, placement, asked, n_ranks)
    names = {str(row.get("experiment_name")) for row in results if isinstance(row, Mapping)}
    if len(names) > 1:
        raise WeftError(f"{name} has rows of several: experiment_name {', '.join(sorted(names))}; one is expected")
    key, beside = (one.replace("-", "_") for one in sorted(PLACEMENTS, key=lambda one: one != placement))
    rows, others = [], []
    for number, row in enumerate(results):
        where = f"results[{number}]"
        if not isinstance(row, Mapping) or "size" not in row:
            raise WeftError(f"{name}, {where} lacks the key 'size'")
        over |= dict.fromkeys(f"{key} of results" for key in row if key not in _ROW_KEYS)
        body = row.get(key)
        if body is not None and (not isinstance(body, Mapping) or not {"time", "cpu_time"} & set(body)):
            raise WeftError(f"{name}, {where}: {key} lacks the key 'time'")
        over |= dict.fromkeys(f"{one} of {key}" for one in body or {} if one not in _TIME_KEYS)
        rows.append((where, row["size"], 0 if body is None else _time_of(body, row["size"])))
        if isinstance(other := row.get(beside), Mapping):
            others.append((row["size"], _time_of(other, row["size"])))
    devices = data.get("devices")
    listed = [one for one in devices if isinstance(one, Mapping)] if isinstance(devices, list) else []
    notes = [f"keys that are passed over: {', '.join(over)}"] if over else []
    if len({one.get("group") for one in listed}) > 1:
        pairs = [(one.get("group", 0), str(one.get("hostname") or "")) for one in listed]
        alone, note = one_group(pairs, name)
        notes.append(note)
        listed = [one for one in listed if one.get("group", 0) == alone]
    hosts = {str(one["hostname"]) for one in listed if one.get("hostname")}
    config, code = data.get("config"), data.get("nccl_version")
    driven = config.get("ngpus") if isinstance(config, Mapping) else None
    found = measured(
        name, "nccl-tests JSON", rows, collective_of_args(data.get("args"), name), len(listed) or None, others
    )
    return replace(
        found, hosts=len(hosts - {"weft"}) or None, device=str(listed[0].get("device_info", "")) if listed else "",
        version=version_of_code(code) if isinstance(code, int) else "", wrong=_wrong_of(data, results),
        gpus_per_process=driven if isinstance(driven, int) and driven > 0 and hosts != {"weft"} else None,
        notes=tuple(notes),
    )


def _records(text: str, name: str, placement: str) -> Measurements:
    """What rccl-tests writes into a file: a record a line, or a list of them; each is in place or not."""
    lines = text.strip()
    lines = lines if lines.startswith("[") else f"[{','.join(line.rstrip(',') for line in lines.splitlines() if line)}]"
    rows = parse_json(f'{{"rows": {lines}}}', name)["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and "size" in row for row in rows):
        raise WeftError(f"{name}: records of rccl-tests with the key 'size' are expected")
    for key in ("name", "ranks", "nodes"):
        if len(some := {str(row.get(key)) for row in rows}) > 1:
            raise WeftError(f"{name} has records of several: {key} {', '.join(sorted(some))}; one is expected")
    there = [(f"record {at}", row["size"], row.get("time"), str(row.get("inPlace")) not in ("0", "False"))
             for at, row in enumerate(rows, 1)]
    wanted = placement == PLACEMENTS[1]
    one, kind = rows[0], str(rows[0].get("name")).lower()
    found = measured(
        name, "rccl-tests JSON", [row[:3] for row in there if row[3] == wanted],
        {test.replace("_", ""): known for test, known in NCCL_TESTS.items()}.get(kind),
        one.get("ranks") if isinstance(one.get("ranks"), int) else None,
        [row[1:3] for row in there if row[3] != wanted])
    wrong = sum(int(row["wrong"]) for row in rows if re.fullmatch(r"\d{1,18}", str(row.get("wrong"))))
    return replace(found, hosts=one.get("nodes") if isinstance(one.get("nodes"), int) else None, wrong=wrong)


def _time_of(body: Mapping[str, Any], size: Any) -> Any:
    """Time of a result in us; that of the CPU is none of the collective, whose rate stands beside it."""
    rate = body.get("alg_bw")
    if "time" in body or not isinstance(rate, (int, float)) or not isinstance(size, int) or isinstance(rate, bool):
        return body.get("time", body.get("cpu_time"))
    return size / rate / 1e3 if rate > 0 else 0


def _wrong_of(data: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> int:
    """Results that are wrong, in place or out of place."""
    bodies = [body for row in results for key in PLACEMENTS
              if isinstance(body := row.get(key.replace("-", "_")), Mapping)]
    bounds = data.get("out_of_bounds")
    counts = [bounds.get("count") if isinstance(bounds, Mapping) else 0, *(body.get("nwrong") for body in bodies)]
    plain = [int(str(count)) if re.fullmatch(r"\d{1,18}", str(count)) else 0 for count in counts]
    return max(sum(plain[1:]), plain[0]) if plain else 0


def _own_json(data: Mapping[str, Any], name: str) -> Measurements:
    """Rows of `weft compare --json`, which must be of one algorithm."""
    rows = data.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise WeftError(f"{name} lacks the key 'rows', a list")
    for key in ("collective", "algorithm"):
        if len(names := {str(row.get(key)) for row in rows}) > 1:
            raise WeftError(f"{name} has rows of several: {key} {', '.join(sorted(names))}; one is expected")
    found = [(f"rows[{at}]", row.get("size_bytes"), _microseconds(row.get("time_s", 0))) for at, row in enumerate(rows)]
    kind = rows[0].get("collective") if rows else None
    return measured(name, "JSON of weft", found, kind if kind in COLLECTIVES else None)


def _microseconds(seconds: Any) -> Any:
    """Values that are not numbers are kept, to be rejected where they occur."""
    plain = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return float(seconds) * 1e6 if plain else str(seconds)


def _times(word: str, by: float) -> Any:
    """A number in the unit of its column; what is none is kept, to be rejected where it occurs."""
    try:
        return word if by == 1 else float(word) * by
    except ValueError:
        return word


_LAUNCHED = re.compile(r"\b(?:mpirun\w*|mpiexec|srun)\b.*?\s-(?:np?|-ntasks)[ =](\d{1,6})\s.*?\b(?:osu_|\w+_test\b)")
"""The command above a table, and how many ranks it starts."""

OSU_TESTS = {
    "allreduce": "all-reduce", "reduce_scatter": "reduce-scatter", "allgather": "all-gather",
    "all-to-all personalized exchange": "all-to-all", "broadcast": "broadcast", "reduce": "reduce",
}
"""Titles of OSU tests, between "OSU MPI" (or NCCL) and "Latency Test", which not all versions print."""

_PER_PAIR = ("all-gather", "all-to-all")
"""Collectives for which OSU counts the bytes of one pair of ranks."""

_OSU_TITLE = re.compile(
    r"^#\s*OSU (?:MPI|NCCL|RCCL|XCCL)(?:-\w+)? (.+?)(?: Latency)?(?: Test)?(?:\s+v[\d.]+)?$", re.IGNORECASE
)

_HCCL_HEAD = re.compile(r"(?=.*\b(data_size\(([^)]*)\):)).*alg_bandwidth\(")
_HCCL_TEST = re.compile(rf"\b({'|'.join(NCCL_TESTS)})_test\b")
_HCCL_TIME = re.compile(r"ave?g_time\(([^)]*)\):")
"""As the program prints it, and as its manual spells it."""


def hccl_text(lines: Sequence[str], name: str, collective: str | None) -> Measurements:
    """Columns are found by their names."""
    columns: list[str] = []
    sizes, times, of_size, of_time = "", "", 1.0, 1.0
    rows: list[tuple[str, Any, Any]] = []
    told = None
    for number, line in enumerate(lines, start=1):
        where = f"{name}, line {number}"
        if not columns and (test := _HCCL_TEST.search(line)):
            told = NCCL_TESTS[test[1]]
        cells = [cell.strip() for cell in line.split("|")]
        if head := _HCCL_HEAD.match(line):
            time = next(filter(None, map(_HCCL_TIME.fullmatch, cells)), None)
            if time is None or head[1] not in cells:
                raise WeftError(f"{where}: the table has no column {head[1] if time else 'aveg_time(us):'}")
            columns, sizes, times = cells, head[1], time[0]
            of_size, of_time = scale("size", head[2], where), scale("time", time[1], where)
        elif columns and cells[0][:1].isdecimal():
            if len(cells) != len(columns):
                raise WeftError(f"{where}: {len(cells)} of {len(columns)} columns: is the file cut off?")
            row = dict(zip(columns, cells, strict=True))
            if row.get("check_result:") == "failed":
                raise WeftError(f"{where}: the result was wrong (check_result failed)")
            rows.append((f"line {number}", _times(row[sizes], of_size), _times(row[times], of_time)))
    return measured(name, "HCCL text", rows, told or collective)


def osu_text(lines: Sequence[str], name: str, n_ranks: int | None) -> Measurements:
    """The rows of an OSU micro-benchmark's output. WeftError: no title or rows of one."""
    kind, columns, unit = None, 0, 1.0
    notes: tuple[str, ...] = ()
    last = max(number for number, line in enumerate(lines, start=1) if line.strip())
    rows: list[tuple[str, Any, Any]] = []
    for number, line in enumerate(lines, start=1):
        if title := _OSU_TITLE.match(line):
            test = title[1].lower()
            if test not in OSU_TESTS:
                raise WeftError(f"{name}, line {number}: the test {title[1]!r} is not one of {', '.join(OSU_TESTS)}")
            kind = OSU_TESTS[test]
        elif line.startswith("# Size"):
            heads = re.split(r"\s{2,}", line.lstrip("# ").rstrip())
            if (latency := re.fullmatch(r"Avg Latency\(([^)]*)\)", "".join(heads[1:2]))) is None:
                raise WeftError(f"{name}, line {number}: the second column is {heads[1:2]}, not Avg Latency(us)")
            columns, unit = len(heads), scale("time", latency[1], f"{name}, line {number}")
        elif line.lstrip()[:1].isdecimal():
            words = line.split()
            if len(words) < max(columns, 2):
                if number == last:
                    notes = (f"the last row ({words[0]} B) is cut off, and left out",)
                    continue
                raise WeftError(f"{name}, line {number}: {len(words)} of {columns} columns: is the file cut off?")
            rows.append((f"line {number}", words[0], _times(words[1], unit)))
    if not columns:
        raise WeftError(f"{name} has no line '# Size  Avg Latency(us)'")
    assert kind is not None
    if kind in _PER_PAIR and n_ranks is None:
        raise WeftError(f"{name} counts the bytes of a pair of ranks: the number of ranks is needed")
    found = measured(name, "OSU text", rows, kind, size_factor=n_ranks if kind in _PER_PAIR and n_ranks else 1)
    return replace(found, left_out=found.left_out + len(notes), notes=notes)


IMB_TESTS = {
    "allreduce": "all-reduce", "reduce_scatter": "reduce-scatter", "allgather": "all-gather", "alltoall": "all-to-all",
    "bcast": "broadcast", "reduce": "reduce",
}
"""Benchmarks of IMB-MPI1; those of all-gather and all-to-all count the bytes of one pair of ranks."""

_IMB_TEST = re.compile(r"^#\s*Benchmarking\s+(\w+)")
_IMB_RANKS = re.compile(r"^#\s*#processes\s*=\s*(\d+)")
_IMB_HEAD = re.compile(r"^#bytes\s+#repetitions\s")


def imb_text(lines: Sequence[str], name: str) -> Measurements:
    """Columns are found by their names."""
    test, ranks, columns, average, unit = "", None, list[str](), "", 1.0
    rows: list[tuple[str, Any, Any]] = []
    for number, line in enumerate(lines, start=1):
        if found := _IMB_TEST.match(line):
            test, columns = found[1], []
        elif found := _IMB_RANKS.match(line):
            ranks = int(found[1])
        elif _IMB_HEAD.match(line):
            found = re.search(r"t_avg\[([^]]*)\]", line)
            if test.lower() not in IMB_TESTS or found is None or found[0] not in line.split():
                raise WeftError(f"{name}, line {number}: the benchmark {test!r} is not one of {', '.join(IMB_TESTS)}: "
                                "give the output of those alone")
            columns, average, unit = line.split(), found[0], scale("time", found[1], f"{name}, line {number}")
        elif columns and line.lstrip()[:1].isdecimal():
            words = line.split()
            if len(words) < len(columns):
                raise WeftError(f"{name}, line {number}: {len(words)} of {len(columns)} columns: is the file cut off?")
            row = dict(zip(columns, words, strict=False))
            rows.append((f"line {number}", row["#bytes"], _times(row[average], unit)))
    if ranks is None:
        raise WeftError(f"{name} has no line '# #processes = ' above its table")
    kind = IMB_TESTS[test.lower()]
    return measured(name, "IMB text", rows, kind, ranks, size_factor=ranks if kind in _PER_PAIR else 1)
